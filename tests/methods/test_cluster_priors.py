"""Cluster priors once more, one task after another: what every stage leaves on the billboard."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit import ClusterPriors
from tacit.methods.grouping_start import all_around
from tests.methods.test_clusters import planted
from tests.methods.test_personal_methods import models, run

STEPS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
BELL = -(STEPS**2) / 2 - np.log(np.exp(-(STEPS**2) / 2).sum())
GROUPS = 3


def ridge(x, y, mean, root, strength) -> tuple[np.ndarray, float]:
    """w under N(mean, rσ²RRᵀ), and log p(y) up to what no prior changes, by the n × n covariance.

    The noise variance has a flat prior on its logarithm and is integrated out.
    """
    z, error = x @ root, y - x @ mean
    ratio = 10.0**strength * len(y) / (z**2).sum()
    covariance = np.eye(len(y)) + ratio * z @ z.T
    weighed = np.linalg.solve(covariance, error)
    evidence = -np.linalg.slogdet(covariance)[1] / 2 - len(y) / 2 * np.log(error @ weighed)
    return mean + root @ (ratio * z.T @ weighed), evidence


def several(x, y, mean, root, strengths) -> tuple[np.ndarray, np.ndarray]:
    weights, evidence = zip(*(ridge(x, y, mean, root, t) for t in strengths), strict=True)
    return np.stack(weights), np.array(evidence)


def mixture(logs: np.ndarray) -> np.ndarray:
    likely = np.exp(logs - logs.max())
    return likely / likely.sum()


class Plain:
    """All tasks at once in one place: no channel, no noise, and nothing of tacit's."""

    def __init__(self, federation, directions: np.ndarray):
        rows = [federation.train.of(k) for k in range(len(federation))]
        self.rows = [(x.double().numpy(), y.double().numpy()) for x, y in rows]
        self.size = self.rows[0][0].shape[1]
        self.eye, zero = np.eye(self.size), np.zeros(self.size)
        self.models, self.share = np.zeros((GROUPS, self.size)), np.full(GROUPS, 1 / GROUPS)
        self.alone = [ridge(x, y, zero, self.eye, 1.0)[0] for x, y in self.rows]
        self.where = [w / np.linalg.norm(w) for w in self.alone]
        self.merges = 0
        self.begin(directions)

    def begin(self, directions: np.ndarray) -> None:
        """Moments say in which two directions groups lie, votes where; then comes a first mean."""
        told = np.stack(self.where)
        spread = torch.from_numpy(np.cov(told.T, bias=True))
        values, vectors = (side.numpy() for side in torch.linalg.eigh(spread))
        values, vectors = values[::-1][:2], vectors[:, ::-1][:, :2]
        chosen = []
        for one in directions:  # those that are less than 26 degrees from one before are left out
            unit = one / np.linalg.norm(one)
            if all(unit @ other <= 0.9 for other in chosen):
                chosen.append(unit)
        points = [told.mean(axis=0) + vectors @ (u * np.sqrt(2 * values)) for u in chosen]
        votes = np.zeros(len(points))
        for x in told:
            votes[np.argmin([((x - p) ** 2).sum() for p in points])] += 1 / len(told)
        self.share = np.zeros(GROUPS)
        centres = []
        for group in range(GROUPS):
            near = [[max(0.0, 2 * (u @ v) - 1) for v in chosen] for u in chosen]
            around = np.array(near[int(np.argmax(near @ votes))])
            here = votes * (around > 0)
            centres.append((around * here) @ points / max((around * here).sum(), 1e-30))
            self.share[group] = here.sum() if group == 0 or here.sum() > 0.05 else 0.0
            votes = votes - here
        self.share /= self.share.sum()
        self.joined = [
            min(self.there(), key=lambda g, x=x: ((x - centres[g]) ** 2).sum()) for x in told
        ]
        self.move(self.alone)

    def there(self) -> list[int]:
        return [g for g in range(GROUPS) if self.share[g] > 0]

    def move(self, updates: list[np.ndarray]) -> None:
        """Each group by the mean of its members; few count as a quarter of an even share."""
        groups, joined = self.there(), np.array(self.joined)
        share = np.array([max((joined == g).mean(), 1e-3) * (g in groups) for g in range(GROUPS)])
        self.share = share / share.sum()
        for k, g in enumerate(self.joined):
            divisor = max(self.share[g], 0.25 / len(groups)) * len(self.rows)
            self.models[g] = self.models[g] + updates[k] / divisor

    def join(self, x: np.ndarray, y: np.ndarray) -> int:
        """The group under whose prior a task's rows are most likely, times the group's share."""
        scores = {}
        for g in self.there():
            logs = several(x, y, self.models[g], self.eye, 0.75 * STEPS)[1] + BELL
            scores[g] = np.log(np.exp(logs - logs.max()).sum()) + logs.max()
            scores[g] += np.log(self.share[g])
        return max(scores, key=lambda g: scores[g])

    def as_one(self, g: int, h: int) -> np.ndarray:
        one, other = self.share[g] ** 2, self.share[h] ** 2
        return (one * self.models[g] + other * self.models[h]) / (one + other)

    def compare(self) -> dict[tuple[int, int], list[float]]:
        """Parts of tasks that are better, and worse off with their two best groups than with one.

        Even rows choose the groups, odd ones judge.
        """
        table: dict[tuple[int, int], list[float]] = {}
        for x, y in self.rows:
            by = [
                [((x[half::2] @ w - y[half::2]) ** 2).mean() for w in self.models]
                for half in (0, 1)
            ]
            ranked = sorted(self.there(), key=lambda g: by[0][g])
            if len(ranked) > 1:
                first, second = ranked[:2]
                both = self.as_one(first, second)
                better = by[1][first] < ((x[1::2] @ both - y[1::2]) ** 2).mean()
                cell = table.setdefault((min(first, second), max(first, second)), [0.0, 0.0])
                cell[0 if better else 1] += 1 / len(self.rows)
        return table

    def round(self) -> None:
        table, updates, strengths = self.compare(), [], []
        self.joined = [self.join(x, y) for x, y in self.rows]
        for k, (x, y) in enumerate(self.rows):
            mean = self.models[self.joined[k]]
            weights, evidence = several(x, y, mean, self.eye, 1 + STEPS)
            strengths.append((mixture(evidence) @ (1 + STEPS) - 1) / 2)
            updates.append(weights[2] - mean)
        self.move(updates)
        enough = {pair: 0.375 * up - 0.625 * down for pair, (up, down) in table.items()}
        pair = min(enough, key=lambda p: enough[p], default=(0, 0))
        if enough.get(pair, 0.0) < 0:
            kept, left = pair
            self.models[kept] = self.as_one(kept, left)
            self.share[kept], self.share[left] = self.share[kept] + self.share[left], 0.0
            self.merges += 1
        self.mean = self.share @ self.models
        self.moment = np.mean([np.outer(u, u) for u in updates], axis=0)
        self.strength = np.mean(strengths)

    def settle(self, roots: np.ndarray) -> np.ndarray:
        """Every task's model: all candidates, each as likely as its own rows say."""
        self.joined, found = [], []
        for x, y in self.rows:
            self.joined.append(self.join(x, y))
            sides = [(0 * self.mean, self.eye, 1 + STEPS, -np.log(5) - BELL)]
            for number, root in enumerate(roots):
                about = 1 + 2 * np.clip(self.strength, -1, 1) + 0.35 * STEPS
                sides.append((self.mean, root, about, 3.0 if number == 0 else 0.0))
            if len(self.there()) > 1:
                for g in self.there():
                    prior = 3.0 + np.log(self.share[g])
                    sides.append((self.models[g], self.eye, 0.75 * STEPS, prior))
            weights, logs = [], []
            for mean, root, strengths, prior in sides:
                w, evidence = several(x, y, mean, root, strengths)
                weights.append(w)
                logs.append(evidence + BELL + prior)
            found.append(mixture(np.concatenate(logs)) @ np.concatenate(weights))
        return np.stack(found)


def states(finished) -> list[int]:
    every = torch.arange(len(finished.federation))
    return finished.simulation.tasks.states(every)["joined"].argmax(dim=1).tolist()


@pytest.mark.parametrize(("groups", "merges"), [(3, 0), (2, 1)])
def test_groups_with_priors_equal_a_plain_loop(groups, merges):
    """After every stage; a third group that two planted ones do not need is merged on the way."""
    federation, _ = planted(groups, tasks=60, columns=5)
    given = {"model": "linear-no-intercept"}
    plain = Plain(federation, all_around(GROUPS - 1).double().numpy())
    for rounds in range(3, 8):
        finished = run(federation, ClusterPriors(groups=GROUPS), rounds=rounds, **given)
        board = {k: v.double().numpy() for k, v in finished.simulation.board.tensors.items()}
        if rounds > 3:
            plain.round()
            assert np.allclose(board["moment"], plain.moment, atol=1e-5)
            assert board["strength"] == pytest.approx(plain.strength, abs=1e-5)
            own = plain.settle(board["roots"])
            assert np.allclose(models(finished), own, atol=1e-5)
            assert states(finished) == plain.joined
        there = plain.there()
        assert np.allclose(board["share"], plain.share, atol=1e-5)
        assert np.allclose(board["models"][there], plain.models[there], atol=1e-5)
        assert np.allclose(board["mean"], plain.share @ plain.models, atol=1e-5)
    assert plain.merges == merges
