"""
The saved optimizer as values: reading, writing, adding and removing its loss-scaling wrapper in the
formats of all releases.

TF 2.0 to 2.3 write ``{"optimizer", "loss_scale"}``. TF 2.4 and later write ``{"inner_optimizer",
"dynamic", "initial_scale", "dynamic_growth_steps"}``, as ``LossScaleOptimizer`` around legacy
optimizers, ``LossScaleOptimizerV1`` from the experimental namespace (TF 2.4 to 2.8), and
``LossScaleOptimizerV3`` around the optimizers of TF 2.11 and later. Keras 3 writes ``{"name",
"inner_optimizer", "initial_scale", "dynamic_growth_steps"}`` for a dynamic scale, and
``loss_scale_factor`` in the optimizer itself for a fixed scale.

The places of the state were measured by saving, editing and loading with all these releases. HDF5
files contain the state of the optimizer without its wrapper. ``.keras`` files of Keras 3 contain
the four variables of the wrapper, then the optimizer's, and a copy of the optimizer's below
``inner_optimizer``. ``.keras`` files of Keras 2 contain only the optimizer's, with a copy below
``inner_optimizer``, which is incomplete in TF 2.12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.edits import StateSlot
from policytool.migration.plan import Note, NoteSeverity
from policytool.model import optimizer_config
from policytool.model.optimizer_config import NEVER_WRAPPED
from policytool.model.optimizer_variables import INNER, OUTER, OWN
from policytool.releases import keras_objects
from policytool.releases.policy import Dynamic, Fixed
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json


_CURRENT: Final = "LossScaleOptimizer"
_FACTOR: Final = "loss_scale_factor"


class Dialect(Struct, frozen=True, kw_only=True):
    """The format of the optimizer in a file."""

    keras3: bool
    archive: bool
    """Whether the file is a ``.keras`` file, in which each object has its module."""

    package: str = "keras"
    """
    The prefix of the library's modules in this file: ``keras``, ``keras.src``, ``tf_keras.src``.
    """

    is_tf_keras: bool = False

    def wraps(self, class_name: str) -> bool:
        """
        Return whether the wrapper of Keras 2 supports an optimizer. Only tf_keras supports AdamW
        (others: "inner_optimizer" must be an instance of Optimizer).
        """
        return class_name not in NEVER_WRAPPED and (self.is_tf_keras or class_name != "AdamW")


def scale_of(value: Json) -> Dynamic | Fixed | None:
    """
    Return the loss scale of a serialized optimizer.

    :raises SpellingError: if no release writes this format.
    """
    optimizer = optimizer_config.read(value)
    return optimizer.loss_scale if optimizer else None


def modernize(value: Json) -> Json:
    """
    Return the optimizer with its wrapper in the format of TF 2.4 and later, which every later Keras
    2 reads; unchanged if it already has this format.

    :raises SpellingError: if the multiplier is not 2, which the format cannot represent, or if no
        release writes the format of the value.
    """
    wrapper = keras_objects.read(value)
    if wrapper is None or not optimizer_config.is_wrapped(value):
        return value
    inner = optimizer_config.inner_of(value)
    if (
        not isinstance(wrapper.config, dict)
        or inner is None
        or (wrapper.class_name != "LossScaleOptimizerV1" and inner[0] == "inner_optimizer")
    ):
        return value
    scale = optimizer_config.scale_of(wrapper.config)
    if scale is None:
        return inner[1]
    return keras_objects.short(_CURRENT, _keras2_config(scale, inner[1]))


def wrap(value: Json, scale: Dynamic | Fixed, dialect: Dialect) -> Json:
    """
    Return the optimizer with a loss scale.

    :raises SpellingError: if the file's library cannot represent the scale.
    """
    if dialect.keras3:
        return _wrapped_keras3(value, scale)
    optimizer_class = optimizer_config.class_of(value)
    if not dialect.wraps(optimizer_class):
        raise SpellingError(
            f"the library's LossScaleOptimizer cannot be loaded with {optimizer_class}"
        )
    if dialect.archive and isinstance(value, str):
        module = f"{dialect.package.partition('.')[0]}.optimizers"
        inner: Json = {"module": module, **keras_objects.short(_class_of_alias(value), {})}
    else:
        inner = value
    class_name = "LossScaleOptimizerV3" if optimizer_config.is_new_style(value) else _CURRENT
    config = _keras2_config(scale, inner)
    if not dialect.archive:
        return keras_objects.short(class_name, config)
    module = f"{dialect.package}.mixed_precision.loss_scale_optimizer"
    return keras_objects.full(module, class_name, config, class_name)


def _class_of_alias(name: str) -> str:
    return optimizer_config.ALIASES.get(name.lower(), name)


def has_factor(value: Json) -> bool:
    """Return whether a Keras 3 optimizer has a fixed loss scale factor."""
    return keras_objects.arguments_of(value).get(_FACTOR) is not None


def _wrapped_keras3(value: Json, scale: Dynamic | Fixed) -> Json:
    inner = (
        keras_objects.full("keras.optimizers", _class_of_alias(value), {})
        if isinstance(value, str)
        else value
    )
    if not isinstance(inner, dict) or not isinstance(inner.get("config"), dict):
        raise SpellingError("the saved optimizer is not a serialized Keras object")
    if isinstance(scale, Fixed):
        config = inner["config"]
        return {
            **inner,
            "config": {**(config if isinstance(config, dict) else {}), _FACTOR: scale.value},
        }
    settings: dict[str, Json] = {
        "name": "loss_scale_optimizer",
        "inner_optimizer": inner,
        **_dynamic_settings(scale),
    }
    return keras_objects.full("keras.optimizers", _CURRENT, settings)


def _keras2_config(scale: Dynamic | Fixed, inner: Json) -> dict[str, Json]:
    settings = (
        {"initial_scale": scale.value, "dynamic_growth_steps": None}
        if isinstance(scale, Fixed)
        else _dynamic_settings(scale)
    )
    return {"inner_optimizer": inner, "dynamic": isinstance(scale, Dynamic), **settings}


def _dynamic_settings(scale: Dynamic) -> dict[str, Json]:
    """
    Return the settings of a wrapper for a dynamic scale.

    :raises SpellingError: if TF 2.4 and later do not support the growth of the scale.
    """
    if scale.multiplier != Dynamic().multiplier:
        raise SpellingError(
            f"a loss scale that grows by a factor of {scale.multiplier:g} is not supported in TF "
            "2.4 and later, which always use a factor of 2"
        )
    return {"initial_scale": scale.initial, "dynamic_growth_steps": scale.growth_steps}


_FEWER_WHEN_WRAPPED: Final = frozenset({"Nadam", "Adafactor"})
"""
Keras 3 optimizers that save fewer variables when they are wrapped. Their state cannot move to
another place: it does not fit, and Adafactor fails to load it.
"""


def is_of_wrapper(loaded: LoadedModel) -> bool:
    """Return whether the state in a ``.keras`` file belongs to a wrapped optimizer."""
    return bool(variable_numbers(loaded, INNER))


def variable_numbers(loaded: LoadedModel, group: tuple[str, ...]) -> list[int]:
    """Return the numbers of the variables directly in a group, in order."""
    end = len(group)
    tensors = loaded.document.tensors or ()
    return sorted(
        int(tensor.path[end])
        for tensor in tensors
        if tensor.path[:end] == group and len(tensor.path) == end + 1 and tensor.path[end].isdigit()
    )


def move_state(
    loaded: LoadedModel, dialect: Dialect, before: Json, after: Json, *, leaves_scaled: bool
) -> tuple[StateSlot, ...] | None:
    """
    Return the optimizer's state in its new slots; None if it does not move.

    :param leaves_scaled: whether the model changes from mixed_float16 to another policy. Under
        mixed_float16, ``compile()`` wraps the optimizer and saves the state of the wrapper,
        although the config contains only the inner optimizer
    """
    outer, inner = variable_numbers(loaded, OUTER), variable_numbers(loaded, INNER)
    if loaded.document.format != "keras" or not outer:
        return None
    wraps = optimizer_config.is_wrapped(after)
    wrapped = optimizer_config.is_wrapped(before) or (leaves_scaled and bool(inner))
    if wraps == wrapped or (wraps and inner):
        return None
    if dialect.keras3 and optimizer_config.class_of(after) in _FEWER_WHEN_WRAPPED:
        return ()
    if wraps:
        state = first_wrapper_state(scale_of(after)) if dialect.keras3 else ()
        wrapper_slots = [
            StateSlot(tensor=(*OUTER, str(number)), dtype=dtype, value=value)
            for number, (dtype, value) in enumerate(state)
        ]
        outer_slots = [
            StateSlot(
                tensor=(*OUTER, str(len(wrapper_slots) + number)), source=(*OUTER, str(number))
            )
            for number in outer
        ]
        return (
            *wrapper_slots,
            *outer_slots,
            *(
                StateSlot(tensor=(*INNER, str(number)), source=(*OUTER, str(number)))
                for number in outer
            ),
        )
    skipped = OWN if dialect.keras3 else 0
    return tuple(
        StateSlot(tensor=(*OUTER, str(position)), source=(*OUTER, str(number)))
        for position, number in enumerate(outer[skipped:])
    )


def notes(
    loaded: LoadedModel,
    dialect: Dialect,
    before: Json,
    after: Json,
    state: tuple[StateSlot, ...] | None,
) -> tuple[Note, ...]:
    """Return the notes about how releases restore the state if the wrapper changes."""
    was_wrapped, will_be_wrapped = (
        optimizer_config.is_wrapped(before),
        optimizer_config.is_wrapped(after),
    )
    name = optimizer_config.class_of(after)
    state_notes = []
    if state == ():
        state_notes.append(
            Note(
                severity=NoteSeverity.WARNING,
                code="optimizer-state",
                message=(
                    f"{name} saves a different number of variables when it is wrapped, so its "
                    "state is omitted and training restarts with an empty state"
                ),
            )
        )
    if loaded.document.format == "h5" and not dialect.keras3 and was_wrapped != will_be_wrapped:
        state_notes.append(_about_hdf5(before, wraps=will_be_wrapped))
    if loaded.is_saved_object and was_wrapped != will_be_wrapped:
        state_notes.append(
            Note(
                severity=NoteSeverity.NOTE,
                code="optimizer-state",
                message=(
                    "Keras never restores optimizer state from a SavedModel, so training "
                    "restarts with empty slots, as it did before this change"
                ),
            )
        )
    return tuple(state_notes)


def about_bfloat16(loaded: LoadedModel, dialect: Dialect, value: Json) -> tuple[Note, ...]:
    """
    Return the warning for state that no release reads: slots of bfloat16 variables, of a legacy
    optimizer, in HDF5.
    """
    if (
        loaded.document.format != "h5"
        or dialect.keras3
        or optimizer_config.is_new_style(optimizer_config.unwrap(value))
    ):
        return ()
    return (
        Note(
            severity=NoteSeverity.WARNING,
            code="optimizer-state",
            message=(
                "no release can read bfloat16 slots of a legacy optimizer from HDF5; load the "
                "model with compile=False and compile it again"
            ),
        ),
    )


def _about_hdf5(before: Json, *, wraps: bool) -> Note:
    if wraps and optimizer_config.is_new_style(before):
        return Note(
            severity=NoteSeverity.WARNING,
            code="optimizer-state",
            message=(
                "no release restores the state of LossScaleOptimizerV3 from HDF5, so training "
                "restarts with empty slots; use --keep optimizer to leave the optimizer unchanged"
            ),
        )
    return Note(
        severity=NoteSeverity.NOTE,
        code="optimizer-state",
        message=(
            "the optimizer state is unchanged: HDF5 stores the state of the inner optimizer, "
            "whether it is wrapped or not"
        ),
    )


def first_wrapper_state(scale: Dynamic | Fixed | None) -> tuple[tuple[str, float], ...]:
    """Return the dtypes and values of a wrapper's variables before its first step."""
    initial = scale.initial if isinstance(scale, Dynamic) else Dynamic().initial
    return ("int64", 0), ("float32", 0.0), ("int64", 0), ("float32", initial)
