"""Does noise that is correlated over rounds pay here? Measured: no, so it is not in tacit.

Matrix mechanisms (banded factorisations and the like) release B(Cx + z) for A = BC, where A sums up
the rounds' contributions x. What counts at our sizes is the noise on the *last* billboard, which
all tasks start their own models from: ‖B[last]‖ σ, where σ grows with how far one task moves Cx.
A task that takes part in rounds P with contributions of length at most one, all along the same
direction at worst, moves it by ‖C 1_P‖. By Cauchy and Schwarz

    |P| = (A 1_P)[last] = B[last] · C 1_P ≤ ‖B[last]‖ ‖C 1_P‖,

so no factorisation gets below |P|, and independent noise (C = I) with everyone in every round is at
|P| = T exactly: it cannot be beaten. With a part of the tasks per round, each every b-th time, the
bound is T/b on a sum over a b-th of the tasks: after division by their number the same again. So
correlated noise can save computing (fewer tasks per round), never noise, where all tasks can take
part; and hospitals, schools and branches can. The table shows the ratio to that bound.

    python benchmarks/correlated_noise.py
"""

from __future__ import annotations

import numpy as np
from scipy.special import binom


def factorisations(rounds: int, bands: int) -> dict[str, np.ndarray]:
    """C of A = BC for A = prefix sums."""
    prefix = np.tril(np.ones((rounds, rounds)))
    k = np.arange(rounds)
    root = np.abs(binom(-0.5, k))  # coefficients of 1/√(1 − x): the square root of prefix sums
    lag = np.subtract.outer(k, k)
    square_root = np.where(lag >= 0, root[np.abs(lag)], 0.0)
    banded = np.where(lag < bands, square_root, 0.0)
    return {
        "independent": np.eye(rounds),
        "all noise at the end (C = A)": prefix,
        "square root": square_root,
        f"square root, {bands} bands": banded,
    }


def noise_on_the_last(c: np.ndarray, every: int) -> float:
    """‖B[last]‖ times the largest move of a task that takes part every so many rounds."""
    rounds = len(c)
    last = np.linalg.solve(c.T, np.ones(rounds))  # B[last] = A[last] C⁻¹
    moves = [np.linalg.norm(c[:, start::every].sum(axis=1)) for start in range(every)]
    return float(np.linalg.norm(last) * max(moves))


def main() -> None:
    print("noise on the last billboard, relative to independent noise with everyone in each round")
    print("| factorisation | rounds | everyone | a tenth of the tasks per round, in turn |")
    print("|---|---|---|---|")
    for rounds in (30, 100):
        for name, c in factorisations(rounds, bands=10).items():
            whole = noise_on_the_last(c, 1) / rounds
            tenth = noise_on_the_last(c, 10) / rounds * 10  # a sum over a tenth, divided by less
            print(f"| {name} | {rounds} | {whole:.2f} | {tenth:.2f} |")


if __name__ == "__main__":
    main()
