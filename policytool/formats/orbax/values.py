"""
The dtypes, shapes and values of the variables in an Orbax checkpoint, which TensorStore reads in a
process of its own.

The files below the step are checked before TensorStore opens them: it follows links. Its names of
files cannot leave the directory, because it rejects names that contain ``..``.
"""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.formats.document import BLOCK, ValuesError
from policytool.releases import dtypes
from policytool.releases.keras_objects import USUAL_VARIABLES
from policytool.support import limits, steps
from policytool.support.errors import ModelFileError, short
from policytool.support.files.remote_path import RemotePath
from policytool.support.processes import pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.document import Array, Document, Tensor

MISSING: Final = (
    "TensorStore is not installed, which reads the files of Orbax; install it with: pip install "
    "'policytool[orbax]'"
)
REMOTE: Final = "the values of Orbax checkpoints are read only from local files; download it first"

_MODULE: Final = "policytool.formats.orbax.array_process"
_COPIES: Final = 2
"""The number of copies of a chunk in memory: compressed, and as values."""

_STEPS: Final = 100
"""The number of steps for each array: TensorStore needs about 0.3 ms to open it."""

_LARGE: Final = 64 * 2**20


_ORDER: Final = {
    name: number for number, name in enumerate((*USUAL_VARIABLES, "mean", "variance", "count"))
}
"""The order in which layers create variables, by the usual names."""


class StoreError(ValuesError):
    """Arrays that TensorStore fails to open."""


class Location(Struct, frozen=True, kw_only=True):
    """The directory with the arrays of a step, and how they are stored."""

    folder: Path
    is_ocdbt: bool
    is_zarr3: bool

    @property
    def head(self) -> bytes:
        """The first line for the process that reads the arrays."""
        return json.dumps(
            {
                "folder": f"{os.fspath(self.folder.absolute())}/",
                "is_ocdbt": self.is_ocdbt,
                "driver": "zarr3" if self.is_zarr3 else "zarr",
                "limits": dict(limits.overrides()),
            }
        ).encode()


class ArrayDescription(Struct, frozen=True, kw_only=True):
    """The dtype and the shapes of a stored array."""

    dtype: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """The number of bytes of one element of the first axis."""
        return dtypes.itemsize(self.dtype) * math.prod(self.shape[1:])

    def slabs(self) -> Iterator[tuple[int, int]]:
        """
        Yield the first row and the end of slabs of about :data:`BLOCK` bytes.

        :raises ValuesError: if a row of chunks needs more memory than the limit.
        """
        if not self.shape:
            yield 0, 1
            return
        if not math.prod(self.shape):
            return
        rows = min(self.chunk[0], self.shape[0])
        if excess := limits.LIBRARY_BYTES.exceeded_message(_COPIES * rows * self.row_bytes):
            raise ValuesError(f"reading them needs memory of {excess}")
        rows = max(1, BLOCK // max(1, self.row_bytes))
        for start in range(0, self.shape[0], rows):
            yield start, min(start + rows, self.shape[0])


def is_readable(probe: Probe) -> bool:
    """Return whether TensorStore is installed, and the checkpoint is on this machine."""
    return not isinstance(probe.path, RemotePath) and find_spec("tensorstore") is not None


class ArrayReader:
    """The process that reads arrays. The stack ends it."""

    def __init__(self, location: Location, stack: ExitStack) -> None:
        """
        Start the process.

        :raises StoreError: if it cannot be started.
        """
        try:
            self._child = pool.Child(
                [sys.executable, "-P", "-m", _MODULE],
                environment=pool.environment(os.environ),
                longest=limits.ANSWER_BYTES.value,
            )
        except OSError as error:
            raise StoreError(f"{sys.executable} cannot be run: {error.strerror}") from error
        stack.callback(self._child.end)
        self._send(location.head)

    def descriptions(self, names: Sequence[str]) -> dict[str, ArrayDescription]:
        """
        Return the descriptions of arrays by name.

        :raises StoreError: if TensorStore fails to open an array, or for an unknown dtype.
        """
        steps.spend(_STEPS * len(names), walk="arrays of a checkpoint")
        answer = self._ask({"method": "describe", "names": list(names)})
        return {name: _description(name, answer[name]) for name in names}

    def read(self, name: str, start: int, stop: int) -> bytes:
        """
        Return the bytes of rows of an array.

        :raises StoreError: if TensorStore fails to read them.
        """
        answer = self._ask({"method": "read", "name": name, "start": start, "stop": stop})
        if "error" in answer:
            raise StoreError(f"its values cannot be read ({short(answer['error'])})")
        return base64.b64decode(answer["values"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the process that reads arrays, and return its answer."""
        self._send(json.dumps(request).encode())
        while not (lines := self._child.receive()):
            if lines is None:
                how = self._child.how_it_ended()
                raise StoreError(f"the process that reads it with TensorStore {how}")
        answer: dict[str, Any] = json.loads(lines[0])
        return answer

    def _send(self, line: bytes) -> None:
        try:
            self._child.send(line)
        except BrokenPipeError:
            return  # the process has ended, which receive() reports


def _description(name: str, answer: dict[str, Any]) -> ArrayDescription:
    if "error" in answer:
        raise StoreError(f"{short(name)} cannot be opened ({short(answer['error'])})")
    description = ArrayDescription(
        dtype=answer["dtype"], shape=tuple(answer["shape"]), chunk=tuple(answer["chunk"])
    )
    if description.dtype not in dtypes.NAMES:
        raise StoreError(f"{short(name)} has the unknown dtype {description.dtype}")
    return description


def stored_bytes(probe: Probe, folder: Path) -> int:
    """
    Return the size of the files in a directory of arrays.

    :raises ModelFileError: if it contains a link, or something else that is not a regular file.
    """
    size, pending = 0, [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                steps.spend(1, walk="files of arrays")
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    size += entry.stat(follow_symlinks=False).st_size
                else:
                    raise probe.failure(
                        "escaping-link" if entry.is_symlink() else "not-regular",
                        f"contains {os.path.relpath(entry.path, str(probe.path))}, which is not a "
                        "regular file and was not read; replace it with the file",
                    )
    return size


class OrbaxValues:
    """The values of one step; the process that reads them starts at the first read."""

    def __init__(
        self, probe: Probe, location: Location, document: Document, stack: ExitStack
    ) -> None:
        self._probe = probe
        self._location = location
        self._tensors = (*(document.tensors or ()), *document.state)
        self._stack = stack

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.document.Values`."""
        import numpy as np

        from policytool.formats.casting import numpy_dtype  # NumPy

        name = tensor.key or ""
        array = self._reader.descriptions([name])[name]
        if (array.dtype, array.shape) != (tensor.dtype, tensor.shape):
            raise ValuesError("the checkpoint changed while it was read")
        dtype = numpy_dtype(array.dtype)
        most = max(1, BLOCK // dtype.itemsize)
        for start, stop in array.slabs():
            values = np.frombuffer(self._reader.read(name, start, stop), dtype=dtype)
            for first in range(0, len(values), most):
                yield values[first : first + most]

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """
        Return the tensors in the order in which layers of Keras create variables of their names:
        checkpoints store no order. Other names follow in the order of the document.
        """
        return tuple(sorted(tensors, key=lambda tensor: _ORDER.get(tensor.path[-1], len(_ORDER))))

    @cached_property
    def _reader(self) -> ArrayReader:
        """
        Return the process that reads arrays.

        :raises ValuesError: if TensorStore is not installed, or if the values are too large.
        """
        if isinstance(self._probe.path, RemotePath):
            raise ValuesError(REMOTE)
        if not is_readable(self._probe):
            raise ValuesError(MISSING)
        try:
            stored = stored_bytes(self._probe, self._location.folder)
        except (ModelFileError, OSError) as error:
            raise ValuesError(f"its files cannot be read: {error}") from error
        claimed = sum(
            math.prod(tensor.shape or ()) * dtypes.itemsize(tensor.dtype)
            for tensor in self._tensors
        )
        ratio = -(-claimed // max(stored, 1))
        if claimed > _LARGE and (excess := limits.H5_RATIO.exceeded_message(ratio)):
            raise ValuesError(f"{stored} stored bytes would expand to {claimed} bytes: {excess}")
        return ArrayReader(self._location, self._stack)
