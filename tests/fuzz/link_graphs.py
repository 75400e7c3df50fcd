"""
HDF5 files whose groups are linked to each other in every way: chains, diamonds, cycles, many names
of one group, soft and external links, in the places where models have weights.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Final

import h5py
import numpy as np

from tests.helpers import small_models

if TYPE_CHECKING:
    from random import Random

_ROOTS: Final = ("model_weights", "layers", "optimizer_weights", "_layer_checkpoint_dependencies")
_GROUPS: Final = (1, 2, 5, 30, 200)
_LINKS: Final = (0, 1, 2, 10, 60)


def hdf5(rng: Random) -> bytes:
    """Return a whole model, or a file of weights, with a graph of links in it."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=rng.choice(("earliest", "latest"))) as file:
        if rng.random() < 0.7:
            file.attrs["model_config"] = json.dumps(small_models.sequential())
            file.attrs["keras_version"] = rng.choice(("2.4.0", "2.15.0", "3.15.1"))
        root = file.create_group(rng.choice(_ROOTS))
        _link(rng, root)
        if rng.random() < 0.5:
            root.attrs["layer_names"] = [name.encode() for name in list(root)[:50]]
    return buffer.getvalue()


def _link(rng: Random, root: h5py.Group) -> None:
    """Create groups below a group, and links between any of them."""
    groups = [root]
    count, links = rng.choice(_GROUPS), rng.choice(_LINKS)
    deep = rng.random() < 0.5
    for at in range(count):
        parent = groups[-1] if deep and len(groups) < 40 else rng.choice(groups)
        groups.append(parent.create_group(f"g{at}"))
        if rng.random() < 0.3:
            groups[-1]["kernel:0"] = np.zeros((2, 2), dtype="float32")
            groups[-1].attrs["weight_names"] = [b"kernel:0"]
    for at, group in enumerate(groups):
        chance = rng.random()
        for number in range(links):
            target = root if chance < 0.2 else rng.choice(groups)
            if chance > 0.5:
                target = groups[min(at + 1, len(groups) - 1)]
            _add_link(rng, group, f"l{number}", target)


def _add_link(rng: Random, group: h5py.Group, name: str, target: h5py.Group) -> None:
    chance = rng.random()
    if chance < 0.8:
        group[name] = target
    elif chance < 0.95:
        group[name] = h5py.SoftLink(target.name)
    else:
        group[name] = h5py.ExternalLink("other.h5", "/")
