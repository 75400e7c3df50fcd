"""
What may stand in the place of a regular file, and the command line in a process that has a few
seconds and little memory.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Final

from tests.conftest import Ended
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

SECONDS: Final = 20
"""A process that is still there then hangs."""

_MEMORY: Final = 2**29
"""What reads without end has used up in less than a second."""


def make_endless(path: Path) -> None:
    """Make a link to what never ends, as repositories can hold."""
    path.symlink_to("/dev/zero")


def make_socket(path: Path) -> None:
    """Make a socket that nobody listens to."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)  # the name of a socket has at most some hundred bytes
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


KINDS: Final[Mapping[str, Callable[[Path], None]]] = {
    "character device": make_endless,
    "FIFO": os.mkfifo,
    "socket": make_socket,
}
"""What each is called, and what makes one."""


WAITING: Final = (
    "import policytool.support.files.opening as opening\nopening._check_regular = lambda path, "
    "status: "
    "None\nopening._AT_ONCE = 0\n"
)
"""
A ``sitecustomize.py`` that makes a process wait for FIFOs, as it waits for a file on a disk that
does not answer.
"""


def run_bounded(
    *arguments: str | Path,
    cwd: Path | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    pass_fds: Iterable[int] = (),
) -> Ended:
    """
    Run the command line in a process of its own, which fails where it waits forever or reads
    without end.
    """
    done = subprocess.run(
        [sys.executable, "-m", "policytool", *map(str, arguments)],
        stdin=stdin,
        capture_output=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        timeout=SECONDS,
        pass_fds=tuple(pass_fds),
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_DATA, (_MEMORY, _MEMORY)
        ),  # the tests have no threads that it could disturb
    )
    return Ended(
        code=done.returncode, out=done.stdout.decode("utf-8"), err=done.stderr.decode("utf-8")
    )
