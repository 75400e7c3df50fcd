"""
strace's logs: which calls of the system a run makes, which of them concern a directory, and what
these calls do there.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITING: Final = frozenset(
    {
        "write",
        "pwrite64",
        "writev",
        "pwritev",
        "pwritev2",
        "ftruncate",
        "truncate",
        "fallocate",
        "fsync",
        "fdatasync",
        "sync",
        "sync_file_range",
        "syncfs",
        "msync",
        "creat",
        "mkdir",
        "mkdirat",
        "mknod",
        "mknodat",
        "rename",
        "renameat",
        "renameat2",
        "link",
        "linkat",
        "unlink",
        "unlinkat",
        "rmdir",
        "symlink",
        "symlinkat",
        "copy_file_range",
        "sendfile",
        "splice",
        "fchmod",
        "fchmodat",
        "fchmodat2",
        "chmod",
        "chown",
        "fchown",
        "lchown",
        "fchownat",
        "utime",
        "utimes",
        "futimesat",
        "utimensat",
        "setxattr",
        "lsetxattr",
        "fsetxattr",
        "removexattr",
        "lremovexattr",
        "fremovexattr",
    }
)
"""
Calls that write, bring to the disk, or change names and attributes; with them, ``openat`` where it
makes or empties a file.
"""

READING: Final = frozenset(
    {
        "read",
        "pread64",
        "readv",
        "preadv",
        "preadv2",
        "stat",
        "lstat",
        "fstat",
        "newfstatat",
        "statx",
        "statfs",
        "fstatfs",
        "access",
        "faccessat",
        "faccessat2",
        "readlink",
        "readlinkat",
        "getdents64",
        "lseek",
        "close",
        "fcntl",
        "flock",
        "ioctl",
        "listxattr",
        "llistxattr",
        "flistxattr",
        "getxattr",
        "lgetxattr",
        "fgetxattr",
        "fadvise64",
        "getcwd",
        "chdir",
        "fchdir",
        "mmap",
        "dup",
        "dup2",
        "dup3",
        "execve",
    }
)
"""Calls that change nothing on a disk. (Of ``mmap`` see :func:`unknown`.)"""

_OPENING: Final = {"open", "openat", "openat2"}
_MAKING: Final = re.compile(r"\b(O_CREAT|O_TMPFILE|O_TRUNC)\b")
_LINE: Final = re.compile(r"(?:(?P<pid>\d+) +)?(?P<name>\w+)\((?P<rest>.*)", re.DOTALL)
_WORKING: Final = re.compile(r"AT_FDCWD<[^>]*>")
_INJECTED: Final = "(INJECTED)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of the system."""

    pid: int
    """0 where one process alone was looked at."""

    name: str
    number: int
    """How many calls of this name its process made, this one with them."""

    text: str
    """Its arguments and what it returned."""

    @property
    def writes(self) -> bool:
        """Whether it changes what is on a disk."""
        return self.name in WRITING or (
            self.name in _OPENING and _MAKING.search(self.text) is not None
        )

    @property
    def injected(self) -> bool:
        """Whether strace answered it in place of the system."""
        return _INJECTED in self.text

    def concerns(self, directory: Path) -> bool:
        """Return whether it names something in a directory, or the directory."""
        return (
            re.search(rf"{re.escape(str(directory))}(?![\w.-])", _WORKING.sub("", self.text))
            is not None
        )


def calls(log: str) -> list[Call]:
    """Return the calls of a log, each process' in their order."""
    result: Counter[tuple[int, str]] = Counter()
    actual = []
    for line in log.splitlines():
        match = _LINE.match(line)
        if match:
            key = (int(match["pid"] or 0), match["name"])
            result[key] += 1
            actual.append(Call(pid=key[0], name=key[1], number=result[key], text=match["rest"]))
    return actual


def unknown(found: list[Call], directory: Path) -> Iterator[str]:
    """
    Yield what calls that concern a directory may do to it that nothing is known of: calls that are
    in no list, and files that are written as memory.
    """
    for call in found:
        if not call.concerns(directory):
            continue
        if call.name not in WRITING | READING | _OPENING:
            yield f"{call.name} is neither known to write nor not to"
        if call.name == "mmap" and "PROT_WRITE" in call.text and "MAP_SHARED" in call.text:
            yield f"mmap({call.text} writes without a call"
