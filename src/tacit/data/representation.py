"""Fixed representations: public functions of a row, chosen before any data are seen.

What is shared decides the noise: it grows with the square root of the number of shared parameters.
A linear layer on a good fixed representation has a thousand of them where a network has a hundred
thousand, and needs fewer rounds. Nothing here is learnt from the tasks, so it costs no privacy.

`strokes`, for small grey images of handwriting: histograms of oriented gradients (Dalal & Triggs,
"Histograms of Oriented Gradients for Human Detection", CVPR 2005, with Gaussian cells), whitened by
the covariance that they have on *made-up* images of random pen strokes. That is a guess about
handwriting in general which uses nobody's handwriting.

`unit`, for any rows: each at length one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.errors import TacitError

ORIENTATIONS, CELLS, KEPT = 8, 5, 100
MADE_UP = 4000
"""Images of random strokes that the whitening is computed from."""
SHRINK = 0.1
"""Added to every eigenvalue, as a share of their mean: rare directions are not blown up."""
LENGTH = 10.0
"""Mean length of a represented image, so that step sizes near 0.1 suit a linear layer."""


def strokes(x: Tensor) -> Tensor:
    """[N, 1, S, S] in [0, 1] -> [N, 100]. An image on a bright ground is turned over first."""
    if x.ndim != 4 or x.shape[1] != 1 or x.shape[2] != x.shape[3] or x.shape[2] < 16:
        raise TacitError(
            f"the representation 'strokes' needs grey square images of at least 16 x 16, but rows "
            f"have shape {tuple(x.shape[1:])}"
        )
    bright = x.mean(dim=(1, 2, 3), keepdim=True) > 0.5
    x = torch.where(bright, 1 - x, x)
    centre, whiten = (side.to(x.device) for side in _whitening(x.shape[2]))
    return (_oriented(x) - centre) @ whiten


def unit(x: Tensor) -> Tensor:
    """Every row at length one; a row of zeros stays."""
    return F.normalize(x.flatten(1), dim=1).view_as(x)


FEATURES: dict[str, Callable[[Tensor], Tensor]] = {"strokes": strokes, "unit": unit}


def represent(name: str, x: Tensor, rows: int = 1000) -> Tensor:
    """All rows through a representation by name, a few at a time."""
    if name not in FEATURES:
        raise TacitError(f"represent={name!r}: choose one of {', '.join(FEATURES)}")
    return torch.cat([FEATURES[name](part) for part in x.split(rows)] or [FEATURES[name](x)])


def _oriented(x: Tensor) -> Tensor:
    """Gradient energy by direction and place, as a vector of length one."""
    size = x.shape[2]
    t = torch.arange(-3.0, 4.0, device=x.device)
    bump = torch.exp(-(t**2) / 2)
    bump = bump / bump.sum()
    kernels = torch.stack([bump[:, None] * (-t * bump), (-t * bump)[:, None] * bump]).unsqueeze(1)
    slope = F.conv2d(x, kernels, padding=3)
    strength = slope.norm(dim=1, keepdim=True) + 1e-6
    angle = torch.arange(ORIENTATIONS, device=x.device) * (2 * math.pi / ORIENTATIONS)
    towards = torch.stack([angle.cos(), angle.sin()], dim=1)
    along = torch.einsum("oc,nchw->nohw", towards, slope) / strength
    energy = strength * along.relu() ** 3
    scale = size / 28
    centres = torch.linspace(-9.5, 9.5, CELLS, device=x.device) * scale + (size - 1) / 2
    place = torch.arange(float(size), device=x.device)
    cells = torch.exp(-((place - centres[:, None]) ** 2) / (2 * (2.5 * scale) ** 2))
    cells = cells / cells.sum(dim=1, keepdim=True)
    pooled = torch.einsum("ih,nohw,jw->noij", cells, energy, cells).flatten(1)
    root = (pooled + 1e-8).sqrt()
    return root / root.norm(dim=1, keepdim=True)


@lru_cache(maxsize=4)
def _whitening(size: int) -> tuple[Tensor, Tensor]:
    """Centre and matrix of an affine map, from made-up strokes only."""
    seen = torch.cat([_oriented(part) for part in _random_strokes(size).split(500)])
    centre = seen.mean(dim=0)
    around = seen - centre
    values, vectors = torch.linalg.eigh(around.T @ around / len(seen))
    values, vectors = values.flip(0)[:KEPT], vectors.flip(1)[:, :KEPT]
    # The sign of an eigenvector is arbitrary: fix it, so that machines agree.
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True)).sign()
    whiten = vectors / (values + SHRINK * values.mean()).sqrt()
    return centre, whiten * LENGTH / (around @ whiten).norm(dim=1).mean()


def _random_strokes(size: int) -> Tensor:
    """One to three Bézier curves per image, scaled and centred as digits usually are."""
    generator = torch.Generator().manual_seed(0)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    corners = (uniform(MADE_UP, 3, 4, 2) - 0.5) * torch.tensor([20.0, 26.0])
    for later in (1, 2):  # most strokes go on where the last one ended
        goes_on = uniform(MADE_UP, 1) < 0.7
        corners[:, later, 0] = torch.where(goes_on, corners[:, later - 1, 3], corners[:, later, 0])
    t = torch.linspace(0, 1, 24).unsqueeze(1)
    basis = torch.cat([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], dim=1)
    points = torch.einsum("tb,nsbc->nstc", basis, corners)
    drawn = torch.arange(3) <= torch.randint(0, 3, (MADE_UP, 1), generator=generator)
    here = drawn[:, :, None, None]
    low = torch.where(here, points, math.inf).amin(dim=(1, 2), keepdim=True)
    high = torch.where(here, points, -math.inf).amax(dim=(1, 2), keepdim=True)
    wide = (high - low).amax(dim=3, keepdim=True).clamp(min=6.0)
    points = (points - (low + high) / 2) * 18 / wide
    middle = (points * here).sum(dim=(1, 2), keepdim=True) / (24 * here.sum(dim=1, keepdim=True))
    scale = size / 28
    points = torch.where(here, (points - middle + 13.5) * scale, 1e3).reshape(MADE_UP, -1, 2)
    thick = (0.8 + 0.8 * uniform(MADE_UP, 1, 1)) * scale
    across = torch.arange(float(size))
    images = []
    for these, width in zip(points.split(200), thick.split(200), strict=True):
        x = (across[None, None, :, None] - these[:, None, None, :, 0]) ** 2
        y = (across[None, :, None, None] - these[:, None, None, :, 1]) ** 2
        images.append(torch.sigmoid((width - (x + y).amin(dim=3).sqrt()) * 2.5 / scale))
    return torch.cat(images).unsqueeze(1)
