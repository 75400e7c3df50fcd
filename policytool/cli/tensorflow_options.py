"""
The options of commands that run TensorFlow in a process of its own, or in two: which one, within
what bounds, and what it is allowed.
"""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from policytool.cli import settings
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

    def with_time_limit(self, seconds: float) -> TensorFlow:
        """Return the same with a bound on the time of a job, unless there is one."""
        source, target = (
            replace(one, timeout=one.timeout or seconds) for one in (self.interpreter, self.target)
        )
        return replace(self, interpreter=source, target=target)

    def tools(
        self, worker: Worker, target: Worker | None = None, *, verify: bool | str = False
    ) -> TensorFlowTools:
        """
        Return what operations do with child processes; a module of the user's is found as ``python
        -m`` finds it.

        :param verify: what ``--verify`` says
        """
        reason = _no_verify_reason(verify)
        own = (str(Path.cwd()),) if self.custom_objects else ()
        return TensorFlowTools(
            worker=worker,
            target=target,
            verify=False if reason is not None else None if verify == AUTO else bool(verify),
            no_verify_reason=reason,
            custom_objects=self.custom_objects,
            path=own,
            trust=self.trust,
        )


AUTO: Final = "auto"


class Verify(click.types.BoolParamType):
    """A switch that settings and variables may also set to ``auto``."""

    name = "boolean|auto"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:  # noqa: ANN401  # Click's class says bool
        """Return True, False or :data:`AUTO`."""
        return AUTO if value == AUTO else super().convert(value, param, ctx)


verify_option: Final = click.option(
    "--verify/--no-verify",
    type=Verify(),
    default=AUTO,
    envvar="POLICYTOOL_VERIFY",
    show_default="with --target, if TensorFlow can load the model",
    help="Run TensorFlow to compare predictions before and after the change, and write the "
    "result only if they agree within the tolerance.",
)


def _no_verify_reason(verify: object) -> str | None:
    """Return who turned off the comparison that is the default; None if nobody did."""
    if verify is False:
        file = settings.found_source("verify")
        return "--no-verify" if file is None else f"verify = false in {file.display_path}"
    file = settings.found_source("target") if verify == AUTO else None
    if file is None:
        return None
    return (
        f"{file.display_path} sets the target, but was not specified with --config; use --verify "
        "to compare predictions"
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
            self.fail(f"{value!r} does not specify an interpreter", param, ctx)
        return side, python


def options(function: Callable[..., int]) -> Callable[..., int]:
    """
    Add the options, which the command gets as one value, ``tensorflow``; there is one interpreter.
    """
    option = click.option(
        "--python",
        metavar="PYTHON",
        envvar=_VARIABLE,
        help="Python interpreter with TensorFlow.",
    )
    return _with(function, option, lambda python: {"": python} if python else {})


def two_sided(function: Callable[..., int]) -> Callable[..., int]:
    """
    Add the options for a command that converts: ``--python`` may specify an interpreter for each
    side, and the source's does all else, too.
    """
    option = click.option(
        "--python",
        type=Python(),
        multiple=True,
        metavar="[SIDE=]PYTHON",
        envvar=_VARIABLE,
        help="Python interpreter with TensorFlow; source=PYTHON and target=PYTHON set one for each "
        "side of a conversion.",
    )
    return _with(function, option, _by_side)


def _by_side(given: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the interpreters by side."""
    found = dict(given)
    if len(found) != len(given):
        raise UsageError(
            "--python specifies an interpreter twice: use PYTHON, source=PYTHON and "
            "target=PYTHON at most once each"
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
        help="Module that defines the custom classes of the model.",
    ),
    click.option(
        "--trust",
        is_flag=True,
        help="Load models with code that is not on the allow-list, such as Lambda layers.",
    ),
)
_BOUNDS: Final = (
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Time limit for TensorFlow, per model.",
    ),
    click.option(
        "--memory-limit",
        type=Size(),
        metavar="SIZE",
        help="Memory limit for TensorFlow, such as 8G.",
    ),
)
