"""
The options of commands that run TensorFlow in a process of its own, or in two: which one, within
what bounds, and what it is allowed.
"""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from policytool.cli.options import Size
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.numerics.workers import Worker


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorFlow:
    """What the options say."""

    interpreter: Interpreter
    target: Interpreter
    """The one that loads what models are converted to."""

    custom_objects: tuple[str, ...]
    trust: bool

    def tools(
        self, worker: Worker, target: Worker | None = None, *, verify: bool = False
    ) -> TensorFlowTools:
        """
        Return what operations do with child processes; a module of the user's is found as ``python
        -m`` finds it.
        """
        own = (str(Path.cwd()),) if self.custom_objects else ()
        return TensorFlowTools(
            worker=worker,
            target=target,
            verify=verify,
            custom_objects=self.custom_objects,
            path=own,
            trust=self.trust,
        )


class Python(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """
    An interpreter for both sides of a conversion, or for one: ``PYTHON``, ``source=PYTHON`` or
    ``target=PYTHON``.
    """

    name = "python"
    envvar_list_splitter = os.pathsep

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the side, which is empty for both, and the interpreter."""
        if isinstance(value, tuple):
            return value
        side, _, python = value.partition("=")
        if side not in _SIDES:
            return "", value
        if not python:
            self.fail(f"{value!r} names no interpreter", param, ctx)
        return side, python


def options(function: Callable[..., int]) -> Callable[..., int]:
    """
    Add the options, which the command gets as one value, ``tensorflow``; there is one interpreter.
    """
    option = click.option(
        "--python",
        metavar="PYTHON",
        envvar=_VARIABLE,
        help="The interpreter that has TensorFlow, instead of this one.",
    )
    return _with(function, option, lambda python: {"": python} if python else {})


def two_sided(function: Callable[..., int]) -> Callable[..., int]:
    """
    Add the options for a command that converts: ``--python`` may name an interpreter for each side,
    and the source's does all else, too.
    """
    option = click.option(
        "--python",
        type=Python(),
        multiple=True,
        metavar="[SIDE=]PYTHON",
        envvar=_VARIABLE,
        help="The interpreter that has TensorFlow, instead of this one; source=PYTHON and "
        "target=PYTHON name one for each side of a conversion.",
    )
    return _with(function, option, _by_side)


def _by_side(given: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the interpreters by side."""
    found = dict(given)
    if len(found) != len(given):
        raise UsageError(
            "--python names an interpreter twice: give PYTHON, source=PYTHON and target=PYTHON at "
            "most once each"
        )
    return found


def _with(
    function: Callable[..., int],
    python_option: Callable[..., Any],
    sides: Callable[[Any], dict[str, str]],
) -> Callable[..., int]:
    """
    Add all options; ``sides`` makes interpreters by side of what ``--python`` says, of which the
    one without a side is for all that have none.
    """

    @functools.wraps(function)
    def command(  # one for each option
        *,
        custom_objects: tuple[str, ...],
        trust: bool,
        python: object,
        timeout: float | None,
        memory_limit: int | None,
        **arguments: Any,  # noqa: ANN401  # the command's own
    ) -> int:
        named = sides(python)
        both = named.get("", sys.executable)
        source, target = (
            Interpreter(python=named.get(side, both), memory_limit=memory_limit, timeout=timeout)
            for side in _SIDES
        )
        return function(
            tensorflow=TensorFlow(
                interpreter=source, target=target, custom_objects=custom_objects, trust=trust
            ),
            **arguments,
        )

    for option in reversed((*_CODE, python_option, *_BOUNDS)):
        command = option(command)
    return command


_SIDES: Final = ("source", "target")
_VARIABLE: Final = "POLICYTOOL_PYTHON"
_CODE: Final = (
    click.option(
        "--custom-objects",
        multiple=True,
        metavar="MODULE[:NAME]",
        help="Where the classes that a file names are defined, for TensorFlow.",
    ),
    click.option(
        "--trust",
        is_flag=True,
        help="Load a model that holds or names something outside the allow-list, such as a Lambda.",
    ),
)
_BOUNDS: Final = (
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="End TensorFlow's process when one model takes longer.",
    ),
    click.option(
        "--memory-limit",
        type=Size(),
        metavar="SIZE",
        help="The memory that TensorFlow's process may have, such as 8G.",
    ),
)
