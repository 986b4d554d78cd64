"""Personal models as files, and predictions for new rows from them.

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
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from tacit import survival
from tacit.data.cells import task_names
from tacit.data.federation import Federation, Rows, TargetScale
from tacit.data.heads import Heads
from tacit.data.lacking import completed
from tacit.data.preprocess import Preprocessing
from tacit.data.representation import represent
from tacit.data.schema import Schema
from tacit.data.tabular import as_table
from tacit.engine import evaluate
from tacit.engine.blend import Blend
from tacit.engine.simulate import Simulation
from tacit.errors import TacitError
from tacit.experiment.newcomers import Newcomers, as_plain, from_plain
from tacit.experiment.personal import PersonalModel
from tacit.families import expected_count
from tacit.files import create, make_folder, reading, replace, writing
from tacit.formula.design import FormulaSchema
from tacit.local.flat import FlatModel
from tacit.methods import Method
from tacit.methods.base import Board
from tacit.methods.publishing import HIDDEN
from tacit.metrics import original_units
from tacit.models import MODELS

BLEND = "combined.safetensors"
ROWS_AT_ONCE = 65536
MODEL_BYTES = 256 << 20
"""Memory for the models that predict together."""


def save_models(
    simulation: Simulation,
    personal: evaluate.Personal,
    config: dict[str, Any],
    folder: Path,
    blend: Blend | None = None,
) -> None:
    """Write everything needed to predict for any of the tasks."""
    write_models(
        folder,
        simulation.federation,
        simulation.model,
        personal,
        simulation.rounds.shown,
        config["model"],
        simulation.method,
        blend,
    )


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
class SavedModels:
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

    def _personal(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        rows = {name: value[tasks] for name, value in self.parameters.items()}
        return self.model.stacked(rows)

    def personal(self, task: str) -> PersonalModel:
        """As `Run.personal`."""
        index = self.federation.index(task)
        w, buffers = self._personal(torch.tensor([index]))
        inner = self.model.module(w[0], buffers[0])
        return PersonalModel(inner, self.federation, index, self.blend)

    def predict(self, x: Any, tasks: Any = None, *, join: Any = None) -> np.ndarray:
        """As `Run.predict`."""
        of = self.model, self._personal, self.newcomers
        return predict(self.federation, *of, x, tasks, join, self.blend)

    def model_for(self, task: str, x: Any, y: Any) -> PersonalModel:
        """As `Run.model_for`."""
        return model_for(self.federation, self.newcomers, task, x, y)


def _check_fits(model: nn.Module, parameters: Mapping[str, Tensor], tasks: int) -> None:
    """The stacked parameters of all tasks are those that this model learns."""
    learned = ((name, value) for name, value in model.named_parameters() if value.requires_grad)
    own = (*learned, *model.named_buffers())
    wanted = {name: (tasks, *value.shape) for name, value in own}
    found = {name: tuple(value.shape) for name, value in parameters.items()}
    wrong = next((name for name in wanted | found if wanted.get(name) != found.get(name)), None)
    if wrong is not None:
        raise ValueError(f"{wrong} is {found.get(wrong)}, expected {wanted.get(wrong)}")


def predict(
    federation: Federation,
    model: FlatModel,
    personal: evaluate.Personal,
    newcomers: Newcomers,
    x: Any,
    tasks: Any = None,
    join: Any = None,
    blend: Blend | None = None,
) -> np.ndarray:
    """Predictions of each row by the model of its own task, in the target's units."""
    x, named = _rows(federation, x, tasks)
    there = set(federation.names)
    guests = [name for name in dict.fromkeys(named) if name not in there]
    if guests or join is not None:
        federation, personal = newcomers.beside(federation, personal, guests, join)
    number = {name: k for k, name in enumerate(federation.names)}
    numbers = np.array([number[name] for name in named], dtype=np.int64)
    if len(numbers) != len(x):
        raise TacitError(f"there are {len(x)} rows but {len(numbers)} task names")
    device = model.start.device
    order = np.argsort(numbers, kind="stable")
    raw = np.asarray(x, dtype=np.float32)[order]
    rows = torch.from_numpy(raw)
    if federation.preprocessing is not None:
        rows = federation.preprocessing.apply(raw, numbers[order])
    if not rows.isfinite().all():
        bad = int(order[int((~rows.isfinite()).reshape(len(rows), -1).any(dim=1).nonzero()[0])])
        raise TacitError(f"row {bad} holds a missing or infinite value: fill it in")
    if federation.representation is not None:
        rows = represent(federation.representation, rows)
    present, counts = np.unique(numbers, return_counts=True)
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])).to(device)
    sorted_rows = Rows(rows.to(device), torch.zeros(len(rows), device=device), offsets)
    present_on = torch.from_numpy(present).to(device)
    out = evaluate.outputs(
        model,
        lambda k: personal(present_on[k]),
        sorted_rows,
        torch.arange(len(present), device=device),
        lambda width: min(ROWS_AT_ONCE // width, MODEL_BYTES // (4 * model.size)),
    )
    if blend is not None:
        out = blend(sorted_rows.x, out, torch.from_numpy(numbers[order]).to(device))
    if federation.kind == "regression" and federation.target_scale is not None:
        scale = federation.target_scale
        here = TargetScale(scale.shift.cpu()[present], scale.scale.cpu()[present])
        values = original_units(out.cpu(), offsets.cpu(), here)
    elif federation.kind == "regression":
        values = out.cpu().numpy()
    elif federation.kind == "count":
        values = expected_count(out).cpu().numpy()
    elif federation.kind == "multiclass":
        values = out.softmax(dim=1).cpu().numpy()
    elif federation.kind == "segmentation":
        # The classes of a pixel compete within each head.
        heads = 1 if federation.heads is None else len(federation.heads)
        values = out.unflatten(1, (heads, -1)).softmax(dim=2).flatten(1, 2).cpu().numpy()
    elif federation.kind == "survival":
        values = np.column_stack(survival.predicted(out.double().cpu().numpy()))
    else:
        values = out.sigmoid().cpu().numpy()
    back = np.empty_like(values)
    back[order] = values
    return back


def model_for(
    federation: Federation, newcomers: Newcomers, task: str, x: Any, y: Any
) -> PersonalModel:
    """The model of a task that did not take part, from rows of its own."""
    rows, _ = _rows(federation, x, ())
    beside, (w, buffers) = newcomers.model_for(federation, str(task), rows, y)
    return PersonalModel(newcomers.model.module(w, buffers), beside, len(federation))


def _rows(federation: Federation, x: Any, tasks: Any) -> tuple[Any, list[str]]:
    """Raw rows, and whose each is: by `tasks`, or by the task column of a table."""
    schema = federation.schema
    if isinstance(x, str | Path | Mapping) or hasattr(x, "columns"):
        if schema is None:
            raise TacitError("the run was not made from a table: give rows of numbers, and tasks")
        x = as_table(x)
        if tasks is None:
            tasks = task_names(x, schema.task)
        if isinstance(schema, Schema):
            x, unlike = completed(schema, x)
            if unlike is not None:
                warnings.warn(unlike, stacklevel=4)
        x, _ = schema.matrix(x)
    if tasks is None:
        raise TacitError("rows of numbers do not say whose they are: pass tasks too")
    return x, [str(task) for task in tasks]


def _schema(text: str | None) -> Schema | FormulaSchema | None:
    """How tables were read, as `about.json` has it."""
    if text is None:
        return None
    return (
        FormulaSchema.from_json(text) if "formula" in json.loads(text) else Schema.from_json(text)
    )
