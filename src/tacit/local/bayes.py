"""Linear, logistic and Poisson regression of one task under a Gaussian prior, solved exactly.

The prior is w ~ N(mean, r·σ²·RRᵀ): a shape R that others agreed on, and a strength r that the task
finds out by itself, from its evidence p(y | X, r) on its own rows. Strengths are named by t, the
decimal logarithm of how much more of the target the prior explains than the noise (others: of the
prior variance of a row's score); so a grid of t suits data of any scale.

    squared    evidence ∝ |I + rK|^(−½) (eᵀ(I + rK)⁻¹e)^(−n/2)      K = XRRᵀXᵀ, e = y − X·mean
    families   the same by Laplace's approximation around the maximum, found by Newton steps

The noise variance σ² is integrated out. Written for one task (`torch.func.vmap` lifts it), without
branches on data, in double precision: a ratio of 10³ leaves single precision no digits for quad.
Systems that have no solution are solved by numbers that are not finite (`solve_ex`), and never by
an error: that would end everybody's run, and so tell of a single task's rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.data.federation import Kind
from tacit.errors import TacitError
from tacit.families import FAMILIES, Family
from tacit.local.batches import Batches

NEWTON_STEPS = 12
WHOLE, GRADIENTS = 100, 8
"""Up to so many coefficients a Newton step is solved as one system; beyond, by so many conjugate
gradients: of several classes always, of one score where several priors share a metric."""
TOGETHER = 300
"""Up to so many coefficients of several classes evidence knows the whole curvature."""
KNOWN = 0.5
"""How many rows a published residual variance is worth to a task: noise may have made it absurd."""
AT_ONCE = 1 << 17
"""Numbers of one task that are in work at a time, where several solutions can be found at once."""
MOST_PAIRS = 1 << 18
"""Products of two columns that are kept for the rows of one task: near the cache."""


def design(
    batches: Batches, size: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """All rows of a task [n, size], the targets [n], which rows count; the others are zero.

    A model with one weight more than there are features has an intercept: a feature that is 1.
    """
    x, y, weight = batches.x[0], batches.y[0], batches.weight[0]
    counts, x = (weight > 0).to(dtype), x.reshape(x.shape[0], -1)
    if y.ndim == 2:
        return _by_interval(x, y, counts, size)
    if size > x.shape[1]:
        x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    return x * counts.unsqueeze(1), y.to(dtype) * counts, counts


def _by_interval(x: Tensor, y: Tensor, counts: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of an outcome over time, once for each interval: [n · intervals, size].

    The features, then an indicator of each interval but the first, then the intercept. An interval
    counts as much as was lived through of it, and its target is a rate: the event over that part.
    """
    intervals = y.shape[1]
    if size != x.shape[1] + intervals:
        raise TacitError(
            "exact methods need hazards that are proportional: use model='linear', or another "
            "method, like pmtl"
        )
    lived = torch.where(y.isnan(), 0.0, y.abs()).to(counts) * counts.unsqueeze(1)
    rate = torch.where(y < 0, 1 / torch.where(lived > 0, lived, 1.0), 0.0)
    steps = torch.eye(intervals).to(lived).roll(-1, dims=1)
    steps[:, -1] = 1.0
    there = (lived > 0).to(lived)
    each = torch.cat(
        [
            x.to(lived).unsqueeze(1).expand(-1, intervals, -1),
            steps.expand(len(x), -1, -1),
        ],
        dim=2,
    )
    each = (each * there.unsqueeze(2)).flatten(0, 1)
    return each, (rate * there).flatten(), lived.flatten()


def posterior(
    kind: Kind,
    rows: tuple[Tensor, Tensor, Tensor],
    mean: Tensor,
    root: Tensor | None,
    strengths: Tensor,
) -> tuple[Tensor, Tensor]:
    """Most likely weights [s, d] and logarithm of the evidence [s], for each of the strengths.

    `root` is R [d, d]; None stands for the identity.
    """
    x, y, counts = rows
    x = x * (counts > 0).unsqueeze(1)
    z = x if root is None else x @ root
    number = counts.sum().clamp(min=1.0)
    scale = (counts.unsqueeze(1) * z * z).sum() / number
    ratio = 10.0 ** strengths.to(z.dtype) / scale.clamp(min=1e-30)
    if kind == "regression":
        u, evidence = _squared(z, x @ mean, y * counts, counts, ratio)
        return mean + (u if root is None else u @ root.T), evidence
    coded = _coded(kind, rows, mean)
    u, evidence = _under_each(FAMILIES[kind], z, None, *coded, counts, ratio)
    likely = mean + (u if root is None else u @ root.T).flatten(1)
    return likely, evidence


def solve(
    kind: Kind,
    rows: tuple[Tensor, Tensor, Tensor],
    mean: Tensor,
    root: Tensor,
    variance: Tensor,
    prior_rows: float = KNOWN,
) -> tuple[Tensor, Tensor]:
    """Most likely weights [d] under N(mean, σ²RRᵀ) and the logarithm of the evidence.

    σ² is about `variance`: its prior is worth so many rows. R is [d, k], with any k.
    """
    if kind != "regression":
        weights, evidence = solve_each(kind, rows, mean, root.unsqueeze(0))
        return weights[0], evidence[0]
    x, y, counts = rows
    x, ratio = x * counts.unsqueeze(1), torch.ones(1).to(x)
    u, evidence = _squared(x @ root, x @ mean, y * counts, counts, ratio, prior_rows, variance)
    return mean + root @ u[0], evidence[0]


def solve_each(
    kind: Kind, rows: tuple[Tensor, Tensor, Tensor], mean: Tensor, roots: Tensor
) -> tuple[Tensor, Tensor]:
    """Like `solve` with each of these R [s, d, k], for all that has no σ²: [s, ..] and [s]."""
    x, _, counts = rows
    if roots.shape[2] > roots.shape[1]:  # only RRᵀ matters, which has a root of d columns, too
        roots = torch.linalg.qr(roots.mT, mode="r")[1].mT
    outputs, x, found = len(mean) // x.shape[1], x * (counts > 0).unsqueeze(1), []
    scores, y = _coded(kind, rows, mean)
    at_once = AT_ONCE // (outputs**2 * x.numel()) if _is_narrow(x, outputs) else len(roots)
    for some in roots.split(max(1, at_once)):
        ratio = torch.ones(len(some)).to(x)
        u, evidence = _under_each(FAMILIES[kind], x, some, scores, y, counts, ratio)
        found.append((mean + (u @ some.mT).flatten(1), evidence))
    weights, evidence = (torch.cat(side) for side in zip(*found, strict=True))
    return weights, evidence


def _coded(kind: Kind, rows: tuple[Tensor, Tensor, Tensor], mean: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [n, outputs] that the mean gives, and targets of the same shape."""
    x, y, counts = rows
    each = mean.reshape(-1, x.shape[1])
    there = (counts > 0).unsqueeze(1)
    return there * (x @ each.T), there * FAMILIES[kind].coded(y, len(each))


def average(weights: Tensor, evidence: Tensor) -> Tensor:
    """The mean of the weights [s, d], each as likely as its evidence says."""
    return torch.softmax(evidence, dim=0) @ weights


def _squared(
    z: Tensor,
    offset: Tensor,
    y: Tensor,
    counts: Tensor,
    ratio: Tensor,
    prior_rows: float = 0.0,
    variance: Tensor | float = 0.0,
) -> tuple[Tensor, Tensor]:
    error = y - offset
    n, d = z.shape
    if n <= d:
        kernel, known = z @ z.T, error
    else:
        kernel, known = z.T @ z, z.T @ error
    eye = torch.eye(len(kernel), dtype=z.dtype, device=z.device)
    factor = torch.linalg.cholesky_ex(eye + ratio[:, None, None] * kernel)[0]
    half = torch.linalg.solve_triangular(
        factor, known.expand(len(ratio), -1)[..., None], upper=False
    )
    inverse = torch.linalg.solve_triangular(factor.mT, half, upper=True)[..., 0]
    explained = (half[..., 0] ** 2).sum(dim=1)
    total = (error * error).sum()
    quad = explained if n <= d else total - ratio * explained
    u = ratio[:, None] * (inverse @ z if n <= d else inverse)
    return u, evidence_of(logdet_of(factor), quad, total, counts, prior_rows, variance)


def logdet_of(factor: Tensor) -> Tensor:
    """Of matrices with these Cholesky factors [.., d, d]."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)


def evidence_of(
    logdet: Tensor,
    quad: Tensor,
    total: Tensor,
    counts: Tensor,
    prior_rows: float,
    variance: Tensor | float,
) -> Tensor:
    """From |V| and eᵀV⁻¹e, which is at least a tiny part of the total eᵀe."""
    quad = torch.maximum(quad, 1e-12 * total).clamp(min=1e-30)
    rows = counts.sum() + prior_rows
    evidence = -0.5 * logdet - 0.5 * rows * (quad + prior_rows * variance).log()
    if prior_rows:  # what makes priors of different worth comparable
        scale = torch.as_tensor(prior_rows * variance).to(quad)
        half = torch.as_tensor(prior_rows / 2).to(quad)
        evidence = evidence + half * scale.log() + torch.lgamma(rows / 2) - torch.lgamma(half)
    return evidence


def _is_narrow(x: Tensor, outputs: int) -> bool:
    return outputs > 1 or min(x.shape[-2:]) <= WHOLE


def _under_each(
    family: Family,
    x: Tensor,
    root: Tensor | None,
    offset: Tensor,
    y: Tensor,
    counts: Tensor,
    ratio: Tensor,
) -> tuple[Tensor, Tensor]:
    """`_by_newton` for several priors; those of a wide model share a metric."""
    if _is_narrow(x, offset.shape[1]) or len(ratio) == 1:
        return _by_newton(family, x, root, offset, y, counts, ratio)
    one = slice(len(ratio) // 2, len(ratio) // 2 + 1)
    single = None if root is None else root[one]
    u, _ = _by_newton(family, x, single, offset, y, counts, ratio[one])
    w = (u if single is None else u @ single.mT)[0]
    about = (offset + x @ w.mT).unsqueeze(0)
    return _by_newton(family, x, root, offset, y, counts, ratio, about)


def _by_newton(
    family: Family,
    x: Tensor,
    root: Tensor | None,
    offset: Tensor,
    y: Tensor,
    counts: Tensor,
    ratio: Tensor,
    about: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Weights [s, outputs, k] around scores [n, outputs], and the evidence by Laplace.

    They are of z = x·root; the root is [s, d, k], or None for the identity. Rows are summed as x,
    which is the same for all: z of each would leave the cache. With `about` [1, n, outputs] the
    curvature at these scores is the metric in which steps are found.
    """
    back, width = None, x.shape[1] if root is None else root.shape[2]
    if len(x) < width:  # the solution lies in the span of the rows
        back, triangle = torch.linalg.qr((x if root is None else x @ root).mT)
        x, root = (triangle.mT, None) if root is None else (torch.eye(len(x)).to(x), triangle.mT)
    outputs, d, roots = offset.shape[1], x.shape[1], root
    shape = outputs, d if root is None else root.shape[2]
    size = outputs * shape[1]
    few = outputs == 1 and x.numel() * d <= MOST_PAIRS
    pairs = (x.unsqueeze(2) * x.unsqueeze(1)).flatten(1) if few else None

    def inside(each: Tensor) -> Tensor:
        """What is said of every row [s, n, outputs], summed over the rows of u [s, size]."""
        summed = (each.mT.flatten(0, 1) @ x).unflatten(0, (-1, outputs))  # x is not copied for each
        return (summed if root is None else summed @ root).flatten(1)

    def outside(u: Tensor) -> Tensor:
        """The weights of the columns [s, outputs, d]."""
        each = u.unflatten(-1, shape)
        return each if root is None else each @ root.mT

    def objective(u: Tensor, scores: Tensor) -> Tensor:
        """[…, s]: minus the logarithm of likelihood times prior."""
        return (u * u).sum(-1) / (2 * ratio) - family.likelihood(scores, y, counts)

    def curvature(mean: Tensor, some: slice = slice(None)) -> Tensor:
        """Where this is expected, under some of the priors."""
        eye = torch.eye(size, dtype=x.dtype, device=x.device)
        prior, root = eye / ratio[some, None, None], None if roots is None else roots[some]
        if outputs == 1:
            weight = family.variance(mean)[..., 0, 0] * counts
            if pairs is not None:
                found = (weight @ pairs).unflatten(-1, (d, d))
            else:
                found = x.T @ (weight.unsqueeze(-1) * x)
            return prior + (found if root is None else root.mT @ found @ root)
        # The weight of several scores is diag μ − μμᵀ, so all but its blocks is one product.
        each = outputs, d
        spread = (mean.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
        counted = (spread * counts.unsqueeze(1)).mT
        found = -(counted @ spread).unflatten(-1, each).unflatten(-3, each)
        blocks = (counted @ x).unflatten(-2, each).movedim(-3, -1)
        found.diagonal(dim1=-4, dim2=-2).add_(blocks)
        if root is not None:
            found = torch.einsum("soipj,sia,sjb->soapb", found, root, root)
        return prior + found.flatten(-2).flatten(-3, -2)

    def within_classes(mean: Tensor) -> Tensor:
        """Cholesky factors of the curvature within each class [s, outputs, k, k].

        The whole curvature is between one and two times these blocks: of a row it is the Laplacian
        of a graph of the classes, and they are its degrees. They cost a part outputs² of it.
        """
        weight = (mean * (1 - mean) * counts.unsqueeze(1)).mT.unsqueeze(-1)
        seen = x.float()  # a metric may be rough
        blocks = (seen.T @ (weight.float() * seen)).to(x)
        if root is not None:
            blocks = root.mT.unsqueeze(1) @ blocks @ root.unsqueeze(1)
        prior = torch.eye(shape[1], dtype=x.dtype, device=x.device) / ratio[:, None, None, None]
        return torch.linalg.cholesky_ex(blocks + prior)[0]

    def by_gradients(mean: Tensor, slope: Tensor) -> Tensor:
        """A Newton step by conjugate gradients in a metric that is near the curvature."""
        factor = within_classes(mean) if metric is None else metric
        weight = family.variance(mean)[..., 0] if outputs == 1 else mean

        def curved(step: Tensor) -> Tensor:
            along = (outside(step) @ x.T).mT
            if outputs == 1:
                moved = weight * along
            else:
                moved = mean * (along - (mean * along).sum(-1, keepdim=True))
            return inside(moved * counts.unsqueeze(1)) + step / ratio[:, None]

        def near(left: Tensor) -> Tensor:
            each = torch.cholesky_solve(left.unflatten(-1, shape).unsqueeze(-1), factor)
            if outputs > 1:  # what moves all classes alike changes nothing but the prior
                each = each - each.mean(dim=1, keepdim=True)
            return each.flatten(1)

        step, left = torch.zeros_like(slope), slope
        towards = near(left)
        ahead, much = towards, (left * towards).sum(-1, keepdim=True)
        for _ in range(GRADIENTS):
            bent = curved(ahead)
            along = (ahead * bent).sum(-1, keepdim=True)
            length = torch.where(along > 0, much / along, 0.0)
            step, left = step + length * ahead, left - length * bent
            towards = near(left)
            after = (left * towards).sum(-1, keepdim=True)
            ahead = towards + torch.where(much > 0, after / much, 0.0) * ahead
            much = after
        return step

    u, scores = x.new_zeros((len(ratio), size)), offset.expand(len(ratio), *offset.shape)
    whole = size <= WHOLE if outputs > 1 else about is None
    metric = None
    if about is not None:
        metric = torch.linalg.cholesky_ex(curvature(family.mean(about)))[0].unsqueeze(1)
    for _ in range(NEWTON_STEPS):
        mean = family.mean(scores)
        errors = counts.unsqueeze(1) * (mean - y)
        slope = inside(errors) + u / ratio[:, None]
        if whole:
            step = torch.linalg.solve_ex(curvature(mean), slope[..., None])[0][..., 0]
        else:
            step = by_gradients(mean, slope)
        along = (outside(step) @ x.T).mT  # scores are linear in the length
        lengths = step_lengths(along)
        tried = u - lengths[..., None] * step, scores - lengths[..., None, None] * along
        taken = lengths.gather(0, objective(*tried).argmin(dim=0, keepdim=True))[0]
        u, scores = u - taken[:, None] * step, scores - taken[:, None, None] * along

    mean = family.mean(scores)
    if outputs == 1 or size <= TOGETHER:
        # Of wide models one after another: together they would not fit near the cache.
        ones = [slice(None)] if about is None else [slice(k, k + 1) for k in range(len(ratio))]
        each = [torch.linalg.cholesky_ex(curvature(mean[some], some))[0] for some in ones]
        logdet = torch.cat([logdet_of(factor) for factor in each])
    else:
        # What moves all classes alike only meets the prior; the rest is about what blocks say.
        blocks = logdet_of(within_classes(mean)).sum(dim=1)
        logdet = blocks * (outputs - 1) / outputs - shape[1] * torch.log(ratio)
    evidence = -objective(u, scores) - 0.5 * (logdet + size * torch.log(ratio))
    u = u.unflatten(-1, shape)
    return u if back is None else u @ back.mT, evidence


def step_lengths(along: Tensor) -> Tensor:
    """Two lengths of a Newton step [2, ..], of which the better one is taken; `along` is what the
    whole step does to scores [.., n, k].

    The whole step may overshoot where classes are separable or counts large. The other one cannot:
    if no two scores of a row, of which one may be 0, move apart by more than r, then curvature
    grows by at most eʳᵗ along a part t of the step (the third derivatives of all families are
    bounded by their second ones), and t = log(1 + r)/r is the best for the worst of such curves.
    """
    most = min(along.shape[-1], 2) * along.abs().flatten(-2).amax(-1).clamp(min=1e-9)
    return torch.stack([torch.ones_like(most), torch.log1p(most) / most])


def grid(centre: Tensor | float, spread: float, points: int, width: float = 2.0) -> Tensor:
    """Strengths around a centre, `width` spreads to either side."""
    steps = torch.linspace(-width, width, points, dtype=torch.float64)
    return centre + spread * steps


def bell(points: int, width: float = 2.0) -> Tensor:
    """Logarithm of a normal prior over `grid`."""
    steps = torch.linspace(-width, width, points, dtype=torch.float64)
    return torch.log_softmax(-0.5 * steps**2, dim=0)
