"""
``model.weights.npz``, in which Keras stores weights with ``weights_format="npz"``: NumPy arrays in
a zip, of which only the headers are read.

Keras writes a pickled dict for each layer (``NpzIOStore`` in keras/src/saving/saving_lib.py). Keras
2.12 to 3.6 unpickle these dicts, which runs code from the file; later releases fail to load them.
policytool unpickles nothing: the header shows whether NumPy would.
"""

from __future__ import annotations

import io
import math
import tokenize
import warnings
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from policytool.formats.document import Observation, Tensor
from policytool.formats.keras_archive import SIGNATURES
from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

    from policytool.formats.base import Probe

_ARRAY: Final = b"\x93NUMPY"
_PICKLE: Final = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
"""The first bytes of pickles that name their protocol (pickletools, ``PROTO``)."""

_HEADER: Final = 12 + 10_000
"""
The maximum length of a header that NumPy evaluates if unpickling is disabled, including the bytes
before it.
"""

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    LookupError,
    SyntaxError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)
"""The exceptions of NumPy for invalid headers."""

_MOST_VALUES: Final = 2**63
_READ: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


@dataclass(kw_only=True, slots=True)
class Arrays:
    """The members of weights in NumPy's format; filled while reading."""

    tensors: list[Tensor] = field(default_factory=list)
    pickles: list[str] = field(default_factory=list)
    """
    The members that NumPy unpickles; an empty name means the complete file.
    """


def read_arrays(probe: Probe, stream: IO[bytes], member: str) -> Arrays:
    """
    Return the arrays of a file, with their stored paths.

    :raises ModelFileError: for a zip that cannot be read, or exceeds a limit.
    """
    file_arrays = Arrays()
    for name, head in _heads(probe, stream, member):
        try:
            array = _array(name, head)
        except _UNREADABLE:
            file_arrays.pickles.append(
                name
            )  # NumPy evaluates longer headers, and other ones, where it may unpickle
            continue
        if array is None:
            continue
        probe.check_limit(
            limits.H5_RANK, len(array.shape or ()), "zip-limit", f"has an array {name} of"
        )
        probe.tensor_path(name, "zip-limit")
        file_arrays.tensors.append(array)
    return file_arrays


def observations(
    files: Sequence[tuple[str, Arrays]], *, read_by_keras: bool
) -> Iterator[Observation]:
    """
    Yield the observations about weights in NumPy's format.

    :param files: the arrays of each file, with its name
    :param read_by_keras: whether Keras reads these files, because there are no other weights
    """
    for file_name in sorted({name for name, _ in files}) if read_by_keras else ():
        yield Observation(
            code="npz-weights",
            message=f"the weights are in {file_name}, which Keras 3.10 and later and tf_keras 2.21 "
            "cannot load",
            where=file_name,
        )
    for file_name, file_arrays in files:
        if file_arrays.pickles:
            first, further_count = file_arrays.pickles[0], len(file_arrays.pickles) - 1
            names = (
                f"member {first}{f' and {further_count} more' if further_count else ''}"
                if first
                else "the file as a whole"
            )
            yield Observation(
                code="pickled-weights",
                message=(
                    f"{file_name} contains Python pickles ({names}), whose code runs when they are "
                    "unpickled"
                ),
                where=file_name,
            )


def _heads(probe: Probe, stream: IO[bytes], member: str) -> Iterator[tuple[str, bytes]]:
    """
    Yield the name and the first bytes of each array. For a file that is not a zip, yield an empty
    name and its first bytes, or those of a pickle if ``numpy.load`` would unpickle it.
    """
    head = stream.read(_HEADER)
    if not head.startswith(SIGNATURES):
        yield "", head if head.startswith(_ARRAY) else _PICKLE[0]
        return
    stream.seek(0)
    with zipfile.ZipFile(stream) as inner:
        infos = inner.infolist()
        probe.check_limit(limits.ZIP_MEMBERS, len(infos), "zip-limit", f"has a {member} of")
        for info in infos:
            if info.compress_type not in _READ:
                raise probe.failure(
                    "zip-unsupported",
                    f"has a {member} that cannot be read: {info.filename} uses a compression "
                    "method that NumPy never writes",
                )
            with inner.open(info) as array_file:
                yield info.filename, array_file.read(_HEADER)


def _array(name: str, head: bytes) -> Tensor | None:
    """
    Return the tensor that a header describes; None for a member that NumPy returns as bytes.

    :raises ValueError: for an array of objects, which is a pickle, and for a header that cannot be
        read.
    """
    if not head.startswith(_ARRAY):
        if head.startswith(_PICKLE):
            raise ValueError(name)
        return None
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers of Python 2
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(stream)
    if dtype.hasobject or any(size < 0 for size in shape) or math.prod(shape) >= _MOST_VALUES:
        raise ValueError(name)
    return Tensor(
        path=tuple(name.removesuffix(".npy").split("/")), shape=tuple(shape), dtype=_dtype(dtype)
    )


def _dtype(dtype: np.dtype[np.generic]) -> str:
    """
    Return the Keras name of NumPy's dtype; two bytes without a type are bfloat16, as ``ml_dtypes``
    saves it.
    """
    if dtype.kind in "SU":
        return "string"
    if dtype.kind == "V":
        return (
            "bfloat16" if dtype.itemsize == 2 and dtype.names is None else "unknown"  # noqa: PLR2004  # bytes of bfloat16
        )
    return dtype.name if dtype.kind in "biufc" else "unknown"
