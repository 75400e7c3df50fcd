"""
Where the settings of a call are: the file that ``--config`` names, or the nearest
``policytool.toml`` or ``[tool.policytool]``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.support import limits
from policytool.support.errors import UsageError
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "policytool.toml"
_PYPROJECT: Final = "pyproject.toml"

_NAMES: Final = 16
"""Names in one key; keys of other tools in a pyproject.toml have seven at most."""

_BETWEEN_DOTS: Final = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*|[\w \t-]+",
    re.DOTALL,
)
"""
What can stand between the dots of a key (quoted or bare names and spaces), and comments; each ends
where tomllib ends it.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingsFile:
    """A settings file and what it says."""

    path: Path
    values: Mapping[str, Any]
    is_found: bool
    """
    Whether nobody named it: it lies in the working directory or above, where a stranger may have
    put it.
    """

    @property
    def display_path(self) -> str:
        """The path, short in the file's own directory."""
        return self.path.name if self.path.parent == Path.cwd() else str(self.path)


def named_file(path: Path) -> SettingsFile:
    """
    Return the file that somebody named.

    :raises UsageError: for a file that cannot be read, and for invalid TOML.
    """
    try:
        data = opening.read_user_file(path, limits.SETTINGS_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    values = (_tool_table(path, data) or {}) if path.name == _PYPROJECT else _parse_toml(path, data)
    return SettingsFile(path=path, values=values, is_found=False)


def nearest(directory: Path) -> SettingsFile | None:
    """
    Return the settings file of a directory or of the nearest one above it that has any.

    :raises UsageError: for two files in one directory, for one that is not regular, too large or
        cannot be read, and for invalid TOML.
    """
    for folder in (directory, *directory.parents):
        own, shared = folder / FILE, folder / _PYPROJECT
        data, shared_data = _found_bytes(own), _found_bytes(shared)
        table = _tool_table(shared, shared_data) if shared_data is not None else None
        if data is not None and table is not None:
            raise UsageError(
                f"{own} and [tool.policytool] in {shared} both contain settings; remove one of them"
            )
        if data is not None:
            return SettingsFile(path=own, values=_parse_toml(own, data), is_found=True)
        if table is not None:
            return SettingsFile(path=shared, values=table, is_found=True)
    return None


def _found_bytes(path: Path) -> bytes | None:
    """
    Return the content of a file that nobody named, None where there is none; no pipe is waited for
    and no device is read.

    :raises UsageError: for one that is not regular, too large, or cannot be read.
    """
    try:
        return opening.read_bounded(path, limits.SETTINGS_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IsADirectoryError, opening.NotRegularError) as error:
        raise UsageError(
            f"{path} is not a regular file; remove it, or specify another settings file with "
            "--config"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _tool_table(path: Path, data: bytes) -> Mapping[str, Any] | None:
    """Return ``[tool.policytool]`` of a pyproject.toml, None if it has none."""
    tool = _parse_toml(path, data).get("tool")
    table = tool.get("policytool") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"[tool.policytool] in {path} must be a table")
    return table


def _parse_toml(path: Path, data: bytes) -> dict[str, Any]:
    import tomllib

    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
        if "." * _NAMES in _BETWEEN_DOTS.sub(
            "", text
        ):  # for a key of n names, tomllib takes n * n steps and bytes
            raise UsageError(
                f"{path} has a key with more than {_NAMES} parts, which is not a valid setting"
            )
        values = tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:
        # text that is not UTF-8 or not TOML, a number of thousands of digits, a list in a list in a
        # list
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    return values
