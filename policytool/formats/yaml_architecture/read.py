"""
Architecture YAML: what ``model.to_yaml()`` returned, of Keras up to 2.3 and of TF up to 2.2.

It stores no variables.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Probe, is_serialised, writer_of
from policytool.formats.document import Document, Observation
from policytool.support import limits
from policytool.support.text import yamltext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.support.text.yamltext import Parsed

PART: Final = "model"
PYTHON_OBJECTS: Final = "python-objects"
"""The observation's code for tags that name classes of Python."""


def read(probe: Probe) -> Document:
    """Return the document of an architecture."""
    data = probe.content(limits.YAML_BYTES, "yaml-limit", "is YAML of")
    try:
        parsed = yamltext.parse(data.removeprefix(BOM_UTF8).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise probe.failure(
            "invalid-yaml", f"the file is not UTF-8 text (byte {error.start})"
        ) from error
    except yamltext.YamlError as error:
        raise probe.failure(error.code, f"the file {error}") from error
    config = parsed.value
    if not is_serialised(config):
        raise probe.failure(
            "yaml-not-keras",
            "is YAML, but not a Keras architecture: it lacks class_name and config; "
            "expected the output of model.to_yaml()",
        )
    return Document(
        path=probe.shown,
        format="yaml",
        parts={PART: config},
        config_part=PART,
        writer=writer_of(config),
        observations=tuple(_observations(parsed)),
    )


def _observations(parsed: Parsed) -> Iterator[Observation]:
    if parsed.repeated:
        keys = ", ".join(repr(key) for key in parsed.repeated[:5])
        yield Observation(
            code="duplicate-key",
            message=f"the file has duplicate keys in one mapping ({keys}); Keras uses the last "
            "value",
            where="the file",
        )
    if parsed.wrappers:
        names = ", ".join(name.rpartition(".")[2] for name in parsed.wrappers)
        yield Observation(
            code=PYTHON_OBJECTS,
            message=(
                f"the file calls Python classes ({names}), but only their arguments are "
                "read; PyYAML 5.2 and later reject such calls"
            ),
        )
