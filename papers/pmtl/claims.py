"""The paper's claims, and by how much they hold here: sentences with figures."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from papers.pmtl import published
from papers.pmtl.means import Gap, Mean, gaps, show_epsilon
from papers.pmtl.plots import NAMES
from tacit.engine.personalise import Personalise

FINE_TUNINGS: tuple[Personalise, ...] = ("vanilla", "mean", "kl", "ewc")


def fine_tuned(own: Sequence[Mean]) -> str:
    """In how many pairs PMTL is ahead of the global model after the same fine-tuning."""
    pairs = [gap for gap in gaps(own, "fedavg") if gap.mode in FINE_TUNINGS]
    if not pairs:
        return ""
    table, ours = published.TABLE_1, sum(gap.mean > 0 for gap in pairs)
    theirs = sum(
        table[gap.mode, "pmtl", gap.epsilon] > table[gap.mode, "fedavg", gap.epsilon]
        for gap in pairs
    )
    by_epsilon = []
    for epsilon in dict.fromkeys(gap.epsilon for gap in pairs):
        same = [gap.mean for gap in pairs if gap.epsilon == epsilon]
        by_epsilon.append(f"{min(same):+.3f} to {max(same):+.3f} at ε = {show_epsilon(epsilon)}")
    return (
        f"After the same fine-tuning, PMTL is ahead of the global model in {ours} of {len(pairs)} "
        f"pairs (published: {theirs}); {_clearly(pairs)}: {', '.join(by_epsilon)}."
    )


def against(own: Sequence[Mean], other: str, mode: str = "none") -> str:
    """For how many ε PMTL is ahead of another method, or of training alone."""
    pairs = [gap for gap in gaps(own, other) if gap.mode == mode]
    if not pairs:
        return ""
    ahead = sum(gap.mean > 0 for gap in pairs)
    shown = ", ".join(f"{gap.mean:+.3f} at ε = {show_epsilon(gap.epsilon)}" for gap in pairs)
    return (
        f"{WORDS[mode]} are ahead of {NAMES[other]} for {ahead} of {len(pairs)} ε; "
        f"{_clearly(pairs)}: {shown}."
    )


WORDS = {"none": "PMTL's own models", "best": "PMTL's models after the best fine-tuning"}


def _clearly(pairs: Sequence[Gap]) -> str:
    """How many of these are more than seeds alone make."""
    ahead, behind = (sum(gap.clear and gap.mean * sign > 0 for gap in pairs) for sign in (1, -1))
    return f"by more than two sd of the difference ahead in {ahead} and behind in {behind}"


def sentences(own: Sequence[Mean]) -> list[str]:
    """All that can be said of one data set's figures."""
    compared = [against(own, other) for other in ("fedavg", "fedprox", "alone")]
    said = [fine_tuned(own), *compared, against(own, "alone", "best")]
    return [line for line in said if line]


CLAIMS: dict[str, tuple[str, Callable[[Sequence[Mean]], list[str]]]] = {
    "table1": ("Table 1", lambda own: [fine_tuned(own)]),
    "figure3": ("Figure 3", lambda own: [against(own, "fedavg")]),
    "figure7": ("Figure 7", lambda own: [against(own, "fedprox")]),
}
"""The pages with the paper's claims, and what is said of each."""


def findings(out: Path) -> list[str]:
    """Markdown of what the pages that are there say of the claims, and `why.md`."""
    lines = []
    for stem, (title, say) in CLAIMS.items():
        path = out / f"{stem}.csv"
        if not path.is_file():
            continue
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for key in dict.fromkeys(row["set"] for row in rows):
            own = [_mean(row) for row in rows if row["set"] == key]
            lines += [f"- {title}, {SHORT[key]}: {line}" for line in say(own) if line]
    why = out / "why.md"
    return [*lines, "", why.read_text(encoding="utf-8").strip()] if why.is_file() else lines


def _mean(row: dict[str, str]) -> Mean:
    return Mean(
        row["set"],
        row["method"],
        row["mode"],
        float(row["epsilon"]),
        int(row["seeds"]),
        float(row["mean"]),
        float(row["sd"]),
    )


SHORT = {
    "femnist": "FEMNIST",
    "writers": "MNIST by writer",
    "stackoverflow": "tags of posts",
    "celeba": "CelebA",
}
"""Of data sets, for sentences."""
