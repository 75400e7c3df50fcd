"""The arguments of layer calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    STATE,
    VALUE,
    Role,
    Unit,
    argument_names,
    is_attention,
    map_units,
)
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.model.calls import Call, Reference
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.model.calls import Argument

_ONE_STATE: Final = frozenset({"SimpleRNN", "GRU"})
_CONSTANTS: Final = "constants"
_TRAINING: Final = "training"
"""
Keras 3 writes it of layers that were given none, and ``predict`` and ``fit`` give their own to all
layers whatever stands there (measured with Keras 3.15: a Dropout called with ``training=True``
drops nothing in ``predict``). In Keras 2 what stands there holds.
"""

_NEUTRAL: Final = {"training": None, "mask": None, STATE: None, _CONSTANTS: None}
"""What Keras 2 writes, or Keras 3, where nothing is given."""


@rewrite(
    after=("applications",),  # the layers put in have calls of their own
    applies=lambda context: context.crosses,
)
def calls(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts the arguments of layer calls: Keras 3 stores positional and keyword arguments, and
    Keras 2 stores the first argument by position and all others by name.

    Keras 2 does not tell how a call was written, so the ``value`` of a MultiHeadAttention, which
    has no default, goes by place in Keras 3. A recurrent layer of Keras 2 that is given states or
    constants gets them in one list with its input (``RNN.__call__`` in
    keras/layers/rnn/base_rnn.py); in Keras 3 they are ``initial_state``.
    """
    change = _to_keras3 if context.to_keras3 else _to_keras2

    def each(unit: Unit) -> Unit:
        if not unit.calls or unit.role is Role.OPERATION:
            return unit
        return replace(unit, calls=tuple(change(unit, call, context) for call in unit.calls))

    return map_units(root, each)


def _to_keras3(unit: Unit, call: Call, context: ConversionContext) -> Call:
    kwargs = {
        key: value for key, value in call.kwargs.items() if not (key in _NEUTRAL and value is None)
    }
    first = call.args[0] if call.args else None
    _tell_training(unit, kwargs, context)
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


def _tell_training(unit: Unit, kwargs: Mapping[str, Argument], context: ConversionContext) -> None:
    """
    Refuse a call that is one in training, and tell of one that never is: Keras 3 heeds neither.
    """
    said, what = context.log, f"{unit.path} ({unit.class_name})"
    if kwargs.get(_TRAINING) is True:
        said.refuse(
            "call",
            unit,
            f"{what} is called with training=True, which Keras 3 ignores in predict",
        )
    elif kwargs.get(_TRAINING) is False:
        said.caution(
            "training-argument",
            unit,
            f"{what} is called with training=False, which Keras 3 ignores in fit; predict is "
            "unchanged",
        )


def _to_keras2(unit: Unit, call: Call, context: ConversionContext) -> Call:
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
        if all(isinstance(one, Reference) for one in states):
            args = [[args[0], *states]]
        else:
            context.log.refuse(
                "call",
                unit,
                f"{unit.path} ({unit.class_name}) is called with cell states that are not "
                "tensors, which Keras 2 configs cannot represent",
            )
    return Call(args=tuple(args), kwargs=kwargs)
