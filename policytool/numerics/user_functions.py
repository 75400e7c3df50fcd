"""Functions of the user's, which options name as ``MODULE:FUNCTION``; the child imports them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class UserFunction:
    """A function by the name of its module and its own."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def toml(self) -> str:
        """Return it as it is written in a settings file."""
        return f'"{self}"'


def function_named(text: str) -> UserFunction | None:
    """Return the function that ``MODULE:FUNCTION`` names; None for text of another form."""
    module, colon, name = text.partition(":")
    is_function = colon and name.isidentifier() and all(map(str.isidentifier, module.split(".")))
    return UserFunction(module=module, name=name) if is_function else None


def file_or_function(text: str) -> Path | UserFunction:
    """
    Return what a text names: an existing file, a function if the text has the form of one, else a
    file that does not exist.
    """
    path = Path(text)
    function = function_named(text)
    return path if function is None or path.exists() else function
