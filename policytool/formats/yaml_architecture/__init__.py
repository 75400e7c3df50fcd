"""Architecture YAML."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format

if TYPE_CHECKING:
    from policytool.formats.base import Probe

_BEGINNING: Final = re.compile(
    rb"""(?:[ \t]*(?:\#[^\n]*)?\r?\n | %YAML[^\n]*\n | ---[ \t]*\r?\n)*   # before a document
         (?:["']?(?:backend|keras_version)["']?[ \t]*:[ \t][^\n]*\n){0,2}
         ["']?class_name["']?[ \t]*:[ \t]""",
    re.VERBOSE,
)
"""Keys in the order of PyYAML, which sorts them, and in that of Keras, for a dump that did not."""


def recognise(probe: Probe) -> bool:
    """
    Return whether the file begins with the keys that ``to_yaml()`` writes, ``class_name`` among the
    first three.
    """
    return _BEGINNING.match(probe.head.removeprefix(BOM_UTF8)) is not None


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    rewriter_maker=f"{__name__}.rewrite:rewriter",
    document_format="yaml",
    title="architecture YAML",
    suffixes=(".yaml", ".yml"),
    recognise=recognise,
)
