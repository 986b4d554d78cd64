"""`tacit.forecast`: whether taking part is likely to help, before anybody has shown a row.

All of it follows from public facts and a public prior (`experiment.supposed`), in closed form
(`experiment.expected`). Runs on tables that are made up from the same prior can check it; they are
real runs, and take their time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tacit.checks import check_whole
from tacit.engine.progress import silent
from tacit.errors import TacitError
from tacit.experiment.expected import expected, releases
from tacit.experiment.start import progress_of
from tacit.experiment.supposed import LEVELS, PREDICTABLE, WORLDS, Facts, made_up
from tacit.experiment.train import train
from tacit.privacy import Privacy
from tacit.privacy.sampling import Unit
from tacit.words import counted

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, None)
TASKS = (0.5, 1.0, 2.0, 4.0)
HELPS = 0.01
"""A smaller gain from the others is none."""
NOT_FORESEEN = "not foreseen"
TOO_OFTEN_NO = (
    "A forecast says no too often: in 12 runs on open tables it foresaw no help, and the others "
    "brought more than 1% in 7 of them. A real run is the better judge, but it spends its ε."
)
"""From benchmarks/README.md; a yes was wrong in 3 of the other 33."""
FINER = 2 ** (1 / 2)
MOST_EPSILON, MOST_TASKS = 64.0, 1e6
"""What would help is looked for up to here, in steps of √2."""
Course = tuple[int | None, float | None]
"""Rounds and cohort; None for what is usual."""
SUPPOSED = (
    f"Supposed: {PREDICTABLE:.0%} of what varies can be predicted, {LEVELS:.0%} are levels of "
    "tasks, and of the rest half is common to all tasks (in brackets: a quarter, three quarters)."
)


@dataclass(frozen=True)
class Outlook:
    """What is to be expected in one setting."""

    tasks: int
    epsilon: float | None
    """None without privacy."""
    method: str
    rounds: int
    cohort: float | None
    """None for what is usual."""
    gain: float
    """By which share the error is lower than that of the best model alone."""
    low: float
    high: float
    """The same where tasks have little or much in common."""
    from_others: float
    """What of the gain the others bring; the rest a task's last step would find by itself."""
    likely: str
    """"very likely", "likely", "perhaps", or "not foreseen", counting only the others' part."""

    @property
    def text(self) -> str:
        return f"{self.gain:.0%} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True)
class Forecast:
    """Whether taking part is likely to help, and what would change it."""

    rows: int
    features: int
    unit: Unit
    persons: int | None
    kind: str
    classes: int
    here: Outlook
    by_epsilon: tuple[Outlook, ...]
    by_tasks: tuple[Outlook, ...]
    by_course: tuple[Outlook, ...]
    """Other numbers of rounds, and half of the tasks in a round."""
    epsilon_needed: float | None
    """With these tasks, for a gain from the others; None if no ε will do."""
    tasks_needed: int | None
    """With this ε."""
    simulated: tuple[float, ...] = ()
    """Gains of runs on made-up tables."""

    @property
    def measure(self) -> str:
        return "relative squared error" if self.kind == "regression" else "log loss"

    @property
    def sentence(self) -> str:
        """The answer."""
        here = self.here
        whom = "" if self.unit == "task" else f" with every {self.unit} hidden"
        if here.likely != NOT_FORESEEN:
            helps = "may help" if here.likely == "perhaps" else f"{here.likely} to help"
            return (
                f"{helps}{whom}: about {here.gain:.0%} lower {self.measure} than the "
                f"best model alone ({here.low:.0%} to {here.high:.0%}), of which the others bring "
                f"{here.from_others:.0%}"
            )
        brought = f"the others would bring about {max(here.from_others, 0):.1%}"
        why = f"no help is foreseen{whom}: {brought}"
        ways = []
        if self.tasks_needed is not None:
            ways.append(f"from about {self.tasks_needed} tasks on")
        if here.epsilon is not None and self.epsilon_needed is not None:
            ways.append(f"from about ε = {self.epsilon_needed:.2g} on")
        if not ways:
            return f"{why}; with so many rows a task learns nearly all by itself"
        return f"{why}; help is foreseen {', or '.join(ways)}"

    @property
    def caution(self) -> str:
        """How far to trust a no."""
        return TOO_OFTEN_NO if self.here.likely == NOT_FORESEEN else ""

    @property
    def check(self) -> str:
        """What runs on made-up tables say, if there were any."""
        if not self.simulated:
            return ""
        spread = f" ± {stdev(self.simulated):.1%}" if len(self.simulated) > 1 else ""
        runs = counted(len(self.simulated), "run")
        return f"{runs} on made-up tables: {fmean(self.simulated):.1%}{spread}."

    def __str__(self) -> str:
        lines = (f"{self.sentence}.", self.caution, SUPPOSED, self.check)
        return "\n".join(line for line in lines if line)

    def to_json(self) -> dict[str, Any]:
        said = {"sentence": self.sentence, "measure": self.measure, "supposed": SUPPOSED}
        said |= {"caution": self.caution}
        return said | asdict(self)

    def plot(self, path: str | Path) -> None:
        """The gain over ε and over tasks, as PNG, SVG or PDF by the ending of the name."""
        from tacit.report.forecast import draw

        draw(self.to_json(), Path(path))


def forecast(
    *,
    tasks: int,
    rows: int,
    features: int,
    classes: int | None = None,
    numbers: int | None = None,
    epsilon: float | None = None,
    rounds: int | None = None,
    cohort: float | None = None,
    unit: Unit = "task",
    persons: int | None = None,
    simulate: int = 0,
) -> Forecast:
    """Whether taking part is likely to help; no data needed.

    Parameters
    ----------
    tasks, features : how many tasks there are, and columns; a category has one for each value
    rows : that a usual task learns from
    classes : 2 or more; None where the target is a number
    numbers : how many of the features are numbers, for which tasks must find a common unit, and not
        yes or no; None for all
    epsilon : the promise; None for no privacy
    rounds, cohort : if not what is usual for the method
    unit, persons : who is hidden, a whole "task", every "person" or every "row"; and about how many
        persons all tasks have together (rows are tasks times rows, unless it is said). What it
        costs to hide whole tasks beside them (`tasks_epsilon`) is not foreseen: it follows from how
        long tasks' own sums are, and no public fact tells that
    simulate : also make so many runs on tables that are made up accordingly
    """
    for name, value, least in (("tasks", tasks, 2), ("rows", rows, 2), ("features", features, 1)):
        check_whole(name, value, least)
    if classes is not None:
        check_whole("classes", classes, 2)
    if numbers is not None:
        check_whole("numbers", numbers, 0)
        if numbers > features:
            raise TacitError(f"numbers={numbers}: they are among the {features} features")
    if rounds is not None:
        check_whole("rounds", rounds, 1)
    if cohort is not None and not 0 < cohort <= 1:
        raise TacitError(f"cohort={cohort!r}: a share of the tasks is needed, up to 1")
    check_whole("simulate", simulate, 0)
    if unit == "row" and persons is None:
        persons = tasks * rows
    if persons is not None:
        check_whole("persons", persons, 2)
    Privacy(epsilon=1.0, unit=unit, persons=persons)  # refuses one without the other
    kind = "regression" if classes is None else "binary" if classes == 2 else "multiclass"
    outputs = classes if classes and classes > 2 else 1
    facts = Facts(tasks, rows, features, kind, outputs, numbers, unit, persons)
    return foreseen(facts, epsilon, rounds, cohort, simulate)


def foreseen(
    facts: Facts,
    epsilon: float | None,
    rounds: int | None = None,
    cohort: float | None = None,
    simulate: int = 0,
) -> Forecast:
    """The forecast from these facts."""
    here, usual = point(facts, epsilon, rounds, cohort), (rounds, cohort)

    def at(tasks: float, epsilon: float | None, course: Course = usual) -> Outlook | None:
        try:
            return point(facts.of_tasks(max(2, round(tasks))), epsilon, *course)
        except TacitError:  # a method may refuse so many rounds
            return None

    many = here.rounds
    courses = [(many - 1, cohort), (many + 2, cohort), (2 * many, cohort), (rounds, 0.5)]
    by_epsilon = [at(facts.tasks, each) for each in EPSILONS]
    by_tasks = [at(times * facts.tasks, epsilon) for times in TASKS]
    by_course = [here, *(at(facts.tasks, epsilon, each) for each in courses if epsilon)]
    tasks_needed = _first(2, MOST_TASKS, lambda tasks: at(tasks, epsilon))
    return Forecast(
        rows=facts.rows,
        features=facts.features,
        unit=facts.unit,
        persons=facts.persons,
        kind=facts.kind,
        classes=2 if facts.kind == "binary" else facts.outputs,
        here=here,
        by_epsilon=tuple(each for each in by_epsilon if each is not None),
        by_tasks=tuple(each for each in by_tasks if each is not None),
        by_course=tuple(each for each in by_course if each is not None),
        epsilon_needed=_first(0.1, MOST_EPSILON, lambda epsilon: at(facts.tasks, epsilon)),
        tasks_needed=None if tasks_needed is None else int(float(f"{tasks_needed:.2g}")),
        simulated=simulated(facts, epsilon, simulate),
    )


def point(
    facts: Facts, epsilon: float | None, rounds: int | None = None, cohort: float | None = None
) -> Outlook:
    """What is to be expected in one setting."""
    published = releases(facts, epsilon, rounds, cohort)
    little, half, much = (expected(facts, world, published) for world in WORLDS.values())
    words = ("very likely", "likely", "perhaps")
    each = zip(words, (little, half, much), strict=True)
    likely = next((word for word, one in each if one.from_others > HELPS), NOT_FORESEEN)
    return Outlook(
        facts.tasks,
        epsilon,
        published.method,
        published.rounds,
        cohort,
        half.gain,
        min(little.gain, much.gain),
        max(little.gain, much.gain),
        half.from_others,
        likely,
    )


def simulated(facts: Facts, epsilon: float | None, runs: int) -> tuple[float, ...]:
    """Gains of runs on tables that are made up as half is supposed."""
    found = []
    if not runs:
        return ()
    with progress_of(None).rounds("runs on made-up tables", runs) as on_round:
        for seed in range(runs):
            table = made_up(facts, WORLDS["half"], seed)
            run = train(table, privacy=facts.privacy(epsilon), seed=seed, progress=silent)
            ours, alone = run.measured.overall, run.baselines["local"].overall
            name = "nmse_pooled" if facts.kind == "regression" else "loss"
            found.append(1 - float(ours[name] or math.nan) / float(alone[name] or math.nan))
            on_round(seed + 1, {})
    return tuple(found)


def _first(value: float, most: float, at: Callable[[float], Outlook | None]) -> float | None:
    """The smallest value from which on it is likely to help, as far as it is looked for."""
    while value <= most:
        found = at(value)
        if found is not None and found.likely in ("very likely", "likely"):
            return value
        value *= FINER
    return None
