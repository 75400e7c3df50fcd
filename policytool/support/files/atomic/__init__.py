"""
Files and directories that appear whole or not at all.

A draft is a file without a name if the system has such (``O_TMPFILE`` on Linux): a process that is
killed while it writes leaves nothing behind. Other systems, and libraries that need a name, give it
a hidden one. It gets its place by one link or rename; until then, and if anything fails, the target
is unchanged.

A hidden name holds the host and the process that made it, so that the next run can remove what a
killed one left: :func:`remove_stale`.
"""

from policytool.support.files.atomic._draft import DirectoryDraft, Draft, Publishable
from policytool.support.files.atomic._placing import (
    ASIDE,
    NEW,
    SUFFIX,
    NotTakenBackError,
    Range,
    copy_bytes,
    copy_data,
    copy_file,
    open_descriptor,
    remove_stale,
    same_bytes,
    same_file,
    same_ranges,
    write_all,
)

__all__ = [
    "ASIDE",
    "NEW",
    "SUFFIX",
    "DirectoryDraft",
    "Draft",
    "NotTakenBackError",
    "Publishable",
    "Range",
    "copy_bytes",
    "copy_data",
    "copy_file",
    "open_descriptor",
    "remove_stale",
    "same_bytes",
    "same_file",
    "same_ranges",
    "write_all",
]
