"""An extension of Griffe for docstrings: cross-references of Sphinx become code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from griffe import Extension

if TYPE_CHECKING:
    from griffe import Object

_ROLE: Final = re.compile(r":(?:\w+:)?\w+:`~?([^`]+)`")


def without_roles(text: str) -> str:
    """Return a docstring in which ``:func:`inspect``` is ``inspect``."""
    return _ROLE.sub(r"`\1`", text)


class DocstringRoles(Extension):
    """Changes each docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Replace the roles in the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value)
