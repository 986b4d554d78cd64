"""The shapes of an additive model: what all tasks share, how much of it is noise, tasks' own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.inference.summary import label_of
from tacit.local.bumps import shapes_of, variances_of
from tacit.methods import Board, Method, SharedShapes
from tacit.models.additive import PLACES, shares
from tacit.privacy import NOT_COVERED, Guarantee

OWN_SHAPES = 30
"""Tasks whose own shapes are kept for the report; more lines could not be told apart."""
OWN_CENTRE = "spreads, from each task's own centre"


def shapes(
    method: Method,
    board: Board,
    federation: Federation,
    personal: Callable[[Tensor], tuple[Tensor, Tensor]],
    promise: Guarantee,
) -> dict[str, Any]:
    """Of every column: places and heights in units of the table, as far as those are public."""
    if not isinstance(method, SharedShapes):
        raise TacitError(f"{method.called} has no shapes: only runs of additive have")
    shared, blur = board["shared"].cpu(), board["blur"][0].cpu()
    columns = math.prod(federation.input_shape)
    found = shapes_of(shared)[:-1].reshape(columns, -1)
    noise = variances_of(blur).sqrt()
    some = torch.arange(min(len(federation), OWN_SHAPES), device=board["shared"].device)
    own = personal(some)[0].double().cpu()[:, :-1].reshape(len(some), columns, -1)
    unit, outcome = _unit(federation)
    names = federation.features
    names = names if len(names) == columns else tuple(f"column {k}" for k in range(columns))
    drawn = []
    for k, (places, words) in enumerate(_places(federation, columns)):
        if places is None:  # yes or no: heights at 0 and 1 are all that there is
            places = torch.tensor([0.0, 1.0], dtype=torch.float64)
            read = shares(places)
        else:
            read = torch.eye(len(PLACES), dtype=torch.float64)
        drawn.append(
            {
                "name": names[k],
                "places": places.tolist(),
                "units": words,
                "shared": (unit * (read @ found[k])).tolist(),
                "noise": (unit * (read @ noise[k])).tolist(),
                "own": (unit * (own[:, k] @ read.T)).tolist(),
            }
        )
    return {
        "label": label_of(promise),
        "own_label": NOT_COVERED,
        "outcome": outcome,
        "tasks": [federation.names[k] for k in some.tolist()],
        "columns": drawn,
    }


def _places(federation: Federation, columns: int) -> list[tuple[Tensor | None, str]]:
    """Where the places of each column are in the table; constants of a task's own stay there.

    None for columns of 0 and 1, which nobody scales.
    """
    places, made = torch.tensor(PLACES, dtype=torch.float64), federation.preprocessing
    if made is None:
        return [(places, "")] * columns
    shift, scale = made.shift.double().cpu(), made.scale.double().cpu()
    if federation.representation is not None or shift.shape[1] != columns:
        return [(places, OWN_CENTRE)] * columns
    alike = ((shift == shift[:1]) & (scale == scale[:1])).all(dim=0)
    alike[[k for k in federation.own_columns if k >= 0]] = False
    plain = (shift[0] == 0) & (scale[0] == 1) & alike
    found: list[tuple[Tensor | None, str]] = []
    for k in range(columns):
        if plain[k] and not plain.all():
            found.append((None, ""))
        elif alike[k]:
            found.append((shift[0, k] + scale[0, k] * places, ""))
        else:
            found.append((places, OWN_CENTRE))
    return found


def _unit(federation: Federation) -> tuple[float, str]:
    """What heights are multiplied with, and what they then are."""
    if federation.kind == "binary":
        return 1.0, "log odds"
    target = federation.target_scale
    if target is None:
        return 1.0, "the target"
    if -1 in federation.own_columns or not bool((target.scale == target.scale[0]).all()):
        return 1.0, "spreads of the target"
    return float(target.scale[0]), "the target"
