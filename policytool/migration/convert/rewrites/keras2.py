"""Models of standalone Keras 2 and of TF 1, and the arguments of layer calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.migration.convert.architecture import (
    STATE,
    VALUE,
    ObjectKind,
    Recipe,
    Role,
    SerializedObject,
    Unit,
    argument_names,
    is_attention,
    map_layers,
    map_units,
)
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.model.calls import Call, Reference
from policytool.model.tree import INPUT_CLASS
from policytool.releases import generations
from policytool.releases.generations import Unsaid
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument


_GONE: Final = frozenset({"CuDNNGRU", "CuDNNLSTM", "Highway", "MaxoutDense", "Merge"})
"""
Classes of standalone Keras 2 and TF 1 that TF 2 lacks or has only under ``compat.v1``, and that
Keras 3 lacks.
"""

_CONVOLVE: Final = {"Conv1D": 1, "Conv2D": 2, "Conv3D": 3}
_PADS: Final = frozenset(
    {
        "AveragePooling1D",
        "AveragePooling2D",
        "AveragePooling3D",
        "MaxPooling1D",
        "MaxPooling2D",
        "MaxPooling3D",
    }
)
_OTHERWISE: Final = frozenset(
    {
        "Conv2DTranspose",
        "Conv3DTranspose",
        "ConvLSTM2D",
        "DepthwiseConv2D",
        "SeparableConv1D",
        "SeparableConv2D",
    }
)
_DISTRIBUTIONS: Final[dict[Value, Value]] = {"normal": "truncated_normal"}
"""The distributions of ``VarianceScaling`` that later releases renamed, by their old name."""


@rewrite(
    after=("keras1",),  # expects names of Keras 2
    applies=lambda context: (
        context.loaded.generation
        in (
            generations.KERAS_1,
            generations.KERAS_2,
            generations.TF_1_4,
        )
        and context.target.since("tf2.0")
    ),
)
def keras2(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts standalone Keras 2 and TF 1 settings whose defaults differ in later releases: dtypes,
    initializers, GRU equations and Theano kernels.

    Keras 2.0 to 2.3 and TF 1.15 load such files with their defaults. TF 2.0 and later have other
    defaults (``reset_after``), and Keras 3 does not support the ``dtype`` of an initializer. Theano
    computes convolutions, TensorFlow cross-correlations: standalone Keras reverses kernels of
    Theano when it loads them (``preprocess_weights_for_loading``), later releases do not.
    """
    reverses = (
        context.loaded.document.writer.backend == "theano"
        and context.loaded.generation is generations.KERAS_2
    )
    omits_dtype = context.loaded.generation.unsaid is Unsaid.FLOATX

    def change(unit: Unit) -> Unit:
        """Convert one layer of standalone Keras 2 or TF 1."""
        if unit.class_name in _GONE:
            context.log.refuse(
                "class",
                unit,
                f"{unit.path} is a {unit.class_name}, which TF 2.0 and later do not support",
            )
            return unit
        converted = replace(
            unit, config={key: _initializer(value) for key, value in unit.config.items()}
        )
        converted = _recurrent(converted)
        converted = _with_dtype(converted, context) if omits_dtype else converted
        return _reverse_kernel(converted, context) if reverses else converted

    return map_layers(root, change)


def _initializer(value: Value) -> Value:
    """
    Return an initializer without the dtype that TF 1 stores, which is always that of the variable;
    other values are unchanged.
    """
    if (
        not isinstance(value, SerializedObject)
        or value.kind is not ObjectKind.INITIALIZER
        or isinstance(value.config, str | None)
    ):
        return value
    config = {key: item for key, item in value.config.items() if key != "dtype"}
    distribution = config.get("distribution")
    if isinstance(distribution, str):
        config["distribution"] = _DISTRIBUTIONS.get(distribution, distribution)
    return structs.replace(value, config=config)


def _recurrent(unit: Unit) -> Unit:
    """
    Return a layer with explicit ``reset_after`` and ``implementation``. Later releases do not
    support implementation 0 of Keras 2.0 to 2.3.
    """
    if unit.class_name in {"GRU", "GRUCell"} and "reset_after" not in unit.config:
        unit = unit.with_config(reset_after=False)
    return unit.with_config(implementation=1) if unit.config.get("implementation") == 0 else unit


def _with_dtype(unit: Unit, context: ConversionContext) -> Unit:
    """Return a layer with an explicit dtype, which its release did not write."""
    if unit.site is None or unit.class_name == INPUT_CLASS or "dtype" in unit.config:
        return unit
    policy = context.loaded.layers[unit.site].policy
    return (
        unit.with_config(dtype=generations.parse(policy, context.loaded.generation))
        if policy is not None
        else unit
    )


def _reverse_kernel(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return a layer of a Theano model with its kernel reversed. The layer is refused if Theano pads
    differently.
    """
    rank = _CONVOLVE.get(unit.class_name)
    padded = unit.config.get("padding") == "same"
    if (
        unit.class_name in _OTHERWISE
        or (unit.class_name in _PADS and padded)
        or (rank is not None and padded and not _is_centred(unit))
    ):
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} ({unit.class_name}) was trained with Theano, whose results for this "
            "layer differ",
        )
    if rank is None:
        return unit
    layout = {"kernel": Recipe(parts=("kernel",), flip=tuple(range(rank)))}
    return replace(
        unit,
        layout={**layout, "bias": Recipe(parts=("bias",))}
        if unit.config.get("use_bias", True)
        else layout,
    )


def _is_centred(unit: Unit) -> bool:
    """
    Return whether the kernel is centred on each step, so that Theano and TensorFlow pad equally.
    """
    sizes, strides = unit.config.get("kernel_size"), unit.config.get("strides")
    odd = isinstance(sizes, list) and all(isinstance(size, int) and size % 2 == 1 for size in sizes)
    return odd and isinstance(strides, list) and all(step == 1 for step in strides)


_ONE_STATE: Final = frozenset({"SimpleRNN", "GRU"})

_TRAINING: Final = "training"
"""
The argument of layer calls. Keras 3 writes it even if the call did not have it, and ``predict`` and
``fit`` override it (measured with Keras 3.15: a Dropout called with ``training=True`` drops nothing
in ``predict``). Keras 2 uses the stored value.
"""

_NEUTRAL: Final = {"training": None, "mask": None, STATE: None, "constants": None}
"""The values that Keras 2 or Keras 3 write for arguments that a call does not have."""


@rewrite(
    after=("applications",),  # it adds layers with calls
    applies=lambda context: context.crosses,
)
def calls(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts the arguments of layer calls: Keras 3 stores positional and keyword arguments, and
    Keras 2 stores the first argument by position and all others by name.

    Keras 2 does not store whether an argument was positional, so the ``value`` of a
    MultiHeadAttention, which has no default, is positional in Keras 3. A recurrent layer of Keras 2
    with states or constants gets them in a list with its input (``RNN.__call__`` in
    keras/layers/rnn/base_rnn.py); in Keras 3 they are ``initial_state``.
    """
    change = _to_keras3 if context.to_keras3 else _to_keras2

    def each(unit: Unit) -> Unit:
        """Convert all calls of one layer."""
        if not unit.calls or unit.role is Role.OPERATION:
            return unit
        unit = replace(unit, calls=tuple(change(unit, call, context) for call in unit.calls))
        return _with_call_arguments(unit, context) if context.to_keras3 else unit

    return map_units(root, each)


def _to_keras3(unit: Unit, call: Call, context: ConversionContext) -> Call:
    """
    Return a call of Keras 2 as Keras 3 makes it; states move from the first argument to an argument
    of their own.
    """
    kwargs = {
        key: value for key, value in call.kwargs.items() if not (key in _NEUTRAL and value is None)
    }
    first = call.args[0] if call.args else None
    _log_training_argument(unit, kwargs, context)
    if is_attention(unit) and len(call.args) == 1 and VALUE in kwargs:
        return Call(args=(*call.args, kwargs.pop(VALUE)), kwargs=kwargs)
    if (
        not layer_facts(unit.class_name).takes_states
        or unit.custom
        or not isinstance(first, list | tuple)
    ):
        return Call(args=call.args, kwargs=kwargs)
    constants = unit.config.get("num_constants")
    if isinstance(constants, int) and constants:
        context.log.refuse(
            "call",
            unit,
            f"{unit.path} ({unit.class_name}) is called with constants, which Keras 3 does not "
            "support",
        )
    if not first:
        context.log.refuse(
            "call",
            unit,
            f"{unit.path} ({unit.class_name}) is called with an empty list instead of input "
            "sequences",
        )
        return call
    if len(first) == 1:
        return Call(args=(first[0],), kwargs=kwargs)
    context.log.change(
        "call", unit, f"the states move from the first argument to the argument {STATE}"
    )
    states: Argument = list(first[1:]) if unit.class_name not in _ONE_STATE else first[1]
    return Call(args=(first[0],), kwargs={STATE: states, **kwargs})


def _with_call_arguments(unit: Unit, context: ConversionContext) -> Unit:
    """Return a layer whose calls have the arguments that the layer itself has in Keras 2."""
    for key, name in layer_facts(None if unit.custom else unit.class_name).call_arguments.items():
        if unit.config.get(key):
            context.log.change("call", unit, f"{key} becomes the argument {name} of the call")
            calls = (
                Call(args=call.args, kwargs={**call.kwargs, name: True}) for call in unit.calls
            )
            unit = replace(unit.without(key), calls=tuple(calls))
    return unit


def _log_training_argument(
    unit: Unit, kwargs: Mapping[str, Argument], context: ConversionContext
) -> None:
    """
    Refuse a call with ``training=True``, and warn about a call with ``training=False``, because
    Keras 3 ignores the argument.
    """
    log, layer_words = context.log, f"{unit.path} ({unit.class_name})"
    if kwargs.get(_TRAINING) is True:
        log.refuse(
            "call",
            unit,
            f"{layer_words} is called with training=True, which Keras 3 ignores in predict",
        )
    elif kwargs.get(_TRAINING) is False:
        log.caution(
            "training-argument",
            unit,
            f"{layer_words} is called with training=False, which Keras 3 ignores in fit; predict "
            "is unchanged",
        )


def _to_keras2(unit: Unit, call: Call, context: ConversionContext) -> Call:
    """
    Return a call of Keras 3 as Keras 2 configs represent it; states move to the first argument.
    """
    names = argument_names(unit)
    kwargs = dict(call.kwargs)
    args = list(call.args)
    if not args and names[0] in kwargs:
        args = [kwargs.pop(names[0])]
    if len(args) > len(names):
        context.log.refuse(
            "call",
            unit,
            f"{unit.path} ({unit.class_name}) is called with {len(args)} positional arguments, "
            "and the names of some are unknown",
        )
        return call
    for name, value in zip(names[1:], args[1:], strict=False):
        kwargs.setdefault(name, value)
    kwargs = {key: value for key, value in kwargs.items() if value is not None and key != _TRAINING}
    args = args[:1]
    if layer_facts(unit.class_name).takes_states and not unit.custom and STATE in kwargs:
        state = kwargs.pop(STATE)
        states = list(state) if isinstance(state, list | tuple) else [state]
        context.log.change("call", unit, f"{STATE} moves to the first argument")
        if all(isinstance(cell_state, Reference) for cell_state in states):
            args = [[args[0], *states]]
        else:
            context.log.refuse(
                "call",
                unit,
                f"{unit.path} ({unit.class_name}) is called with cell states that are not "
                "tensors, which Keras 2 configs cannot represent",
            )
    return Call(args=tuple(args), kwargs=kwargs)
