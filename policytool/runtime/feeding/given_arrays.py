"""
Arrays of the user's: inputs, compared with those that a model expects, and labels, by the names of
the model's outputs. Files of NumPy's are read with bounds, and written so that they can be read
again.
"""

from __future__ import annotations

import binascii
import os
import socket
import struct
import tokenize
import zipfile
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..library import Refused

if TYPE_CHECKING:
    from typing import IO, Any, Mapping, Sequence

    from .recipes import Recipe
    from .slots import Slot


FLOAT32_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that NumPy does not have, and whose values float32 can represent."""


class Source(NamedTuple):
    """The source of arrays in sentences."""

    name: str
    code: str
    short: str
    """The short name in sentences about one input."""

    def refused(self, text: str, *values: Any) -> Refused:
        """Return a Refused error about the content of the source."""
        return Refused(self.code, text.format(*values))


def fitted_arrays(
    arrays: Mapping[str, Any], slots: Sequence[Slot], recipes: Sequence[Recipe], source: Source
) -> tuple[list[Any], list[str]]:
    """
    Return arrays in the order of the inputs and in the dtypes that the model expects, and how each
    was converted.

    :raises Refused: if names differ from those of the inputs, or if an array is empty or does not
        fit its input.
    """
    names = [slot.name for slot in slots]
    if set(arrays) != set(names):
        raise source.refused(
            "{} contains {}, but the model expects {}{}",
            source.name,
            listed(sorted(arrays)),
            listed(names),
            _selection_hint(arrays, slots, source),
        )
    empty = [name for name in names if not arrays[name].size]
    if empty:
        raise source.refused(
            "{} contains an empty array of the shape {} for input {}; the model expects {}",
            source.name,
            _shape(arrays[empty[0]].shape),
            empty[0],
            listed(names),
        )
    fitted = [
        _convert_array(arrays[slot.name], slot, recipe, source)
        for slot, recipe in zip(slots, recipes)
    ]
    return [array for array, _ in fitted], [fitting for _, fitting in fitted]


def _selection_hint(arrays: Mapping[str, Any], slots: Sequence[Slot], source: Source) -> str:
    """Return how to give the right arrays, as the end of a sentence."""
    if {slot.name for slot in slots} < set(arrays):
        return "; leave out the others, such as labels"
    if len(slots) == 1 and len(arrays) > 1 and source.name.endswith(".npz"):
        name = os.path.basename(source.name)
        fitting = [key for key in sorted(arrays) if _has_shape(arrays[key], slots[0])]
        example = (fitting or sorted(arrays))[0]
        return "; select one with {}:KEY, such as {}:{}".format(name, name, example)
    return "; save arrays with only these names"


def listed(names: Sequence[str]) -> str:
    """Return the names of arrays in a sentence."""
    return ", ".join(name or "one array without a name" for name in names) or "no array"


def _convert_array(array: Any, slot: Slot, recipe: Recipe, source: Source) -> tuple[Any, str]:
    """Return an array in the dtype of the input, and how it was converted."""
    _check_shape(array, slot, source)
    if slot.dtype == "string":
        return _strings(array, slot, source), "given"
    dtype = np.dtype("float32" if slot.dtype in FLOAT32_DTYPES else slot.dtype)
    if (
        array.dtype.kind not in "biuf"
        or (array.dtype.kind == "f" and dtype.kind != "f")
        or (array.dtype.kind != "b" and dtype.kind == "b")
    ):
        raise source.refused(
            "input {} expects {}, but {} has {}", slot.name, slot.dtype, source.short, array.dtype
        )
    _check_range(array, slot, dtype, source)
    _check_ids(array, slot, recipe, source)
    cast = "" if array.dtype == dtype else ", cast from {}".format(array.dtype)
    return array.astype(dtype), "given" + cast


def _strings(array: Any, slot: Slot, source: Source) -> Any:
    """Return text as bytes in UTF-8, as TensorFlow stores it."""
    if array.dtype.kind == "O" and all(isinstance(text, (str, bytes)) for text in array.flat):
        flat = [text.encode("utf-8") if isinstance(text, str) else text for text in array.flat]
        encoded = np.empty(len(flat), dtype=object)
        encoded[:] = flat
        return encoded.reshape(array.shape)
    if array.dtype.kind not in "SU":
        raise source.refused(
            "input {} expects strings, but {} has {}", slot.name, source.short, array.dtype
        )
    return (np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array).astype(object)


def _dims(slot: Slot) -> Sequence[int | None] | None:
    """Return the sizes of an input with the batch; None if they are unknown."""
    return slot.shape if slot.shape != [] else [None]


def _has_shape(array: Any, slot: Slot) -> bool:
    """Return whether an array has the shape of an input, for some number of rows."""
    dims = _dims(slot)
    return dims is None or (
        len(array.shape) == len(dims)
        and all(size in (None, array_size) for array_size, size in zip(array.shape[1:], dims[1:]))
    )


def _check_shape(array: Any, slot: Slot, source: Source) -> None:
    """Make sure that an array has the shape of an input, and a whole number of batches."""
    shape, dims = list(array.shape), _dims(slot)
    if dims is None:
        return
    if not _has_shape(array, slot):
        raise source.refused(
            "input {} expects the shape {}, but {} has {}",
            slot.name,
            _shape(dims),
            source.short,
            _shape(shape),
        )
    if dims[0] and shape[0] % dims[0]:
        raise source.refused(
            "the model accepts only batches of {} rows, but {} has {} rows for input {}",
            dims[0],
            source.short,
            shape[0],
            slot.name,
        )


def _check_range(array: Any, slot: Slot, dtype: Any, source: Source) -> None:
    """
    Reject values outside the range of the input's dtype: integers would wrap around, and floats
    become infinite.
    """
    if array.dtype.kind == "b" or dtype.kind == "b":
        return
    bounds = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if finite.size and (finite.min() < bounds.min or finite.max() > bounds.max):
        raise source.refused(
            "input {} expects {}, but {} has values from {} to {}",
            slot.name,
            slot.dtype,
            source.short,
            finite.min(),
            finite.max(),
        )


def _check_ids(array: Any, slot: Slot, recipe: Recipe, source: Source) -> None:
    """
    Raise Refused for ids out of range: TensorFlow silently returns zeros for them on a GPU, and
    fails on a CPU.
    """
    if recipe.limit is None:
        return
    count, layer = recipe.limit
    if not (array.min() >= 0 and array.max() < count):  # NaN is no id either
        text = (
            "input {} is passed to {}, which accepts IDs from 0 to {}, but {} has IDs from {} to {}"
        )
        raise source.refused(
            text, slot.name, layer, count - 1, source.short, array.min(), array.max()
        )


def _shape(shape: Sequence[int | None]) -> str:
    return "({})".format(", ".join("any" if size is None else str(size) for size in shape))


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
"""The exceptions of zipfile and NumPy for files in other formats."""

CODE = "inputs-file"
_ZIP = b"PK"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_SUFFIX = ".npy"
_NAME_BYTES = 180
"""
The maximum number of bytes of a file's name in a hidden name: file systems allow 255 bytes in
total.
"""

_UNNAMED = "arr_{}"
"""The name that ``numpy.savez`` gives to an array without a name."""


def read_arrays(
    path: str, slots: Sequence[Slot], recipes: Sequence[Recipe]
) -> tuple[list[Any], list[str]]:
    """
    Return the arrays of a file in the order of the inputs, and for each how it was fitted to its
    input.

    :raises Refused: if the file cannot be read, is larger than the memory, or contains other arrays
        than the model expects.
    """
    arrays, names = arrays_of(path), [slot.name for slot in slots]
    short = "the file"
    if len(arrays) == len(names) == 1 and not set(arrays) & {"", _UNNAMED.format(0), *names}:
        short = "{}, the only array of the file,".format(*arrays)
    return fitted_arrays(with_names(arrays, names), slots, recipes, Source(path, CODE, short))


def with_names(arrays: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """
    Return arrays by name; those without a name get the names of the inputs or outputs in order. A
    single array belongs to a single input or output, whatever its name.
    """
    if len(arrays) == len(names) == 1:
        return dict(zip(names, arrays.values()))
    unnamed = [_UNNAMED.format(number) for number in range(len(names))]
    if set(arrays) != set(unnamed):
        return arrays
    return {name: arrays[key] for name, key in zip(names, unnamed)}


def write_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """
    Write arrays by name, atomically: into a draft that is renamed when it is complete.
    """
    draft = hidden_path(path)
    try:
        with open(draft, "xb") as file:  # a link of that name is not followed
            is_placed = False
            try:
                _write_archive(file, arrays)
                file.close()  # a disk that is full may say so now
                os.replace(draft, path)
                is_placed = True
            finally:
                if not is_placed:
                    os.unlink(draft)
    except OSError as error:
        raise _refused("{} cannot be written: {}", path, error.strerror or error) from error


def _write_archive(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(name + _SUFFIX, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, _storable(array), allow_pickle=False)


def hidden_path(path: str) -> str:
    """
    Return an unused hidden name next to a file, in the form of policytool's atomic writers, so that
    the next run removes the draft if this process is killed.
    """
    folder, name = os.path.split(path)
    host = zlib.crc32(socket.gethostname().encode())
    start = os.fsdecode(os.fsencode(name)[:_NAME_BYTES])
    return os.path.join(
        folder,
        ".{}.{:08x}-{}-{}.policytool-draft".format(
            start, host, os.getpid(), binascii.hexlify(os.urandom(4)).decode()
        ),
    )


def _storable(array: Any) -> Any:
    """Return an array in a dtype that NumPy's files support."""
    if array.dtype.name in FLOAT32_DTYPES:
        return array.astype("float32")
    if array.dtype.kind != "O":
        return array
    flat = [
        text if isinstance(text, bytes) else str(text).encode("utf-8") for text in array.reshape(-1)
    ]
    try:
        return np.array([text.decode("utf-8") for text in flat], dtype="U").reshape(array.shape)
    except UnicodeDecodeError:
        return np.array(flat, dtype="S").reshape(array.shape)


def arrays_of(path: str) -> dict[str, Any]:
    """
    Return the arrays of a file by name; the only array of an .npy file has an empty name, as has
    the array that ``FILE.npz:KEY`` selects.

    :raises Refused: if the file cannot be read, is larger than the memory, or has no such array.
    """
    file, _, key = path.rpartition(":")
    if key and file.endswith(".npz") and not os.path.exists(path):
        arrays = arrays_of(file)
        if key not in arrays:
            raise _refused("{} has no array {}; it contains {}", file, key, listed(sorted(arrays)))
        return {"": arrays[key]}
    try:
        with open(path, "rb") as stream:
            if stream.read(len(_ZIP)) != _ZIP:
                stream.seek(0)
                _check([_size(path, "", stream)], path)
                return {"": np.load(path, allow_pickle=False)}
        sizes = []
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as array_stream:
                    sizes.append(_size(path, member, array_stream))
        _check(sizes, path)
        with np.load(path, allow_pickle=False) as npz:
            return {name: npz[name] for name in npz.files}
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
    Return the size of an array in bytes, from its header, because a compressed array can be much
    larger than its file.
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
    extents = np.array(shape, dtype=object)  # numbers of Python's, which do not overflow
    return max(int(dtype.itemsize), 1) * int(np.prod(extents))


def _check(sizes: Sequence[int], path: str) -> None:
    """Make sure that the arrays of a file fit into the memory of this machine."""
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


def _refused(text: str, *values: Any) -> Refused:
    return Refused(CODE, text.format(*values))


LABELS_CODE = "labels-file"

_SHOWN = 10
"""The maximum number of names in a sentence."""


def read_labels(path: str) -> dict[str, Any]:
    """
    Return the arrays of a file by name.

    :raises Refused: if it cannot be read, or contains other data than arrays of numbers or strings.
    """
    try:
        return arrays_of(path)
    except Refused as error:
        raise Refused(LABELS_CODE, str(error)) from error


def by_output(labels: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """
    Return the labels of outputs, in the order of the outputs; not all of them need labels.

    :raises Refused: if an array has another name than an output, or if there is none.
    """
    labels = with_names(labels, names)
    unknown = sorted(set(labels) - set(names))
    if unknown or not labels:
        unknown_names = ", ".join(name or "an array without a name" for name in unknown[:_SHOWN])
        text = "the labels contain {}, but the outputs of the model have the names {}"
        raise Refused(
            LABELS_CODE, text.format(unknown_names or "no array", ", ".join(names[:_SHOWN]))
        )
    flat = [name for name in names if name in labels and not labels[name].shape]
    if flat:
        raise Refused(LABELS_CODE, "the labels of output {} have no rows".format(flat[0]))
    return {name: labels[name] for name in names if name in labels}
