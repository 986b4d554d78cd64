"""Made-up scenes with a class for each pixel: a stand-in for NYUD2's indoor scenes.

On a shaded background lie a few shapes, later ones over earlier ones. There are twelve kinds, a
form (disc, square, triangle, cross) in a texture (plain, striped, checked). Each of the four heads
tells three kinds apart that form an L in that table, so neither the form nor the texture is enough:

|          | plain | striped | checked |
|----------|-------|---------|---------|
| disc     | T1    | T1      | T2      |
| square   | T1    | T2      | T2      |
| triangle | T3    | T3      | T4      |
| cross    | T3    | T4      | T4      |

Each kind leans towards a colour, with a spread that leaves colour alone a poor guide. Scenes differ
in light and its direction, and there is noise on every point. The background belongs to no head.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tacit.data.deal import Dealing
from tacit.data.federation import Federation
from tacit.data.masks import from_masks
from tacit.data.sets.faces import CENTRE, SPREAD
from tacit.data.split import SplitRule
from tacit.errors import TacitError

FORMS = ("disc", "square", "triangle", "cross")
TEXTURES = ("plain", "striped", "checked")
KINDS = tuple(f"{texture} {form}" for form in FORMS for texture in TEXTURES)
HEADS = {
    "T1": ("plain disc", "striped disc", "plain square"),
    "T2": ("checked disc", "striped square", "checked square"),
    "T3": ("plain triangle", "striped triangle", "plain cross"),
    "T4": ("checked triangle", "striped cross", "checked cross"),
}
SHAPES = (4, 7)
"""How many shapes a scene has, at least and at most; some are hidden by others."""
COLOUR_SPREAD = 0.16
"""Standard deviation of a shape's hue around that of its kind, in turns of the colour wheel."""


def scenes(
    scenes: int = 600,
    size: int = 32,
    *,
    clients: int = 20,
    heads_per_client: int | None = 2,
    concentration: float = 1.0,
    seed: int = 0,
    noise: float = 0.04,
    validation: float = 0.15,
    test: float = 0.15,
    split_seed: int = 0,
    min_rows: int = 10,
) -> Federation:
    """Made-up scenes: x [N, 3, size, size], four heads of three classes for each pixel.

    `heads_per_client=0` draws a number from 1 to all for each client; `concentration` and
    `min_rows` are those of `tacit.data.deal`.
    """
    rule = SplitRule(validation, test, split_seed)
    dealing = Dealing(clients, heads_per_client, concentration, seed, min_rows)
    dealing.check(len(HEADS), rule)
    check_size(size)
    for name, value, least in (("scenes", scenes, 1), ("noise", noise, 0)):
        kinds = (int,) if name == "scenes" else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not value >= least:
            raise TacitError(f"{name} is {value!r}, expected a number, {least} or more")
    client = np.sort(dealing.rows(scenes))  # scenes come in no order, so theirs can be kept
    x, masks = draw(scenes, size, np.random.default_rng([seed, 9]), noise=noise)
    return dealt(
        x, masks, client, KINDS, HEADS, dealing, rule, "made-up scenes, a stand-in for NYUD2"
    )


def dealt(
    x: np.ndarray,
    masks: np.ndarray,
    client: np.ndarray,
    classes: tuple[str, ...],
    heads: Mapping[str, tuple[str, ...]],
    dealing: Dealing,
    rule: SplitRule,
    source: str,
) -> Federation:
    """Images in [0, 1] with their masks, sorted by client; each client gets the heads dealt it."""
    names = dealing.names()
    holds = {
        name: [head for head, held in zip(heads, row, strict=True) if held]
        for name, row in zip(names, dealing.heads(len(heads)).tolist(), strict=True)
    }
    values = x[0].size
    return from_masks(
        x,
        masks,
        np.array(names)[client],
        classes=classes,
        heads=heads,
        holds=holds,
        validation=rule.validation,
        test=rule.test,
        split_seed=rule.seed,
        scale=([CENTRE] * values, [SPREAD] * values),
        source=source,
    )


def check_size(size: int) -> None:
    """Networks for pixels halve an image five times."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 32 or size % 32:
        raise TacitError(f"size is {size!r}, expected a multiple of 32")


def draw(
    count: int,
    size: int,
    rng: np.random.Generator,
    *,
    shapes: tuple[int, int] = SHAPES,
    noise: float = 0.04,
) -> tuple[np.ndarray, np.ndarray]:
    """Images float32 [count, 3, size, size] in [0, 1], and the kind of each pixel or -1, int8."""
    ground, things, light, points = rng.spawn(4)
    down, across = np.mgrid[:size, :size].astype(np.float32)[:, None] + np.float32(0.5)
    image = _background(count, down / size, across / size, ground)
    masks = np.full((count, size, size), -1, dtype=np.int8)
    number = things.integers(shapes[0], shapes[1] + 1, count)
    for k in range(shapes[1]):
        inside, colour, kind = _shape(count, size, down, across, things)
        inside &= (k < number)[:, None, None]
        np.copyto(image, colour, where=inside[:, None])
        np.copyto(masks, kind[:, None, None], where=inside)
    image *= _light(count, down / size, across / size, light)[:, None]
    image += noise * points.standard_normal(image.shape, dtype=np.float32)
    return np.clip(image, 0.0, 1.0, out=image), masks


def _column(values: np.ndarray) -> np.ndarray:
    """A number for each scene, against its points."""
    return values.astype(np.float32)[:, None, None]


def _background(
    count: int, down: np.ndarray, across: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A dull wall above a dull floor, of any colour and as coarse as cloth."""
    wall, floor = _colour(
        rng.random((2, count)), np.full((2, count), 0.25), rng.uniform(0.3, 0.8, (2, count))
    )
    horizon = _column(rng.uniform(0.4, 0.8, count))
    lean = _column(rng.uniform(-0.2, 0.2, count))
    below = down > horizon + lean * (across - 0.5)
    image = np.where(below[:, None], floor[:, :, None, None], wall[:, :, None, None])
    return np.ascontiguousarray(image, dtype=np.float32)


def _light(
    count: int, down: np.ndarray, across: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Brighter on one side, and brighter in some scenes than in others."""
    angle = rng.uniform(0, 2 * np.pi, count)
    slope = rng.uniform(0.0, 0.6, count)
    along = _column(np.cos(angle) * slope) * (across - 0.5)
    along = along + _column(np.sin(angle) * slope) * (down - 0.5)
    return _column(rng.uniform(0.7, 1.15, count)) + along


def _shape(
    count: int, size: int, down: np.ndarray, across: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One shape in every scene: where it is, its colour at every point, and its kind."""
    kind = rng.integers(0, len(KINDS), count).astype(np.int8)
    form, texture = _column(kind // len(TEXTURES)), _column(kind % len(TEXTURES))
    radius = _column(rng.uniform(0.15, 0.27, count) * size)
    x = across - _column(rng.uniform(0.1, 0.9, count) * size)
    y = down - _column(rng.uniform(0.1, 0.9, count) * size)
    angle = rng.uniform(-0.35, 0.35, count)
    turn, lift = _column(np.cos(angle)), _column(np.sin(angle))
    right, below = x * turn + y * lift, y * turn - x * lift
    u, v = right / radius, below / radius

    wide, tall = np.abs(u), np.abs(v)
    inside = np.select(
        [form == 0, form == 1, form == 2],
        [
            u * u + v * v < 1.0,
            np.maximum(wide, tall) < 0.85,
            (v < 0.75) & (wide < (v + 1.05) * 0.62),
        ],
        (np.minimum(wide, tall) < 0.34) & (np.maximum(wide, tall) < 1.1),
    )

    # Stripes run either way; both patterns repeat every four points of a small image.
    step = np.pi / (size / 16)
    upright = _column(rng.integers(0, 2, count))
    phase = _column(rng.uniform(0, 2 * np.pi, count))
    first, second = np.sin(step * right + phase), np.sin(step * below + phase)
    stripes = np.where(upright == 1, first, second)
    pattern = np.select([texture == 0, texture == 1], [np.zeros_like(u), stripes], first * second)
    shade = 1.0 + _column(rng.uniform(0.25, 0.4, count)) * np.sign(pattern)

    hue = kind / len(KINDS) + COLOUR_SPREAD * rng.standard_normal(count)
    colour = _colour(hue, rng.uniform(0.35, 0.8, count), rng.uniform(0.5, 0.8, count))
    return inside, colour[:, :, None, None] * shade[:, None], kind


def _colour(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Hue in turns, saturation and value to red, green and blue as a last axis."""
    sector = (np.array([5.0, 3.0, 1.0]) + 6.0 * hue[..., None]) % 6.0
    away = np.clip(np.minimum(sector, 4.0 - sector), 0.0, 1.0)
    return (value[..., None] * (1.0 - saturation[..., None] * away)).astype(np.float32)
