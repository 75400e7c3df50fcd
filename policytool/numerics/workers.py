"""
Runs jobs in a child process that has TensorFlow. Jobs and answers are lines of JSON.

The child runs ``policytool/runtime`` under an interpreter that the user selects, in an empty
directory, with only the environment variables that TensorFlow needs. It starts with the first job
and also runs the next ones; after a crash, the next job starts a new child. The child ends when
this process ends, even if this process is killed.

If the user sets no memory limit, a job that compares predictions still has one: the amount that a
model of its size needs, but at most a share of the machine's memory. The limit does not include the
memory in use once TensorFlow has started (0.3 GiB with TensorFlow 2.21 on two cores), because that
depends on cores and devices and not on the model. The limit has an effect only on Linux, which
reports the memory of a process.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import selectors
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Struct

from policytool.numerics import environments
from policytool.numerics.environments import AUTO
from policytool.numerics.hand_over import encoded_job
from policytool.releases.dtypes import is_float, itemsize
from policytool.releases.releases import BACKENDS, KERAS2, family_of
from policytool.support import limits
from policytool.support.errors import ModelFileError, WorkerError
from policytool.support.files import opening
from policytool.support.limits import TENSORFLOW_BYTES, TENSORFLOW_SECONDS
from policytool.support.processes import interrupts
from policytool.support.processes.pool import GRACE, Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from policytool.formats.document import Document


GIBIBYTE: Final = 2**30

LEAST: Final = TENSORFLOW_BYTES.default
"""
Minimum memory in bytes, for inputs and the outputs of layers.

Of the models in ``keras.applications``, NASNetLarge needs the most memory in addition to its
weights: 1 GiB for each row, measured with Keras 3.15 and TensorFlow 2.21. A comparison that runs
out of memory is repeated with 3 rows, and then with 1.
"""

TIMES_WEIGHTS: Final = 6
"""
Allowed memory as a multiple of the size of the weights.

VGG19 has 548 MiB of weights, and needs 3.3 GiB with Keras 3.15 and 4.2 GiB with tf_keras 2.21,
including inputs and outputs of 16 rows: while loading, Keras keeps the weights several times, as
read, as arrays and as variables.
"""

_SHARE: Final = 2
"""The memory of the machine is divided by this number for the maximum of a job."""

_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
"""The memory limit of a container in bytes (control groups, version 2); ``max`` for no limit."""


class MemoryLimit(Struct, frozen=True, kw_only=True):
    """A memory limit for one job."""

    bytes: int
    """Bytes in addition to the memory in use once TensorFlow has started."""

    most: int
    """Maximum of the whole process in bytes."""


def memory_limit(weights: int) -> MemoryLimit | None:
    """
    Return the limit for a job with a model; None if the system does not support limits.

    :param weights: the size of the model's weights in bytes
    """
    machine = machine_memory()
    return limit_of(weights, machine) if machine is not None else None


def limit_of(weights: int, machine: int) -> MemoryLimit:
    """Return the limit for a model whose weights have this size, on a machine with this memory."""
    most = machine // _SHARE
    return MemoryLimit(bytes=min(LEAST + TIMES_WEIGHTS * weights, most), most=most)


def machine_memory() -> int | None:
    """Return the memory of this machine or container in bytes; None if limits have no effect."""
    if sys.platform != "linux":
        return None
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        cgroup_limit = opening.read_bounded(_CGROUP, limits.JSON_BYTES).strip()
    except OSError:  # other control groups, or none
        return machine
    return min(machine, int(cgroup_limit)) if cgroup_limit.isdigit() else machine


def check_memory(document: Document, policies: Sequence[str | None]) -> None:
    """
    Check that the machine has the memory for the weights of a model, under each of some policies
    at the same time; a policy that is None keeps the stored dtypes.

    :raises ModelFileError: if it does not.
    """
    needed = sum(
        math.prod(tensor.shape or ()) * itemsize(_variable_dtype(tensor.dtype, policy))
        for policy in policies
        for tensor in document.tensors or ()
    )
    machine = machine_memory()
    if machine is not None and needed > machine:
        raise ModelFileError(
            document.path,
            "memory",
            f"needs {gibibytes_text(needed)} of memory for its weights, and this machine has "
            f"{gibibytes_text(machine)}; inspect, audit and migrate do not load them",
        )


def _variable_dtype(stored: str, policy: str | None) -> str:
    """Return the dtype of a variable under a policy; float variables follow it."""
    own = "float32" if policy is not None and policy.startswith("mixed_") else policy
    return own if own is not None and is_float(own) and is_float(stored) else stored


def gibibytes_text(count: int) -> str:
    """Return a number of bytes in GiB, for messages."""
    return f"{count / GIBIBYTE:.1f} GiB"


RUNTIME: Final = Path(__file__).parents[1] / "runtime" / "__main__.py"

TENSORFLOW: Final = "tensorflow"
INSTALL: Final = "pip install 'policytool[check]'"
HUB_INSTALL: Final = "pip install 'policytool[hub]'"
_AUTOMATIC: Final = "use --python auto, which installs the release that fits the model"

_KEPT: Final = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "PYTHONPATH", "SHELL", "TZ", "USER"})
_KEPT_PREFIXES: Final = (
    "CUDA",
    "DYLD_",
    "GOMP_",
    "JAX_",
    "KMP_",
    "LC_",
    "LD_",
    "MKL_",
    "NCCL_",
    "NVIDIA_",
    "OMP_",
    "PYTORCH_",
    "ROCM_",
    "HIP_",
    "TF_",
    "TORCH_",
    "XLA_",
)
"""
Prefixes of environment variables that the child gets, because libraries, devices and interpreters
need them. Other variables are left out, because they may contain credentials.
"""

_TEMPORARY: Final = ("TMPDIR", "TEMP", "TMP")
"""
Variables with the directory for temporary files. The child uses a directory that this process
removes, because TensorFlow does not remove its files if it is killed.
"""

_QUIET: Final = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "PYTHONUTF8": "1"}

_TICK: Final = 0.5
"""Seconds between two checks of the time limit."""

_PRIVATE: Final = re.compile(r"(?:/[^/\s'\":]+)*/policytool-[0-9a-f]{16}/\w+/")
"""
The directory of a private copy in a message, which no longer exists when the user reads it.
:func:`policytool.support.processes.interrupts.temporary_directory` makes the first name.
"""

_MISSING: Final = {
    "no-tensorflow": "has no TensorFlow",
    "no-tf-keras": "has TensorFlow, but not tf-keras",
    "no-keras": "has TensorFlow, but not Keras 3",
    "no-keras-hub": "has no KerasHub, or one that cannot be imported",
}

AUTO_BACKEND: Final = "auto"
_EXTRAS: Final = {TENSORFLOW: "check"}
"""The extra of policytool that installs a backend, if it has another name."""


def accepted_backends(choice: str, own_environment: Mapping[str, str]) -> tuple[str, ...]:
    """
    Return the backends for ``--backend``; the first that the interpreter has is used.

    For ``auto``, the backend in the variable ``KERAS_BACKEND`` comes first, then that in the
    settings file of Keras. Neither is required, because Keras writes this file itself.
    """
    if choice != AUTO_BACKEND:
        return (choice,)
    preferred = (own_environment.get("KERAS_BACKEND"), _configured_backend(own_environment))
    return tuple(dict.fromkeys([*(name for name in preferred if name in BACKENDS), *BACKENDS]))


def _configured_backend(own_environment: Mapping[str, str]) -> object:
    """Return the backend in the settings file of Keras; None without one."""
    home = own_environment.get("KERAS_HOME") or str(Path.home() / ".keras")
    try:
        text = opening.read_bounded(Path(home) / "keras.json", limits.JSON_BYTES)
        config: object = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None  # Keras ignores such a file too
    return config.get("backend") if isinstance(config, dict) else None


class Interpreter(Struct, frozen=True, kw_only=True):
    """The interpreter of a child process, with the limits of its jobs."""

    python: str = sys.executable
    """
    A path or a name on PATH, with any release of TensorFlow; a release, whose environment is made
    if it does not exist; or ``auto`` for the release that fits each file.
    """

    is_for_both: bool = False
    """
    Whether a release is only for the sides of a conversion that it can load, because the user did
    not specify a side.
    """

    memory_limit: int | None = None
    """Maximum memory of the child in bytes; None for no limit."""

    backend: str = AUTO_BACKEND
    """The backend of Keras 3; ``auto`` reads the settings of Keras when a job runs."""

    timeout: float | None = None
    """Maximum time of a job in seconds; None for no limit."""

    script: Path = RUNTIME


class Worker:
    """A child process with TensorFlow, as a context manager. The first job starts the process."""

    def __init__(
        self,
        interpreter: Interpreter,
        report: Callable[[str], None] = lambda _: None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Set the interpreter; this starts no process.

        :param report: called with the text of each step of a job, and with an empty text at the end
        :param note: called with a sentence before an environment is made
        """
        self._interpreter = interpreter
        self._python = interpreter.python
        self._report = report
        self._note = note
        self._stack = contextlib.ExitStack()
        self._child: Child | None = None
        self._side = ""
        self._last_backends: tuple[str, ...] = ()
        """The possible backends of the current job."""

        self._bound: int | None = None
        """The memory limit of the current job in bytes, without the memory of the libraries."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child and the processes that it started."""
        self._stack.close()

    @property
    def has_memory_limit(self) -> bool:
        """Whether the user set a limit for the whole process."""
        return self._interpreter.memory_limit is not None

    @property
    def python(self) -> str:
        """The path, the name or the release of the child's interpreter."""
        return self._python

    @property
    def is_for_both(self) -> bool:
        """Whether the user selected the same interpreter for both sides of a conversion."""
        return self._interpreter.is_for_both

    @property
    def is_fitted(self) -> bool:
        """Whether :meth:`fit` may change the release."""
        own = self._interpreter.python
        is_release = self._interpreter.is_for_both and environments.release_of(own) is not None
        return own == AUTO or is_release

    def fit(self, best_release: Callable[[], str]) -> None:
        """Use the best release for the next jobs, if the user left the choice to the file."""
        if not self.is_fitted:
            return
        own, best = self._interpreter.python, best_release()
        python = best if own == AUTO or family_of(own) != family_of(best) else own
        if python != self._python:
            self.close()
            self._python = python

    def run(self, job: Mapping[str, Any], *, side: str = "") -> Mapping[str, Any]:
        """
        Run a job in the child, and return the result.

        :param job: JSON, with a :class:`~policytool.numerics.hand_over.PrivateCopy` for each model
            or weights file
        :param side: ``source`` or ``target``, for messages, if the job runs one side of a
            conversion; otherwise empty
        :raises WorkerError: if the child cannot be started, crashes, exceeds a limit, or reports an
            error.
        """
        self._side = side
        bound = job.get("memory")
        self._bound = bound["bytes"] if bound is not None else None
        self._last_backends = self._backends(job)
        child = self._start()
        try:
            return self._result(child, encoded_job({**job, "backends": self._last_backends}))
        except BaseException as error:
            if not isinstance(error, WorkerError) or error.ended:
                self.close()  # after Ctrl-C, or if the child cannot run another job
            raise
        finally:
            self._report("")

    def _backends(self, job: Mapping[str, Any]) -> tuple[str, ...]:
        """
        Return the possible backends of a job. Keras 2 and graphs need TensorFlow.

        :raises WorkerError: if the user chose another backend, unless the job runs one side of a
            conversion, whose other side may have this backend.
        """
        accepted = accepted_backends(self._interpreter.backend, os.environ)
        sides = (job, job.get("reference"), job.get("candidate"))
        families = {side.get("family") for side in sides if isinstance(side, Mapping)}
        if KERAS2 not in families:
            return accepted
        if TENSORFLOW not in accepted and not self._side:
            message = (
                f"needs TensorFlow, because only Keras 3 models run on {BACKENDS[accepted[0]]}"
            )
            raise WorkerError("backend", message)
        return (TENSORFLOW,)

    def _result(self, child: Child, line: bytes) -> Mapping[str, Any]:
        """Send a job to the child, and return its result."""
        try:
            child.send(line)
        except BrokenPipeError:
            raise self._crash(child) from None
        for event in self._answers(child):
            match event:
                case {"step": str() as step}:
                    self._report(step)
                case {"result": dict() as result}:
                    return result
                case {
                    "error": {
                        "code": str() as code,
                        "message": str() as message,
                        "trace": str() as trace,
                    }
                }:
                    raise self._error_of_refusal(child, code, _PRIVATE.sub("", message), trace)
                case _:
                    raise WorkerError(
                        "worker-garbage",
                        f"{self._python} sent an unexpected response: "
                        f"{str(event)[:200]!r}; check that it is a Python interpreter",
                        ended=True,
                    )
        raise self._crash(child)

    def _answers(self, child: Child) -> Iterator[object]:
        """
        Yield each line of the child as JSON, until the child ends.

        :raises WorkerError: if the job takes too long.
        """
        timeout = self._interpreter.timeout
        deadline = time.monotonic() + (timeout or 0)
        with selectors.DefaultSelector() as selector:
            selector.register(child.descriptor, selectors.EVENT_READ)
            while True:
                if timeout is not None and time.monotonic() > deadline:
                    raise WorkerError(
                        "worker-timeout",
                        f"the TensorFlow process was stopped after {timeout:g} s; raise the limit "
                        f"with --limit {TENSORFLOW_SECONDS.name}={math.ceil(2 * timeout)}",
                        ended=True,
                    )
                if selector.select(_TICK):
                    lines = child.receive()
                    if lines is None:
                        return
                    yield from map(_parse_line, lines)
                elif not child.is_alive:
                    return

    def _start(self) -> Child:
        """Start the child process."""
        if self._child is not None and self._child.is_alive:
            return self._child
        self.close()
        scratch = self._stack.enter_context(interrupts.temporary_directory())
        python, limit = self._python, self._interpreter.memory_limit
        if (release := environments.release_of(python)) is not None:
            python = str(
                self._stack.enter_context(
                    environments.open_environment(release, self._report, self._note)
                )
            )
        try:
            child = Child(
                [interpreter_path(python), str(self._interpreter.script)],
                [str(limit)] if limit is not None else [],
                cwd=scratch,
                environment=child_environment(scratch),
                longest=limits.EVENT_BYTES.value,
            )
        except OSError as error:
            self.close()
            message = (
                f"{self._message_prefix}{python} cannot be run ({error.strerror or error}); "
                f"specify an interpreter that has TensorFlow: {self._option}"
            )
            raise WorkerError("no-python", message, ended=True) from error
        self._stack.callback(lambda: child.end(0 if interrupts.is_interrupted() else GRACE))
        self._child = child
        return child

    def _error_of_refusal(self, child: Child, code: str, message: str, trace: str) -> WorkerError:
        """
        Return the error for a refusal of the child: with advice if its interpreter lacks
        TensorFlow, and with the memory limit if it ran out of memory.
        """
        python = self._python
        if code == "no-backend":
            return WorkerError(code, self._without_backend())
        if code in _MISSING:
            hint = (
                f"install it with {HUB_INSTALL}, or specify an interpreter that has KerasHub: "
                f"{self._option}"
                if code == "no-keras-hub"
                else f"install it with {INSTALL}, specify an interpreter that has TensorFlow: "
                f"{self._option}, or {_AUTOMATIC}"
            )
            return WorkerError(
                code, f"{self._message_prefix}{python} {_MISSING[code]} ({message}); {hint}"
            )
        if code == "memory":
            return WorkerError(
                code,
                f"TensorFlow ran out of memory ({message}){self._limit()}",
                details=trace + child.messages,
                lacked_memory=True,
            )
        return WorkerError(code, message, details=trace)

    def _without_backend(self) -> str:
        """Return the message for an interpreter without the backends that the job accepts."""
        names = [BACKENDS[name] for name in self._last_backends]
        commands = (
            f"pip install 'policytool[{_EXTRAS.get(name, name)}]'" for name in self._last_backends
        )
        lack = names[0] if len(names) == 1 else f"backend of Keras 3 ({', '.join(names)})"
        return (
            f"{self._message_prefix}{self._python} has no {lack}, or no Keras 3.1 or later; "
            f"install it with {' or '.join(commands)}, specify another interpreter: "
            f"{self._option}, or {_AUTOMATIC}"
        )

    def _crash(self, child: Child) -> WorkerError:
        """Return the error for a child that ended without an answer."""
        if excess := limits.EVENT_BYTES.exceeded_message(child.longest_line, counting=True):
            return WorkerError(
                "worker-limit",
                f"the TensorFlow process sent a response of {excess}",
                ended=True,
            )
        lacked_memory = child.may_have_lacked_memory
        hint = self._limit() or ", which often means that memory ran out" if lacked_memory else ""
        return WorkerError(
            "worker-crashed",
            f"the TensorFlow process ({self.python}) {child.how_it_ended()}{hint}",
            details=child.messages,
            ended=True,
            lacked_memory=lacked_memory,
        )

    @property
    def _message_prefix(self) -> str:
        return f"the conversion's {self._side} cannot be loaded: " if self._side else ""

    @property
    def _option(self) -> str:
        """The option that sets the interpreter on the command line."""
        return f"--python {self._side}=PYTHON" if self._side else "--python"

    def _limit(self) -> str:
        """Return the memory limit as the end of a sentence; empty if there is no limit."""
        if (limit := self._interpreter.memory_limit) is not None:
            return f" (memory limit {TENSORFLOW_BYTES.amount(limit)}; {_raise_memory(limit)})"
        if self._bound is not None:
            return f" (memory limit {gibibytes_text(self._bound)}; {_raise_memory(self._bound)})"
        return ""


def _raise_memory(limit: int) -> str:
    """Return how to double a memory limit, as the end of a sentence."""
    amount = TENSORFLOW_BYTES.amount(2 * limit, gap="")
    return f"raise it with --limit {TENSORFLOW_BYTES.name}={amount}"


def child_environment(scratch: str) -> dict[str, str]:
    """Return the environment of a child whose temporary files are in ``scratch``."""
    return {**environment(os.environ), **dict.fromkeys(_TEMPORARY, scratch)}


def environment(own_environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for a child, selected from those of this process."""
    inherited = {
        name: value
        for name, value in own_environment.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
    if own_environment.get(
        "PYTHONPATH"
    ):  # absolute, because the child has a different working directory
        inherited["PYTHONPATH"] = os.pathsep.join(
            str(Path(entry).absolute())
            for entry in own_environment["PYTHONPATH"].split(os.pathsep)
            if entry
        )
    return {**_QUIET, **inherited}


def interpreter_path(python: str) -> str:
    """
    Return the path of an interpreter as an absolute path; a name on PATH stays a name. Links are
    not resolved, because the interpreter of a virtual environment is a link out of it.
    """
    return str(Path(python).absolute()) if os.sep in python else python


def _parse_line(line: bytes) -> object:
    try:
        message: object = json.loads(line)
    except (ValueError, RecursionError):
        return line.decode("utf-8", "replace")
    return message
