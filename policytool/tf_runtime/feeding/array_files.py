"""
Inputs in a file of NumPy's: read with bounds and held against what the model takes, and written so
that they can be read again.
"""

from __future__ import annotations

import os
import struct
import tokenize
import zipfile
import zlib
from typing import TYPE_CHECKING

import numpy as np

from ..library import Refused

if TYPE_CHECKING:
    from typing import IO, Any, Mapping, Sequence

    from .recipes import Recipe
    from .slots import Slot

TARGETS = ("y", "y_true", "target", "targets", "label", "labels", "sample_weight", "sample_weights")
"""Arrays that are passed over: what a data set has for training beside its inputs."""

_WRONG = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    SyntaxError,
    NotImplementedError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What zipfile and NumPy raise for files that are none of theirs."""

_ZIP = b"PK"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_SUFFIX = ".npy"
_CAST = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that NumPy's files do not know; float32 holds every value of theirs."""


def read_arrays(
    path: str, slots: Sequence[Slot], recipes: Sequence[Recipe]
) -> tuple[list[Any], list[str], list[str]]:
    """
    Return the arrays of a file in the order of the inputs, how each was taken, and the names of
    those that were passed over.

    :raises Refused: where the file cannot be read, is larger than the memory, or does not hold what
        the model takes.
    """
    arrays = arrays_of(path)
    names = [slot.name for slot in slots]
    left = [name for name in arrays if name not in names]
    if len(slots) == 1 and len(arrays) == 1:
        arrays, left = {names[0]: next(iter(arrays.values()))}, []
    ignored = [name for name in left if name.lower() in TARGETS]
    if set(arrays) - set(ignored) != set(names):
        raise _refused(
            "{} contains {}, but the model expects {}",
            path,
            _listed(sorted(arrays)),
            _listed(names),
        )
    fitted = [_fitted(arrays[slot.name], slot, one) for slot, one in zip(slots, recipes)]
    return [array for array, _ in fitted], [how for _, how in fitted], ignored


def write_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """
    Write arrays by name, beside the place and then renamed: what is there is whole, before and
    after.
    """
    draft = "{}.{}.draft".format(path, os.getpid())
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
            for name, array in arrays.items():
                with archive.open(name + _SUFFIX, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, _storable(array), allow_pickle=False)
        os.replace(draft, path)
    except OSError as error:
        raise _refused("{} cannot be written: {}", path, error.strerror or error) from error
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def _storable(array: Any) -> Any:
    """Return an array in a dtype that NumPy's files hold."""
    if array.dtype.name in _CAST:
        return array.astype("float32")
    if array.dtype.kind != "O":
        return array
    flat = [
        one if isinstance(one, bytes) else str(one).encode("utf-8") for one in array.reshape(-1)
    ]
    try:
        return np.array([one.decode("utf-8") for one in flat], dtype="U").reshape(array.shape)
    except UnicodeDecodeError:
        return np.array(flat, dtype="S").reshape(array.shape)


def arrays_of(path: str) -> dict[str, Any]:
    """
    Return what a file holds by name; the array of a file with one has no name.

    :raises Refused: where it cannot be read, or is larger than the memory.
    """
    try:
        with open(path, "rb") as stream:
            if stream.read(len(_ZIP)) != _ZIP:
                stream.seek(0)
                _check([_size(path, "", stream)], path)
                return {"": np.load(path, allow_pickle=False)}
        sizes = []
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as inside:
                    sizes.append(_size(path, member, inside))
        _check(sizes, path)
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except FileNotFoundError as error:
        raise _refused("{} does not exist", path) from error
    except _WRONG as error:
        raise _refused(
            "{} cannot be read as .npz or .npy ({}: {})",
            path,
            type(error).__name__,
            str(error).partition("\n")[0][:200],
        ) from error


def _size(path: str, member: str, stream: IO[bytes]) -> int:
    """
    Return how many bytes an array takes, from its header alone: a compressed one may take far more
    than its file.
    """
    header = _HEADERS.get(np.lib.format.read_magic(stream))
    if header is None:
        raise _refused(
            "{} cannot be read: the header of {} has an unknown version", path, member or "it"
        )
    shape, _, dtype = header(stream)
    if dtype.hasobject:
        raise _refused(
            "{} contains Python objects{}, which could execute code; save arrays of numbers or "
            "strings",
            path,
            _in(member),
        )
    if any(extent < 0 for extent in shape):
        raise _refused("{} cannot be read: {} has a negative dimension", path, member or "it")
    size = max(int(dtype.itemsize), 1)
    for extent in shape:
        size *= int(extent)
    return size


def _check(sizes: Sequence[int], path: str) -> None:
    memory = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    )
    if memory is not None and sum(sizes) > memory:
        raise _refused(
            "{} contains {:,} bytes of arrays, but this machine has {:,} bytes of memory",
            path,
            sum(sizes),
            memory,
        )


def _in(member: str) -> str:
    return " in " + member[: -len(_SUFFIX)] if member.endswith(_SUFFIX) else ""


def _fitted(array: Any, slot: Slot, recipe: Recipe) -> tuple[Any, str]:
    """Return an array as an input takes it, and how it was taken."""
    _check_shape(array, slot)
    if slot.dtype == "string":
        if array.dtype.kind not in "SU":
            raise _refused("input {} expects strings, but the file has {}", slot.name, array.dtype)
        encoded = np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array
        return encoded.astype(object), "given"
    wanted = np.dtype("float32" if slot.dtype in _CAST else slot.dtype)
    if (
        array.dtype.kind not in "biuf"
        or (array.dtype.kind == "f" and wanted.kind != "f")
        or (array.dtype.kind != "b" and wanted.kind == "b")
    ):
        raise _refused(
            "input {} expects {}, but the file has {}", slot.name, slot.dtype, array.dtype
        )
    _check_range(array, slot, wanted)
    _check_ids(array, slot, recipe)
    cast = "" if array.dtype == wanted else ", cast from {}".format(array.dtype)
    return array.astype(wanted), "given" + cast


def _check_shape(array: Any, slot: Slot) -> None:
    shape = list(array.shape)
    dims = slot.shape if slot.shape != [] else [None]
    if dims is None:
        return
    fits = len(shape) == len(dims) and all(
        size in (None, own) for own, size in zip(shape[1:], dims[1:])
    )
    if fits and dims[0] and shape[0] % dims[0]:
        raise _refused(
            "the model accepts only batches of {} rows, but the file has {} rows for input {}",
            dims[0],
            shape[0],
            slot.name,
        )
    if not fits or not shape[0]:
        raise _refused(
            "input {} expects the shape {}, but the file has {}",
            slot.name,
            _shape(dims),
            _shape(shape),
        )


def _check_range(array: Any, slot: Slot, wanted: Any) -> None:
    """
    Refuse values that the input's dtype has not: integers would come round, and floats become
    infinite.
    """
    if not array.size or array.dtype.kind == "b" or wanted.kind == "b":
        return
    bounds = np.iinfo(wanted) if wanted.kind in "iu" else np.finfo(wanted)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if finite.size and (finite.min() < bounds.min or finite.max() > bounds.max):
        raise _refused(
            "input {} expects {}, but the file has values from {} to {}",
            slot.name,
            slot.dtype,
            finite.min(),
            finite.max(),
        )


def _check_ids(array: Any, slot: Slot, recipe: Recipe) -> None:
    """
    Refuse ids that are none: on a GPU TensorFlow gives zeros for them without a word, on the CPU it
    fails.
    """
    if recipe.limit is None or not array.size:
        return
    count, layer = recipe.limit
    if not (array.min() >= 0 and array.max() < count):  # NaN is no id either
        text = (
            "input {} is passed to {}, which accepts IDs from 0 to {}, but the file has IDs from "
            "{} to {}"
        )
        raise _refused(text, slot.name, layer, count - 1, array.min(), array.max())


def _shape(shape: Sequence[int | None]) -> str:
    return "({})".format(", ".join("any" if size is None else str(size) for size in shape))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name or "one array without a name" for name in names) or "no array"


def _refused(text: str, *values: Any) -> Refused:
    return Refused("inputs-file", text.format(*values))
