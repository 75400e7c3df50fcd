"""The version, and where its documentation is."""

from __future__ import annotations

from functools import cache
from typing import Final

VERSION: Final = "0.1.0"
"""pyproject.toml takes it from here; asking the installation for it costs 15 ms at start."""


@cache
def documentation() -> str | None:
    """
    Return the address of the documentation's directory (``Documentation`` of the project's URLs)
    without a slash at its end; None where none is known.
    """
    from importlib import metadata

    urls = dict(
        entry.split(", ", 1)
        for entry in metadata.metadata("policytool").get_all("Project-URL") or ()
    )
    return urls["Documentation"].rstrip("/") if "Documentation" in urls else None
