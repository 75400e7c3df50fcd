"""
Copies of models whose stored variables are damaged in one way each: a variable is missing, has
another shape, replaces another variable, or is not part of the model.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

_MEMBER: Final = "model.weights.h5"
_GROUP: Final = "model_weights"
_STATE: Final = ("optimizer", "metrics")
_SLOTS: Final = {".keras": "optimizer/vars", ".h5": "optimizer_weights"}
KINDS: Final = ("variable missing", "group missing", "shape", "exchanged", "one more", "no weights")
SLOT_KINDS: Final = ("slot missing", "slot shape", "slots exchanged", "no slots")
"""What may be damaged in the state of an optimizer."""


def damaged_copy(source: Path, copy: Path, kind: str, draw: Random) -> bool:
    """Write a damaged copy of an archive or an HDF5 file; return whether it could be damaged."""
    if source.suffix == ".keras":
        return _damaged_archive(source, copy, kind, draw)
    shutil.copyfile(source, copy)
    with h5py.File(copy, "r+") as file:
        if kind == "no weights":
            del file[_GROUP]
            return True
        if kind in SLOT_KINDS:
            return _damage_slots(file, _SLOTS[source.suffix], kind, draw)
        return _damage(file[_GROUP], kind, draw)


def _damaged_archive(source: Path, copy: Path, kind: str, draw: Random) -> bool:
    with zipfile.ZipFile(source) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    weights = io.BytesIO(members.pop(_MEMBER))
    if kind != "no weights":
        with h5py.File(weights, "r+") as file:
            if kind in SLOT_KINDS:
                is_damaged = _damage_slots(file, _SLOTS[source.suffix], kind, draw)
            else:
                is_damaged = _damage(file, kind, draw)
            if not is_damaged:
                return False
        members[_MEMBER] = weights.getvalue()
    with zipfile.ZipFile(copy, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return True


def _datasets(root: h5py.Group) -> list[str]:
    names: list[str] = []
    root.visititems(
        lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
    )
    return names


def _damage_slots(root: h5py.Group, group: str, kind: str, draw: Random) -> bool:
    """Damage a slot of an optimizer, or all; the list of slots in HDF5 stays as it is."""
    slots = root.get(group)
    names = sorted(_datasets(slots)) if slots is not None else []
    if len(names) < 2:  # two are exchanged
        return False
    first, second = draw.sample(names, 2)
    match kind:
        case "slot missing":
            del slots[first]
        case "slot shape":
            _replace(slots, first, np.zeros(_other_shape(slots[first].shape, draw), "float32"))
        case "slots exchanged":
            values = slots[first][()], slots[second][()]
            _replace(slots, first, values[1])
            _replace(slots, second, values[0])
        case "no slots":
            del root[group]
    return True


def _damage(root: h5py.Group, kind: str, draw: Random) -> bool:
    names = [name for name in _datasets(root) if not name.startswith(_STATE)]
    if len(names) < 2:  # two are exchanged
        return False
    first, second = draw.sample(sorted(names), 2)
    group = first.rpartition("/")[0]
    match kind:
        case "variable missing":
            del root[first]
        case "group missing":
            del root[group]
        case "shape":
            _replace(root, first, np.zeros(_other_shape(root[first].shape, draw), "float32"))
        case "exchanged":
            values = root[first][()], root[second][()]
            _replace(root, first, values[1])
            _replace(root, second, values[0])
        case "one more":
            _add(root, group)
    return True


def _other_shape(shape: tuple[int, ...], draw: Random) -> tuple[int, ...]:
    sizes = list(shape) or [1]
    sizes[draw.randrange(len(sizes))] += draw.choice((1, 2))
    return tuple(sizes)


def _replace(root: h5py.Group, name: str, value: Any) -> None:
    del root[name]
    root.create_dataset(name, data=value)


def _add(root: h5py.Group, group: str) -> None:
    """Add a variable to a group, and to the list of its layer in HDF5."""
    name = str(len(root[group])) if "layer_names" not in root.attrs else "more:0"
    root[group].create_dataset(name, data=np.zeros(3, "float32"))
    for text in root.attrs.get("layer_names", ()):
        layer = text.decode() if isinstance(text, bytes) else str(text)
        if f"{group}/".startswith(f"{layer}/"):
            path = f"{group}/{name}".removeprefix(f"{layer}/")
            listed = [
                item.encode() if isinstance(item, str) else item
                for item in (*root[layer].attrs["weight_names"], path)
            ]
            root[layer].attrs["weight_names"] = listed
