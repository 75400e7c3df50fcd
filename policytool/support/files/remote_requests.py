"""
Requests to servers, through the backends of fsspec.

Each request has a deadline, is repeated if it may succeed later, and fails with a one-sentence
message. The text of a backend's error is never shown, because it may contain a signed URL.
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import logging
import os
import queue
import ssl
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

from policytool.support import limits
from policytool.support.errors import ModelFileError, causes
from policytool.support.files.remote_path import AZURE, GOOGLE, HUB, MODELS, PACKAGES
from policytool.support.processes import crash_guard
from policytool.support.processes.collection import without_collection

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.support.files.remote_path import RemotePath

Answer = TypeVar("Answer")

_THREAD: Final = "policytool-request"
_NO_HANDLER: Final = logging.NullHandler()
_FIRST_WAIT: Final = 0.5
_ATTEMPTS: Final = 4
_LOOK_SECONDS: Final = 0.05
"""The seconds between two checks of the memory that a request uses."""

_STOP_SECONDS: Final = 1.5
"""The seconds for a request to end; fsspec checks each second whether its thread must end."""

_LOGGERS: Final = {
    "adlfs": ("adlfs", "azure"),
    "aiohttp": ("aiohttp", "fsspec"),
    "gcsfs": ("gcsfs", "google"),
    "huggingface_hub": ("huggingface_hub", "httpx2", "httpx"),
    "s3fs": ("s3fs", "aiobotocore", "botocore"),
}
"""The loggers of a backend's package, if they differ from its name, and of its libraries."""

_CREDENTIALS: Final = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "TokenRetrievalError",
        "ProfileNotFound",
        "DefaultCredentialsError",
        "RefreshError",
        "LocalTokenNotFoundError",
        "ClientAuthenticationError",
    }
)
"""The names of backends' errors about missing credentials."""

_UNSET: Final = ("Must provide either", "unable to connect to account")
"""The beginnings of adlfs' messages about missing credentials, which have no separate class."""

_FORBIDDEN: Final = "Forbidden"
"""The beginning of gcsfs' message for HTTP status 403; the error does not contain the status."""

_DENIED: Final = frozenset({401, 403, 407})
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
_MISSING: Final = frozenset({404, 410})
_CHANGED: Final = 412
_TLS: Final = frozenset({"SSLError", "SSLValidationError", "ClientConnectorCertificateError"})
_CONNECTION: Final = frozenset(
    {
        "ChunkedEncodingError",
        "ClientConnectionError",
        "ClientConnectorError",
        "ClientPayloadError",
        "ServerDisconnectedError",
        "ConnectionClosedError",
        "ConnectionError",
        "ConnectTimeoutError",
        "EndpointConnectionError",
        "HTTPClientError",
        "ProtocolError",
        "ReadTimeout",
        "ReadTimeoutError",
    }
)
"""The names of backends' connection errors; some are not subclasses of Python's errors."""

_PASSES: Final = (ConnectionError, TimeoutError)
_PASSING: Final = frozenset({"remote-unavailable"})
"""Codes of failures after which a request is repeated."""

_READABLE: Final = "readable"
_WRITABLE: Final = "writable"
"""The property that a file lacks after a failed write, in messages."""

_STATUSES: Final = ("status", "status_code", "code")


def request(path: RemotePath, act: Callable[[], Answer], *, writes: bool = False) -> Answer:
    """
    Return the result of a request, which is repeated if it may succeed later.

    :param writes: whether the request changes the server; only the backend then repeats it, because
        the first request may have succeeded
    :raises ModelFileError: if the request fails or takes over :data:`limits.REMOTE_SECONDS`.
    :raises FileNotFoundError: if the path does not exist.
    :raises FileExistsError: if the request writes and the path exists.
    """
    most = limits.REMOTE_SECONDS
    most_memory = limits.REMOTE_ANSWER_BYTES
    problem = _WRITABLE if writes else _READABLE
    end = time.monotonic() + most.value
    wait_seconds = _FIRST_WAIT
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _in_time(act, end - time.monotonic())
        except queue.Empty:
            break
        except MemoryError:
            raise ModelFileError(
                path.shown,
                "remote-limit",
                f"is not {problem}: the answer of the server needs more memory than the "
                f"{most_memory.name} limit of {most_memory.amount(most_memory.value)}; raise the "
                f"limit with --limit {most_memory.name}="
                f"{most_memory.amount(2 * most_memory.value, gap='')}",
            ) from None
        except (ModelFileError, FileExistsError):
            raise
        except Exception as error:  # noqa: BLE001  # each backend has its own exceptions
            failure = _failure(path, error, problem)
        if failure is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path.shown) from None
        if writes and failure.code == "changed":  # the write required that no object exists
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path.shown) from None
        is_last = writes or attempt == _ATTEMPTS or time.monotonic() + wait_seconds > end
        if failure.code not in _PASSING or is_last:
            raise failure from None
        time.sleep(wait_seconds)
        wait_seconds *= 2
    raise ModelFileError(
        path.shown,
        "remote-timeout",
        f"is not {problem}: the server did not answer within the {most.name} limit of {most.value} "
        f"seconds; raise the limit with --limit {most.name}={2 * most.value}",
    ) from None


def silence(package: str) -> None:
    """
    Keep a backend's log messages during requests, such as its retries, off stderr, because a
    failure has a one-sentence message.
    """
    names = _LOGGERS.get(package, (package,))
    for name in (*names, "asyncio") if crash_guard.is_own() else names:
        logger = logging.getLogger(name)
        logger.addHandler(_NO_HANDLER)  # without any handler, Python prints warnings
        for handler in logger.handlers:
            handler.addFilter(_is_from_other_thread)


def _is_from_other_thread(record: logging.LogRecord) -> bool:
    return record.threadName != _THREAD


def _in_time(act: Callable[[], Answer], seconds: float) -> Answer:
    """
    Return the result of a function. It runs in a thread, which is stopped if it takes longer, or
    more memory than :data:`limits.REMOTE_ANSWER_BYTES`.

    The memory is checked repeatedly, because a backend collects an endless response in small parts.
    The operating system limits it to twice as much, because one call of a C parser may allocate
    all of it.

    :raises queue.Empty: if the function takes too long.
    :raises MemoryError: if the function uses too much memory.
    """
    answers: queue.SimpleQueue[tuple[Answer | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((act(), None))
        except BaseException as error:  # noqa: BLE001  # raised again below
            answers.put((None, error))

    context = contextvars.copy_context()  # which has the limits
    most = limits.REMOTE_ANSWER_BYTES.value
    before = crash_guard.used_memory() or 0
    end = time.monotonic() + seconds
    thread = threading.Thread(target=context.run, args=(run,), name=_THREAD, daemon=True)
    with without_collection(), crash_guard.limited_memory(2 * most):
        thread.start()
        while True:
            seconds_left = end - time.monotonic()
            try:
                answer, error = answers.get(timeout=max(min(seconds_left, _LOOK_SECONDS), 0))
                break
            except queue.Empty:
                is_too_large = (crash_guard.used_memory() or 0) - before > most
                if is_too_large or seconds_left <= 0:
                    _stop(thread)
                if is_too_large:
                    raise MemoryError from None
                if seconds_left <= 0:
                    raise
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]  # None only beside an error


def _stop(thread: threading.Thread) -> None:
    """
    Stop a request, which could otherwise collect an endless response until this process ends.

    Most backends leave their requests to the event loop of fsspec. In a process of the command,
    all tasks there belong to the request; in a process of a caller, some may be the caller's.
    """
    import ctypes

    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        )
    _cancel_tasks()
    thread.join(_STOP_SECONDS)
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)  # glibc does not release the memory of a response in small parts by itself


def _cancel_tasks() -> None:
    """Cancel all tasks in the event loop of fsspec."""
    asyn = sys.modules.get("fsspec.asyn")
    loop = asyn.loop[0] if asyn is not None else None
    if loop is None or not crash_guard.is_own():
        return

    def cancel() -> None:
        import asyncio

        for task in asyncio.all_tasks(loop):
            task.cancel()

    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(cancel)


def _failure(path: RemotePath, error: Exception, what: str) -> ModelFileError | None:
    """
    Return the error for a backend's exception, with a message; None if the path does not exist.
    """
    chain = list(causes(error))
    names = {kind.__name__ for cause in chain for kind in type(cause).__mro__}
    numbers = {http_status(cause) for cause in chain}
    if any(isinstance(cause, ssl.SSLError) for cause in chain) or names & _TLS:
        return ModelFileError(
            path.shown,
            "remote-tls",
            f"is not {what}: the TLS connection failed; check the server's certificate, or set "
            "SSL_CERT_FILE if it has a private one",
        )
    is_unset = path.protocol in AZURE and str(error).startswith(_UNSET)
    if is_unset or names & _CREDENTIALS:
        return ModelFileError(
            path.shown,
            "remote-credentials",
            f"is not {what}: no valid credentials for {_storage(path)} were found; set them in "
            "the environment",
        )
    if path.protocol == HUB and (numbers & _DENIED or "RepositoryNotFoundError" in names):
        return ModelFileError(
            path.shown,
            "remote-denied",
            f"is not {what}: its repository does not exist, or is private or gated; check the "
            "address, and set HF_TOKEN to a token that has access",
        )
    if (
        numbers & _DENIED
        or any(isinstance(cause, PermissionError) for cause in chain)
        or (path.protocol in GOOGLE and str(error).startswith(_FORBIDDEN))
    ):
        return ModelFileError(
            path.shown,
            "remote-denied",
            f"is not {what}: the server denied access; check the credentials and their permissions",
        )
    if _CHANGED in numbers or "FileExpired" in names:
        return changed(path)
    if names & _CONNECTION or numbers & _BUSY or any(isinstance(c, _PASSES) for c in chain):
        return ModelFileError(
            path.shown,
            "remote-unavailable",
            f"is not {what}: the connection to the server failed repeatedly; check the address "
            "and the network",
        )
    if numbers & _MISSING or any(isinstance(cause, FileNotFoundError) for cause in chain):
        return None
    if path.protocol == HUB and isinstance(error, ValueError):
        return ModelFileError(
            path.shown,
            "remote-failed",
            "does not name a repository; use an address such as hf://OWNER/REPOSITORY/FILE",
        )
    if path.is_web and isinstance(error, ValueError):
        return no_ranges(path)
    return ModelFileError(
        path.shown,
        "remote-failed",
        f"is not {what}: {PACKAGES[path.protocol]} reported {type(error).__name__}",
    )


def _storage(path: RemotePath) -> str:
    return "the storage of its files" if path.protocol == MODELS else f"{path.protocol}://"


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of a backend's error, if the error has one."""
    status = next(
        (getattr(error, name) for name in _STATUSES if hasattr(error, name)),
        None,
    )
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", status)
    elif response is not None:  # requests, and huggingface_hub
        status = getattr(response, "status_code", status)
    return status if isinstance(status, int) else None


def changed(path: RemotePath) -> ModelFileError:
    """Return the error for a file that was replaced while it was read."""
    return ModelFileError(
        path.shown, "changed", "changed while policytool read it; run the command again"
    )


def no_ranges(path: RemotePath) -> ModelFileError:
    """Return the error for a server that delivers only whole files."""
    return ModelFileError(
        path.shown,
        "remote-ranges",
        "is not readable: its server does not support range requests; download the file first",
    )
