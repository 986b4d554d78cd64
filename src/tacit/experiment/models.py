"""Personal models as files.

`models/` holds: `personal.safetensors` (every parameter of all tasks, stacked along the first axis
in the order of `tasks.json`), `combined.safetensors` (what tasks combine with these: weights,
constants, linear models, trees), `billboard.safetensors` (what is public), `scaling.safetensors`
(how each task scales its own rows) and `about.json` (names, target, schema, method). Personal
models belong to their tasks: in a simulation they lie in one folder, in real life they must not.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from tacit.data.federation import Federation, Rows, TargetScale
from tacit.data.heads import Heads
from tacit.data.preprocess import Preprocessing
from tacit.data.schema import Schema
from tacit.engine import evaluate
from tacit.engine.blend import Blend
from tacit.errors import TacitError
from tacit.experiment.newcomers import Newcomers, as_plain, from_plain
from tacit.experiment.predicts import Predicts
from tacit.files import create, make_folder, reading, replace, writing
from tacit.formula.design import FormulaSchema
from tacit.local.flat import FlatModel
from tacit.methods import Method
from tacit.methods.base import Board
from tacit.methods.publishing import HIDDEN
from tacit.models import MODELS

BLEND = "combined.safetensors"


def write_models(
    folder: Path,
    federation: Federation,
    model: FlatModel,
    personal: evaluate.Personal,
    shown: Board,
    name: str,
    method: Method | None = None,
    blend: Blend | None = None,
) -> None:
    """The models of these tasks, what is public, and how rows are read; `name` is the model's.

    With the `method`, what is public also gives a model to tasks that were not there.
    """
    make_folder(folder)
    if blend is not None:
        replace(folder / BLEND, safetensors.torch.save(blend.to_tensors()))
    tasks, step = len(federation), max(1, (64 << 20) // (4 * model.size))
    spans = (torch.arange(tasks, device=model.start.device)).split(step)
    named = (model.named(*personal(span)) for span in spans)
    _write_stacked(folder / "personal.safetensors", tasks, named)
    board = {
        name: value.cpu().contiguous()
        for name, value in shown.tensors.items()
        if not name.startswith(HIDDEN)
    }
    replace(folder / "billboard.safetensors", safetensors.torch.save(board))
    scaling = federation.preprocessing.to_tensors() if federation.preprocessing else {}
    if federation.target_scale is not None:
        scaling |= {
            "y.shift": federation.target_scale.shift,
            "y.scale": federation.target_scale.scale,
        }
    scaling = {name: value.cpu().contiguous() for name, value in scaling.items()}
    replace(folder / "scaling.safetensors", safetensors.torch.save(scaling))
    about = {
        "model": name,
        "kind": federation.kind,
        "outputs": federation.outputs,
        "input_shape": list(federation.input_shape),
        "features": list(federation.features),
        "own_columns": list(federation.own_columns),
        "labels": list(federation.labels),
        "heads": None if federation.heads is None else federation.heads.to_json(),
        "representation": federation.representation,
        "schema": federation.schema.to_json() if federation.schema else None,
        "tasks": list(federation.names),
        "method": None if method is None else as_plain(method),
        "frozen": model.frozen,
    }
    replace(folder / "about.json", json.dumps(about, ensure_ascii=False).encode())


def _write_stacked(path: Path, tasks: int, chunks: Any) -> None:
    """A safetensors file written chunk by chunk, so that it may be larger than memory."""
    first = next(chunks)
    header, offset = {}, 0
    for name, value in first.items():
        shape = [tasks, *value.shape[1:]]
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(path.name + ".part")
    with writing(path):
        with open(create(temporary), "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + offset)
        done = 0
        for chunk in itertools.chain([first], chunks):
            count = len(next(iter(chunk.values())))
            for name, value in chunk.items():
                begin, shape = header[name]["data_offsets"][0], tuple(header[name]["shape"])
                if 0 in shape:
                    continue
                table = np.memmap(temporary, np.float32, "r+", 8 + len(text) + begin, shape)
                table[done : done + count] = value.float().cpu().numpy()
                table.flush()
            done += count
        temporary.replace(path)


@dataclass(frozen=True)
class SavedModels(Predicts):
    """The models of a finished run, read back from its folder."""

    federation: Federation
    """Names, columns and scaling of the tasks, without their rows."""
    model: FlatModel
    """The kind of model that all tasks have."""
    parameters: dict[str, Tensor]
    """Those of every task, stacked."""
    newcomers: Newcomers
    """What predicts for tasks that did not take part."""
    blend: Blend | None = None
    """What tasks combine with their own model, where they do."""

    @classmethod
    def load(cls, folder: str | Path, model: nn.Module | None = None) -> SavedModels:
        """`model` is needed (with any parameters) when the run used a module of the user's own."""
        place = Path(folder) / "models" if (Path(folder) / "models").is_dir() else Path(folder)
        if not (place / "about.json").exists():
            raise TacitError(f"{folder} holds no models: give the folder that `--out` named")
        with reading(place, "put it back from a backup, or train again"):
            return cls._read(place, model)

    @classmethod
    def _read(cls, place: Path, model: nn.Module | None) -> SavedModels:
        about = json.loads((place / "about.json").read_text(encoding="utf-8"))
        scaling = safetensors.torch.load_file(place / "scaling.safetensors")
        parameters = safetensors.torch.load_file(place / "personal.safetensors")
        tasks, shape = about["tasks"], about["input_shape"]
        target = None
        if "y.shift" in scaling:
            target = TargetScale(scaling.pop("y.shift"), scaling.pop("y.scale"))
        empty = torch.zeros(0, *shape)
        nothing = Rows(empty, torch.zeros(0), torch.zeros(len(tasks) + 1).long())
        known: Any = {"schema": _schema(about["schema"]), "representation": about["representation"]}
        if scaling:
            known["preprocessing"] = Preprocessing.from_tensors(scaling)
        if about.get("heads"):
            known["heads"] = Heads.from_json(about["heads"])
        known |= {"features": tuple(about["features"]), "labels": tuple(about["labels"])}
        known |= {"own_columns": tuple(about.get("own_columns", ()))}
        kind, parts = (about["kind"], about["outputs"]), (nothing, nothing, nothing)
        federation = Federation(tasks, *kind, *parts, target_scale=target, **known)
        if model is None:
            if about["model"] not in MODELS:
                raise TacitError(
                    f"the run used a model of its own ({about['model']!r}): pass it too"
                )
            with torch.device("meta"):  # takes no memory, whatever sizes the file names
                _check_fits(MODELS[about["model"]](federation), parameters, len(tasks))
            model = MODELS[about["model"]](federation)
        flat = FlatModel(model, federation.kind)
        _check_fits(model, parameters, len(tasks))
        if about.get("frozen") not in (None, flat.frozen):
            raise TacitError(
                "the model's frozen parameters are not those of the run: pass the module with the "
                "body that it was trained with"
            )
        board = Board(safetensors.torch.load_file(place / "billboard.safetensors"))
        newcomers = Newcomers(from_plain(about.get("method")), flat, board)
        blend = None
        if (place / BLEND).exists():
            columns, found = math.prod(shape), safetensors.torch.load_file(place / BLEND)
            blend = Blend.from_tensors(federation.kind, found, columns)
        return cls(federation, flat, parameters, newcomers, blend)

    def models(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """As `Run.models`."""
        return self.model.stacked({name: value[tasks] for name, value in self.parameters.items()})


def _check_fits(model: nn.Module, parameters: Mapping[str, Tensor], tasks: int) -> None:
    """The stacked parameters of all tasks are those that this model learns."""
    learned = ((name, value) for name, value in model.named_parameters() if value.requires_grad)
    own = (*learned, *model.named_buffers())
    wanted = {name: (tasks, *value.shape) for name, value in own}
    found = {name: tuple(value.shape) for name, value in parameters.items()}
    wrong = next((name for name in wanted | found if wanted.get(name) != found.get(name)), None)
    if wrong is not None:
        raise ValueError(f"{wrong} is {found.get(wrong)}, expected {wanted.get(wrong)}")


def _schema(text: str | None) -> Schema | FormulaSchema | None:
    """How tables were read, as `about.json` has it."""
    if text is None:
        return None
    return (
        FormulaSchema.from_json(text) if "formula" in json.loads(text) else Schema.from_json(text)
    )
