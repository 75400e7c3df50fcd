"""The arguments of calls by their names, whether they are given by place or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.model.calls import Argument, Call

STATE: Final = "initial_state"
"""The argument for the states that a sequence starts with."""

VALUE: Final = "value"


def is_attention(unit: Unit) -> bool:
    """Return whether a layer is an attention whose masks hide rows and columns of its scores."""
    return layer_facts(unit.class_name).masks_scores and not unit.custom


def argument_names(unit: Unit) -> tuple[str, ...]:
    """Return the names of a layer's arguments in the order in which Keras 3 takes them."""
    return layer_facts(None if unit.custom else unit.class_name).call


def named_arguments(unit: Unit, call: Call) -> dict[str, Argument]:
    """Return a call's arguments by their names, the first one's as Keras 3 calls it."""
    return {**dict(zip(argument_names(unit), call.args, strict=False)), **call.kwargs}
