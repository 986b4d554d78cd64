"""What arguments mean that many functions share, so that each function need not say it again."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

SHARED = {
    "federation": "the tasks with their rows, as `tacit.data` makes them",
    "problem": "rows of all tasks, as `Problem.of` makes them",
    "strength": "how strong the penalty is; 0 is none",
    "strengths": "the penalties to try",
    "solver": "one of `SOLVERS`, or one of them with `functools.partial`",
    "start": "models [tasks, features] to begin at; zeros by default",
    "ridge": "a second penalty, on the length of the weights",
    "seed": "decides all that is random",
    "progress": "what is told how far the work is; a bar in terminals and notebooks by default",
    "path": "the file to read",
    "name_or_path": "a name that `tacit data` lists, or the path of a file",
    "options": "any other option of the function that reads it, such as `task` and `target`",
    "settings": "any other setting of `tacit.train`",
    "source": "what the data are called in reports",
    "validation": "share of each task's rows to choose models by",
    "test": "share of each task's rows to measure on",
    "split_seed": "seed of the shuffle that splits each task's rows",
    "min_rows": "leave out tasks with fewer rows",
    "scale": "how columns are scaled: inside each task, not at all, or by public constants",
    "target_scale": "the same for a target that is a number",
    "channels": "of the images: 1 for grey ones, 3 for colours",
    "size": "width and height of the images, in pixels",
    "classes": "how many outputs the last layer has",
    "filters": "how many filters each convolution has",
    "channel": 'what was used: "billboard", "exchange" or "nothing"',
    "privacy": "what was asked for; None where nothing is hidden",
    "tasks": "how many tasks there are",
    "sampler": "who takes part in a round, as `sampler_for` makes it",
    "sampling": '"poisson", "in-turn" or "everyone"',
    "clip": "the greatest length of a contribution",
    "beside": "further sentences and leaks, as fields of a `Guarantee`",
    "delta": "the chance that the bound may fail",
    "neighbours": '"add-remove" or "replace": what two sets of data may differ in',
    "replaced": "how far the sum moves when one task is replaced, in clips",
    "at_most": "at how many tasks a person may be",
}


def rows(thing: Any, said: str) -> Iterator[str]:
    """Of a function: arguments that its own words do not name, and what it returns."""
    if not inspect.isfunction(thing):
        return
    signature = inspect.signature(thing)
    for name in unsaid(thing, said):
        yield f"| `{name}` | {SHARED[name]} |"
    returned = signature.return_annotation
    if returned not in (inspect.Signature.empty, None, "None"):
        shown = returned if isinstance(returned, str) else inspect.formatannotation(returned)
        yield f"| returns | `{shown.replace('|', 'or')}` |"


def unsaid(thing: Any, said: str) -> list[str]:
    """Arguments of a function, or fields that a class takes, which its words do not name."""
    if dataclasses.is_dataclass(thing):
        names = [one.name for one in dataclasses.fields(thing) if one.init]
    elif inspect.isfunction(thing):
        names = list(inspect.signature(thing).parameters)
    else:
        names = []
    named = set(re.findall(r"\w+", said))
    return [name for name in names if not name.startswith("_") and name not in named]
