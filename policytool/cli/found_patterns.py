"""
Patterns of a settings file that nobody named: hostile ones, together with a hostile model or path,
could take exponential time to match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import policy_map
from policytool.support.errors import UsageError, short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.cli.settings_file import SettingsFile

_MOST_STARS: Final = 4
"""Wildcards in a glob, ``**`` being one; each multiplies the places that may have to be tried."""


def check(file: SettingsFile, key: str, item: object) -> None:
    """
    Make sure that the patterns of a key are simple enough; values of another form are refused where
    they are read.

    :raises UsageError: for a regular expression with repeats in repeats or many of them, and for a
        glob with many wildcards.
    """
    hard = [pattern for pattern in _expressions(key, item) if not policy_map.is_simple(pattern)]
    hard += [glob for glob in _globs(key, item) if glob.replace("**", "*").count("*") > _MOST_STARS]
    if hard:
        raise UsageError(
            f"{file.path} has the pattern {short(hard[0])!r} in {key!r}, which is too complex. "
            "Simplify it, or specify the file with --config"
        )


def _expressions(key: str, item: object) -> Iterator[str]:
    """Yield the regular expressions in a value."""
    if key == "set":
        yield from (text.rpartition("=")[0] for text in _texts(item))
    if key == "suppress":
        yield from _of_entries(item, "layer")


def _globs(key: str, item: object) -> Iterator[str]:
    """Yield the globs in a value."""
    if key == "suppress":
        yield from _of_entries(item, "path")
    if key == "per-file-ignores":
        yield from (
            item if isinstance(item, dict) else (text.rpartition(":")[0] for text in _texts(item))
        )


def _of_entries(item: object, key: str) -> Iterator[str]:
    for entry in item if isinstance(item, list) else ():
        if isinstance(entry, dict):
            yield from _texts(entry.get(key))


def _texts(item: object) -> Iterator[str]:
    yield from (one for one in (item if isinstance(item, list) else [item]) if isinstance(one, str))
