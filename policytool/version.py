"""The one version, which stands in ``pyproject.toml``."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    """Return the installed version of policytool."""
    from importlib import metadata  # costs 15 ms at start

    return metadata.version("policytool")
