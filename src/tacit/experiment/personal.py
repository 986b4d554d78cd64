"""One task's model as a torch module for raw rows: scaling and what it combines are inside.

Nothing in `forward` depends on the values of rows, so the whole of it can be exported.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.data.federation import Federation, Kind
from tacit.data.representation import FEATURES
from tacit.engine.blend import CONSTANT, LINEAR, ON_SHARED, SHARED, TREES, Blend, softened, within
from tacit.errors import TacitError
from tacit.files import make_folder, replace
from tacit.local.own import linear_raw, mean_of, raw_of
from tacit.local.trees import NODES, Forests

ROWS_AT_ONCE = 4096
"""Trees hold a number for every row and tree, so rows go through them a few at a time."""
NEEDED = ("onnx", "onnxscript")
RAW, SAID = "rows", "prediction"
"""What an exported model calls its input and its output."""


class PersonalModel(nn.Module):
    """Raw rows in, numbers in the target's units out (or scores: logits, logarithms of counts).

    `inner` is the network itself, which sees scaled rows and speaks in scaled targets. `exported`
    and `to_onnx` hand on all of it.
    """

    def __init__(
        self, inner: nn.Module, federation: Federation, task: int, blend: Blend | None = None
    ) -> None:
        super().__init__()
        self.inner = inner
        self.scaling = _Scaling(federation, task)
        self.representation = federation.representation
        self.combined = _Combined.of(blend, task)
        scale = federation.target_scale
        numbers = federation.kind == "regression" and scale is not None
        self._shift = float(scale.shift[task]) if numbers and scale is not None else 0.0
        self._scale = float(scale.scale[task]) if numbers and scale is not None else 1.0
        # What rows looked like before a representation is not kept.
        self._shape = None if self.representation else federation.input_shape
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """[n] or [n, outputs] for rows [n, …] as they were before training scaled them."""
        if torch.compiler.is_compiling() or len(x) <= ROWS_AT_ONCE:
            return self._some(x)
        return torch.cat([self._some(some) for some in x.split(ROWS_AT_ONCE)])

    def _some(self, x: Tensor) -> Tensor:
        seen = self.scaling(x)
        if self.representation is not None:
            seen = FEATURES[self.representation](seen)
        out = self.inner(seen)
        if out.ndim == 2 and out.shape[1] == 1:
            out = out[:, 0]
        if self.combined is not None:
            out = self.combined(seen, out)
        return self._shift + self._scale * out

    def exported(self, rows: Any = None) -> torch.export.ExportedProgram:
        """The whole model as `torch.export` has it, for any number of rows.

        `rows` are a few raw rows, of which only the shape counts; they are needed where a
        representation of images stands before the model.
        """
        if rows is None and self._shape is None:
            raise TacitError(
                f"what rows looked like before the representation {self.representation!r} is not "
                "kept: pass a few raw rows"
            )
        shape = self._shape if rows is None else tuple(torch.as_tensor(rows).shape[1:])
        # Of one row, shapes would be taken to be always one.
        some, sizes = torch.zeros(3, *(shape or ())), {0: torch.export.Dim("rows")}
        return self._traced(lambda: torch.export.export(self, (some,), dynamic_shapes=(sizes,)))

    def to_onnx(self, path: str | Path, rows: Any = None) -> Path:
        """Write the whole model for ONNX Runtime: `rows` (float32) in, `prediction` out.

        The file holds this task's own model, so it belongs to this task as the model does.
        """
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise TacitError(f"to_onnx needs {' and '.join(missing)}: pip install 'tacit[onnx]'")
        program, target = self.exported(rows), Path(path)
        names: dict[str, Any] = {"input_names": [RAW], "output_names": [SAID]}
        made = self._traced(lambda: torch.onnx.export(program, dynamo=True, verbose=False, **names))
        make_folder(target.parent)
        replace(target, made.model_proto.SerializeToString())
        return target

    def _traced(self, trace: Callable[[], Any]) -> Any:
        """What tracing finds; what cannot be traced is refused in a sentence."""
        about = logging.getLogger("torch.onnx")
        try:
            with warnings.catch_warnings():  # of PyTorch's exporter about itself
                warnings.simplefilter("ignore")
                about.setLevel(logging.ERROR)
                return trace()
        except Exception as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise TacitError(
                f"{type(self.inner).__name__} cannot be exported ({said}): what it does must not "
                "depend on the values of rows; rewrite that, or predict with run.predict"
            ) from error
        finally:
            about.setLevel(logging.NOTSET)


class _Scaling(nn.Module):
    """`Preprocessing.apply` for one task, with the same numbers."""

    shift: Tensor | None
    scale: Tensor | None
    fill: Tensor | None
    farthest: Tensor | None

    def __init__(self, federation: Federation, task: int) -> None:
        super().__init__()
        made = federation.preprocessing
        sides = (None, None, None) if made is None else (made.shift, made.scale, made.fill)
        for name, side in zip(("shift", "scale", "fill"), sides, strict=True):
            own = None if side is None else side[min(task, len(side) - 1)].cpu().clone()
            self.register_buffer(name, own)
        farthest = None if made is None or made.farthest is None else made.farthest.clone()
        self.register_buffer("farthest", farthest)

    def forward(self, x: Tensor) -> Tensor:
        shift, scale = self.shift, self.scale
        if shift is None or scale is None:
            return x.float()
        if x.ndim < 2 or math.prod(x.shape[1:]) != len(shift):
            raise TacitError(
                f"the rows have shape {tuple(x.shape)}, but training had {len(shift)} features; "
                "give the same columns"
            )
        flat = x.flatten(1)
        flat = torch.where(flat.isnan(), shift if self.fill is None else self.fill, flat)
        found = (flat - shift) / scale
        if self.farthest is not None:
            found = found.clamp(-self.farthest, self.farthest)
        return found.float().reshape(x.shape)


class _Combined(nn.Module):
    """`Blend` for one task, with all that the task combines inside."""

    kind: Kind
    range: Tensor
    constant: Tensor
    linear: Tensor

    def __init__(self, blend: Blend, place: int) -> None:
        super().__init__()
        self.kind, self.weights = blend.kind, blend.weights[place].tolist()
        for name in ("range", "constant", "linear"):
            self.register_buffer(name, getattr(blend, name)[place : place + 1].clone())
        self.forests = nn.ModuleDict()
        forests = ((TREES, blend.trees), (ON_SHARED, blend.on_shared))
        for holder, (part, found) in zip(blend.holders[place].tolist(), forests, strict=True):
            if holder >= 0:
                self.forests[str(part)] = _Forest(found.of(torch.tensor([holder])))

    @staticmethod
    def of(blend: Blend | None, task: int) -> _Combined | None:
        """None for a task that keeps the shared model as it is."""
        place = -1 if blend is None else int(blend.place[task])
        alone = blend is not None and place >= 0 and blend.weights[place, SHARED] < 1
        return _Combined(blend, place) if blend is not None and alone else None

    def forward(self, x: Tensor, out: Tensor) -> Tensor:
        x, kind, weights = x.flatten(1), self.kind, self.weights
        shared = within(mean_of(kind, out), self.range)
        rows = self.linear.expand(x.shape[0], -1, -1)
        linear = within(mean_of(kind, linear_raw(rows, x)), self.range)
        total = weights[SHARED] * shared + weights[LINEAR] * linear
        total = total + weights[CONSTANT] * self.constant
        beside = torch.cat([x, shared.to(x)], dim=1)
        for part, forest in self.forests.items():
            said = forest(beside if int(part) == ON_SHARED else x)
            total = total + weights[int(part)] * softened(kind, said, self.constant)
        return raw_of(kind, total).to(out.dtype).reshape(out.shape)


class _Forest(nn.Module):
    """The trees of one task; rows take as many steps as the deepest of them has."""

    def __init__(self, found: Forests) -> None:
        super().__init__()
        self._trees, self._steps = found.trees, found.depth
        for name in (*NODES, "roots"):
            self.register_buffer(name, getattr(found, name).cpu())

    def forward(self, x: Tensor) -> Tensor:
        nodes = {name: getattr(self, name) for name in (*NODES, "roots")}
        task = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        return Forests(self._trees, **nodes).each(x, task, self._steps).mean(dim=1)
