"""Paths as text."""

from __future__ import annotations

import re
from typing import Final

_LEADS_OUT: Final = re.compile(
    r"(^|[/\\])\.\.([/\\]|$) | ^[/\\] | ^[A-Za-z]:[/\\] | :// | \x00", re.VERBOSE
)


def leads_out(path: str) -> bool:
    """Return whether a path leads out of the directory that it is relative to."""
    return bool(_LEADS_OUT.search(path))
