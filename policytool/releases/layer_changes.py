"""
Which releases compute a layer otherwise than the release before: ``data/layer_releases.json``,
which ``fixtures/layer_releases.py`` has from the libraries themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policytool.releases import behaviour, data
from policytool.releases.releases import KERAS3, family_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def measured_releases(family: str) -> tuple[str, ...]:
    """Return the releases of one family that were measured, oldest first."""
    return tuple(name for name in _table()["releases"] if family_of(name) == family)


def changing_releases(
    class_name: str, config: Mapping[str, object], family: str
) -> frozenset[str] | None:
    """
    Return the releases of a family in which a layer fails or computes other values than in the
    release before; None if its class was not measured.

    :param config: the layer's config, which may omit default values
    """
    direction = behaviour.direction(to_keras3=family != KERAS3)
    facts = behaviour.measurements()[direction].get(class_name)
    if facts is None:
        return None
    layer_arguments = behaviour.arguments(config, facts["default"]).items()
    return frozenset(
        release
        for case in _table()["classes"].get(class_name, {}).values()
        if case["arguments"].items() <= layer_arguments
        for release in case["releases"]
        if family_of(release) == family
    )


def _table() -> dict[str, Any]:
    table: dict[str, Any] = data.read("layer_releases")
    return table
