"""Figure 9: how much longer a round takes on shares than in the clear.

The curator of one round, for made-up models of LeNet's size. On shares: server processes over TLS
on this machine, from the moment the round is announced until the last client has its answer. In the
clear: the plain curator on one core, from all models in memory to all answers in memory. Both take
turns, so that whatever else the machine does meets both alike; the figure is their ratio.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from papers.common.cells import CellFile
from papers.common.devices import hardware
from papers.common.write import markdown_table, write_csv, write_figure
from papers.fedmtl import plots
from papers.fedmtl.context import NOT_RUN, FedMTLContext
from tacit.exchange import Uploads, mixed
from tacit.methods import FedMTL
from tacit.secure.jobs.fedmtl import FedMTLJob, Secret
from tacit.secure.net.local import LocalServers
from tacit.secure.net.process import speed_up_process

FILE = "shares.csv"
SHARED, LAYER = 1_628_210, 2_505
"""Numbers of LeNet: its shared layers, and one task layer."""
LEAST = 0.43
"""The threshold: away from similarities of these clients, so that no pair is on the edge."""
BITS = 64
"""The paper's ring."""
PARTIES = (("dealer", 2), ("dealer", 3), ("dealer", 4), ("replicated", 3))
"""The first three as in the paper: all servers but one may collude, and products need a dealer."""
CLIENTS, HEADS = (10, 20, 40), (2, 4, 8)
FEW = 20
"""Clients where the number of heads varies."""
PLAIN = 5
"""The plain curator is so quick that it is asked several times in each turn."""
REDUCED = 10
"""Models of the reduced version are so many times smaller, and clients so many times fewer."""


@dataclass(frozen=True)
class ShareSetting:
    """One point of the figure."""

    trust: str
    servers: int
    clients: int
    heads: int
    columns: int

    @property
    def parties(self) -> str:
        return f"P = {self.servers}" + (", replicated" if self.trust == "replicated" else "")


@dataclass(frozen=True)
class ShareTime:
    """One line of shares.csv: one round on shares and one in the clear, one after the other."""

    trust: str
    servers: int
    clients: int
    heads: int
    columns: int
    repeat: int
    seconds_on_shares: float
    seconds_in_the_clear: float
    hardware: str

    @property
    def setting(self) -> ShareSetting:
        return ShareSetting(self.trust, self.servers, self.clients, self.heads, self.columns)

    @property
    def key(self) -> tuple[ShareSetting, int]:
        return self.setting, self.repeat

    @property
    def ratio(self) -> float:
        return self.seconds_on_shares / self.seconds_in_the_clear


def figure9(context: FedMTLContext) -> str:
    """Over the number of clients, and over the number of heads."""
    kept = CellFile(context.out / FILE, ShareTime)
    panels = _panels(context.grid.reduced)
    for setting in dict.fromkeys(s for panel in panels.values() for s in panel):
        missing = [k for k in context.seeds if (setting, k) not in kept.rows]
        if missing and context.grid.may_run:
            for line in measure(setting, missing, hardware(context.grid.device)):
                kept.add(line)
                context.say(
                    f"{setting.parties}, N = {setting.clients}, K = {setting.heads}: "
                    f"{line.seconds_on_shares:.2f} s on shares, {line.ratio:.1f} times the plain"
                )
    found = {
        setting: times
        for panel in panels.values()
        for setting in panel
        if (times := [kept.rows[setting, k] for k in context.seeds if (setting, k) in kept.rows])
    }
    if not found:
        return "Nothing was run yet: there is nothing to show."
    return _write(context, panels, found)


def _panels(reduced: bool) -> dict[str, list[ShareSetting]]:
    """The points of each panel, by what it varies."""
    smaller = REDUCED if reduced else 1
    columns, few, most = SHARED // smaller, FEW // smaller, HEADS[-1]
    counts = [count // smaller for count in CLIENTS if count > smaller]
    return {
        "clients": [ShareSetting(*p, count, most, columns) for p in PARTIES for count in counts],
        "heads": [ShareSetting(*p, few, heads, columns) for p in PARTIES for heads in HEADS],
    }


def measure(setting: ShareSetting, repeats: Sequence[int], machine: str) -> list[ShareTime]:
    """Rounds on shares and in the clear by turns, after one of each that is not counted."""
    speed_up_process()  # all clients are in this process
    secrets = made_up(setting)
    names, dealer = tuple(secrets), setting.trust == "dealer"
    uploads, times = uploaded(secrets, setting), []
    with LocalServers(setting.servers, names, dealer=dealer) as running:
        for _ in [None, *repeats]:
            job = job_of(setting, names)
            on_shares = _seconds(lambda job=job: running.remote.run(job, secrets))
            with one_core():
                in_the_clear = [_seconds(lambda: answered(uploads)) for _ in range(PLAIN)]
            times.append((on_shares, statistics.median(in_the_clear)))
    about = (setting.trust, setting.servers, setting.clients, setting.heads, setting.columns)
    return [
        ShareTime(*about, repeat, round(one, 4), round(other, 5), machine)
        for repeat, (one, other) in zip(repeats, times[1:], strict=True)
    ]


def job_of(setting: ShareSetting, names: tuple[str, ...]) -> FedMTLJob:
    """A new one for every round: servers do no job twice."""
    return FedMTLJob(
        servers=setting.servers,
        clients=names,
        trust="dealer" if setting.trust == "dealer" else "replicated",
        bits=BITS,
        columns=setting.columns,
        heads=setting.heads,
        slots=setting.heads,
        length=LAYER,
    )


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Several threads would wait for each other where other work is on the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def made_up(setting: ShareSetting) -> dict[str, Secret]:
    """Clients in four groups that are alike, with two heads or more of `setting.heads`."""
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(4, setting.heads, LAYER))
    found = {}
    for i in range(setting.clients):
        many = rng.integers(2, setting.heads + 1)
        heads = rng.choice(setting.heads, many, replace=False).tolist()
        layers = {h: 0.02 * (groups[i % 4, h] + 0.5 * rng.normal(size=LAYER)) for h in heads}
        start = {h: np.zeros(LAYER) for h in heads}
        rows = np.float32(0.02) * rng.standard_normal(setting.columns, dtype=np.float32)
        found[f"client-{i}"] = Secret(rows, layers, start, int(rng.integers(50, 500)), LEAST)
    return found


def uploaded(secrets: dict[str, Secret], setting: ShareSetting) -> Uploads:
    """The same models as the plain curator is handed them."""
    count, heads, columns = setting.clients, setting.heads, setting.columns
    vectors = torch.zeros(count, columns + heads * LAYER)
    holds = torch.zeros(count, heads, dtype=torch.bool)
    ends = [columns + h * LAYER for h in range(heads + 1)]
    parts = [slice(0, columns), *(slice(end, end + LAYER) for end in ends)]
    parts[-1] = slice(ends[-1], ends[-1])  # nothing is sent beside the model
    for i, secret in enumerate(secrets.values()):
        vectors[i, :columns] = torch.from_numpy(secret.rows)
        for h, layer in secret.layers.items():
            vectors[i, parts[1 + h]], holds[i, h] = torch.from_numpy(layer).float(), True
    sizes = torch.tensor([secret.size for secret in secrets.values()])
    return Uploads(torch.arange(count), vectors, sizes, holds, parts, round=0, rounds=1)


def answered(uploads: Uploads) -> torch.Tensor:
    """What the plain curator answers: [clients, 1, length]."""
    method = FedMTL(threshold=LEAST, last_threshold=LEAST)
    return mixed(method.answer(uploads, {}).weights, uploads, torch.arange(len(uploads)))


def _write(
    context: FedMTLContext,
    panels: dict[str, list[ShareSetting]],
    found: dict[ShareSetting, list[ShareTime]],
) -> str:
    rows = []
    for varied, settings in panels.items():
        for setting in settings:
            for times in [found[setting]] if setting in found else []:
                ratios = sorted(line.ratio for line in times)
                rows.append(
                    (
                        varied,
                        setting.trust,
                        setting.servers,
                        setting.clients,
                        setting.heads,
                        len(times),
                        round(statistics.median(ratios), 2),
                        round(ratios[0], 2),
                        round(ratios[-1], 2),
                    )
                )
    names = ("varied", "trust", "servers", "clients", "heads", "repeats", "ratio", "least", "most")
    write_csv(context.out / "figure9.csv", names, rows)
    curves = {
        varied: {
            parties: [(getattr(s, varied), sorted(t.ratio for t in found[s])) for s in settings]
            for parties, settings in _by_parties(panels[varied], found).items()
        }
        for varied in panels
    }
    write_figure(context.out, "figure9", plots.ratios(curves))
    parts = []
    for varied, words in (("clients", "clients N"), ("heads", "heads K")):
        counts = sorted({getattr(s, varied) for s in panels[varied]})
        lines = []
        for parties, settings in _by_parties(panels[varied], found).items():
            by_count = {getattr(s, varied): found[s] for s in settings}
            lines.append((parties, "drawn", *(_shown(by_count.get(c, [])) for c in counts)))
        head = (f"over {words}", "published", *map(str, counts))
        parts.append(markdown_table(head, lines))
    return "\n\n".join([*parts, _biggest(found), "## Why they differ", WHY])


def _by_parties(
    settings: Sequence[ShareSetting], found: dict[ShareSetting, list[ShareTime]]
) -> dict[str, list[ShareSetting]]:
    groups: dict[str, list[ShareSetting]] = {}
    for setting in settings:
        if setting in found:
            groups.setdefault(setting.parties, []).append(setting)
    return groups


def _shown(times: Sequence[ShareTime]) -> str:
    if not times:
        return NOT_RUN
    ratios = sorted(line.ratio for line in times)
    return f"{statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})"


def _biggest(found: dict[ShareSetting, list[ShareTime]]) -> str:
    """The paper prints one time: P = 3, N = 80, K = 8."""
    same = [s for s in found if (s.servers, s.trust, s.heads) == (3, "dealer", HEADS[-1])]
    if not same:
        return ""
    setting = max(same, key=lambda s: s.clients)
    seconds = statistics.median(line.seconds_on_shares for line in found[setting])
    return (
        f"The paper prints one time: about 45 seconds for P = 3, N = 80, K = 8. Here a round with "
        f"P = 3, N = {setting.clients}, K = {setting.heads} took {seconds:.1f} seconds."
    )


WHY = (
    "The paper's figure is drawn, not printed, and its parties are CrypTen's. Models are made up "
    "here, as large as LeNet. Medians of the ratios, and in brackets the smallest and the largest. "
    "The time on shares has everything in it that stands between clients and answers: making the "
    "shares, TLS, the dealer, answers. The time in the clear is the curator's alone, on one core, "
    "with uploads and answers in memory, so a ratio says too much rather than too little. "
    "*Replicated* is a second setting, not in the paper: of three servers no two may collude, and "
    "no dealer is needed. The paper says that the ratio falls with the number of clients, because "
    "the rounds of messages stay the same. The rounds that are kept here were made on two busy "
    "cores: ratios of one setting differ by up to five times, so that only the fall with N shows, "
    "and not the order of P."
)
