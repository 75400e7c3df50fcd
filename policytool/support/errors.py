"""
Everything that can go wrong, as one tree.

    PolicytoolError          one sentence for the user; never a traceback
    ├── UsageError           the call is wrong (exit code 2)
    │   └── PolicyNameError  a name that no release knows
    ├── ModelFileError       a file could not be read (exit code 3); has a path and a stable code
    ├── ReportError          a report could not be written (exit code 3)
    ├── CacheError           a directory cannot keep results (exit code 3)
    ├── BaselineError        a file is no baseline of ours (exit code 3)
    ├── MergeError           reports are not the complete reports of one run (exit code 3)
    ├── BundleError          the same of a checkpoint, which knows no path: who reads it makes
    │                        a ModelFileError of it
    ├── WorkerError          the child process with TensorFlow could not do its job (exit code 3)
    ├── MissingPackageError  a Python package that is needed is not installed
    └── SpellingError        a policy that a generation has no words for
        └── LimitError       a model with more layers than are read

Each message says what was expected, what was found, where, and what to do. Those that Python code
can get have public names in ``policytool``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_CAUSES: Final = 20
_SHOWN: Final = 120
"""Characters of a name that a sentence shows."""

USAGE: Final = "usage"
"""The code of a file's failure for which the options are wrong."""

INTERNAL: Final = "internal-error"
"""The code of a file's failure that a bug in policytool causes."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    for _ in range(_MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


class PolicytoolError(Exception):
    """An error whose text is one sentence for the user."""


class CodedError(Exception):
    """An error with a stable, machine-readable code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class UsageError(PolicytoolError):
    """A policy, release, rule, pattern or limit that does not exist, or options that conflict."""


class PolicyNameError(UsageError):
    """A policy name that no Keras release ever accepted."""


class ReportError(PolicytoolError):
    """A report that cannot go where it should."""


class CacheError(PolicytoolError):
    """A directory that cannot keep the results of earlier runs."""


class BaselineError(PolicytoolError):
    """A file that should be a baseline of findings and cannot be read as one."""


class MergeError(PolicytoolError):
    """Reports of shards that cannot be merged."""


class SpellingError(PolicytoolError):
    """A policy that cannot be written in, or read from, the spelling of a generation."""


class LimitError(SpellingError):
    """A model with more layers, or deeper ones, than are read; the message names the limit."""


class WorkerError(PolicytoolError):
    """
    The process with TensorFlow could not run a model.

    ``code`` is stable. ``details`` contains the traceback or the end of the output of the process.
    ``ended`` is true if the process has ended, and ``lacked_memory`` if memory ran out. ``path`` is
    the path of the model as reports show it, or None; the text of the error begins with it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: str = "",
        ended: bool = False,
        lacked_memory: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = details
        self.ended = ended
        self.lacked_memory = lacked_memory
        self.path: str | None = None

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.path is None else f"{self.path}: {message}"


class MissingPackageError(PolicytoolError):
    """A required Python package is missing; the message contains the command to install it."""


class ModelFileError(PolicytoolError):
    """
    A file that is not a readable model.

    ``code`` is stable and machine-readable (``lfs-pointer``, ``truncated``, ...), and is the same
    as in the ``failures`` of JSON reports. ``message`` is the text without the path, which precedes
    it.
    """

    def __init__(self, path: str, code: str, message: str) -> None:
        super().__init__(path, code, message)
        self.path = path
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class BundleError(CodedError, PolicytoolError):
    """
    A checkpoint, or one of its tensors, that cannot be read; ``code`` is stable and
    machine-readable, and the sentence names the file.
    """


def short(text: str) -> str:
    """Return a name from a file for a message, cut at a readable length."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
