"""
Extensions of Griffe: cross-references of Sphinx in docstrings become code, and the public functions
get the parameters that they have when they run.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Final

from griffe import Extension, Parameter, ParameterKind, Parameters

from policytool import api

if TYPE_CHECKING:
    from griffe import Function, Object

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


class DeclaredParameters(Extension):
    """Gives the functions of ``policytool.api`` the options that are declared for them."""

    def on_function(self, *, func: Function, **_: object) -> None:
        """Replace the parameters and the docstring of a public function."""
        if func.path.rpartition(".")[0] != api.__name__ or func.name not in api.__all__:
            return
        function = getattr(api, func.name)
        func.parameters = Parameters(
            *(
                Parameter(
                    parameter.name,
                    annotation=str(parameter.annotation),
                    kind=_KINDS[parameter.kind],
                    default=None
                    if parameter.default is parameter.empty
                    else repr(parameter.default),
                )
                for parameter in inspect.signature(function).parameters.values()
            )
        )
        if func.docstring is not None:
            func.docstring.value = without_roles(inspect.getdoc(function) or "")


_KINDS: Final = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: ParameterKind.keyword_only,
}
