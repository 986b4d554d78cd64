"""`tacit.load`: a run read back from its folder, its scores as a frame, what cannot come back."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tacit
from tacit import PMTL, TacitError
from tacit.experiment.load import LOST
from tacit.experiment.run import Run
from tests.conftest import arrays


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    x, y, names = arrays(4, 3, "regression")
    federation = tacit.data.from_arrays(x, y, names, scale="none", target_scale="none")
    settings = {"privacy": tacit.Privacy(noise=2.0), "rounds": 2, "seed": 0, "personalise": "none"}
    out = tmp_path_factory.mktemp("runs") / "run"
    return tacit.train(federation, PMTL(batch=None), out=out, **settings), tacit.load(out)


def test_what_was_saved_comes_back(made, tmp_path):
    run, again = made
    folder = again.folder
    assert again.to_json() == json.loads(json.dumps(run.to_json()))
    assert str(again.guarantee) == str(run.guarantee)
    assert again.guarantee.epsilon == run.guarantee.epsilon and not again.guarantee.private
    assert again.guarantee.delta == run.guarantee.delta
    assert again.federation.names == list(run.federation.names)
    x = run.federation.test.of(1)[0].numpy()
    who = ["task-1"] * len(x)
    assert np.allclose(again.predict(x, who), run.predict(x, who), rtol=1e-5)
    again.report(tmp_path / "again.html")
    written = (folder / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == written
    assert (folder / "summary.html").stat().st_size > 1000
    assert "ε" in repr(again) and again.plot.curve() is not None
    for shown in (again, again.guarantee, again.metrics, again.federation):
        assert shown._repr_html_().startswith('<div class="tacit">')


def test_scores_are_a_frame_with_their_label(made):
    run, again = made
    for metrics in (run.metrics, again.metrics):
        frame = metrics.to_frame()
        assert list(frame.index) == [f"task-{k}" for k in range(4)]
        assert {"personal", "local", "global"} <= set(frame.columns.get_level_values("model"))
        mine = {name: task["loss"] for name, task in metrics["per_task"].items()}
        assert frame["personal"]["loss"].to_dict() == pytest.approx(mine)
        assert frame.attrs["label"] == "not covered by the guarantee"


def test_what_cannot_come_back_says_so_in_a_sentence(made):
    run, again = made
    for name in LOST:
        assert hasattr(run, name) and not hasattr(again, name)
        with pytest.raises(TacitError, match=f"run.{name} does not come back"):
            getattr(again, name)


def test_all_that_a_run_has_comes_back_or_is_named(made):
    run, again = made
    public = {name for name in (*vars(run), *dir(Run)) if not name.startswith("_")}
    kept = {name for name in dir(again) if not name.startswith("_")} | set(LOST)
    assert public - kept == set()


def test_a_folder_without_a_finished_run_is_a_sentence(tmp_path):
    with pytest.raises(TacitError, match="holds no finished run"):
        tacit.load(tmp_path)
    (tmp_path / "result.json").write_text('{"guarantee": {}}')
    with pytest.raises(TacitError, match=r"result\.json"):
        tacit.load(tmp_path)
