"""
Architecture YAML: what ``model.to_yaml()`` returned, of Keras up to 2.3 and of TF up to 2.2.

It stores no variables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format, Probe, is_serialised, written_by
from policytool.formats.document import Document, Observation
from policytool.support import limits
from policytool.support.text import yamltext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.support.text.yamltext import Parsed

PART: Final = "model"
PYTHON_OBJECTS: Final = "python-objects"
"""The observation's code for tags that name classes of Python."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
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
    return _BEGINNING.match(probe.head.removeprefix(_BYTE_ORDER_MARK)) is not None


def read(probe: Probe) -> Document:
    """Return the document of an architecture."""
    data = probe.content(limits.YAML_BYTES, "yaml-limit", "is YAML of")
    try:
        found = yamltext.parse(data.removeprefix(_BYTE_ORDER_MARK).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise probe.failure(
            "invalid-yaml", f"the file is not UTF-8 text (byte {error.start})"
        ) from error
    except yamltext.YamlError as error:
        raise probe.failure(error.code, f"the file {error}") from error
    config = found.value
    if not is_serialised(config):
        raise probe.failure(
            "yaml-not-keras",
            "is YAML, but no Keras architecture: it has no class_name and config; expected what "
            "model.to_yaml() returned",
        )
    return Document(
        path=probe.shown,
        format="yaml",
        parts={PART: config},
        config_part=PART,
        writer=written_by(config),
        observations=tuple(_observations(found)),
    )


def _observations(found: Parsed) -> Iterator[Observation]:
    if found.repeated:
        keys = ", ".join(repr(key) for key in found.repeated[:5])
        yield Observation(
            code="duplicate-key",
            message=f"the file has a key twice in one mapping ({keys}); Keras reads the last one",
            where="the file",
        )
    if found.wrappers:
        names = ", ".join(name.rpartition(".")[2] for name in found.wrappers)
        yield Observation(
            code=PYTHON_OBJECTS,
            message=f"the file has values as calls of Python classes ({names}), of which only the "
            "arguments are read; PyYAML 5.2 and later refuse them",
        )


FORMAT: Final = Format(name="yaml", title="architecture YAML", recognise=recognise, read=read)
