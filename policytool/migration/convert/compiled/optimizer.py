"""
The optimizer's config and variables in the format of the target.

Keras 2 has optimizers of two styles: the old style (TF 1 to 2.10, later ``optimizers.legacy``),
with ``decay``, and the style of TF 2.11, which Keras 3 has too. All Keras 2 releases read HDF5
without ``is_legacy_optimizer`` as the old style (keras/optimizers/__init__.py, ``deserialize``).
The variables are stored in the places from which the target restores them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.formats.edits import Placement
from policytool.migration.convert.target import display_value
from policytool.migration.planning import optimizers
from policytool.migration.planning.optimizers import (
    Dialect,
)
from policytool.model import optimizer_config, optimizer_variables
from policytool.model.optimizer_config import UnmappedError
from policytool.model.optimizer_variables import (
    ALWAYS_IN_NEW,
    ITERATIONS,
    RATE,
    WITH_SCHEDULE,
    Style,
    StyledOptimizer,
    positions,
    slot_blocks,
)
from policytool.releases import keras_objects, known_arguments
from policytool.releases.policy import Dynamic, Fixed
from policytool.releases.releases import releases_in
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.document import Tensor
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.migration.convert.target import Log, Target
    from policytool.model.optimizer_variables import OptimizerState, Position
    from policytool.support.text.jsontext import Json


_RATE: Final = "learning_rate"

_NEW_SINCE: Final = "tf2.12"
_OLD_JUDGE: Final = "tf2.9"
"""
The last release with only the old style: it accepts the same arguments as ``optimizers.legacy``.
"""

_WITH_OLD_SCALES: Final = releases_in("tf2.0 to tf2.3")
_WITHOUT_EFFECT: Final = frozenset({"name", "jit_compile", "is_legacy_optimizer"})
_OF_AVERAGES: Final = frozenset({"ema_momentum", "ema_overwrite_frequency"})
_MEASURED: Final = "SGD"
_OF_ALL: Final = (
    *(
        "weight_decay",
        "clipnorm",
        "clipvalue",
        "global_clipnorm",
        "use_ema",
        "ema_momentum",
        "ema_overwrite_frequency",
    ),
    *("loss_scale_factor", "gradient_accumulation_steps"),
)
"""
Keys of the base class, which a release accepts for all optimizers or for none. The data lacks them
for AdamW, Lion and Adafactor.
"""


class UnsupportedOptimizerError(Exception):
    """An optimizer that the target does not support; the message contains the reason."""


class ConvertedOptimizer(StyledOptimizer, frozen=True, kw_only=True):
    """An optimizer and its loss scaling."""

    scale: Dynamic | Fixed | None
    wrapped: bool
    """Whether a wrapper scales losses."""


def read(context: ConversionContext, value: Json) -> ConvertedOptimizer:
    """
    Return a file's optimizer.

    :raises UnsupportedOptimizerError: if there is none, or if no release writes its format.
    """
    try:
        stored_optimizer = optimizer_variables.read_optimizer(context.loaded, value)
        scale = optimizers.scale_of(value)
    except SpellingError as error:
        raise UnsupportedOptimizerError(
            f"no release writes optimizers in this format: {error}"
        ) from error
    if stored_optimizer is None:
        raise UnsupportedOptimizerError("the file contains no optimizer")
    wrapped = optimizer_config.is_wrapped(value)
    if (
        not wrapped
        and scale is None
        and context.loaded.document.format == "keras"
        and optimizers.is_of_wrapper(context.loaded)
    ):
        context.log.change(
            "optimizer-wrapped",
            None,
            "the optimizer state shows that compile() added a loss-scaling wrapper",
        )
        wrapped, scale = True, Dynamic()
    return ConvertedOptimizer(
        class_name=stored_optimizer.class_name,
        config=stored_optimizer.config,
        style=stored_optimizer.style,
        scale=scale,
        wrapped=wrapped,
    )


def optimizer_for_target(
    optimizer: ConvertedOptimizer, target: Target, log: Log
) -> ConvertedOptimizer:
    """
    Return the optimizer with the keys that a target accepts. Changes that affect training are
    logged as warnings.

    :raises UnsupportedOptimizerError: if the target lacks the optimizer or its learning rate
        schedule.
    """
    style = _style(optimizer, target)
    if not known_arguments.is_known(known_arguments.OPTIMIZERS, optimizer.class_name):
        raise UnsupportedOptimizerError(
            f"the optimizer {optimizer.class_name} is custom and cannot be loaded without "
            "custom_objects"
        )
    judge = _OLD_JUDGE if style is Style.OLD and target.since(_NEW_SINCE) else target.loader
    config = {
        key: value
        for key, value in optimizer.config.items()
        if key not in {"is_legacy_optimizer", "jit_compile"}
    }
    if "lr" in config:
        config[_RATE] = config.pop("lr")
    config = _convert_decay(optimizer, config, style, log)
    if isinstance(config.get(_RATE), dict):
        config[_RATE] = _schedule(config[_RATE], target)
    config.pop("loss_scale_factor", None)
    objection = known_arguments.objection(
        judge, known_arguments.OPTIMIZERS, optimizer.class_name, config, module=False
    )
    if objection is not None and (objection.missing or objection.broken):
        raise UnsupportedOptimizerError(
            f"{target.name} does not restore the optimizer {optimizer.class_name}"
        )
    if (
        target.is_keras3
        and target.container == "h5"
        and target.loader
        in known_arguments.unreliable_loaders(
            known_arguments.OPTIMIZERS, optimizer.class_name, module=False
        )
    ):
        raise UnsupportedOptimizerError(
            f"{target.name} cannot load {optimizer.class_name} from HDF5"
        )
    shared = known_arguments.objection(
        judge,
        known_arguments.OPTIMIZERS,
        _MEASURED,
        {key: config[key] for key in _OF_ALL if key in config},
        module=False,
    )
    refused = {
        *(objection.refused if objection is not None else ()),
        *(key for key, _ in (objection.values if objection is not None else ())),
        *(shared.refused if shared is not None else ()),
    }
    for key in sorted(refused):
        _warn_of_omitted_argument(optimizer, key, config.pop(key), target, log)
    if style is Style.NEW:
        config |= {"jit_compile": False, "is_legacy_optimizer": False}
    return replace(optimizer, config=config, style=style, wrapped=_is_wrapped(optimizer, target))


def serialize(optimizer: ConvertedOptimizer, target: Target, log: Log) -> Json:
    """
    Return the optimizer in the format of the target's container, wrapped if it scales losses.
    """
    name = (
        f"Custom>{optimizer.class_name}"
        if optimizer.style is Style.NEW and not optimizer.wrapped
        else optimizer.class_name
    )
    inner = keras_objects.short(name, optimizer.config)
    if target.container == "keras":
        module = (
            "keras.optimizers.legacy"
            if optimizer.style is Style.OLD and target.since(_NEW_SINCE)
            else "keras.optimizers"
        )
        inner = keras_objects.full(module, optimizer.class_name, optimizer.config)
    scale = optimizer.scale
    if scale is None:
        return inner
    try:
        if target.loader in _WITH_OLD_SCALES:
            return keras_objects.short(
                "LossScaleOptimizer", {"optimizer": inner, "loss_scale": _old_scale(scale)}
            )
        if target.loader == "tf1.15":
            raise SpellingError("TF 1.15 has no loss-scaling optimizer")
        if target.is_keras3 and isinstance(scale, Dynamic):
            inner = keras_objects.full("keras.optimizers", optimizer.class_name, optimizer.config)
        wrapped = optimizers.wrap(inner, scale, _dialect(target))
    except SpellingError as error:
        log.caution(
            "loss-scale-lost",
            None,
            f"loss scaling is not added to the optimizer: {error}; gradients may underflow under "
            "a 16-bit policy",
        )
        return inner
    serialized = keras_objects.read(wrapped)
    if (
        target.is_keras3
        and target.container == "h5"
        and serialized is not None
        and isinstance(scale, Dynamic)
    ):
        return keras_objects.short(serialized.class_name, serialized.config)
    return wrapped


def _style(optimizer: ConvertedOptimizer, target: Target) -> Style:
    if target.is_keras3:
        return Style.KERAS3
    if not target.since(_NEW_SINCE) or (optimizer.style is Style.OLD and target.container == "h5"):
        return Style.OLD
    return Style.NEW


def _is_wrapped(optimizer: ConvertedOptimizer, target: Target) -> bool:
    if optimizer.scale is None or target.loader == "tf1.15":
        return False
    if target.is_keras3:
        return not isinstance(optimizer.scale, Fixed)
    return _dialect(target).wraps(optimizer.class_name)


def _dialect(target: Target) -> Dialect:
    return Dialect(
        keras3=target.is_keras3,
        archive=target.container == "keras",
        package=target.package,
        is_tf_keras=target.is_tf_keras,
    )


def _old_scale(scale: Dynamic | Fixed) -> Json:
    if isinstance(scale, Fixed):
        return keras_objects.short("FixedLossScale", {"loss_scale_value": scale.value})
    config: Json = {
        "initial_loss_scale": scale.initial,
        "increment_period": scale.growth_steps,
        "multiplier": scale.multiplier,
    }
    return keras_objects.short("DynamicLossScale", config)


def _convert_decay(
    optimizer: ConvertedOptimizer, config: dict[str, Json], style: Style, log: Log
) -> dict[str, Json]:
    """
    Return the config with the decay in the target's style: old optimizers have the key ``decay``,
    new ones an equivalent schedule.
    """
    has_own_decay = optimizer.class_name == optimizer_config.WITH_OWN_DECAY
    if has_own_decay and "schedule_decay" in config:
        config["decay"] = config.pop("schedule_decay")
    if "decay" not in config or style is Style.OLD:
        return config
    schedule = optimizer_config.schedule_of_decay(optimizer.class_name, config)
    decay = config.pop("decay")
    if has_own_decay:
        log.caution(
            "optimizer-differs",
            None,
            "Nadam's momentum schedule changed in TF 2.11 and again in Keras 3, so training does "
            "not continue identically",
        )
    elif schedule is not None:
        config[_RATE] = schedule
        log.change(
            "decay",
            None,
            f"decay {display_value(decay)} of {optimizer.class_name} is written as the "
            "equivalent schedule InverseTimeDecay",
        )
    return config


def _schedule(value: Json, target: Target) -> Json:
    """Return a learning-rate schedule in the target's format."""
    schedule = keras_objects.read(value)
    class_name, settings = (schedule.class_name, schedule.config) if schedule else ("", None)
    accepted_arguments = known_arguments.arguments(
        target.loader, known_arguments.SCHEDULES, class_name
    )
    if accepted_arguments is None or not isinstance(settings, dict):
        raise UnsupportedOptimizerError(
            f"{target.name} does not have the learning-rate schedule {class_name}"
        )
    refused = [
        key
        for key, item in settings.items()
        if key not in accepted_arguments and item not in (None, 0, 0.0)
    ]
    if refused:
        raise UnsupportedOptimizerError(
            f"the learning-rate schedule {class_name} uses {', '.join(refused)}, which "
            f"{target.name} cannot represent"
        )
    config: Json = {
        key: item
        for key, item in settings.items()
        if key in accepted_arguments and (key != "name" or item is not None)
    }
    if target.writes_modules or target.is_keras3:
        return keras_objects.full("keras.optimizers.schedules", class_name, config)
    return keras_objects.short(class_name, config)


def _warn_of_omitted_argument(
    optimizer: ConvertedOptimizer, key: str, value: Json, target: Target, log: Log
) -> None:
    """
    Log a caution about an argument that the target cannot represent, unless it has no effect or a
    default value.
    """
    if (
        key in _WITHOUT_EFFECT
        or value is None
        or known_arguments.text(value)
        in known_arguments.written_values(known_arguments.OPTIMIZERS, optimizer.class_name, key)
        or (key in _OF_AVERAGES and not optimizer.config.get("use_ema"))
    ):
        return
    log.caution(
        "optimizer-argument",
        None,
        f"{key}={display_value(value)} of {optimizer.class_name} is omitted because "
        f"{target.name} cannot represent it; training continues without it",
    )


_SCHEDULES_APART: Final = {
    frozenset({Style.OLD, Style.NEW}): "its momentum schedule changed in TF 2.11",
    frozenset({Style.OLD, Style.KERAS3}): "its momentum schedule is different in Keras 3",
    frozenset({Style.NEW, Style.KERAS3}): (
        "Keras 2 updates the momentum product once per weight, and Keras 3 once per step"
    ),
}
"""The reason why the state of Nadam cannot move between two styles."""


def place_state(
    optimizer: ConvertedOptimizer,
    stored_state: OptimizerState,
    weights: Sequence[Placement],
    release: str,
    source_style: Style,
) -> list[Placement]:
    """
    Return the variables of the optimizer without its wrapper, in the order of the release that
    reads them. The path of each is its name in HDF5.

    :raises UnmappedError: if the source lacks a variable that the target requires.
    """
    if optimizer.class_name == WITH_SCHEDULE and optimizer.style is not source_style:
        reason = _SCHEDULES_APART[frozenset({optimizer.style, source_style})]
        raise UnmappedError(
            f"the state of {WITH_SCHEDULE} has a different meaning in the target ({reason})"
        )
    shapes = [weight.shape for weight in weights]
    return [
        _single_variable(optimizer, stored_state, position)
        if position.weight is None
        else _slot(optimizer, stored_state, weights[position.weight], position)
        for position in positions(optimizer, shapes, release, is_wrapped=optimizer.wrapped)
    ]


def _single_variable(
    optimizer: ConvertedOptimizer, stored_state: OptimizerState, position: Position
) -> Placement:
    """
    Return the placement of a variable that does not belong to a weight: the learning rate, the
    iterations, or the momentum of a schedule.
    """
    if position.kind == RATE:
        rate = optimizer.config.get("learning_rate")
        if stored_state.rate is None and not isinstance(rate, int | float):
            raise UnmappedError("it does not contain a learning rate")
        initial = float(rate) if isinstance(rate, int | float) else 0.0
        return _placement(stored_state.rate, "learning_rate", fill=initial)
    if position.kind == ITERATIONS:
        name = "iteration:0" if optimizer.style is Style.NEW else f"{optimizer.class_name}/iter:0"
        return _placement(stored_state.iterations, name, dtype="int64")
    # if a schedule is not stored, the release that reads the state starts it with 1
    return _placement(stored_state.schedule, f"{optimizer.class_name}/momentum_cache:0", fill=1.0)


def _slot(
    optimizer: ConvertedOptimizer,
    stored_state: OptimizerState,
    weight: Placement,
    position: Position,
) -> Placement:
    """
    Return the placement of a slot of a weight; filled with zeros if the optimizer does not use it
    for the weight.
    """
    slot = next(
        slot for block in slot_blocks(optimizer) for slot in block if slot.kind == position.kind
    )
    name = "/".join(weight.path[1:]).removesuffix(":0")
    called = slot.name(optimizer.style)
    path = (
        f"{optimizer.class_name}/{name}/{called}:0"
        if optimizer.style is Style.OLD
        else f"{optimizer.class_name}/{called}/{name}:0"
    )
    source = (
        stored_state.slots.get((weight.source, slot.kind)) if weight.source is not None else None
    )
    if source is not None:
        return _placement(source, path)
    is_unused = optimizer.class_name in ALWAYS_IN_NEW and not optimizer.config.get("momentum")
    if is_unused or not slot.is_factor_of(weight.shape):
        return Placement(path=(path,), shape=position.shape, dtype=weight.dtype, fill=(0.0,))
    raise UnmappedError(f"it does not contain {slot.kind}, which {optimizer.class_name} requires")


def _placement(
    source: Tensor | None, name: str, *, dtype: str = "float32", fill: float = 0.0
) -> Placement:
    """Return the place of a stored variable, or of a number with its initial value."""
    if source is None:
        return Placement(path=(name,), shape=(), dtype=dtype, fill=(fill,))
    return Placement(path=(name,), shape=source.shape or (), dtype=source.dtype, source=source)
