"""What a run leaves: the guarantee, the scores, every task's personal model, a report."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit import __version__, metrics
from tacit.data.federation import Federation, Part
from tacit.data.heads import PUBLIC
from tacit.data.lacking import lacking
from tacit.engine.blend import ON_SHARED, SHARED, Blend
from tacit.engine.combine import Delivered
from tacit.engine.personalise import Personalised
from tacit.engine.simulate import Simulation
from tacit.experiment.finished import Finished, Scores
from tacit.experiment.groups import groups_of, models_of_groups
from tacit.experiment.models import write_models
from tacit.experiment.newcomers import Newcomers
from tacit.experiment.predicts import Predicts
from tacit.experiment.verdict import RunFacts, Verdict, judge
from tacit.files import make_folder, replace
from tacit.inference.effects import Effects, effects_of
from tacit.inference.shapes import shapes
from tacit.inference.summary import MixedSummary, summary
from tacit.methods import Mixed, SharedShapes
from tacit.methods.grouping import Grouped
from tacit.privacy import NOT_COVERED, Guarantee, Privacy

TRAINING = (
    "these are scores of the rows that models were trained on, because none were kept for testing: "
    "new rows will be predicted worse"
)

FROZEN = "the model's frozen parameters are taken to be public, and made without the tasks' rows"


@dataclass
class Run(Finished, Predicts):
    """A finished run. `personal(name)` is a task's own model; everything else is about the run."""

    simulation: Simulation
    """The engine as it ended: method, tasks, billboard and ledger."""
    guarantee: Guarantee
    """What is promised."""
    measured: metrics.Metrics
    """Scores of the personal models; not covered by the guarantee."""
    part: Part
    """The rows that scores are of: "train", "validation" or "test"."""
    config: dict[str, Any]
    """All settings."""
    personalised: Personalised
    """What each task ended with; `personalised.chosen` says it in words, for each task."""
    baselines: dict[str, metrics.Metrics] = field(default_factory=dict)
    """Scores of what the run is compared with, by name."""
    timing: dict[str, Any] = field(default_factory=dict)
    """How long it took, and on what."""
    delivered: Delivered | None = None
    """What tasks take away where they combine several models, learned from all of their rows."""

    @classmethod
    def of(
        cls,
        simulation: Simulation,
        privacy: Privacy | None,
        config: dict[str, Any],
        personalised: Personalised,
    ) -> Run:
        """Scored as tasks ended; what is delivered may have learned from more rows."""
        federation = simulation.federation
        blend = None if personalised.ended is None else personalised.ended.blend
        hidden = (
            simulation.method.channel == "exchange"
            and simulation.rounds.strategy.curated is not None
        )
        public = [PUBLIC] if federation.heads and not hidden else []
        public += [FROZEN] if simulation.model.frozen else []
        promise = simulation.course.promise(
            federation,
            privacy,
            seeded=config["seed"] is not None,
            public=public,
            leaks=federation.leaks,
            # Models that a task went on training are its own again, and public no longer; and what
            # a task scaled its rows with goes along with its model, without noise.
            personal_is_public=simulation.method.personal_is_public
            and not personalised.chosen
            and blend is None
            and not federation.own_scaling,
            curator=simulation.rounds.strategy.curated,
        )
        part = simulation.tasks.test_part
        kept = personalised.models if personalised.chosen else simulation.personal
        measured = simulation.measure(part, personal=kept, blend=blend)
        return cls(simulation, promise, measured, part, config, personalised)

    def models(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and buffers that these tasks ended with, stacked."""
        if self.delivered is not None:
            return self.delivered.models(tasks)
        if self.personalised.chosen:
            return self.personalised.models(tasks)
        return self.simulation.personal(tasks)

    @property
    def blend(self) -> Blend | None:
        """What tasks combine with these models, if they do."""
        return None if self.delivered is None else self.delivered.blend

    @property
    def federation(self) -> Federation:
        return self.simulation.federation

    @property
    def public(self) -> dict[str, Any] | None:
        """How many public rows there were and what was fitted on them; None without any."""
        rows = self.federation.public
        return rows and rows.to_json(start=self.simulation.method.begins_at_start)

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The learning curve on validation rows: not covered by the guarantee."""
        return self.simulation.curve

    @property
    def metrics(self) -> Scores:
        """Scores per task and overall, beside training alone and the global model."""
        kind, heads = self.federation.kind, self.federation.heads
        majority = self.measured.overall.get("majority")
        name, higher = metrics.main_score(kind, heads, majority)
        per_task, _ = metrics.task_score(kind, heads, majority)
        own = self._scores(self.measured)
        found = {
            "part": self.part,
            **({"part_label": TRAINING} if self.part == "train" else {}),
            "label": NOT_COVERED,
            "kind": kind,
            "dropped_contributions": self.simulation.channel.dropped,
            "diverged": self.diverged,
            "personal_models": self.personalised.to_json(self.federation.names),
            "combined": None if self.blend is None else self.blend.shares,
            "main": {"name": name, "per_task": per_task, "higher_is_better": higher},
            **own,
            **self._curves(),
            "baselines": {name: self._scores(other) for name, other in self.baselines.items()},
        }
        return Scores(found)

    def _scores(self, found: metrics.Metrics) -> dict[str, Any]:
        plain = found.to_json()
        columns = {"rows": plain["rows"], **plain["per_task"]}
        tasks = zip(*columns.values(), strict=True)
        named = {
            name: dict(zip(columns, values, strict=True))
            for name, values in zip(self.federation.names, tasks, strict=True)
        }
        several = {key: plain[key] for key in ("per_label", "per_head") if plain[key] is not None}
        return {"overall": plain["overall"], "per_task": named, **several}

    def _curves(self) -> dict[str, Any]:
        """What became of the rows of the first few tasks over time, beside what was predicted."""
        curves = self.measured.curves
        if curves is None:
            return {}
        cuts = [float(label) for label in self.federation.labels]
        named = zip(self.federation.names, curves, strict=False)
        return {"curves": {"cuts": cuts, "per_task": {n: c.to_json(cuts) for n, c in named}}}

    @property
    def diverged(self) -> list[str]:
        """Tasks whose own training diverged, so that they trained alone: not covered by ε."""
        numbers: list[int] = self.simulation.tasks.diverged.nonzero().squeeze(1).tolist()
        return [self.federation.names[number] for number in numbers]

    @property
    def verdict(self) -> Verdict:
        """Whether taking part helped, why not, and what would change it: not covered by ε."""
        found = self.baselines
        return judge(
            self.measured,
            found.get("local"),
            self._facts,
            constant=found.get("constant"),
            not_private=found.get("open"),
        )

    @property
    def _facts(self) -> RunFacts:
        simulation, broken = self.simulation, []
        if self.diverged:
            broken.append(f"the training of {len(self.diverged)} tasks diverged")
        if simulation.rounds.broke_off:
            broken.append(str(simulation.stopped))
        if simulation.channel.dropped:
            broken.append(f"{simulation.channel.dropped} contributions were dropped")
        used = None
        alone = [one.recipe.start == "alone" for one in self.personalised.candidates]
        if self.personalised.ended is not None:
            weights = self.personalised.ended.blend.weights[:, [SHARED, ON_SHARED]].sum(dim=1)
            weights[torch.tensor(alone, dtype=torch.bool).nonzero()] = 0.0
            used = float(weights.mean())
        elif alone:
            used = 1 - sum(alone) / len(alone)
        return RunFacts(
            tasks=len(self.federation),
            epsilon=self.guarantee.epsilon,
            shares=simulation.method.channel != "nothing",
            used=used,
            unseen=self.part == "test",
            broken=tuple(broken),
            hidden=self.guarantee.unit,
            crowd=None if self.guarantee.unit == "task" else simulation.channel.tasks,
        )

    @property
    def exchange(self) -> dict[str, Any] | None:
        """Who learned from whom, and what answers gave away; None on the billboard."""
        exchange = self.simulation.exchange
        return None if exchange is None else exchange.record.to_json(self.federation.names)

    def summary(self) -> MixedSummary:
        """Coefficients, standard errors and variances of a mixed model: covered by the guarantee.

        Other methods have none.
        """
        return summary(self)

    def shapes(self) -> dict[str, Any]:
        """The shape of every column in an additive model, as result.json has it.

        The shared ones and their noise are covered by the guarantee, tasks' own are not.
        """
        made = self.simulation
        of = self.federation, self.models, self.guarantee
        return shapes(made.method, made.rounds.shown, *of)

    def effects(self, task: str) -> Effects:
        """A task's own effects in a mixed model, for that task alone."""
        return effects_of(self.simulation.tasks, self.federation.index(task))

    @property
    def newcomers(self) -> Newcomers:
        """What is public, for tasks that did not take part."""
        simulation = self.simulation
        return Newcomers(simulation.method, simulation.model, simulation.rounds.shown)

    def to_json(self) -> dict[str, Any]:
        """The content of result.json.

        What was computed over tasks without noise has a label beside it: `label` is about all of
        its object, `x_label` about `x` beside it (`rows_label` also about the smallest and largest
        task).
        """
        simulation, method = self.simulation, self.simulation.method
        grouped = isinstance(method, Grouped)
        additive = isinstance(method, SharedShapes)
        mixed = isinstance(method, Mixed) and method.summed_up
        return {
            "tacit": __version__,
            "guarantee": self.guarantee.to_json(),
            "verdict": self.verdict.to_json(),
            **({"summary": self.summary().to_json()} if mixed else {}),
            **({"shapes": self.shapes()} if additive else {}),
            **({"group_models": models_of_groups(simulation, self.guarantee)} if grouped else {}),
            "metrics": self.metrics,
            "curve_label": NOT_COVERED,
            "curve": [_plain(point) for point in self.curve],
            "federation": {
                **self.federation.facts(),
                "rows_label": NOT_COVERED,
                "lacking_label": NOT_COVERED,
                "lacking": lacking(self.federation),
            },
            "public": self.public,
            "exchange_label": NOT_COVERED,
            "exchange": self.exchange,
            "groups_label": NOT_COVERED,
            "groups": groups_of(simulation, self.part),
            "config": self.config,
            "timing_label": NOT_COVERED,
            "timing": self.timing,
            "stopped": self.simulation.stopped,
        }

    def save(self, folder: str | Path) -> None:
        """result.json, models/, report.html, and summary.html to print."""
        folder = Path(folder)
        make_folder(folder)
        of = self.federation, self.simulation.model, self.models, self.newcomers.board
        more: Any = {"method": self.simulation.method, "blend": self.blend}
        write_models(folder / "models", *of, self.config["model"], **more)
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        replace(folder / "result.json", text.encode())
        self.report(folder / "report.html")
        self.summary_page(folder / "summary.html")

    def __repr__(self) -> str:
        overall, federation = self.measured.overall, self.federation
        name, _ = metrics.main_score(federation.kind, federation.heads, overall.get("majority"))
        score = overall[name]
        shown = "undefined" if score is None else f"{score:.4f}"
        return (
            f"Run({self.config['method']} on {federation.source}: {name} {shown} on "
            f"{self.part} rows, {NOT_COVERED}; {self.guarantee})"
        )


def _plain(point: dict[str, Any]) -> dict[str, Any]:
    bad = (key for key, value in point.items() if value is not None and not math.isfinite(value))
    return point | dict.fromkeys(bad)
