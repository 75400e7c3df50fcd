"""
The process that reads arrays with TensorStore:
``python -m policytool.formats.orbax.array_process``.

TensorStore ends each process that forks after it was imported, and cannot continue if memory runs
out. It therefore has its own process. The first line on stdin says where the arrays are; each of
the next lines is a request, and its answer is one line of JSON.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import sys
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import tensorstore as ts

from policytool.support import limits
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FAILURES: Final = (ValueError, OSError, RuntimeError, NotImplementedError, KeyError)
"""The exceptions of TensorStore for damaged files."""

_DATABASE: Final = re.compile(r' in OCDBT database at local file "(?:[^"\\]|\\.)*"')
_LOCAL_FILE: Final = re.compile(r'"(?:\w+:/)?/(?:[^"\\]|\\.)*"')
"""Local paths in the messages of TensorStore."""


class _Store:
    """The arrays in one directory."""

    def __init__(self, folder: str, *, is_ocdbt: bool, driver: str) -> None:
        self._folder = folder
        self._is_ocdbt = is_ocdbt
        self._driver = driver
        # a chunk is decoded only once, although its rows are read in several requests
        cache = {"total_bytes_limit": limits.LIBRARY_BYTES.value // 2}
        self._context = ts.Context({"cache_pool": cache})

    def describe(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the dtype, the shape and the shape of the chunks of arrays, or their errors."""
        return {name: self._describe_array(name) for name in names}

    def read(self, name: str, start: int, stop: int) -> dict[str, Any]:
        """Return rows of an array as bytes in base64; of an array without axes, its only value."""
        try:
            array = self._open(name)
            values = (array[start:stop] if array.rank else array).read().result()
        except _FAILURES as error:
            return _failure(error)
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return {"values": base64.b64encode(flat.data).decode("ascii")}

    def _describe_array(self, name: str) -> dict[str, Any]:
        try:
            array = self._open(name)
            chunk = (array.rank and array.chunk_layout.read_chunk.shape) or ()
            if any(array.domain.origin):
                return {"error": "it does not start at 0"}
            return {
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "chunk": [width or size for width, size in zip(chunk, array.shape, strict=True)],
            }
        except _FAILURES as error:
            return _failure(error)

    def _open(self, name: str) -> ts.TensorStore:
        files = {"driver": "file", "path": self._folder}
        store = (
            {"driver": "ocdbt", "base": files, "path": f"{name}/"}
            if self._is_ocdbt
            else {"driver": "file", "path": f"{self._folder}{name}/"}
        )
        return ts.open(
            {"driver": self._driver, "kvstore": store},
            context=self._context,
            open=True,
            read=True,
        ).result()


def _failure(error: Exception) -> dict[str, Any]:
    """Return an error without local paths, which the specification of the array also contains."""
    text = _DATABASE.sub("", str(error).partition(" [")[0])
    text = _LOCAL_FILE.sub(lambda path: f'"{PurePosixPath(path[0][1:-1]).name}"', text)
    return {"error": text.partition(": ")[2] or text}


def main() -> None:
    """Answer requests until stdin is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    head = json.loads(sys.stdin.buffer.readline())
    with (
        limits.override(head.pop("limits")),
        crash_guard.limited_memory(),
        open(int(sys.argv[1]), "wb", buffering=0) as stream,  # noqa: PTH123  # a descriptor
    ):
        store = _Store(**head)
        methods: dict[str, Callable[..., Any]] = {"describe": store.describe, "read": store.read}
        for line in sys.stdin.buffer:
            request = json.loads(line)
            _limit_time()
            answer = methods[request.pop("method")](**request)
            _limit_time()
            rest = memoryview(json.dumps(answer).encode() + b"\n")
            while rest:
                rest = rest[stream.write(rest) :]


def _limit_time() -> None:
    """Let the operating system end this process if a request takes too much CPU time."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, limits.CALL_SECONDS.value)


if __name__ == "__main__":
    crash_guard.allow()
    main()
