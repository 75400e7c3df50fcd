"""
Conversion of the training configuration: optimizer, loss, metrics and the optimizer's state, in the
format of the target.

Unsupported parts are omitted with a warning, so that loading never fails. Without its optimizer,
the whole configuration is omitted; without a loss, the optimizer is kept and can be compiled again;
without a metric, the other metrics are kept. Losses and metrics are written as names that the
target knows, which may differ between releases, or as objects with the arguments that it accepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats import TITLES
from policytool.formats.edits import Placement
from policytool.migration.convert.compiled import optimizer
from policytool.migration.convert.compiled.optimizer import (
    ConvertedOptimizer,
    UnsupportedOptimizerError,
)
from policytool.migration.convert.target import display_value
from policytool.migration.convert.variables import stored_dtype
from policytool.migration.planning.optimizers import first_wrapper_state
from policytool.model import optimizer_config, optimizer_variables
from policytool.model.calls import tensors
from policytool.model.optimizer_config import UnmappedError, trainable_tensors
from policytool.model.optimizer_variables import INNER, OUTER, OWN, Style
from policytool.releases import keras_objects, known_arguments
from policytool.releases.known_arguments import LOSSES, METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.document import Tensor
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.migration.convert.target import Log, Target
    from policytool.model.optimizer_variables import OptimizerState
    from policytool.support.text.jsontext import Json

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
"""The names of each function in Keras releases, newest first."""

CLASSES: Final = {
    "kl_divergence": {LOSSES: "KLDivergence", METRICS: "KLDivergence"},
    "log_cosh": {LOSSES: "LogCosh", METRICS: "LogCoshError"},
}
"""The classes of functions whose name is not the class name in snake case."""


def name_in_target(target: Target, kind: str, name: str) -> str | None:
    """
    Return the name of a function in the target: ``name``, or one of its aliases; None if the target
    knows none of them.
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
    class_name = (
        CLASSES.get(canonical, {}).get(kind)
        or known_arguments.class_with_alias(kind, canonical)
        or "".join(word.capitalize() for word in canonical.split("_"))
    )
    arguments = known_arguments.arguments(target.loader, kind, class_name)
    return class_name if arguments is not None else None


_BY_SHAPE_IN_KERAS3: Final = known_arguments.BY_SHAPE - {"crossentropy", "ce"}
"""The names whose function depends on shapes; Keras 3 fails on ``ce`` and ``crossentropy``."""

_WRAPPERS: Final = known_arguments.METRIC_WRAPPERS | {"LossFunctionWrapper"}
_MODULES: Final = {LOSSES: "keras.losses", METRICS: "keras.metrics"}
_SAID_ELSEWHERE: Final = frozenset({"fn", "dtype"})
"""Omitted keys: the class determines the function, and the global policy the dtype."""

_MEANS: Final = frozenset({"auto", "sum_over_batch_size", "mean"})
"""
Equivalent reductions: in Keras 2, ``auto`` is the mean over the batch if the loss is an argument of
``compile()``.
"""

_UNREDUCED: Final = "none"


class UnsupportedLossError(Exception):
    """A loss or a metric that the target cannot represent; the message says why."""


@dataclass(frozen=True)
class LossWriter:
    """Converts the losses or the metrics of a file for a target."""

    target: Target
    log: Log
    kind: str
    """
    :data:`~policytool.releases.known_arguments.LOSSES` or
    :data:`~policytool.releases.known_arguments.METRICS`.
    """

    from_keras3: bool
    """Whether Keras 3 wrote the file."""

    @property
    def word(self) -> str:
        """The word for a loss or a metric in messages."""
        return "loss" if self.kind == LOSSES else "metric"

    def write(self, value: Json) -> Json:
        """
        Return a loss or a metric, or those of all outputs in their structure. Metrics that the
        target lacks are left out and reported as ``metric-lost``.

        :raises UnsupportedLossError: if the target does not have one of the losses.
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
            self.log.caution(
                "metric-lost",
                None,
                f"{error}, so it is omitted; compile the model again if you need it",
            )
            return None

    def _loss_or_metric(self, value: Json) -> Json:
        """Return a loss or a metric in the target's format."""
        if isinstance(value, str):
            return self._function(value, value)
        serialized = keras_objects.read(value)
        if serialized is None:
            raise UnsupportedLossError(
                f"no release recognizes the {self.word} {display_value(value)}"
            )
        class_name, config = serialized.class_name, serialized.config
        if class_name == keras_objects.FUNCTION:
            return self._function(str(config), str(config), is_serialized=True)
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

    def _function(self, function: str, name: str, *, is_serialized: bool = False) -> Json:
        """
        Return a function in the target's format. A metric keeps its name in reports if the target
        can represent it by a class. A custom function is not replaced by a class that only the
        target finds by this name.
        """
        by_shape = _BY_SHAPE_IN_KERAS3 if self.target.is_keras3 else known_arguments.BY_SHAPE
        if self.kind == METRICS and function in by_shape and not is_serialized:
            return function
        if not known_arguments.is_known_name(
            self.kind, function, is_function=is_serialized, keras3=self.from_keras3
        ):
            raise UnsupportedLossError(
                f"the {self.word} {function} is custom and cannot be loaded without custom_objects"
            )
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
            self.log.change(
                f"{self.word}-spelled",
                None,
                f"the {self.word} {function} is written as {alias}, its name in {self.target.name}",
            )
        return alias

    def _object(self, class_name: str, config: dict[str, Json]) -> Json:
        """
        Return the config of a loss or metric object, with the arguments that the target supports.
        """
        accepted_arguments = known_arguments.arguments(self.target.loader, self.kind, class_name)
        if accepted_arguments is None:
            owner_words = (
                "does not have"
                if known_arguments.is_class(self.kind, class_name)
                else "cannot find a Keras class named"
            )
            raise UnsupportedLossError(
                f"{self.target.name} {owner_words} {class_name}, which the model uses as a "
                f"{self.word}"
            )
        target_config: dict[str, Json] = {}
        for key, value in config.items():
            if key == "reduction":
                target_config[key] = self._reduction(class_name, value)
            elif key in accepted_arguments and key not in _SAID_ELSEWHERE:
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
        """Return the name of a loss's reduction in the target."""
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


_ARCHIVES: Final = "tf2.15"
"""The first release whose archives store the optimizer's state in these places."""

_LOST: Final = "optimizer-state-lost"
_WITH_SAMPLE_WEIGHT_MODE: Final = "tf2.3"
"""The first release that does not require ``sample_weight_mode``."""


_NEEDS_VARIABLES: Final = "Nadam"
"""
The optimizer that needs the dtype of the first variable in Keras 2 (``Nadam.build``, tf_keras
2.21).
"""


class Compiled(Struct, frozen=True, kw_only=True):
    """The training configuration of a new file."""

    config: Json = None
    """
    The ``training_config`` in HDF5, or the ``compile_config`` in an archive; None if the model is
    not compiled.
    """

    state: tuple[Placement, ...] = ()
    """
    The optimizer's variables: below ``optimizer_weights`` in HDF5, below the root of
    ``model.weights.h5`` in an archive.
    """

    state_names: tuple[str, ...] = ()
    """
    ``weight_names`` of ``optimizer_weights`` in HDF5, in the order in which the target restores
    them.
    """


def compile_config(
    root: Unit, context: ConversionContext, weights: Sequence[Placement]
) -> Compiled:
    """
    Return the training configuration of a converted model.

    :param root: the converted model
    :param weights: the model's variables in the order of the target's ``weights``, with sources
    """
    place = optimizer_config.optimizer_place(context.loaded.document)
    target, log = context.target, context.log
    if place is None or target.container == "json":
        return Compiled()
    try:
        source = optimizer.read(context, place[1])
        new_optimizer = optimizer.optimizer_for_target(source, target, log)
    except UnsupportedOptimizerError as error:
        log.caution(
            "training-lost",
            None,
            (
                f"{error}, so the model is written without a training configuration; compile it "
                "again after loading"
            ),
        )
        return Compiled()
    if (
        new_optimizer.class_name == _NEEDS_VARIABLES
        and not target.is_keras3
        and not _has_trainables(context)
    ):
        log.caution(
            "training-lost",
            None,
            f"{target.name} fails to load {new_optimizer.class_name} for a model without trainable "
            "weights, so the model is written without a training configuration",
        )
        return Compiled()
    placements = _state(context, source, new_optimizer, weights)
    if (
        new_optimizer.scale is not None
        and new_optimizer.wrapped
        and not placements
        and target.container == "keras"
        and not target.is_keras3
    ):
        # LossScaleOptimizerV3 has no name, which load_own_variables needs for its message that an
        # archive lacks the variables (AttributeError; TF 2.12, 2.15, tf_keras 2.21)
        reason = f"{target.name} cannot load a loss-scaling optimizer without state from an archive"
        log.caution(
            "loss-scale-lost",
            None,
            f"the optimizer is written without loss scaling because {reason}; write HDF5 (-o "
            "X.h5) to keep loss scaling",
        )
        new_optimizer = replace(new_optimizer, scale=None, wrapped=False)
    paths = [placement.path for placement in placements if target.container == "h5"]
    return Compiled(
        config=_config(
            root,
            context,
            optimizer_config.configuration(context.loaded.document),
            optimizer.serialize(new_optimizer, target, log),
        ),
        state=placements,
        state_names=tuple(map("/".join, paths)),
    )


def _has_trainables(context: ConversionContext) -> bool:
    try:
        return bool(_trainables(context))
    except UnmappedError:  # several, in an unknown order
        return True


def _trainables(context: ConversionContext) -> tuple[Tensor, ...]:
    loaded = context.loaded
    return trainable_tensors(loaded.document, loaded.placed)


def _config(root: Unit, context: ConversionContext, value: Json, serialised: Json) -> Json:
    """
    Return the training configuration in the target's format; without a loss that the target does
    not support.
    """
    source_config = value if isinstance(value, dict) else {}
    target, log = context.target, context.log
    from_keras3 = context.loaded.is_keras3
    try:
        loss = LossWriter(target, log, LOSSES, from_keras3).write(source_config.get("loss"))
    except UnsupportedLossError as error:
        log.caution(
            "loss-lost",
            None,
            f"{error}, so the model is written without a loss; compile it again with "
            "optimizer=model.optimizer",
        )
        loss = None
    metric_writer = LossWriter(target, log, METRICS, from_keras3)
    metrics, weighted = (
        _flat(root, metric_writer.write(source_config.get(key)))
        for key in ("metrics", "weighted_metrics")
    )
    target_config: dict[str, Json] = {
        "loss": loss,
        "metrics": metrics,
        "weighted_metrics": weighted,
        "loss_weights": source_config.get("loss_weights"),
    }
    if target.container == "keras":
        return {"optimizer": serialised, **target_config}
    if not target.since(_WITH_SAMPLE_WEIGHT_MODE):
        target_config["sample_weight_mode"] = source_config.get("sample_weight_mode")
    return {"optimizer_config": serialised, **target_config}


def _flat(root: Unit, metrics: Json) -> Json:
    """
    Return the metrics of a single output without the list around them that Keras 2 writes; None for
    none.
    """
    outputs = (
        1
        if root.network is None or root.network.outputs is None
        else len(list(tensors(root.network.outputs)))
    )
    if (
        outputs == 1
        and isinstance(metrics, list)
        and len(metrics) == 1
        and isinstance(metrics[0], list)
    ):
        metrics = metrics[0]
    return metrics or None


def _state(
    context: ConversionContext,
    source: ConvertedOptimizer,
    new_optimizer: ConvertedOptimizer,
    weights: Sequence[Placement],
) -> tuple[Placement, ...]:
    """
    Return the optimizer's variables at the places where the target restores them; none, with a
    warning, if they are lost.
    """
    target, log = context.target, context.log
    try:
        order = _trainables(context)
        stored = optimizer_variables.read_state(context.loaded, source, order)
        if stored is None:
            if context.loaded.is_saved_object:  # its state is among the checkpoint's variables
                raise UnmappedError(
                    f"policytool does not read it from the {TITLES[context.loaded.document.format]}"
                )
            return ()
        if (reason := _state_obstacle(new_optimizer, target)) is not None:
            raise UnmappedError(reason)
        variables = optimizer.place_state(
            new_optimizer, stored, _trainable_order(order, weights), target.release, source.style
        )
    except UnmappedError as error:
        advice = (
            "; write a .keras file to keep it"
            if _state_obstacle(new_optimizer, target)
            and _state_obstacle(new_optimizer, replace(target, container="keras")) is None
            else ""
        )
        log.caution(
            _LOST,
            None,
            f"the optimizer state is omitted because {error}, so training restarts at step 0 with "
            f"empty slots{advice}",
        )
        return ()
    if (
        target.container == "h5"
        and any(variable.dtype == "bfloat16" for variable in variables)
        and new_optimizer.style is Style.OLD
    ):
        log.caution(
            _LOST,
            None,
            "the optimizer state is omitted because no release can read bfloat16 slots of "
            "legacy optimizers from HDF5",
        )
        return ()
    variables = [
        replace(variable, dtype=stored_dtype(variable.dtype, target)) for variable in variables
    ]
    if target.container != "h5":
        return _archive_placements(new_optimizer, stored, variables, target)
    return tuple(
        replace(variable, path=tuple(variable.path[0].split("/"))) for variable in variables
    )


def _state_obstacle(new_optimizer: ConvertedOptimizer, target: Target) -> str | None:
    """
    Return why a target does not restore the state of an optimizer; None if it does.

    Measured with every release: Keras 3 reads no slots from HDF5, and Keras 2 reads no slots of
    ``LossScaleOptimizerV3`` (``fixtures/training_state.json``).
    """
    if target.container == "h5":
        if target.is_keras3:
            return "Keras 3 does not restore slots from HDF5"
        if new_optimizer.wrapped and new_optimizer.style is Style.NEW:
            return "no Keras release restores the state of LossScaleOptimizerV3 from HDF5"
    elif not target.since(_ARCHIVES):
        return f"the location of the state in {target.name} archives is unknown"
    return None


def _trainable_order(order: Sequence[object], weights: Sequence[Placement]) -> list[Placement]:
    """Return the target's trainable variables in its order, each once."""
    sources = set(order)
    placement_by_key: dict[object, Placement] = {}
    for weight in weights:
        if weight.source in sources:
            placement_by_key.setdefault(weight.source, weight)
    if len(placement_by_key) != len(sources):
        raise UnmappedError(
            f"the new model has only {len(placement_by_key)} of the {len(sources)} trained weights"
        )
    if any(weight.scale is not None for weight in placement_by_key.values()):
        raise UnmappedError("the conversion rescales weights, so the slots no longer match")
    return list(placement_by_key.values())


def _archive_placements(
    new_optimizer: ConvertedOptimizer,
    stored: OptimizerState,
    variables: Sequence[Placement],
    target: Target,
) -> tuple[Placement, ...]:
    """
    Return the variables with numbered paths. The variables of a wrapped optimizer are stored for
    the wrapper too, after the four variables of the wrapper in Keras 3.
    """
    if not new_optimizer.wrapped:
        return _number_paths(OUTER, variables)
    wrapper_placements: list[Placement] = []
    if target.is_keras3 and len(stored.own) >= OWN:
        wrapper_placements = [
            Placement(path=(), shape=tensor.shape or (), dtype=tensor.dtype, source=tensor)
            for tensor in stored.own
        ]
    elif target.is_keras3:
        wrapper_placements = [
            Placement(path=(), shape=(), dtype=dtype, fill=(float(value),))
            for dtype, value in first_wrapper_state(new_optimizer.scale)
        ]
    return (
        *_number_paths(INNER, variables),
        *_number_paths(OUTER, [*wrapper_placements, *variables]),
    )


def _number_paths(group: tuple[str, ...], variables: Sequence[Placement]) -> tuple[Placement, ...]:
    return tuple(
        replace(variable, path=(*group, str(number))) for number, variable in enumerate(variables)
    )
