"""Under which of its names a target finds a loss or a metric, and what its classes take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import training_names
from policytool.releases.training_names import LOSSES, METRICS

if TYPE_CHECKING:
    from policytool.migration.convert.target import Target

__all__ = ["LOSSES", "METRICS"]

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


def name_in(target: Target, kind: str, name: str) -> str | None:
    """
    Return the name that a target finds a function by: the one given, else another of its names;
    None where it finds none.
    """
    family = next((family for family in ALIASES if name.lower() in family), (name,))
    return next(
        (
            found
            for found in (name, *family)
            if training_names.finds(target.loader, target.container, kind, found)
        ),
        None,
    )


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
    return training_names.is_class(kind, name)


def arguments(target: Target, kind: str, class_name: str) -> frozenset[str] | None:
    """
    Return what a class of losses, metrics or schedules takes in a target; None where the target
    does not have it.
    """
    return training_names.arguments(target.loader, kind, class_name)


def schedule_arguments(target: Target, class_name: str) -> frozenset[str] | None:
    """
    Return what a learning-rate schedule takes in a target; None where the target does not have it.
    """
    return arguments(target, training_names.SCHEDULES, class_name)
