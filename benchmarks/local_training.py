"""Time the local training of many tasks: one after the other, and all at once.

Every way starts from the same parameters, sees the same batches and takes the same SGD steps in
plain float32 (no TF32); their results are compared before anything is timed, where rounding does
not decide where a network goes. Repetitions take turns and medians are reported, so that a busy
machine disturbs all of them alike.

    python benchmarks/local_training.py --device cpu
    python benchmarks/local_training.py --device cuda
    python benchmarks/local_training.py --device cuda --networks  # LeNet, MobileNetV2 and SegNet
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import kept
from tacit.data.federation import Kind
from tacit.local import flat
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.local.threads import threads_for
from tacit.local.together import Together
from tacit.models.cnn import UNITS, femnist_cnn, lenet_body
from tacit.models.mobilenet import CHANNELS, mobilenet_body
from tacit.models.segnet import SegNet, pixel_head

STEPS, BATCH, RATE, FEATURES = 5, 20, 0.05, 30


@dataclass(frozen=True)
class Workload:
    """A model, what it is trained on, and what one step of one task costs."""

    name: str
    kind: Kind
    outputs: int
    module: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    x: Tensor  # [task, step, batch, ...]
    y: Tensor
    step_flops: float
    chaotic: bool = False
    """Whether rounding decides where it goes from the second step on: with batch normalisation in
    many layers a plain loop in single precision ends half of the way from one in double."""

    @property
    def tasks(self) -> int:
        return len(self.x)


def _cnn(tasks: int, device: str, generator: torch.Generator) -> Workload:
    x = torch.randn(STEPS, tasks, BATCH, 1, 28, 28, generator=generator)
    y = torch.randint(62, (STEPS, tasks, BATCH), generator=generator)
    # Multiply-adds of a row, times the products they enter: the forward one, the weights' gradient
    # and, except for the first layer, the input's gradient.
    first, second, last = 24 * 24 * 25 * 32, 8 * 8 * 25 * 32 * 64, 1024 * 62
    flops = 2 * BATCH * (2 * first + 3 * second + 3 * last)
    module = _started(femnist_cnn(), generator).to(device)
    loss = functional.cross_entropy
    return Workload("CNN", "multiclass", 62, module, loss, *_on(device, x, y), flops)


def _linear(tasks: int, device: str, generator: torch.Generator) -> Workload:
    x = torch.randn(STEPS, tasks, BATCH, FEATURES, generator=generator)
    y = torch.randn(STEPS, tasks, BATCH, generator=generator)
    module = _started(nn.Linear(FEATURES, 1), generator).to(device)
    flops = 2 * BATCH * 2 * FEATURES
    loss = lambda out, y: functional.mse_loss(out.squeeze(1), y)  # noqa: E731
    return Workload("linear", "regression", 1, module, loss, *_on(device, x, y), flops)


def _networks(tasks: int, device: str, generator: torch.Generator) -> Iterator[Workload]:
    """Those of FedMTL's paper, on two steps: their heads have ten classes, or three of pixels."""
    made = {
        "LeNet": nn.Sequential(lenet_body(), nn.Linear(UNITS, 10)),
        "MobileNetV2": nn.Sequential(mobilenet_body(), nn.Linear(CHANNELS, 10)),
        "SegNet": nn.Sequential(SegNet(), pixel_head(3)),
    }
    for name, module in made.items():
        pixels = name == "SegNet"
        shape = (2, tasks, 8 if pixels else BATCH)
        x = torch.randn(*shape, 3, 32, 32, generator=generator)
        more, outputs = ((1, 32, 32), 3) if pixels else ((), 10)
        y = torch.randint(outputs, (*shape, *more), generator=generator)
        loss = _of_pixels if pixels else functional.cross_entropy
        kind = "segmentation" if pixels else "multiclass"
        yield Workload(
            name, kind, outputs, module.to(device), loss, *_on(device, x, y), 0.0, chaotic=True
        )


def _of_pixels(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y[:, 0])


def _on(device: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Tasks first, as every way wants them; steps first in memory, as the engine draws them."""
    return x.to(device).transpose(0, 1), y.to(device).transpose(0, 1)


def _started(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """The module with parameters drawn from the generator, so that runs can be repeated."""
    with torch.no_grad():
        for parameter in module.parameters():
            fan_in = parameter[0].numel()
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan_in**-0.5 * 0.5)
    return module


def one_by_one(work: Workload) -> Tensor:
    """Plain PyTorch as everyone writes it: a module and an optimiser per task."""
    trained = []
    for x, y in zip(work.x, work.y):
        module = copy.deepcopy(work.module)
        optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
        for rows, targets in zip(x, y):
            optimiser.zero_grad()
            work.loss(module(rows), targets).backward()
            optimiser.step()
        trained.append(_flat(module))
    return torch.stack(trained)


def one_by_one_lean(work: Workload) -> Tensor:
    """The same without an optimiser, images in the channels-last layout: the best loop we found."""
    trained = []
    for x, y in zip(work.x, work.y):
        module = copy.deepcopy(work.module)
        if x.ndim == 5:
            module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
            x = (
                x.flatten(0, 1)
                .contiguous(memory_format=torch.channels_last)
                .unflatten(0, x.shape[:2])
            )
        parameters = list(module.parameters())
        for rows, targets in zip(x, y):
            gradients = torch.autograd.grad(work.loss(module(rows), targets), parameters)
            with torch.no_grad():
                for parameter, slope in zip(parameters, gradients):
                    parameter.add_(slope, alpha=-RATE)
        trained.append(_flat(module))
    return torch.stack(trained)


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def all_at_once(work: Workload, chunk: int, *, fast: bool = True) -> Callable[[], Tensor]:
    """The engine's way: the client step of a task, traced and run for `chunk` tasks at a time."""
    model = FlatModel(work.module, work.kind).to(work.x.device)
    _, steps, batch = work.x.shape[:3]
    whole = torch.full((work.tasks, steps, batch), 1 / batch, device=work.x.device)
    start, buffers = model.start.expand(work.tasks, -1), model.buffers.expand(work.tasks, -1)
    together = Together(lambda shared, own: sgd(model, *own, lr=RATE)[0])
    numbers = work.x[0, 0, 0].numel() + model.check(work.x[0, 0], work.y[0, 0], work.outputs)

    def train() -> Tensor:
        trained = []
        for first in range(0, work.tasks, chunk):
            span = slice(first, first + chunk)
            batches = Batches(work.x[span], work.y[span], whole[span])
            stock = contextlib.nullcontext() if fast else _stock_convolutions()
            with stock, threads_for(chunk * batch * numbers):
                trained.append(together((), (start[span], buffers[span], batches)))
        return torch.cat(trained)

    return train


@contextlib.contextmanager
def _stock_convolutions() -> Iterator[None]:
    ours, flat.task_layers = flat.task_layers, contextlib.nullcontext
    try:
        yield
    finally:
        flat.task_layers = ours


def _seconds(call: Callable[[], Tensor], device: str) -> float:
    begin = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _medians(ways: dict[str, Callable[[], Tensor]], device: str, repeats: int) -> dict[str, float]:
    """Median seconds of each way, the ways taking turns."""
    for call in ways.values():
        _seconds(call, device)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, call in ways.items():
            taken[name].append(_seconds(call, device))
    return {name: statistics.median(values) for name, values in taken.items()}


def _apart(work: Workload, chunk: int) -> float:
    """How far the ways end from the plain loop, relative to the way that it went."""
    expected = one_by_one(work)
    size = (expected - _flat(work.module)).norm()
    found = [all_at_once(work, chunk)(), one_by_one_lean(work)]
    if work.name == "CNN":
        found.append(all_at_once(work, chunk, fast=False)())
    return max(float((each - expected).norm() / size) for each in found)


def _from_double(work: Workload, chunk: int) -> str:
    """How far tasks end from a loop in double precision, relative to their change."""
    if work.chaotic:
        work = dataclasses.replace(work, x=work.x[:, :1], y=work.y[:, :1])
    double = dataclasses.replace(
        work, module=copy.deepcopy(work.module).double(), x=work.x.double()
    )
    exact, said = one_by_one(double), []
    change = (exact - _flat(work.module)).norm(dim=1)
    for name, found in (("ours", all_at_once(work, chunk)()), ("plain loop", one_by_one(work))):
        off = (found.double() - exact).norm(dim=1) / change
        said.append(f"{name} {float(off.median()):.1e} (worst {float(off.max()):.1e})")
    return f"{work.name} from a loop in double precision, median over tasks: {', '.join(said)}"


def measure(work: Workload, chunk: int, device: str, repeats: int) -> dict[str, Any]:
    ways: dict[str, Callable[[], Tensor]] = {
        "loop": lambda: one_by_one(work),
        "vectorised": all_at_once(work, chunk),
        "lean loop": lambda: one_by_one_lean(work),
    }
    if work.name == "CNN":
        ways["vmap, stock convolution"] = all_at_once(work, chunk, fast=False)
    apart = math.nan if work.chaotic else _apart(work, chunk)
    # Rounding can flip a maximum or a sign, and SGD carries the difference on: two stock layouts
    # of the same loop end as far apart. After a single step all ways agree to 1e-6.
    assert work.chaotic or apart < 1e-2, f"the ways differ by {apart:.1e} of the change"
    side = 4096 if device == "cuda" else 2048
    matrix = torch.ones(side, side, device=device)
    ways["matrix product"] = lambda: matrix @ matrix
    seconds = _medians(ways, device, repeats)
    rate = 2 * side**3 / seconds.pop("matrix product")
    flops = work.step_flops * work.tasks * work.x.shape[1]
    return {
        "model": work.name,
        "tasks": work.tasks,
        "chunk": chunk,
        "seconds": seconds,
        "speedup over the loop": seconds["loop"] / seconds["vectorised"],
        "speedup over the lean loop": seconds["lean loop"] / seconds["vectorised"],
        "share of the matrix rate": {k: flops / v / rate for k, v in seconds.items()},
        "matrix rate, FLOP/s": rate,
        "difference, relative": apart,
    }


def _table(results: list[dict]) -> str:
    lines = [
        f"{'model':12}{'tasks':>6}{'chunk':>6}  {'way':25}{'ms':>9}"
        f"{'of matrix rate':>16}{'x loop':>9}"
    ]
    for result in results:
        loop = result["seconds"]["loop"]
        for way, seconds in result["seconds"].items():
            share = result["share of the matrix rate"][way]
            lines.append(
                f"{result['model']:12}{result['tasks']:6}{result['chunk']:6}  {way:25}"
                f"{seconds * 1e3:9.1f}{share:16.1%}{loop / seconds:9.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=100, help="tasks of the CNN")
    parser.add_argument("--chunk", type=int, nargs="+", help="tasks of the CNN at a time")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--networks", action="store_true", help="those of FedMTL, 20 tasks")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    generator = torch.Generator().manual_seed(0)
    chunks = given.chunk or [4 if given.device == "cpu" else given.tasks]
    cnn = _cnn(given.tasks, given.device, generator)
    results = [measure(cnn, chunk, given.device, given.repeats) for chunk in chunks]
    for tasks in (100, 1000):
        work = _linear(tasks, given.device, generator)
        results.append(measure(work, tasks, given.device, given.repeats))
    for work in _networks(20, given.device, generator) if given.networks else ():
        results.append(measure(work, work.tasks, given.device, given.repeats))
        print(f"first step: {_from_double(work, work.tasks)}", flush=True)
    hardware = (
        torch.cuda.get_device_name() if given.device == "cuda" else f"{given.threads} threads"
    )
    print(f"torch {torch.__version__}, {hardware}, {STEPS} steps of {BATCH} rows")
    print(_table(results))
    if given.device == "cuda":
        print(_from_double(cnn, chunks[0]))
    figures = {
        f"{one['model']}, {one['tasks']} tasks in chunks of {one['chunk']}: {than}": float(
            one[than]
        )
        for one in results
        for than in ("speedup over the loop", "speedup over the lean loop")
    }
    kept.report(f"local_training_{given.device}", figures, for_each=hardware)


if __name__ == "__main__":
    main()
