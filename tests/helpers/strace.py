"""What lines of strace look like, for all who read them."""

from __future__ import annotations

import re
from typing import Final

PATH: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
"""A text among a call's arguments."""

DIRECTORY: Final = re.compile(r"(?:AT_FDCWD|[0-9]+)<(.*?)>, \"")
"""The open directory that a path is relative to, as ``strace -y`` prints it."""

COPY: Final = re.compile(r"flags=CLONE_CHILD_CLEARTID\|CLONE_CHILD_SETTID\|SIGCHLD\b")
"""
How a process makes a copy of itself to read in (policytool.support.processes.crash_guard); a
program that it then starts is told by execve.
"""
