"""
Which losses, metrics and schedules releases find by name, and what their classes take:
``data/training_names.json``, which the releases said.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from policytool.releases import data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.target import Target

LOSSES: Final = "losses"
METRICS: Final = "metrics"
_SCHEDULES: Final = "schedules"

ALIASES: Final[tuple[tuple[str, ...], ...]] = (
    ("mean_squared_error", "mse"),
    ("mean_absolute_error", "mae"),
    ("mean_absolute_percentage_error", "mape"),
    ("mean_squared_logarithmic_error", "msle"),
    ("binary_crossentropy", "bce"),
    ("kl_divergence", "kullback_leibler_divergence", "kld"),
    ("huber", "huber_loss"),
    ("log_cosh", "logcosh"),
    ("cosine_similarity", "cosine_proximity"),
)
"""Names of one function in releases of Keras, the newest first."""

CLASSES: Final = {
    "kl_divergence": {LOSSES: "KLDivergence", METRICS: "KLDivergence"},
    "log_cosh": {LOSSES: "LogCosh", METRICS: "LogCoshError"},
}
"""The classes of functions whose names are not those of the class in snake case."""


def finds(target: Target, kind: str, name: str) -> bool:
    """
    Return whether a target finds a loss or a metric by a name, where it reads its training
    configuration.
    """
    return target.loader in _releases(
        data.read("training_names")[kind][target.container].get(name, "")
    )


def name_in(target: Target, kind: str, name: str) -> str | None:
    """
    Return the name that a target finds a function by: the one given, else another of its names;
    None where it finds none.
    """
    family = next((family for family in ALIASES if name.lower() in family), (name,))
    return next((found for found in (name, *family) if finds(target, kind, found)), None)


def class_of(target: Target, kind: str, name: str) -> str | None:
    """
    Return the class that computes what a function of that name does; None where the target has
    none.
    """
    canonical = next((family[0] for family in ALIASES if name.lower() in family), name)
    found = CLASSES.get(canonical, {}).get(kind) or "".join(
        word.capitalize() for word in canonical.split("_")
    )
    return found if arguments(target, kind, found) is not None else None


def is_known(kind: str, name: str) -> bool:
    """Return whether some release has a class of that name."""
    return name in _classes(kind)


def arguments(target: Target, kind: str, class_name: str) -> frozenset[str] | None:
    """
    Return what a class of losses, metrics or schedules takes in a target; None where the target
    does not have it.
    """
    found = frozenset(
        key
        for key, ranges in _classes(kind).get(class_name, {}).items()
        if target.loader in _releases(ranges)
    )
    return found or None


def schedule_arguments(target: Target, class_name: str) -> frozenset[str] | None:
    """
    Return what a learning-rate schedule takes in a target; None where the target does not have it.
    """
    return arguments(target, _SCHEDULES, class_name)


def _classes(kind: str) -> Mapping[str, Mapping[str, str]]:
    found: Mapping[str, Mapping[str, str]] = (
        data.read("training_names")[kind]
        if kind == _SCHEDULES
        else data.read("training_names")[kind]["classes"]
    )
    return found


@cache
def _releases(ranges: str) -> frozenset[str]:
    every: list[str] = data.read("training_names")["releases"]
    found: set[str] = set()
    for part in ranges.split():
        first, _, last = part.partition("..")
        found.update(every[every.index(first) : every.index(last or first) + 1])
    return frozenset(found)
