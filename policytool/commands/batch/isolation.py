"""
Converts exceptions while processing a file into the failure of this file.

This is the only module that converts exceptions into entries of reports. This process, its worker
processes and the workers of a cluster use it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, TypeVar

from policytool.commands.inspect import Failure
from policytool.support.errors import (
    INTERNAL,
    USAGE,
    LimitError,
    ModelFileError,
    PolicytoolError,
    UsageError,
    WorkerError,
)
from policytool.support.processes import interrupts
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


_IS_RESULT: Final = "result"
_IS_FAILURE: Final = "failure"
_read_failure: Final = codec.reader(Failure)


def run_isolated(display_path: str, action: Callable[[], Result]) -> Result | Failure:
    """
    Return what ``action`` returns for one file, or a failure if it raises any exception.

    :param display_path: the file as reports show it
    :raises KeyboardInterrupt: if a signal has arrived.
    """
    try:
        return action()
    except Exception as error:  # noqa: BLE001  # it becomes an entry of the report and an exit code
        interrupts.check()  # inside a C library, a signal surfaces as another error
        return failure_from(display_path, error)


def encode_outcome(outcome: object) -> bytes:
    """Return a result or a failure as a line for another process."""
    kind = _IS_FAILURE if isinstance(outcome, Failure) else _IS_RESULT
    return codec.encode([kind, outcome]).encode()


def decode_outcome(line: bytes, read_result: codec.Read) -> Any:  # noqa: ANN401  # as the reader
    """Return the result or the failure in a line."""
    kind, value = json.loads(line)
    return _read_failure(value) if kind == _IS_FAILURE else read_result(value)


def failure_from(display_path: str, error: Exception) -> Failure:
    """Return the failure of a file whose processing raised an exception."""
    match error:
        case ModelFileError():
            return Failure(path=error.path, code=error.code, message=error.message)
        case WorkerError():
            return Failure(
                path=display_path, code=error.code, message=str(error), details=error.details
            )
        case PolicytoolError():
            return Failure(path=display_path, code=_code(error), message=str(error))
        case MemoryError() | RecursionError() | OSError():
            code = _code(error)
            message = f"could not be processed: {cause(error)}"
            return Failure(path=display_path, code=code, message=message, details=_traceback(error))
    return Failure(
        path=display_path,
        code=INTERNAL,
        message=(
            f"could not be processed: this is a bug in policytool ({type(error).__name__}: "
            f"{error}); run with -v and report the output"
        ),
        details=_traceback(error),
    )


def cause(error: Exception) -> str:
    """Return why a file could not be processed, as a part of a sentence that follows a colon."""
    match error:
        case ModelFileError():
            return error.message
        case MemoryError():
            return "memory ran out"
        case RecursionError():
            return "its contents are nested too deeply"
        case OSError():
            file_words = f" ({os.fsdecode(error.filename)})" if error.filename is not None else ""
            return f"{error.strerror or type(error).__name__}{file_words}"
    return str(error)


def _code(error: Exception) -> str:
    """Return the code of a failure for an exception."""
    match error:
        case UsageError():
            return USAGE
        case LimitError():
            return "layer-limit"
        case MemoryError():
            return "memory"
        case RecursionError():
            return "too-deep"
        case OSError():
            return "system-error"
    return "failed"


def _traceback(error: Exception) -> str:
    import traceback  # the import takes 5 ms, and only errors need it

    return "".join(traceback.format_exception(error))
