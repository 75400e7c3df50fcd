"""
Standard streams and a working directory as the rest of the program may rely on them, whatever the
process was started with.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Final

from policytool.support.errors import PolicytoolError

if TYPE_CHECKING:
    from typing import TextIO

_NAMES: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""By the number of the descriptor."""


def prepare() -> None:
    """
    Open the null device in place of closed standard streams, and let no name that an encoding lacks
    end a report.

    Otherwise the next file that is opened, a model for example, has the number to which reports or
    messages go.

    :raises PolicytoolError: if stdout is closed.
    """
    missing = [
        (number, name, mode)
        for number, (name, mode) in enumerate(_NAMES)
        if getattr(sys, name) is None
    ]
    for number, name, mode in missing:
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)  # positional only
        setattr(
            sys,
            name,
            open(number, mode, encoding="utf-8", closefd=False),  # noqa: SIM115
        )  # a descriptor, for the whole run
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if any(name == "stdout" for _, name, _ in missing):
        raise PolicytoolError(
            "stdout is closed, so the report cannot be written; redirect stdout to a file or to "
            "/dev/null"
        )


def give_up(stream: TextIO) -> None:
    """
    Let nothing more be written to a stream that failed: the interpreter's own flush at exit must
    not fail again.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def require_working_directory() -> None:
    """
    Make sure that relative paths mean something.

    :raises PolicytoolError: if the working directory was deleted or cannot be read.
    """
    try:
        os.getcwd()  # noqa: PTH109  # cheaper than pathlib, which --help does not need
    except OSError as error:
        raise PolicytoolError(
            f"the working directory cannot be used ({error.strerror}); change to another directory"
        ) from error
