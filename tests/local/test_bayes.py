"""Exact regressions against scikit-learn, dense densities, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression, Ridge
from torch.func import vmap

from tacit.families import FAMILIES
from tacit.local import bayes
from tacit.local.batches import Batches
from tacit.local.bayes import average, bell, design, grid, posterior, solve_each
from tacit.local.mixed import between
from tacit.local.newton import step_lengths
from tacit.local.wide import Priors

STRENGTHS = torch.tensor([-1.0, 0.0, 1.5], dtype=torch.float64)


def rows(n: int, d: int, kind: str, seed: int = 0):
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    score = x @ w
    y = score + rng.standard_normal(n) if kind == "regression" else score + rng.logistic(size=n) > 0
    return torch.from_numpy(x), torch.from_numpy(y.astype(float)), torch.ones(n).double()


def ratios(x: torch.Tensor, root: torch.Tensor | None = None) -> np.ndarray:
    z = x if root is None else x @ root
    return 10 ** STRENGTHS.numpy() / float((z * z).sum() / len(x))


@pytest.mark.parametrize(("n", "d"), [(40, 5), (6, 20), (10, 10)])
def test_squared_loss_is_ridge_regression(n, d):
    x, y, counts = rows(n, d, "regression")
    weights, _ = posterior("regression", (x, y, counts), torch.zeros(d).double(), None, STRENGTHS)
    for ratio, w in zip(ratios(x), weights, strict=True):
        other = Ridge(alpha=1 / ratio, fit_intercept=False).fit(x.numpy(), y.numpy())
        assert np.allclose(w.numpy(), other.coef_, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(60, 4), (8, 15)])
def test_logistic_loss_is_logistic_regression(n, d):
    x, y, counts = rows(n, d, "binary", seed=9)
    weights, _ = posterior("binary", (x, y, counts), torch.zeros(d).double(), None, STRENGTHS)
    for ratio, w in zip(ratios(x), weights, strict=True):
        other = LogisticRegression(C=ratio, fit_intercept=False, tol=1e-12, max_iter=10_000)
        other.fit(x.numpy(), y.numpy())
        assert np.allclose(w.numpy(), other.coef_[0], atol=1e-5)


@pytest.mark.parametrize(("n", "d"), [(60, 4), (8, 15)])
@pytest.mark.parametrize("level", [-1.0, 8.0])
def test_counts_are_poisson_regression(n, d, level):
    """Also where a count is thousands of times what Newton begins at."""
    x = rows(n, d, "regression", seed=9)[0]
    x[:, -1] = 1.0
    rate = np.exp(level + 0.3 * x[:, 0].numpy())
    y = torch.from_numpy(np.random.default_rng(0).poisson(rate).astype(float))
    given = x, y, torch.ones(n).double()
    weights, evidence = posterior("count", given, torch.zeros(d).double(), None, STRENGTHS)
    assert evidence.isfinite().all()
    for ratio, w in zip(ratios(x), weights, strict=True):
        mean = np.exp(x.numpy() @ w.numpy())
        slope = x.numpy().T @ (y.numpy() - mean) - w.numpy() / ratio  # zero at the maximum
        assert np.abs(slope).max() < 1e-6 * max(1.0, float(y.sum()))


@pytest.mark.parametrize(("n", "d"), [(60, 4), (8, 15)])
def test_classes_are_multinomial_regression(n, d):
    x = rows(n, d, "regression", seed=9)[0]
    y = torch.arange(n) % 3
    given = x, y.double(), torch.ones(n).double()
    weights, _ = posterior("multiclass", given, torch.zeros(3 * d).double(), None, STRENGTHS)
    for ratio, w in zip(ratios(x), weights, strict=True):
        other = LogisticRegression(C=ratio, fit_intercept=False, tol=1e-12, max_iter=10_000)
        other.fit(x.numpy(), y.numpy())
        assert np.allclose(w.numpy().reshape(3, d), other.coef_, atol=1e-5)


@pytest.mark.parametrize(("n", "d"), [(25, 6), (5, 12)])
def test_a_prior_is_ridge_regression_in_its_own_coordinates(n, d):
    x, y, counts = rows(n, d, "regression", seed=2)
    rng = torch.Generator().manual_seed(0)
    root = torch.randn(d, d, generator=rng, dtype=torch.float64)
    mean = torch.randn(d, generator=rng, dtype=torch.float64)
    weights, _ = posterior("regression", (x, y, counts), mean, root, STRENGTHS)
    for ratio, w in zip(ratios(x, root), weights, strict=True):
        prior = np.linalg.inv(ratio * (root @ root.T).numpy())
        system = x.numpy().T @ x.numpy() + prior
        right = x.numpy().T @ y.numpy() + prior @ mean.numpy()
        assert np.allclose(w.numpy(), np.linalg.solve(system, right), atol=1e-6)


@pytest.mark.parametrize(("n", "d"), [(25, 6), (5, 12)])
def test_evidence_is_the_density_with_the_noise_integrated_out(n, d):
    """Differences of log evidence against a direct quadrature over σ²."""
    x, y, counts = rows(n, d, "regression", seed=3)
    _, evidence = posterior("regression", (x, y, counts), torch.zeros(d).double(), None, STRENGTHS)
    sigmas = np.exp(np.linspace(-8, 8, 4001))
    direct = []
    for ratio in ratios(x):
        shape = np.eye(n) + ratio * (x @ x.T).numpy()
        quad = y.numpy() @ np.linalg.solve(shape, y.numpy())
        logs = -n * np.log(sigmas) - 0.5 * np.linalg.slogdet(shape)[1] - quad / (2 * sigmas**2)
        direct.append(np.log(np.exp(logs - logs.max()).sum()) + logs.max())  # dσ/σ, on this grid
    assert np.allclose(np.diff(evidence.numpy()), np.diff(direct), atol=1e-3)


def test_logistic_evidence_is_close_to_the_integral():
    x, y, counts = rows(40, 2, "binary", seed=4)
    _, evidence = posterior("binary", (x, y, counts), torch.zeros(2).double(), None, STRENGTHS)
    side = np.linspace(-12, 12, 801)
    w = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    scores = w @ x.numpy().T
    like = (y.numpy() * scores - np.logaddexp(0, scores)).sum(1)
    for ratio, found in zip(ratios(x), evidence, strict=True):
        prior = stats.multivariate_normal(np.zeros(2), ratio * np.eye(2)).logpdf(w)
        total = np.log(np.exp(like + prior).sum() * (side[1] - side[0]) ** 2)
        assert float(found) == pytest.approx(total, abs=0.25)


@pytest.mark.parametrize("kind", ["regression", "binary", "count", "multiclass"])
@pytest.mark.parametrize(("n", "d"), [(20, 4), (5, 9)])
def test_filler_rows_and_neighbours_in_the_batch_do_not_matter(kind, n, d):
    one, two = rows(n, d, kind, seed=5), rows(n, d, kind, seed=6)
    filled = tuple(torch.cat([a, b]) for a, b in zip(one, two, strict=True))
    filled = (filled[0], filled[1], torch.cat([one[2], torch.zeros(n)]).double())
    mean = torch.zeros(3 * d if kind == "multiclass" else d).double()
    alone = posterior(kind, one, mean, None, STRENGTHS)
    stacked = vmap(lambda *r: posterior(kind, r, mean, None, STRENGTHS))(
        *(torch.stack(pair) for pair in zip(filled, filled, strict=True))
    )
    for a, b in zip(alone, stacked, strict=True):
        assert torch.allclose(a, b[0], atol=1e-8)


def test_separable_classes_stay_finite():
    x = torch.linspace(-1, 1, 10).double().unsqueeze(1)
    y = (x[:, 0] > 0).double()
    strengths = torch.tensor([0.0, 3.0, 6.0]).double()
    weights, evidence = posterior("binary", (x, y, torch.ones(10).double()),
                                  torch.zeros(1).double(), None, strengths)  # fmt: skip
    assert weights.isfinite().all()
    assert evidence.isfinite().all()
    assert (weights.diff(dim=0) > 0).all()


def test_scale_of_rows_and_targets_does_not_change_which_strength_is_likely():
    x, y, counts = rows(30, 5, "regression", seed=7)
    zero = torch.zeros(5).double()
    _, one = posterior("regression", (x, y, counts), zero, None, STRENGTHS)
    _, other = posterior("regression", (100 * x, 0.01 * y, counts), zero, None, STRENGTHS)
    assert torch.allclose(one - one[0], other - other[0])


def test_a_constant_column_is_added_where_the_model_has_an_intercept():
    x = torch.arange(6.0).reshape(1, 3, 2)
    batches = Batches(x, torch.zeros(1, 3), torch.tensor([[0.5, 0.5, 0.0]]))
    wide, _, counts = design(batches, 3)
    assert torch.equal(wide[:, -1], counts)
    assert torch.equal(wide[:2, :2], x[0, :2].double())
    assert not wide[2].any()  # a row that does not count
    assert design(batches, 2)[0].shape == (3, 2)
    assert counts.tolist() == [1.0, 1.0, 0.0]


def test_likely_weights_count_more():
    weights = torch.tensor([[0.0], [1.0]]).double()
    assert float(average(weights, torch.tensor([0.0, 30.0]).double())) == pytest.approx(1.0)
    assert float(bell(5).exp().sum()) == pytest.approx(1.0)
    assert torch.allclose(grid(1.0, 0.5, 5).double(), torch.tensor([0, 0.5, 1, 1.5, 2]).double())


def some_priors(d: int, outputs: int = 1, seed: int = 1) -> Priors:
    """Own effects of two dimensions beside slopes of three sizes, none among them."""
    drawn = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=drawn).double()

    factors = torch.tensor([0.1, 1, 10, 0.1, 1, 10, 0, 1]).double()
    slopes, sizes = torch.tensor([0.3, 2.0, 20.0]).double(), [3, 1, 1]
    means = normal(8, outputs * d) / d
    return Priors(means, normal(d, 2), normal(d).abs() / d**0.5, factors, slopes, sizes, bare=3)


def test_roots_of_priors_have_their_covariances():
    priors = some_priors(5).sloping()
    each = torch.tensor([0.3, 0.3, 0.3, 2, 20]).double()
    for root, factor, slope in zip(priors.roots(), priors.factors, each, strict=True):
        own, diagonal = priors.effects, priors.spread.diag()
        covariance = factor * own @ own.T + slope * diagonal @ diagonal
        torch.testing.assert_close(root @ root.T, covariance)


def test_curvature_of_several_scores_is_that_of_their_family():
    """What several classes are found by is one product; the family's own weight says the same."""
    x, y = torch.randn(40, 3).double(), torch.arange(40) % 3
    counts, strength = (torch.arange(40) < 33).double(), torch.tensor([1.0]).double()
    given = x, y.double() * counts, counts
    weights, evidence = posterior("multiclass", given, torch.zeros(9).double(), None, strength)
    family, ratio = FAMILIES["multiclass"], 10.0 / ((counts @ (x * x)).sum() / counts.sum())
    scores = x @ weights.reshape(3, 3).T
    weight = family.weight(scores) * counts.reshape(-1, 1, 1)
    curve = torch.einsum("noq,ni,nj->oiqj", weight, x, x).reshape(9, 9) + torch.eye(9) / ratio
    coded = family.coded(y, 3)
    height = family.likelihood(scores, coded, counts) - (weights**2).sum() / (2 * ratio)
    exact = height - 0.5 * torch.logdet(curve) - 4.5 * torch.log(ratio)
    slope = ((coded - family.mean(scores)) * counts.unsqueeze(1)).T @ x - weights.reshape(
        3, 3
    ) / ratio
    assert torch.allclose(evidence[0], exact) and slope.abs().max() < 1e-6


@pytest.mark.parametrize("kind", ["binary", "count", "multiclass"])
def test_the_shorter_newton_step_never_overshoots(kind):
    """Wherever it begins; and the whole one does, so that it is needed."""
    random, family = torch.Generator().manual_seed(0), FAMILIES[kind]
    outputs, falls, whole = 3 if kind == "multiclass" else 1, [], []
    for _ in range(200):
        x = torch.randn(12, 4, generator=random).double()
        w = 3 * torch.randn(outputs * 4, generator=random).double()
        truth = x @ torch.randn(4, outputs, generator=random).double()
        labels = truth.argmax(1) if outputs > 1 else (truth[:, 0] > 0).long()
        y, counts = family.coded(labels.double(), outputs), torch.ones(12).double()

        def value(w, x=x, y=y, counts=counts):
            return family.likelihood(x @ w.reshape(-1, 4).T, y, counts) - (w * w).sum() / 20

        scores = x @ w.reshape(-1, 4).T
        slope = ((y - family.mean(scores)).T @ x).flatten() - w / 10
        curve = between(x, family.weight(scores), x) + torch.eye(len(w)) / 10
        step = torch.linalg.solve(curve, slope)
        lengths = step_lengths(x @ step.reshape(-1, 4).T)
        rise = [float(value(w + length * step) - value(w)) for length in lengths]
        whole.append(rise[0])
        falls.append(rise[1])
    assert min(falls) > 0
    assert min(whole) < 0


@pytest.mark.parametrize(("n", "d"), [(40, 5), (6, 20)])
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_every_candidate_is_solved_as_if_rows_were_its_own(kind, n, d):
    x, y, counts = rows(n, d, kind)
    y = (x[:, 0] > 0.5).double() + y if kind == "multiclass" else y
    priors = some_priors(d, 3 if kind == "multiclass" else 1)
    found, evidence = solve_each(kind, (x, y, counts), priors)
    bare = torch.zeros(3, d, d - 2).double(), priors.effects * priors.factors[:3, None, None].sqrt()
    roots = torch.cat([torch.cat(bare[::-1], dim=2), priors.sloping().roots()])
    for mean, root, weights, likely in zip(priors.means, roots, found, evidence, strict=True):
        # A strength that makes the ratio one: then both ask for the same.
        z = x @ root
        one = ((z * z).sum() / n).log10().reshape(1)
        other, as_likely = posterior(kind, (x, y, counts), mean, root, one)
        torch.testing.assert_close(weights, other[0], atol=1e-8, rtol=1e-7)
        torch.testing.assert_close(likely, as_likely[0], atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize(("n", "d"), [(60, 20), (8, 30)])
@pytest.mark.parametrize("apart", [0.3, 5.0])
def test_many_classes_are_solved_by_gradients_as_they_are_whole(n, d, apart, monkeypatch):
    """With columns of very different size, some classes that hardly ever come, and a prior of its
    own shape: the metric of each class alone must be near enough."""
    x = rows(n, d, "regression", seed=4)[0] * torch.logspace(0, -2, d).double()
    generator = torch.Generator().manual_seed(1)
    pull = torch.randn(d, 7, generator=generator).double() * apart
    y = (x @ pull + torch.randn(n, 7, generator=generator)).argmax(dim=1).double()
    root = torch.randn(d, d, generator=generator).double() * torch.logspace(-2, 0, d).double()
    given, mean = (x, y, torch.ones(n).double()), torch.linspace(-1, 1, 7 * d).double()
    found = {}
    for name, most in (("whole", 10**6), ("by gradients", 0)):
        monkeypatch.setattr("tacit.local.bayes.WHOLE", most)
        monkeypatch.setattr("tacit.local.wide.TOGETHER", 10**6)
        found[name] = [
            *posterior("multiclass", given, mean, None, STRENGTHS),
            *posterior("multiclass", given, mean, root, STRENGTHS),
            *solve_each("multiclass", given, some_priors(d, 7)),
        ]
    for whole, ours in zip(*found.values(), strict=True):
        assert torch.allclose(whole, ours, rtol=1e-3, atol=1e-3)
    monkeypatch.setattr("tacit.local.wide.TOGETHER", 0)
    about = posterior("multiclass", given, mean, None, STRENGTHS)[1]
    exact = found["whole"][1]
    off = about - exact - (about - exact).mean()
    assert off.abs().max() < 0.5 + 0.15 * (exact.max() - exact.min())


@pytest.mark.parametrize(("n", "d"), [(160, 110), (105, 120)])
@pytest.mark.parametrize("kind", ["binary", "count"])
def test_wide_models_under_several_priors_end_where_newton_ends(kind, n, d, monkeypatch):
    """They share a metric on the way, and no figure changes."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=random).double()
    w = 0.2 * torch.randn(d, generator=random).double()
    score = (x @ w).clamp(max=2)
    y = (score > 0).double() if kind != "count" else score.exp().round()
    rows, mean = (x, y, torch.ones(n).double()), torch.zeros(d).double()
    found = []
    for whole in (bayes.WHOLE, 1000):
        monkeypatch.setattr(bayes, "WHOLE", whole)
        each = solve_each(kind, rows, some_priors(d)), posterior(kind, rows, mean, None, STRENGTHS)
        found.append([side for pair in each for side in pair])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one[:-1], other[:-1], rtol=1e-6, atol=1e-6)
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_tasks_of_a_chunk_do_not_see_each_other_in_a_wide_model():
    one, two = rows(130, 110, "binary", seed=5), rows(130, 110, "binary", seed=6)
    priors = some_priors(110)
    alone = solve_each("binary", one, priors)
    both = vmap(lambda x, y, counts: solve_each("binary", (x, y, counts), priors))(
        *(torch.stack(pair) for pair in zip(one, two, strict=True))
    )
    for a, b in zip(alone, both, strict=True):
        torch.testing.assert_close(a, b[0], atol=1e-8, rtol=1e-8)
