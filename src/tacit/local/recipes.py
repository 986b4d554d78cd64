"""The ways to a personal model that a task tries on its own rows."""

from __future__ import annotations

from typing import Literal, NamedTuple

Personalise = Literal["best", "none", "vanilla", "mean", "kl", "ewc"]


class Recipe(NamedTuple):
    """Where training starts, what it minimises (`tacit.local.objectives`), and how strongly.

    `alone` starts from the untrained model, `billboard` from what is public, `own` from the model
    that the method left with the task.
    """

    start: Literal["alone", "own", "billboard"]
    objective: str = "vanilla"
    strength: float = 0.0

    def __str__(self) -> str:
        if self.start == "alone":
            return "trained alone"
        source = "own model" if self.start == "own" else "billboard"
        how = "" if self.objective == "vanilla" else f", {self.objective} {self.strength:g}"
        return f"{source}, fine-tuned{how}"


class Candidate(NamedTuple):
    """A recipe, stopped after so many blocks of local steps."""

    recipe: Recipe
    stop: int

    def __str__(self) -> str:
        if self.stop == 0:
            return "own model as it is" if self.recipe.start == "own" else "billboard as it is"
        return str(self.recipe)

    @property
    def kind(self) -> tuple[str, str, bool]:
        """Where it started, what it minimised, and whether it trained at all."""
        return self.recipe.start, self.recipe.objective, self.stop > 0


ALONE = Recipe("alone")
RECIPES: dict[str, tuple[Recipe, ...]] = {
    "none": (),
    "vanilla": (Recipe("own"),),
    "mean": tuple(Recipe("own", "mean", strength) for strength in (0.01, 0.1, 1.0)),
    "kl": tuple(Recipe("own", "kl", strength) for strength in (0.1, 1.0, 10.0)),
    "ewc": tuple(Recipe("own", "ewc", strength) for strength in (1.0, 10.0, 100.0)),
    "best": (
        ALONE,
        Recipe("billboard"),
        Recipe("billboard", "mean", 0.1),
        Recipe("billboard", "mean", 1.0),
        Recipe("billboard", "kl", 1.0),
        Recipe("own"),
    ),
}
"""What each mode of `personalise` tries."""
