"""
What a library says of an error, in one line: what is wrong, and not where in its code that came up.
"""

from __future__ import annotations

import re

_RAISED = re.compile(r"[\w.]+(?:Error|Exception|Warning): ")
_ENCOUNTERED = "Exception encountered: "
_COLOURS = re.compile(r"\x1b\[\d*m")
_NODES = ("[[{{node ", "[[node ")


def sentence(error: BaseException) -> str:
    """Return the class of an error and the line that says what is wrong."""
    plain = _COLOURS.sub("", str(error))
    cause = _cause([line.strip() for line in plain.splitlines() if line.strip()])
    return type(error).__name__ + (": " + cause[:300] if cause else "")


def _cause(lines: list[str]) -> str:
    """
    Return what an error says; AutoGraph puts it behind the lines of code, a graph before the node,
    and Keras 3's loader behind the config.
    """
    raised = (
        [place for place, line in enumerate(lines) if _RAISED.match(line)]
        if "in user code:" in lines
        else []
    )
    start = max(
        [
            *raised[-1:],
            *(place for place, line in enumerate(lines) if line.startswith(_ENCOUNTERED)),
        ],
        default=None,
    )
    if start is not None:
        lines = [lines[start].partition(": ")[2], *lines[start + 1 :]]
    node = next((place for place, line in enumerate(lines) if line.startswith(_NODES)), 0)
    if node:
        return lines[node - 1]
    return next(
        (
            line
            for line in lines
            if not line.endswith(":") and not line.startswith("Exception encountered")
        ),
        lines[0] if lines else "",
    )
