"""The one version, which stands in ``pyproject.toml``."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    """Return the installed version of policytool."""
    from importlib import metadata  # costs 15 ms at start

    return metadata.version("policytool")


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
