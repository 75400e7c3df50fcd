"""
Writes the graph of a functional model for Keras 1, 2 and tf_keras, in the form that
:mod:`policytool.model.calls` describes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.migration.convert._numbering import first_calls_keras2
from policytool.model.calls import CONSTANT, Constant, Dtype, Reference, Slice
from policytool.releases import keras_objects
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.model.calls import Argument
    from policytool.support.text.jsontext import Json


def keeps_structure(class_name: str) -> bool:
    """
    Return whether a layer of an op has its single tensor in no list
    (``_preserve_input_structure_in_config``).
    """
    return layer_facts(class_name).wrapped_op not in {None, "node_def"}


class UnwritableCallError(ValueError):
    """A call that this graph has no words for."""


def has_ellipsis(unit: Unit) -> bool:
    """
    Return whether a slicing layer is called with an ellipsis.

    HDF5 has an object for it; archives have none, and their reader leaves that object as it is.
    """
    specs = [call.kwargs.get("slice_spec") for call in unit.calls]
    items = [item for spec in specs for item in (spec if isinstance(spec, list) else [spec])]
    return any(isinstance(item, Slice) and item.ellipsis for item in items)


def keras2_nodes(unit: Unit, offsets: Mapping[str, int]) -> list[Json]:
    """
    Return the calls of a unit as ``inbound_nodes``.

    :param offsets: the number of each unit's first call in the network
    :raises UnwritableCallError: for positional arguments behind the first, and for values that are
        no JSON.
    """
    found: list[Json] = []
    for call in unit.calls:
        if len(call.args) != 1:
            raise UnwritableCallError(f"{len(call.args)} positional arguments")
        kwargs: dict[str, Json] = {
            key: _keras2_argument(item, offsets) for key, item in call.kwargs.items()
        }
        first = _written_first(call.args[0], kwargs, offsets)
        alone = isinstance(call.args[0], Reference | Constant)
        found.append([first] if alone and not keeps_structure(unit.class_name) else first)
    return found


def _written_first(argument: Argument, kwargs: dict[str, Json], offsets: Mapping[str, int]) -> Json:
    if isinstance(argument, Reference):
        return [
            argument.layer,
            argument.call + offsets.get(argument.layer, 0),
            argument.output,
            kwargs,
        ]
    if isinstance(argument, list | tuple):
        return [_written_first(item, kwargs, offsets) for item in argument]
    if isinstance(argument, dict):
        return {key: _written_first(item, kwargs, offsets) for key, item in argument.items()}
    return [CONSTANT, -1, _keras2_argument(argument, offsets), kwargs]


def _keras2_argument(argument: Argument, offsets: Mapping[str, int]) -> Json:
    if isinstance(argument, Reference):
        return [argument.layer, argument.call + offsets.get(argument.layer, 0), argument.output]
    if isinstance(argument, list | tuple):
        return [_keras2_argument(item, offsets) for item in argument]
    if isinstance(argument, dict):
        return {key: _keras2_argument(item, offsets) for key, item in argument.items()}
    if isinstance(argument, Constant):
        return _keras2_argument(argument.value, offsets)
    if isinstance(argument, Dtype):
        return argument.name
    if isinstance(argument, Slice):
        if argument.ellipsis:
            return keras_objects.special(keras_objects.ELLIPSIS)
        raise UnwritableCallError("a slice")
    if argument is None or isinstance(argument, bool | int | float | str):
        return argument
    raise UnwritableCallError(
        "an object instead of a value"
    )  # of a config that is not what any release writes


def keras2_ends(network: Network, argument: Argument) -> Json:
    """
    Return a model's inputs or outputs as ``input_layers`` and ``output_layers``; one tensor stands
    in a list, which every release reads.
    """
    written = _keras2_ends(argument, first_calls_keras2(network))
    return [written] if isinstance(argument, Reference) else written


def _keras2_ends(argument: Argument, offsets: Mapping[str, int]) -> Json:
    if isinstance(argument, list | tuple):
        return [_keras2_ends(item, offsets) for item in argument]
    if isinstance(argument, dict):
        return {key: _keras2_ends(item, offsets) for key, item in argument.items()}
    return _keras2_argument(argument, offsets)
