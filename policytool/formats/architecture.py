"""Architecture JSON: what ``model.to_json()`` returns, of every Keras. It stores no variables."""

from __future__ import annotations

from typing import Final

from policytool import limits
from policytool.document import Document, Observation, Writer
from policytool.formats import sharded_weights
from policytool.formats._base import Format, Probe, parse_json

PART: Final = "model"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def recognise(probe: Probe) -> bool:
    """Return whether the file begins like a JSON object, and not like the map of weights in shards."""
    return probe.head.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{") and not sharded_weights.recognise(probe)


def read(probe: Probe) -> Document:
    """Return the document of an architecture."""
    size = probe.path.stat().st_size
    if size > limits.MAX_JSON_BYTES:
        raise probe.failure("json-limit", f"holds {size} bytes of JSON; at most {limits.MAX_JSON_BYTES} are read")
    observations: list[Observation] = []
    config = parse_json(probe, probe.path.read_bytes().removeprefix(_BYTE_ORDER_MARK), "the file", observations)
    if not isinstance(config, dict) or not isinstance(config.get("class_name"), str) or "config" not in config:
        raise probe.failure("json-not-keras", "is JSON, but no Keras architecture: it has no class_name and config; expected what model.to_json() returns")
    version, backend = config.get("keras_version"), config.get("backend")
    return Document(
        path=probe.shown,
        format="json",
        parts={PART: config},
        config_part=PART,
        writer=Writer(keras=version if isinstance(version, str) else None, backend=backend if isinstance(backend, str) else None),
        observations=tuple(observations),
    )


FORMAT: Final = Format(name="json", title="architecture JSON", recognise=recognise, read=read)
