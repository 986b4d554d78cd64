"""Any `torch.nn.Module` as a pure function of one flat parameter vector.

Methods clip, add and average vectors; modules want named tensors. `FlatModel` goes between. Its
functions are written for one task; the engine lifts them over a cohort with `torch.func.vmap`.

Frozen parameters (`requires_grad=False`) stay in the module: they are public constants, are not
shared, and so add no noise. Buffers (BatchNorm's running statistics) are computed from a task's
rows. They travel as a second flat vector that belongs to the task's own state and is never part of
a contribution.
"""

from __future__ import annotations

import copy
import hashlib
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from tacit.data.federation import ONE_OUTPUT, Federation, Kind
from tacit.errors import TacitError
from tacit.local.bags import words_of
from tacit.local.convolution import task_layers
from tacit.local.descent import joined
from tacit.local.dropout import own_chance
from tacit.local.losses import weighted_loss
from tacit.local.slopes import grad

ModelFactory = Callable[[Federation], nn.Module]


@dataclass(frozen=True)
class _Slot:
    """Where one named tensor lies in a flat vector."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    begin: int
    end: int
    upright: bool = False
    """Whether a matrix lies in it column by column."""

    def lying(self, value: Tensor) -> Tensor:
        """With its numbers in the order that the flat vector has them in."""
        return value.T if self.upright else value


class _Module:
    """A module for each thread: parameters are put into it while it is called, and threads that
    work side by side must not see each other's."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self._untouched = module, copy.deepcopy(module)
        self._first, self._local = threading.get_ident(), threading.local()

    @property
    def here(self) -> nn.Module:
        """That of the thread which asks; the first one has the module itself."""
        if threading.get_ident() == self._first:
            return self.module
        if not hasattr(self._local, "module"):
            self._local.module = copy.deepcopy(self._untouched)
        return self._local.module


class _Borrowed(_Module):
    """A module of the thread that made it, which no other one uses."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    @property
    def here(self) -> nn.Module:
        return self.module


class FlatModel:
    """A module, its starting point, and its training loss, as functions of flat vectors.

    Attributes
    ----------
    start : Tensor [d], the parameters the module came with, or those that fit public rows
    buffers : Tensor [b], its buffers (`b` is 0 for most models)
    """

    def __init__(self, module: nn.Module, kind: Kind) -> None:
        self.kind: Kind = kind
        self.steepest: float | None = None
        """Longer gradients are shortened to this."""
        self.fitted = False
        """Whether `start` was fitted on public rows."""
        self.traced: dict[Any, Any] = {}
        """Traced functions of this model, so that several runs with it trace them once."""
        self.words = self.vocabulary = words_of(module)
        """How many words it knows, and how many there are, where it is linear in bags of them."""
        self._train = _Module(copy.deepcopy(module).train())
        self._eval = _Module(copy.deepcopy(module).eval())
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._parameters, self.start = _flatten(trained)
        self._buffers, self.buffers = _flatten(dict(module.named_buffers()))
        if self.start.numel() == 0:
            raise TacitError("the model has no trainable parameters, so there is nothing to learn")

    @property
    def size(self) -> int:
        return self.start.numel()

    @property
    def frozen(self) -> str | None:
        """A digest of the parameters that are not learned; None where all are."""
        still = [(n, p) for n, p in self.predicting.named_parameters() if not p.requires_grad]
        if not still:
            return None
        digest = hashlib.sha256()
        for name, value in still:
            digest.update(f"{name} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().double().contiguous().numpy().data)
        return digest.hexdigest()[:16]

    @property
    def training(self) -> nn.Module:
        """The module as it trains, with the parameters that it came with."""
        return self._train.module

    @property
    def predicting(self) -> nn.Module:
        """The same as it predicts."""
        return self._eval.module

    def split(self, w: Tensor) -> list[Tensor]:
        """The parameters in a flat vector, in their order and shapes."""
        return list(_unflatten(self._parameters, w).values())

    @property
    def upright(self) -> bool:
        """Whether its first parameter lies column by column."""
        return self._parameters[0].upright

    @property
    def layers(self) -> list[tuple[str, int]]:
        """Layers with parameters in their order, and where each begins in the flat vector."""
        begins: dict[str, int] = {}
        for slot in self._parameters:
            begins.setdefault(slot.name.rpartition(".")[0], slot.begin)
        return list(begins.items())

    @property
    def headed(self) -> bool:
        """Whether it is a body with a layer for each head."""
        return any(slot.name.startswith("heads.") for slot in self._parameters)

    @property
    def parts(self) -> list[slice]:
        """The shared part of the flat vector, then each head's (of `tacit.models.MultiHead`).

        A model without heads has its last layer as its only one.
        """
        named = [slot for slot in self._parameters if slot.name.startswith("heads.")]
        if not named:
            last = self.layers[-1][1]
            return [slice(0, last), slice(last, self.size)]
        ends: dict[str, int] = {}
        for slot in named:
            ends[slot.name.split(".")[1]] = slot.end
        bounds = [named[0].begin, *ends.values()]
        return [slice(0, bounds[0]), *map(slice, bounds, bounds[1:])]

    def spread(self, shared: Tensor, heads: Tensor) -> Tensor:
        """One number for the shared part and one for each head, as a vector of parameters."""
        sizes = [part.stop - part.start for part in self.parts]
        each = torch.cat([shared.reshape(1), heads.to(shared.dtype)])
        return torch.cat([each[k].expand(size) for k, size in enumerate(sizes)])

    def to(self, device: torch.device | str) -> FlatModel:
        moved = copy.copy(self)
        moved._train = _Module(copy.deepcopy(self.training).to(device))
        moved._eval = _Module(copy.deepcopy(self.predicting).to(device))
        moved.traced = {}
        moved.start, moved.buffers = self.start.to(device), self.buffers.to(device)
        return moved

    @property
    def known(self) -> Tensor:
        """What public rows say of the parameters [d]; zeros where there are none."""
        return self.start if self.fitted else torch.zeros_like(self.start)

    def begun_at(self, w: Tensor, buffers: Tensor) -> FlatModel:
        """The same model with a start that was fitted on public rows."""
        other = copy.copy(self)
        other.start, other.buffers = w.to(self.start), buffers.to(self.buffers)
        other.fitted, other.traced = True, {}
        return other

    def narrowed(
        self, change: Callable[[nn.Module], nn.Module], first: tuple[int, int], start: Tensor
    ) -> FlatModel:
        """The same model with fewer columns in its first parameter, whose flat vectors have them
        one after the other, and with this start.

        `change` makes a module for those of each of the two that the calling thread has; the model
        is for this thread alone.
        """
        other = copy.copy(self)
        other._train, other._eval = (
            _Borrowed(change(side.here)) for side in (self._train, self._eval)
        )
        whole, *behind = self._parameters
        size = first[0] * first[1]
        fewer = whole.end - whole.begin - size
        moved = (replace(slot, begin=slot.begin - fewer, end=slot.end - fewer) for slot in behind)
        table = replace(whole, shape=torch.Size(first), end=size, upright=True)
        other._parameters = [table, *moved]
        other.start, other.traced = start, {}
        other.words = None if self.words is None else first[1]
        return other

    def bounded(self, steepest: float | None) -> FlatModel:
        """The same model with gradients at most so long; None for as long as they are."""
        if steepest == self.steepest:
            return self
        other = copy.copy(self)
        other.steepest, other.traced = steepest, {}
        return other

    def loss(
        self, w: Tensor, buffers: Tensor, x: Tensor, y: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Weighted mean loss of one batch in training mode, and the buffers after it."""
        return self._loss(_unflatten(self._parameters, w), buffers, x, y, weight)

    def gradient(
        self,
        w: Tensor,
        buffers: Tensor,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        penalty: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The gradient of `loss` (plus a penalty on the outputs), and the buffers after it."""
        slopes, after = self.slopes(w, buffers, x, y, weight, penalty)
        return joined(slopes), after

    def slopes(
        self,
        w: Tensor,
        buffers: Tensor,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        penalty: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """The same in parts of any shape, which lie in the flat vector one after the other.

        Taken by named parameter: through the slices of the flat vector every layer's gradient
        would be padded to the length of the whole.
        """
        named = _unflatten(self._parameters, w)
        found, after = grad(self._loss, has_aux=True)(named, buffers, x, y, weight, penalty)
        slopes = [slot.lying(found[slot.name]).to(w.dtype) for slot in self._parameters]
        if self.steepest is not None:
            slope = joined(slopes)
            length = torch.linalg.vector_norm(slope)
            slopes = [slope * (self.steepest / length.clamp(min=self.steepest))]
        return slopes, after

    def _loss(
        self,
        named: dict[str, Tensor],
        buffers: Tensor,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        penalty: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        kept = {key: value.clone() for key, value in _unflatten(self._buffers, buffers).items()}
        output = self._call(self._train.here, named, kept, x, weight)
        loss = weighted_loss(self.kind, output, y, weight)
        if penalty is not None:
            loss = loss + penalty(output)
        return loss, _join(self._buffers, kept, buffers)

    def predict(self, w: Tensor, buffers: Tensor, x: Tensor) -> Tensor:
        """Raw outputs (predictions or logits) of one task's rows: [n] or [n, outputs]."""
        named = _unflatten(self._parameters, w)
        return self._call(self._eval.here, named, _unflatten(self._buffers, buffers), x)

    def _call(
        self,
        module: nn.Module,
        named: dict[str, Tensor],
        buffers: dict[str, Tensor],
        x: Tensor,
        weight: Tensor | None = None,
    ) -> Tensor:
        with task_layers(weight):
            output = functional_call(module, {**named, **buffers}, (x,))
        flat = self.kind in ONE_OUTPUT and output.ndim == 2
        return output.squeeze(1) if flat else output

    def module(self, w: Tensor, buffers: Tensor) -> nn.Module:
        """A module of its own with these parameters, for people who want plain PyTorch."""
        personal = copy.deepcopy(self.predicting).cpu()
        named = _unflatten(self._parameters, w.cpu()) | _unflatten(self._buffers, buffers.cpu())
        personal.load_state_dict({key: value.clone() for key, value in named.items()}, strict=False)
        return personal

    def named(self, w: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        """Stacked vectors [k, d] as named tensors [k, ...], the way a module's file holds them."""
        both = ((self._parameters, w), (self._buffers, buffers))
        return {
            slot.name: rows[:, slot.begin : slot.end].reshape(len(rows), *slot.shape)
            for slots, rows in both
            for slot in slots
        }

    def stacked(self, named: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The reverse of `named`."""
        count = len(next(iter(named.values())))
        parts = [
            torch.cat([named[slot.name].reshape(count, -1) for slot in slots], dim=1)
            if slots
            else torch.zeros(count, 0)
            for slots in (self._parameters, self._buffers)
        ]
        return parts[0], parts[1]

    def check(self, x: Tensor, y: Tensor, outputs: int, *, trained: bool = True) -> int:
        """Try two tasks at once before work starts; returns how many activations a row has.

        A layer that cannot be vectorised, or an output of the wrong shape, is refused by name.
        Where no method takes gradients (`trained`), they are not tried.
        """
        entered: list[str] = []
        numbers = [0]
        handles = []
        for name, layer in self.training.named_modules():
            if not any(True for _ in layer.children()):
                title = f"{name or 'model'} ({type(layer).__name__})"
                handles.append(layer.register_forward_pre_hook(_remember(entered, title)))
                handles.append(layer.register_forward_hook(_count(numbers)))
        two = torch.stack([x, x])
        weight = torch.full((len(x),), 1.0 / len(x), device=x.device)

        def attempt(w: Tensor, buffers: Tensor, rows: Tensor) -> Tensor:
            named, kept = (
                _unflatten(self._parameters, w),
                _unflatten(self._buffers, buffers.clone()),
            )
            with own_chance(torch.zeros((), dtype=torch.int64, device=x.device)):
                output = self._call(self.training, named, kept, rows)
                self._check_shape(output, y, outputs)
                return self.gradient(w, buffers, rows, y, weight)[0] if trained else output

        try:
            stacked = self.start.expand(2, -1), self.buffers.expand(2, -1).clone()
            vmap(attempt, randomness="error")(*stacked, two)
        except TacitError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else ""
            where = entered[-1] if entered else type(self.training).__name__
            raise TacitError(
                f"layer {where} does not run on inputs of shape {tuple(x.shape[1:])} for many "
                f"tasks at once ({reason}); replace this layer or change the input's shape"
            ) from error
        finally:
            for handle in handles:
                handle.remove()
        # Hooks fire for the shape check and again for the gradient, each on `len(x)` rows.
        return numbers[0] // max((1 + trained) * len(x), 1)

    def _check_shape(self, output: Tensor, y: Tensor, outputs: int) -> None:
        flat, pixels = self.kind in ONE_OUTPUT, self.kind == "segmentation"
        expected = (len(y),) if flat else (len(y), outputs, *(y.shape[2:] if pixels else ()))
        if tuple(output.shape) != expected:
            wanted = "one number" if flat else f"{outputs} numbers"
            raise TacitError(
                f"the model returns shape {tuple(output.shape)} for {len(y)} rows, but a "
                f"{self.kind} target needs {wanted} per {'pixel' if pixels else 'row'}; change the "
                "model's last layer"
            )


def build(model: nn.Module | ModelFactory, federation: Federation, seed: int) -> FlatModel:
    """A module as it is, or a factory called with the federation under a seed of its own."""
    if isinstance(model, nn.Module):
        return FlatModel(model, federation.kind)
    if not callable(model):
        raise TacitError(f"model is {model!r}, but a torch.nn.Module or a factory is needed")
    # Layers initialise themselves from torch's default generator; its state is put back.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = model(federation)
    return FlatModel(module, federation.kind)


def _flatten(tensors: Mapping[str, Tensor]) -> tuple[list[_Slot], Tensor]:
    slots, begin = [], 0
    for name, tensor in tensors.items():
        end = begin + tensor.numel()
        slots.append(_Slot(name, tensor.shape, tensor.dtype, begin, end))
        begin = end
    parts = [tensor.detach().reshape(-1).float() for tensor in tensors.values()]
    return slots, torch.cat(parts) if parts else torch.zeros(0)


def _unflatten(slots: list[_Slot], flat: Tensor) -> dict[str, Tensor]:
    if not slots:
        return {}
    parts = flat.split([slot.end - slot.begin for slot in slots])
    shaped = [
        (slot, part.view(slot.shape[::-1]).T if slot.upright else part.reshape(slot.shape))
        for slot, part in zip(slots, parts, strict=True)
    ]
    return {
        slot.name: part if slot.dtype.is_floating_point else part.to(slot.dtype)
        for slot, part in shaped
    }


def _join(slots: list[_Slot], named: dict[str, Tensor], like: Tensor) -> Tensor:
    if not slots:
        return like
    each = (slot.lying(named[slot.name]) for slot in slots)
    return torch.cat([value.reshape(-1).to(like.dtype) for value in each])


def _remember(entered: list[str], title: str):
    return lambda module, args: entered.append(title)


def _count(numbers: list[int]):
    def hook(module: nn.Module, args: tuple, output: object) -> None:
        if isinstance(output, Tensor):
            numbers[0] += math.prod(output.shape)

    return hook
