"""
Which losses, metrics and schedules releases find by name, and what their classes take:
``data/training_names.json``, which the releases said.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from policytool.releases import data

if TYPE_CHECKING:
    from collections.abc import Mapping

LOSSES: Final = "losses"
METRICS: Final = "metrics"
SCHEDULES: Final = "schedules"

_CONTAINERS: Final = ("h5", "keras")
_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def resolves_name(loader: str, container: str, kind: str, name: str) -> bool:
    """
    Return whether a loader finds a loss or a metric by a name.

    :param container: ``h5``, whose training configuration is read by ``deserialize``, as that of a
        SavedModel is, or ``keras``, whose names go to ``compile()``
    """
    return loader in _releases(data.read("training_names")[kind][container].get(name, ""))


def is_known_name(kind: str, name: str) -> bool:
    """Return whether some release finds a loss or a metric by a name, or has a class so called."""
    known = data.read("training_names")[kind]
    return name in known["classes"] or any(name in known[container] for container in _CONTAINERS)


def plain_names(kind: str) -> frozenset[str]:
    """Return the names of losses or metrics in lower case, those of classes with underscores."""
    return frozenset(
        _HUMPS.sub("_", name).lower() for name in data.read("training_names")[kind]["keras"]
    )


def is_class(kind: str, name: str) -> bool:
    """Return whether some release has a class of that name."""
    return name in _classes(kind)


def arguments(loader: str, kind: str, class_name: str) -> frozenset[str] | None:
    """
    Return the arguments of a class of losses, metrics or schedules in a release; None if the
    release does not have the class.
    """
    names = frozenset(
        key
        for key, ranges in _classes(kind).get(class_name, {}).items()
        if loader in _releases(ranges)
    )
    return names or None


def _classes(kind: str) -> Mapping[str, Mapping[str, str]]:
    named = data.read("training_names")[kind]
    classes: Mapping[str, Mapping[str, str]] = named if kind == SCHEDULES else named["classes"]
    return classes


@cache
def _releases(ranges: str) -> frozenset[str]:
    every: list[str] = data.read("training_names")["releases"]
    releases: set[str] = set()
    for part in ranges.split():
        first, _, last = part.partition("..")
        releases.update(every[every.index(first) : every.index(last or first) + 1])
    return frozenset(releases)
