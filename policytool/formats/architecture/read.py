"""Architecture JSON: what ``model.to_json()`` returns, of every Keras. It stores no variables."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Final

from policytool.formats.base import Probe, is_serialised, parse_json, writer_of
from policytool.formats.document import Document, Observation
from policytool.formats.sharded_weights import read as sharded_weights
from policytool.formats.tfjs import read as tfjs
from policytool.support import limits

PART: Final = "model"


def recognise(probe: Probe) -> bool:
    """
    Return whether the file begins like a JSON object, and not like one that other formats know.
    """
    begins = probe.head.removeprefix(BOM_UTF8).lstrip().startswith(b"{")
    return begins and not sharded_weights.recognise(probe) and not tfjs.recognise(probe)


def read(probe: Probe) -> Document:
    """Return the document of an architecture."""
    observations: list[Observation] = []
    data = probe.content(limits.JSON_BYTES, "json-limit", "is JSON of")
    config = parse_json(probe, data.removeprefix(BOM_UTF8), "the file", observations)
    if not is_serialised(config):
        raise probe.failure(
            "json-not-keras",
            "is JSON, but no Keras architecture: it has no class_name and config; expected what "
            "model.to_json() returns",
        )
    return Document(
        path=probe.shown,
        format="json",
        parts={PART: config},
        config_part=PART,
        writer=writer_of(config),
        observations=tuple(observations),
    )
