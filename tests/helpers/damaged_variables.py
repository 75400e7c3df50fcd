"""
Copies of models whose stored variables are damaged in one way each: a variable is missing, has
another shape, replaces another variable, or is not part of the model.
"""

from __future__ import annotations

import io
import math
import shutil
import zipfile
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np

from policytool.formats.checkpoint.bundle._index import read_table
from policytool.releases import dtypes
from policytool.support.text import protobuf_messages
from tests.helpers import bundles

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

_MEMBER: Final = "model.weights.h5"
_GROUP: Final = "model_weights"
_STATE: Final = ("optimizer", "metrics")
_DTYPES: Final = ("float16", "float64", "int32", "bool", "complex64", "S8")
_SLOTS: Final = {".keras": "optimizer/vars", ".h5": "optimizer_weights"}
KINDS: Final = (
    *("variable missing", "group missing", "shape", "exchanged", "one more", "no weights"),
    *("dtype", "group renamed", "one more group", "no list"),
)
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
        case "dtype":
            _replace(root, first, np.zeros(root[first].shape, draw.choice(_DTYPES)))
        case "group renamed":
            parent, _, last = group.rpartition("/")
            root.move(group, f"{parent}/{last}_1")
        case "one more group":
            root.copy(group, f"{group}_more")
        case "no list":
            return _leave_out_list(root, draw)
    return True


def _leave_out_list(root: h5py.Group, draw: Random) -> bool:
    """Leave out one of the lists of names that HDF5 has."""
    lists = [("", "layer_names"), *((name, "weight_names") for name in sorted(root))]
    present = [(name, key) for name, key in lists if key in (root[name] if name else root).attrs]
    if not present:
        return False
    name, key = draw.choice(present)
    del (root[name] if name else root).attrs[key]
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


_BYTES: Final = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}
CHECKPOINT_KINDS: Final = ("entry missing", "entry shape", "entry dtype", "short", "damaged index")
"""What may be damaged in the checkpoint of a SavedModel."""


def damaged_checkpoint(source: Path, copy: Path, kind: str, draw: Random) -> bool:
    """Write a copy of a SavedModel with a damaged checkpoint; return whether it has variables."""
    shutil.copytree(source, copy)
    prefix = copy / "variables" / "variables"
    index = prefix.with_name("variables.index")
    values = prefix.with_name("variables.data-00000-of-00001")
    match kind:
        case "short":
            values.write_bytes(values.read_bytes()[: -draw.randint(1, 20)])
        case "damaged index":
            data = bytearray(index.read_bytes())
            data[draw.randrange(len(data) // 2)] ^= 1
            index.write_bytes(data)
        case _:
            return _damage_entry(prefix, values, kind, draw)
    return True


def _damage_entry(prefix: Path, values: Path, kind: str, draw: Random) -> bool:
    """Leave out the entry of a variable, or append a value of another shape or dtype."""
    entries = dict(read_table(prefix.with_name("variables.index").read_bytes(), "variables.index"))
    names = sorted(key for key in entries if key.endswith(b"/VARIABLE_VALUE"))
    if not names:
        return False
    name = draw.choice(names)
    message = protobuf_messages.parse("BundleEntry", entries.pop(name))
    if kind != "entry missing":
        shape = tuple(dimension.size for dimension in message.shape.dims)
        dtype = dtypes.OF_TENSORFLOW_ENUM[message.dtype]
        if kind == "entry shape":
            shape = _other_shape(shape, draw)
        else:
            dtype = "float64" if dtype == "float32" else "float32"
        data = bytes(math.prod(shape) * _BYTES[dtype])
        start = values.stat().st_size
        values.write_bytes(values.read_bytes() + data)
        entries[name] = bundles.entry(dtype, shape, data, start).SerializeToString()
    bundles.write_index(prefix, [sorted(entries.items())])
    return True
