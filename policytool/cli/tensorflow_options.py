"""The options of commands that run TensorFlow in a process of its own: which one, within what bounds, and what it is allowed."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from policytool.cli.options import Size
from policytool.operations.anew import Tools
from policytool.workers import Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.workers import Worker


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorFlow:
    """What the options say."""

    interpreter: Interpreter
    custom_objects: tuple[str, ...]
    trust: bool

    def tools(self, worker: Worker, *, verify: bool = False) -> Tools:
        """Return what operations do with a child process; a module of the user's is found as ``python -m`` finds it."""
        own = (str(Path.cwd()),) if self.custom_objects else ()
        return Tools(worker=worker, verify=verify, custom_objects=self.custom_objects, path=own, trust=self.trust)


def options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options, which the command gets as one value, ``tensorflow``."""

    @functools.wraps(function)
    def command(  # one for each option
        *,
        custom_objects: tuple[str, ...],
        trust: bool,
        python: str | None,
        timeout: float | None,
        memory_limit: int | None,
        **arguments: Any,  # noqa: ANN401  # the command's own
    ) -> int:
        interpreter = Interpreter(python=python or sys.executable, memory_limit=memory_limit, timeout=timeout)
        return function(tensorflow=TensorFlow(interpreter=interpreter, custom_objects=custom_objects, trust=trust), **arguments)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: Final = (
    click.option("--custom-objects", multiple=True, metavar="MODULE[:NAME]", help="Where the classes that a file names are defined, for TensorFlow."),
    click.option("--trust", is_flag=True, help="Let TensorFlow run the code that a file holds."),
    click.option("--python", metavar="PYTHON", envvar="POLICYTOOL_PYTHON", help="The interpreter that has TensorFlow, instead of this one."),
    click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="End TensorFlow's process when one model takes longer."),
    click.option("--memory-limit", type=Size(), metavar="SIZE", help="The memory that TensorFlow's process may have, such as 8G."),
)
