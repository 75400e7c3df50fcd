"""
Losses and metrics as a target reads them: names that it finds, and objects with the arguments that
it takes. A target may find a loss or a metric under one of its names only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.target import display_value
from policytool.releases import keras_objects, known_arguments
from policytool.releases.known_arguments import LOSSES, METRICS

if TYPE_CHECKING:
    from policytool.migration.convert.target import Log, Target
    from policytool.support.text.jsontext import Json


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


def name_in_target(target: Target, kind: str, name: str) -> str | None:
    """
    Return a name by which a target finds a function: ``name``, else one of its aliases; None if the
    target finds none of them.
    """
    family = next((family for family in ALIASES if name.lower() in family), (name,))
    return next(
        (
            candidate
            for candidate in (name, *family)
            if known_arguments.resolves_name(target.loader, target.container, kind, candidate)
        ),
        None,
    )


def class_of(target: Target, kind: str, name: str) -> str | None:
    """
    Return the class that computes the same as a function; None if the target does not have it.
    """
    canonical = next((family[0] for family in ALIASES if name.lower() in family), name)
    class_name = CLASSES.get(canonical, {}).get(kind) or "".join(
        word.capitalize() for word in canonical.split("_")
    )
    taken = known_arguments.arguments(target.loader, kind, class_name)
    return class_name if taken is not None else None


_BY_SHAPE_IN_KERAS3: Final = known_arguments.BY_SHAPE - {"crossentropy", "ce"}
"""Keras 3 knows the other two as it reads HDF5, and refuses them then."""

_WRAPPERS: Final = known_arguments.METRIC_WRAPPERS | {"LossFunctionWrapper"}
_MODULES: Final = {LOSSES: "keras.losses", METRICS: "keras.metrics"}
_SAID_ELSEWHERE: Final = frozenset({"fn", "dtype"})
"""The function of a class is the class's own, and its dtype that of the loader's policy."""

_MEANS: Final = frozenset({"auto", "sum_over_batch_size", "mean"})
"""
Reductions that are one: Keras 2 takes ``auto`` for the mean over the batch where ``compile()`` is
given the loss.
"""

_UNREDUCED: Final = "none"


class UnsupportedLossError(Exception):
    """A loss or a metric that the target cannot represent; the message says why."""


@dataclass(frozen=True)
class LossWriter:
    """Writes the losses or the metrics of one file for one target."""

    target: Target
    told: Log
    kind: str
    """
    :data:`~policytool.releases.known_arguments.LOSSES` or
    :data:`~policytool.releases.known_arguments.METRICS`.
    """

    @property
    def word(self) -> str:
        """What a sentence calls one."""
        return "loss" if self.kind == LOSSES else "metric"

    def write(self, value: Json) -> Json:
        """
        Return a loss or a metric, or those of all outputs in their structure. Metrics that the
        target lacks are left out and reported as ``metric-lost``.

        :raises UnsupportedLossError: where the target does not have one of the losses.
        """
        if isinstance(value, list):
            items = [self.write(item) for item in value]
            return [item for item in items if item is not None or self.kind == LOSSES]
        if isinstance(value, dict) and keras_objects.class_of(value) is None:
            return {key: self.write(item) for key, item in value.items()}
        if value is None:
            return None
        try:
            return self._loss_or_metric(value)
        except UnsupportedLossError as error:
            if self.kind == LOSSES:
                raise
            self.told.caution(
                "metric-lost",
                None,
                f"{error}, so it is omitted; compile the model again if you need it",
            )
            return None

    def _loss_or_metric(self, value: Json) -> Json:
        if isinstance(value, str):
            return self._function(value, value)
        serialized = keras_objects.read(value)
        if serialized is None:
            raise UnsupportedLossError(
                f"no release recognizes the {self.word} {display_value(value)}"
            )
        class_name, config = serialized.class_name, serialized.config
        if class_name == keras_objects.FUNCTION:
            return self._function(str(config), str(config))
        if (
            not isinstance(config, dict)
            or ">" in class_name
            or ">" in (serialized.registered_name or "")
        ):
            raise UnsupportedLossError(
                f"the {self.word} {class_name} is custom and cannot be loaded without "
                "custom_objects"
            )
        if class_name not in _WRAPPERS:
            return self._object(class_name, config)
        function, name = str(keras_objects.name_of(config.get("fn"))), config.get("name")
        return self._function(function, name if isinstance(name, str) else function)

    def _function(self, function: str, name: str) -> Json:
        """
        Return a function as the target writes it. A metric keeps its name in reports if the target
        can represent it by a class.
        """
        by_shape = _BY_SHAPE_IN_KERAS3 if self.target.is_keras3 else known_arguments.BY_SHAPE
        if self.kind == METRICS and function in by_shape:
            return function
        if known_arguments.is_class(self.kind, function):
            return self._object(function, {})
        alias = name_in_target(self.target, self.kind, function)
        if self.kind == METRICS and alias != name:
            class_name = class_of(self.target, self.kind, function)
            if class_name is not None:
                return self._object(class_name, {"name": name})
        if alias is None:
            raise UnsupportedLossError(
                f"{self.target.name} has no {self.word} named {function}, and cannot load it "
                "through custom_objects"
            )
        if alias != function:
            self.told.change(
                f"{self.word}-spelled",
                None,
                f"the {self.word} {function} is written as {alias}, its name in {self.target.name}",
            )
        return alias

    def _object(self, class_name: str, config: dict[str, Json]) -> Json:
        taken = known_arguments.arguments(self.target.loader, self.kind, class_name)
        if taken is None:
            whose = (
                "does not have"
                if known_arguments.is_class(self.kind, class_name)
                else "cannot find a Keras class named"
            )
            raise UnsupportedLossError(
                f"{self.target.name} {whose} {class_name}, which the model uses as a {self.word}"
            )
        target_config: dict[str, Json] = {}
        for key, value in config.items():
            if key == "reduction":
                target_config[key] = self._reduction(class_name, value)
            elif key in taken and key not in _SAID_ELSEWHERE:
                target_config[key] = value
            elif key not in _SAID_ELSEWHERE and value not in (None, False, 0, -1, "none"):
                raise UnsupportedLossError(
                    f"{self.target.name} cannot represent {key}={display_value(value)} of the "
                    f"{self.word} {class_name}"
                )
        if self.target.container == "keras" or self.target.is_keras3:
            return keras_objects.full(_MODULES[self.kind], class_name, target_config)
        return keras_objects.short(class_name, target_config)

    def _reduction(self, class_name: str, value: Json) -> Json:
        if value in _MEANS:
            return "sum_over_batch_size"
        if value in (None, _UNREDUCED):
            return _UNREDUCED
        if value != "sum" and not self.target.is_keras3:
            raise UnsupportedLossError(
                f"{self.target.name} does not support the reduction {display_value(value)} of the "
                f"loss {class_name}"
            )
        return value
