"""What a task makes of its own rows at the end: the shared model beside all it could do alone.

Under billboard privacy a task may use its own rows as often as it likes. So it fits whatever a user
could fit without us, judges each by rows that it has not seen, and combines them instead of
choosing (`local.stack`). The combination leans on the shared model; where it turns out worse than
the best model alone, on folds that its weights have not seen either, the task keeps that one.

| part              | made from                                                               |
|-------------------|-------------------------------------------------------------------------|
| `shared`          | the model that the method left with the task                            |
| `constant`        | the task's own mean, or how frequent its classes are                     |
| `linear`          | an exact ridge or (multinomial) logistic regression (`local.own`)        |
| `trees`           | randomised, or boosted where numbers are many (`local.boosted`) |
| `trees on shared` | the same, with what the shared model expects as one more column          |

Nothing here looks at another task, and nothing leaves a task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.data.federation import NUMBERS, Kind
from tacit.local.own import linear_raw, mean_of, raw_of
from tacit.local.threads import threads_for
from tacit.local.trees import TREES_EACH, Forests

PARTS = ("shared", "constant", "linear", "trees", "trees on shared")
SHARED, CONSTANT, LINEAR, TREES, ON_SHARED = range(len(PARTS))
ALONE = (CONSTANT, LINEAR, TREES)
"""What needs nobody else."""
PER_TASK = ("weights", "range", "constant", "linear")


@dataclass(frozen=True)
class Blend:
    """What tasks combined; `place[task]` is a task's row in everything else, −1 for none."""

    kind: Kind
    place: Tensor
    weights: Tensor
    """[k, parts]."""
    range: Tensor
    """[k, 2] lowest and highest that a number is predicted to be."""
    constant: Tensor
    """[k, outputs]."""
    linear: Tensor
    """[k, outputs, d + 1]."""
    trees: Forests
    on_shared: Forests
    holders: Tensor
    """[k, 2] a task's place in each of the two forests, −1 where it has none."""

    def __call__(self, x: Tensor, out: Tensor, task: Tensor) -> Tensor:
        """Raw outputs of every row, from those of its task's shared model.

        Tasks that came later (their number is beyond the others') have only that.
        """
        last = len(self.place) - 1
        where = torch.where(task <= last, self.place[task.clamp(max=last)], -1)
        # Whoever only has the shared model keeps it as it is, within reach.
        alike = (self.weights[:, SHARED] == 1) & self.range.isinf().all(dim=1)
        some = (where >= 0) & ~alike[where]
        if not bool(some.any()):
            return out
        found = out.clone()
        x = x.flatten(1)
        with threads_for(int(some.sum()) * TREES_EACH):
            said = self._combined(x[some], out[some], where[some])
        found[some] = said.reshape(out[some].shape)
        return found

    def _combined(self, x: Tensor, out: Tensor, where: Tensor) -> Tensor:
        weights = self.weights[where]
        shared = within(mean_of(self.kind, out), self.range[where])
        linear = within(mean_of(self.kind, linear_raw(self.linear[where], x)), self.range[where])
        total = weights[:, [SHARED]] * shared + weights[:, [LINEAR]] * linear
        total = total + weights[:, [CONSTANT]] * self.constant[where]
        beside = torch.cat([x, shared.to(x)], dim=1)
        for part, forests, seen, holder in (
            (TREES, self.trees, x, self.holders[where, 0]),
            (ON_SHARED, self.on_shared, beside, self.holders[where, 1]),
        ):
            has = holder >= 0
            if bool(has.any()):
                said = softened(
                    self.kind, forests(seen[has], holder[has]), self.constant[where[has]]
                )
                total[has] += weights[has][:, [part]] * said
        return raw_of(self.kind, total).to(out.dtype)

    @staticmethod
    def joined(some: list[Blend]) -> Blend:
        """The tasks of all; no task is in two of them."""
        place, first = some[0].place.clone(), len(some[0].weights)
        for one in some[1:]:
            place = torch.where(one.place >= 0, one.place + first, place)
            first += len(one.weights)
        held = torch.tensor([[len(one.trees), len(one.on_shared)] for one in some]).cumsum(0)
        before = torch.cat([torch.zeros(1, 2, dtype=torch.int64), held])
        holders = [
            torch.where(one.holders >= 0, one.holders + before[k].to(one.holders), -1)
            for k, one in enumerate(some)
        ]
        each = {name: torch.cat([getattr(one, name) for one in some]) for name in PER_TASK}
        return Blend(
            kind=some[0].kind,
            place=place,
            trees=Forests.joined([one.trees for one in some]),
            on_shared=Forests.joined([one.on_shared for one in some]),
            holders=torch.cat(holders),
            **each,
        )

    def trimmed(self) -> Blend:
        """Without trees that have no weight."""
        kept, holders = [], self.holders.clone()
        for number, (part, forests) in enumerate(
            ((TREES, self.trees), (ON_SHARED, self.on_shared))
        ):
            used = (self.holders[:, number] >= 0) & (self.weights[:, part] > 0)
            kept.append(forests.of(self.holders[used, number]))
            holders[:, number] = torch.where(used, used.cumsum(0) - 1, -1)
        return replace(self, trees=kept[0], on_shared=kept[1], holders=holders)

    def to_tensors(self) -> dict[str, Tensor]:
        """For a file of safetensors."""
        plain = {name: getattr(self, name) for name in ("place", *PER_TASK, "holders")}
        for name in ("trees", "on_shared"):
            plain |= {f"{name}.{k}": v for k, v in getattr(self, name).to_tensors().items()}
        return {name: value.cpu().contiguous() for name, value in plain.items()}

    @staticmethod
    def from_tensors(kind: Kind, found: dict[str, Tensor], columns: int) -> Blend:
        """Back from a file; anything that does not fit raises ValueError."""
        forests = [
            Forests.from_tensors(
                {k.split(".", 1)[1]: v for k, v in found.items() if k.startswith(f"{name}.")}, wide
            )
            for name, wide in (
                ("trees", columns),
                ("on_shared", columns + found["constant"].shape[1]),
            )
        ]
        rows, holders, outputs = len(found["weights"]), found["holders"], found["constant"].shape[1]
        shapes = {
            "weights": (rows, len(PARTS)),
            "range": (rows, 2),
            "constant": (rows, outputs),
            "linear": (rows, outputs, columns + 1),
            "holders": (rows, 2),
        }
        wrong = next((name for name, wide in shapes.items() if found[name].shape != wide), None)
        narrow = any(one.value.shape[1] != outputs for one in forests)
        if wrong is not None or narrow or found["place"].ndim != 1:
            raise ValueError(f"{wrong or 'what trees say'} has another shape than the other parts")
        if found["place"].max() >= rows or any(
            bool((holders[:, k] >= len(one)).any()) for k, one in enumerate(forests)
        ):
            raise ValueError("a task combines what is not there")
        return Blend(
            kind=kind,
            place=found["place"],
            trees=forests[0],
            on_shared=forests[1],
            holders=holders,
            **{name: found[name] for name in PER_TASK},
        )

    def cpu(self) -> Blend:
        """The same, away from a GPU."""
        kept = ("place", *PER_TASK, "holders")
        moved = {name: getattr(self, name).cpu() for name in kept}
        forests = {name: getattr(self, name).to("cpu") for name in ("trees", "on_shared")}
        return replace(self, **moved, **forests)

    @property
    def shares(self) -> dict[str, float]:
        """The mean weight of each part over all tasks; those that combine nothing have one."""
        weights = self.weights.sum(dim=0)
        weights[SHARED] += float((self.place < 0).sum())
        return dict(zip(PARTS, (weights / max(len(self.place), 1)).tolist(), strict=True))


def within(mean: Tensor, ends: Tensor) -> Tensor:
    """Numbers within reach of the task's own: one wild row is no reason for a wild guess.

    Nothing sensible (NaN) is said as zero, so that it is judged, and goes away with its weight.
    """
    return torch.nan_to_num(mean.double(), nan=0.0).clamp(ends[:, :1], ends[:, 1:])


def softened(kind: Kind, said: Tensor, constant: Tensor) -> Tensor:
    """Probabilities as if one more tree had said the constant: no class becomes impossible."""
    if kind in NUMBERS:
        return said.double()
    return (TREES_EACH * said.double() + constant) / (TREES_EACH + 1)
