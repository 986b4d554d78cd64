"""Faces whose attributes are dealt in heads, as FedMTL does; and a stand-in for its LFWA.

FedMTL (see `tacit.data.deal`) cuts 40 attributes of a face, in the order of the data set, into
eight heads of five; a client's faces are 70 % training, 15 % validation and 15 % test rows.

The stand-in, `lfw_9000_32x32_facer40.npz`, holds 9000 photographs of Labeled Faces in the Wild
(Huang, Ramesh, Berg and Learned-Miller, "Labeled Faces in the Wild: A Database for Studying Face
Recognition in Unconstrained Environments", UMass Amherst technical report 07-49, 2007;
deep-funneled by Huang, Mattar, Lee and Learned-Miller, NIPS 2012): `x` bytes [N, 32, 32, 3],
`attr_names` and `attr_prob` [N, 40], the probability of each attribute *as predicted by a model*
(Facer). It is not LFWA, whose attributes people wrote down.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.data.assemble import About, assemble
from tacit.data.deal import Dealing
from tacit.data.federation import Federation
from tacit.data.folders import find, only
from tacit.data.npz import read_arrays
from tacit.data.targets import Target
from tacit.errors import TacitError

FILE = "lfw_9000_32x32_facer40.npz"
STAND_IN = "stand-in: attributes predicted by a model, not LFWA's"
HEADS, PER_HEAD = 8, 5
USUAL: dict[str, Any] = {"clients": 60, "min_rows": 20}
CENTRE, SPREAD = 0.5, 0.25
"""Images lie between 0 and 1 and are brought to about zero mean by these constants."""


def lfw_pseudo(
    path: str | Path | None = None,
    *,
    threshold: Literal["median", "half"] = "median",
    domains: int = 1,
    **dealt: Any,
) -> Federation:
    """Faces with predicted attributes: x [N, 3, 32, 32], eight heads of five labels.

    Parameters
    ----------
    threshold : "median": a label is 1 where the attribute is more likely than in half of all
        images, so that no constant answer is right more than half of the time; "half": where it
        is likelier than not, which is rare for most (constant answers are right in 91 %).
    domains : 2 gives the second half of the clients photographic negatives of their images. It
        stands for FaceA, where clients see one of two data sets (with 80 clients).
    dealt : options of `tacit.data.deal.Dealing`, where 60 clients with 20 rows or more are usual.
    """
    dealing = Dealing(**USUAL | dealt)
    dealing.check(HEADS)
    if threshold not in ("median", "half"):
        raise TacitError(f"threshold is {threshold!r}, expected 'median' or 'half'")
    if domains not in (1, 2):
        raise TacitError(f"domains is {domains!r}, expected 1 or 2")
    file = only(
        find("lfw-pseudo", path, ("lfw_pseudo_attr", "lfw-pseudo")),
        (FILE,),
        "the stand-in for LFWA",
    )
    images, chance, attributes = _read(file)
    client = dealing.rows(len(images))
    if domains == 2:
        second = client >= -(-dealing.clients // 2)
        images = np.where(second[:, None, None, None], 255 - images, images)
    cut = np.median(chance, axis=0) if threshold == "median" else 0.5
    said = {
        "median": "labels are above/below the median over all images, as part of their definition",
        "half": "labels say whether the predicted probability is above one half",
    }
    source = f"LFW, {STAND_IN}" + (", half of the clients see negatives" * (domains == 2))
    names = dealing.names(("client",) if domains == 1 else ("positive", "negative"))
    target = Target("multilabel", chance > cut, len(attributes), attributes)
    about = About(source=source, assumptions=(said[threshold],))
    return faces(images, target, client, names, about, dealing)


def faces(
    images: np.ndarray,
    target: Target,
    client: np.ndarray,
    names: list[str],
    about: About,
    dealing: Dealing,
) -> Federation:
    """From bytes [N, height, width, 3], 0/1 labels [N, 40], and the client of each row."""
    attributes = target.labels
    in_order = np.argsort(client, kind="stable")
    x = images[in_order].transpose(0, 3, 1, 2).astype(np.float32, order="C") / 255.0
    values = x[0].size
    target = replace(target, y=target.y[in_order].astype(np.float64))
    about = replace(about, features=tuple(f"x{k}" for k in range(values)))
    scale = [CENTRE] * values, [SPREAD] * values
    owners = np.array(names)[client[in_order]]
    made = assemble(x, target, owners, about, rule=dealing.rule, scale=scale)
    groups = {f"T{k + 1}": attributes[k * PER_HEAD : (k + 1) * PER_HEAD] for k in range(HEADS)}
    return made.with_heads(groups, dealing.held(names, list(groups)))


def _read(file: Path) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    arrays = read_arrays(file, ("x", "attr_prob", "attr_names"))
    x, chance, names = arrays["x"], arrays["attr_prob"], arrays["attr_names"]
    if x.ndim != 4 or x.shape[3] != 3 or x.shape[1] != x.shape[2] or x.dtype != np.uint8:
        raise TacitError(f"x of {file} is {x.dtype.name} {x.shape}, expected uint8 [N, 32, 32, 3]")
    if chance.shape != (len(x), HEADS * PER_HEAD) or names.shape != chance.shape[1:]:
        raise TacitError(
            f"{file} has {len(x)} images, attr_prob {chance.shape} and attr_names {names.shape}; "
            "expected 40 probabilities for each image, and 40 names"
        )
    if chance.dtype.kind != "f" or not bool(((chance >= 0) & (chance <= 1)).all()):
        raise TacitError(f"attr_prob of {file} must hold probabilities; get the file again")
    return x, chance.astype(np.float32), tuple(str(name) for name in names)
