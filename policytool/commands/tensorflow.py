"""The child processes with TensorFlow of a command, from its arguments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from policytool.numerics.environments import release_of
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import AUTO_BACKEND, Interpreter
from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.commands.arguments.shared import ProcessArguments, TensorFlowArguments
    from policytool.numerics.workers import Worker

_BOTH = ""
"""The key of an interpreter for both sides of a conversion."""


def interpreter(arguments: TensorFlowArguments) -> Interpreter:
    """Return the interpreter of a command that runs one child process."""
    return _interpreter(arguments.python or sys.executable, backend=arguments.backend)


def interpreters(
    python: str | Mapping[str, str] | None, backend: str = AUTO_BACKEND
) -> tuple[Interpreter, Interpreter]:
    """
    Return the interpreters that load the source and the target of a conversion.

    :param python: the interpreter for both sides, or a mapping with one for each side
    :param backend: the backend of both sides, if they are models of Keras 3
    """
    sides = {_BOTH: python} if isinstance(python, str) else python or {}
    both = sides.get(_BOTH, sys.executable)
    source, target = (
        _interpreter(sides.get(side, both), is_for_both=side not in sides, backend=backend)
        for side in ("source", "target")
    )
    return source, target


def _interpreter(python: str, *, is_for_both: bool = False, backend: str) -> Interpreter:
    """
    Return an interpreter with the limits that the user set.

    :raises UsageError: for a release without an environment.
    """
    return Interpreter(
        python=release_of(python) or python,
        is_for_both=is_for_both,
        backend=backend,
        memory_limit=limits.TENSORFLOW_BYTES.user_value,
        timeout=limits.TENSORFLOW_SECONDS.user_value,
    )


def tools(
    arguments: ProcessArguments,
    worker: Worker,
    target: Worker | None = None,
    *,
    verify: bool | None = False,
    no_verify_reason: str | None = None,
) -> TensorFlowTools:
    """
    Return the child processes with the options for their jobs. The user's modules are also searched
    in the working directory, as ``python -m`` does.
    """
    custom_objects = tuple(arguments.custom_objects or ())
    return TensorFlowTools(
        worker=worker,
        target=target,
        verify=False if no_verify_reason is not None else verify,
        no_verify_reason=no_verify_reason,
        custom_objects=custom_objects,
        path=(str(Path.cwd()),) if custom_objects else (),
        trust=arguments.trust,
    )
