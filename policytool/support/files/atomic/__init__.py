"""
Files and directories that appear whole or not at all.

A draft is a file without a name where the system has such (``O_TMPFILE`` on Linux): a process that
is killed leaves nothing behind. Elsewhere it has a hidden name. It gets its place by one link or
rename; until then, and where anything fails, the target stays what it was.

A hidden name holds the host and the process that made it, so that the next run can remove what a
killed one left: :func:`remove_stale`.
"""

from policytool.support.files.atomic._copying import (
    copy_bytes,
    copy_file,
    opened,
    same_file,
    write_all,
)
from policytool.support.files.atomic._directory import ASIDE, DirectoryDraft, MadeDirectory
from policytool.support.files.atomic._draft import Draft
from policytool.support.files.atomic._failing import NotTakenBackError
from policytool.support.files.atomic._names import SUFFIX, remove_stale

__all__ = [
    "ASIDE",
    "SUFFIX",
    "DirectoryDraft",
    "Draft",
    "MadeDirectory",
    "NotTakenBackError",
    "copy_bytes",
    "copy_file",
    "opened",
    "remove_stale",
    "same_file",
    "write_all",
]
