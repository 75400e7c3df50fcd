"""
Inputs in a file of NumPy's: read with bounds and held against what the model takes, and written so
that they can be read again.
"""

from __future__ import annotations

import binascii
import os
import socket
import struct
import tokenize
import zipfile
import zlib
from typing import TYPE_CHECKING

import numpy as np

from ..library import Refused
from .given_arrays import FLOAT32_DTYPES, Source, fitted_arrays

if TYPE_CHECKING:
    from typing import IO, Any, Mapping, Sequence

    from .recipes import Recipe
    from .slots import Slot

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

CODE = "inputs-file"
_ZIP = b"PK"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_SUFFIX = ".npy"
_NAME_BYTES = 180
"""Of a file's own name in a hidden one: file systems allow 255 bytes in all."""

_UNNAMED = ("", "arr_0")
"""The name of the only array of an ``.npy`` file, and what ``numpy.savez`` calls it."""


def read_arrays(
    path: str, slots: Sequence[Slot], recipes: Sequence[Recipe]
) -> tuple[list[Any], list[str]]:
    """
    Return the arrays of a file in the order of the inputs, and how each was taken.

    :raises Refused: where the file cannot be read, is larger than the memory, or does not hold what
        the model takes, and nothing else.
    """
    arrays = with_names(arrays_of(path), [slot.name for slot in slots])
    return fitted_arrays(arrays, slots, recipes, Source(path, CODE, "the file"))


def with_names(arrays: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return arrays by name: one without a name has that of the only input or output."""
    if len(names) == 1 and len(arrays) == 1 and next(iter(arrays)) in _UNNAMED:
        return {names[0]: next(iter(arrays.values()))}
    return arrays


def write_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """
    Write arrays by name, beside the place and then renamed: what is there is whole, before and
    after, also if the process is killed.
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
    Return a hidden name beside a file, which nothing else has: such as the atomic writers of
    policytool give, so that the next run removes what this process leaves if it is killed.
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
    Return the arrays of a file by name; the only array of an .npy file has an empty name.

    :raises Refused: if the file cannot be read, or is larger than the memory.
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


def _refused(text: str, *values: Any) -> Refused:
    return Refused(CODE, text.format(*values))
