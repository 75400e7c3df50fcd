"""Architecture JSON: what ``model.to_json()`` returns, of every Keras. It stores no variables."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Final

from policytool.formats.base import Probe, is_serialised, parse_json, writer_of
from policytool.formats.document import Document, Observation
from policytool.support import limits

PART: Final = "model"


def read(probe: Probe) -> Document:
    """Return the document of an architecture."""
    observations: list[Observation] = []
    data = probe.content(limits.JSON_BYTES, "json-limit", "is JSON of")
    config = parse_json(probe, data.removeprefix(BOM_UTF8), "the file", observations)
    if not is_serialised(config):
        raise probe.failure(
            "json-not-keras",
            "is JSON, but not a Keras architecture: it lacks class_name and config; "
            "expected the output of model.to_json()",
        )
    return Document(
        path=probe.shown,
        format="json",
        parts={PART: config},
        config_part=PART,
        writer=writer_of(config),
        observations=tuple(observations),
    )
