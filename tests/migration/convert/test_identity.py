"""Decoding and encoding a model for the release that wrote it returns the same model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.formats import format_detection
from policytool.migration.convert import decoding, encoding
from policytool.migration.convert.target import Log, Target
from policytool.model import reading
from policytool.releases.releases import LOADERS
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES: Final = [
    path
    for release in LOADERS
    for kind in ("*.h5", "*.keras")
    for path in sorted((FIXTURES / release).glob(kind))
    if "weights" not in path.name
]
OTHERWISE: Final = frozenset(
    {
        "dtype",
        "shape",
        "build_config",
        "compile_config",
        "shared_object_id",
        "keras_version",
        "backend",
    }
)
"""
Keys whose values are spelled in one way where releases have several, that no loader reads, or that
are written elsewhere.
"""

MODULES: Final = frozenset({"module", "registered_name"})
"""Which TF 2.12 leaves out of archives, and reads in them."""


@THOROUGH
@for_each("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_nothing_is_lost_on_the_way(path: Path) -> None:
    """A config that is decoded and encoded for the release that wrote it is unchanged."""
    document = format_detection.document(path, path.name)
    if document.config_part is None:
        pytest.skip("weights alone")
    log = Log()
    encoded = encoding.encode(
        decoding.decode(reading.load_model(document)),
        Target(loader=path.parent.name, container=document.format),
        log,
    )
    assert not log.refusals
    assert list(differences(document.config, encoded, "")) == []
    json.dumps(encoded)


def differences(before: Any, after: Any, where: str) -> Iterator[tuple[str, Any, Any]]:  # JSON
    """Yield the differences between two configs, with their places."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            if key in OTHERWISE or (key in MODULES and key not in before):
                continue
            if (
                key == "name" and key not in before and before.keys() < after.keys()
            ):  # operations of Keras 3.0 to 3.6 have their name in the entry alone
                continue
            yield from differences(
                before.get(key, "nothing"), after.get(key, "nothing"), f"{where}/{key}"
            )
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{where}/{number}")
    elif before != after:
        yield where, before, after
