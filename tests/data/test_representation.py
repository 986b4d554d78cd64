"""Fixed representations: public, the same everywhere, and useful."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tacit
from tacit import SavedModels, TacitError
from tacit.data.representation import FEATURES, KEPT, LENGTH, _random_strokes, _whitening, represent


def images(rows: int = 240, size: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bars across or upright, in noise."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, rows)
    x = generator.uniform(0, 0.2, (rows, 1, size, size)).astype(np.float32)
    for k in range(rows):
        at = generator.integers(4, size - 6)
        if y[k]:
            x[k, 0, at : at + 2, 3:-3] += 0.8
        else:
            x[k, 0, 3:-3, at : at + 2] += 0.8
    return x, y


def federation(**options):
    x, y = images()
    names = np.repeat([f"writer-{k}" for k in range(8)], 30)
    return tacit.data.from_arrays(x, y, names, kind="binary", **options), x, names


def test_a_row_is_represented_by_itself_alone():
    x = torch.from_numpy(images()[0])
    whole = represent("strokes", x)
    assert whole.shape == (len(x), KEPT)
    assert torch.allclose(whole[7:8], represent("strokes", x[7:8]), atol=1e-4)
    assert torch.allclose(whole, represent("strokes", x, rows=17), atol=1e-4)


def test_ink_may_be_dark_on_bright():
    x = torch.from_numpy(images()[0])
    assert torch.allclose(represent("strokes", x), represent("strokes", 1 - x), atol=1e-4)


def test_made_up_strokes_are_white_and_of_the_stated_length():
    seen = represent("strokes", _random_strokes(28)[:1000])
    assert float(seen.norm(dim=1).mean()) == pytest.approx(LENGTH, rel=0.05)
    assert float(seen.mean(dim=0).norm()) < 0.1 * LENGTH
    spread = seen.var(dim=0)
    assert spread[0] < 12 * spread[-1]  # the raw histograms differ by a factor of hundreds


def test_nothing_is_learnt_from_the_rows():
    """The map is fixed before data are seen: made anew, it is the same."""
    before = _whitening(20)
    represent("strokes", torch.from_numpy(images(seed=3)[0]))
    _whitening.cache_clear()
    after = _whitening(20)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(before, after, strict=True))


def test_a_linear_layer_on_it_learns_and_predicts_raw_images_from_its_folder(tmp_path):
    raw, x, names = federation()
    seen = raw.through("strokes")
    assert seen.input_shape == (KEPT,)
    assert "fixed representation (strokes)" in " ".join(seen.assumptions)
    plain = {"rounds": 20, "seed": 0, "baselines": False, "personalise": "none"}
    method = tacit.FedAvg(lr=0.1, batch=None)
    strokes = tacit.train(seen, method, out=tmp_path, **plain)
    assert strokes.measured.overall["accuracy"] > 0.95
    said = strokes.predict(x[:40], names[:40])
    assert np.allclose(SavedModels.load(tmp_path).predict(x[:40], names[:40]), said, atol=1e-5)
    assert ((said > 0.5) == images()[1][:40]).mean() > 0.9


def test_it_is_an_option_of_every_source(tmp_path):
    x, y = images()
    names = np.repeat([f"writer-{k}" for k in range(8)], 30)
    np.savez(tmp_path / "bars.npz", x=x, y=y, tasks=names)
    loaded = tacit.data.load(tmp_path / "bars.npz", represent="strokes")
    assert loaded.representation == "strokes" and loaded.input_shape == (KEPT,)


@pytest.mark.parametrize("shape", [(4, 30), (4, 3, 28, 28), (4, 1, 28, 20), (4, 1, 8, 8)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(TacitError, match="grey square images"):
        represent("strokes", torch.zeros(shape))


def test_unknown_and_twice_are_refused():
    raw, _, _ = federation()
    with pytest.raises(TacitError, match="choose one of strokes"):
        raw.through("curves")
    with pytest.raises(TacitError, match="already"):
        raw.through("strokes").through("strokes")
    assert list(FEATURES) == ["strokes", "unit"]


def test_unit_rows_have_length_one_whatever_their_shape():
    x = torch.from_numpy(images()[0])
    x[0] = 0
    short = represent("unit", x)
    assert short.shape == x.shape and not short[0].any()
    torch.testing.assert_close(short[1:].flatten(1).norm(dim=1), torch.ones(len(x) - 1))
