"""
Converts the ops in functional graphs: ``TFOpLambda`` and ``SlicingOpLambda`` layers from TF 2.4 and
later, ``TensorFlowOpLayer`` layers from earlier releases, and Keras 3 operations.

Rows say which function of TensorFlow computes what an operation does
(:mod:`policytool.releases.keras_operations`). ``to_keras3`` and ``to_keras2`` read the rows,
each its way, and have what one side says with several. Op layers and operations follow no policy:
what they compute in is their tensors' dtype, which is asked where the two libraries make something
else of it (:mod:`policytool.migration.convert.tensor_facts`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.migration.convert.architecture import (
    Network,
    Role,
    Unit,
    map_networks,
    prune,
    replace_references,
    used_calls,
)
from policytool.migration.convert.masks import CAST
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.rewrites.operations import node_defs, to_keras2, to_keras3
from policytool.migration.convert.rewrites.operations._building import (
    FUNCTION,
    LAMBDA,
    SLICING,
    OperationBuilder,
    UnsupportedOperationError,
)
from policytool.migration.convert.tensor_facts import TensorDtypes, module_of, network_dtypes
from policytool.model.calls import Call, Reference
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes as names_of_dtypes
from policytool.releases import keras_operations
from policytool.releases.keras_operations import rows_by_function
from policytool.releases.policy import Policy
from policytool.releases.releases import KERAS3, newest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument


FUNCTIONS: Final = frozenset({*rows_by_function(), *to_keras3.COMPOSED, FUNCTION})
"""The supported TensorFlow functions."""

_DTYPE: Final = "dtype"
_SHAPES: Final = frozenset({"shape", "compat.v1.shape"})
_LAMBDAS: Final = frozenset({LAMBDA, SLICING, "ClassMethod", "InstanceMethod", "InstanceProperty"})
_UNREAD: Final = frozenset({"ClassMethod", "InstanceMethod", "InstanceProperty"})


@rewrite(
    after=(
        "masks",
        "calls",
        "policies",
        "activation_operations",
    ),  # reads the remaining ops, and their dtypes
    applies=lambda context: True,  # noqa: ARG005  # releases of Keras 2 differ too
)
def operations(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts the ops in functional graphs: ``TFOpLambda`` and ``SlicingOpLambda`` layers from TF 2.4
    and later, ``TensorFlowOpLayer`` layers from earlier releases, and Keras 3 operations.

    Rows say which function of TensorFlow computes what an operation does
    (:mod:`policytool.releases.keras_operations`). ``to_keras3`` and ``to_keras2`` read the rows,
    each its way, and have what one side says with several. Op layers and operations follow no
    policy: what they compute in is their tensors' dtype, which is asked where the two libraries
    make something else of it (:mod:`policytool.migration.convert.tensor_facts`).
    """
    return map_networks(
        root, lambda network: network if network.is_chain else _network(network, context)
    )


def _network(network: Network, context: ConversionContext) -> Network:
    """Return a network whose ops the target supports. Ops that cannot be converted are refused."""
    if context.crosses and context.to_keras3:
        network = _modernize(network, context)
    if context.from_keras3:
        network = replace(network, units=tuple(map(_with_dtype_in_config, network.units)))
    swaps: Mapping[str, Mapping[str, bool]] = {}
    if context.crosses and not context.to_keras3:
        network, swaps = fold_swaps(network)
    dtypes = network_dtypes(network, None if context.from_keras3 else context.loaded.loader)
    if context.drops_casts:
        network, dropped_casts = drop_casts(network, dtypes, first_alone=not context.to_keras3)
        for unit in dropped_casts:
            context.log.change(
                "cast-dropped",
                unit,
                f"the cast to {unit.config.get('dtype')} is omitted because the following "
                "layers cast their inputs",
            )
    if context.crosses or not context.to_keras3:  # rewrites add operations to any model
        names = {unit.name for unit in network.units}
        network = replace(
            network,
            units=tuple(
                with_flags(new, swaps[new.name]) if new.name in swaps else new
                for unit in network.units
                for new in _convert(unit, names, dtypes, context)
            ),
        )
        # remove unused shapes, and ops that depend only on shapes
        network = prune(
            network,
            lambda unit: str(unit.config.get("function")) in _SHAPES or unit.role is Role.OPERATION,
        )
    if not context.to_keras3 and to_keras2.is_before_lambdas(context.target.loader):
        _judge_lambdas(network, context)
    if context.to_keras3:
        network = replace(
            network, units=tuple(_with_known_keys(unit, context) for unit in network.units)
        )
        _judge_remaining(network, context)
    return network


def _with_dtype_in_config(unit: Unit) -> Unit:
    """
    Return an operation with the dtype of its calls, if any, in its config, as Keras 3.11 and later
    write it.
    """
    in_calls = [call.kwargs[_DTYPE] for call in unit.calls if _DTYPE in call.kwargs]
    latest = keras_operations.signature(newest(KERAS3).id, module_of(unit), unit.class_name)
    if (
        unit.role is not Role.OPERATION
        or latest is None
        or _DTYPE in latest.call
        or _DTYPE not in latest.config
        or len(in_calls) != len(unit.calls)
        or any(dtype != in_calls[0] for dtype in in_calls)
    ):
        return unit
    calls = tuple(
        structs.replace(
            call, kwargs={key: value for key, value in call.kwargs.items() if key != _DTYPE}
        )
        for call in unit.calls
    )
    dtype = in_calls[0] if isinstance(in_calls[0], str) else None
    return replace(unit, config={**unit.config, _DTYPE: dtype}, calls=calls)


def _modernize(network: Network, context: ConversionContext) -> Network:
    """Return a network whose ops are those of TF 2.4 and later."""
    modern_network, reasons = node_defs.modernize(network)
    for unit in modern_network.units:
        if unit.name in reasons:
            context.log.refuse(
                "operation",
                unit,
                f"{unit.path} ({node_defs.NODE_DEF}) {reasons[unit.name]}; replace it with a "
                "layer in the source",
            )
    return modern_network


def _convert(
    unit: Unit, names: set[str], dtypes: TensorDtypes, context: ConversionContext
) -> tuple[Unit, ...]:
    """Return the units that replace a unit; the unit itself if it is not an operation."""
    is_op = (
        unit.role is Role.OPERATION
        if not context.to_keras3
        else unit.class_name in {LAMBDA, SLICING}
    )
    if not is_op or unit.custom or str(unit.config.get("function")) in _SHAPES:
        return (unit,)
    if not unit.calls:
        context.log.refuse(
            "operation",
            unit,
            f"{unit.path} is an operation that is never called, so its arguments are unknown",
        )
        return (unit,)
    units_per_call: list[tuple[Unit, ...]] = []
    for call in unit.calls:
        builder = OperationBuilder(unit, names)
        try:
            result = (
                to_keras3.add_operations(builder, unit, call, dtypes)
                if context.to_keras3
                else to_keras2.add_op_layers(builder, unit, call, dtypes, context.target.loader)
            )
        except UnsupportedOperationError as error:
            context.log.refuse("operation", unit, f"{unit.path} {error}")
            return (unit,)
        units_per_call.append(_last_named(builder.added, result, unit.name))
    if any(
        len(units) != 1
        or units[0].class_name != units_per_call[0][0].class_name
        or units[0].config != units_per_call[0][0].config
        for units in units_per_call[1:]
    ):
        context.log.refuse(
            "operation",
            unit,
            f"{unit.path} is called {len(unit.calls)} times with different arguments, which "
            "policytool does not convert",
        )
        return (unit,)
    function_names = ", ".join(_function_name(new) for new in units_per_call[0])
    context.log.change("operation", unit, f"{_function_name(unit)} becomes {function_names}")
    last = replace(
        units_per_call[0][-1],
        calls=tuple(call for units in units_per_call for call in units[-1].calls),
    )
    return (*units_per_call[0][:-1], last)


def _last_named(units: list[Unit], result: Reference, name: str) -> tuple[Unit, ...]:
    """
    Return added units, the last with the name of the unit that they replace, so that its users need
    not change.
    """
    if units[-1].name != result.layer:
        raise AssertionError(result.layer)
    return (*units[:-1], replace(units[-1], name=name))


def _function_name(unit: Unit) -> str:
    function = unit.config.get("function")
    return f"tf.{function}" if isinstance(function, str) else unit.class_name


def _with_known_keys(unit: Unit, context: ConversionContext) -> Unit:
    """Return an operation with the keys that the target accepts."""
    if (
        unit.role is not Role.OPERATION
        or unit.custom
        or not keras_operations.is_known(module_of(unit), unit.class_name)
    ):
        return unit
    loader, module = context.target.loader, module_of(unit)
    signature = keras_operations.signature(loader, module, unit.class_name)
    if signature is None:
        context.log.refuse(
            "operation",
            unit,
            f"{unit.path} applies the operation {unit.class_name}, which "
            f"{context.target.name} does not have",
        )
        return unit
    latest = keras_operations.signature(newest(KERAS3).id, module, unit.class_name)
    config: dict[str, Value] = {}
    for key, value in unit.config.items():
        if key in signature.config or key in signature.required:
            config[key] = value
        elif latest is None or latest.config.get(key) != value:
            context.log.refuse(
                "operation",
                unit,
                f"{unit.path} applies the operation {unit.class_name} with {key}, which "
                f"{context.target.name} does not support",
            )
    return replace(unit, config=config, module=f"{keras_operations.MODULES}{module}")


def _judge_lambdas(network: Network, context: ConversionContext) -> None:
    """Refuse op layers if the release lacks op layers that can be rebuilt from a config."""
    for unit in network.units:
        if unit.class_name in _LAMBDAS and not unit.custom:
            context.log.refuse(
                "operation",
                unit,
                f"{unit.path} is an op layer ({unit.class_name}) for {_function_name(unit)}; "
                f"op layers are converted only for TF 2.4 and later, not for {context.target.name}",
            )


def _judge_remaining(network: Network, context: ConversionContext) -> None:
    """Refuse remaining op layers, and operations in a container that does not support them."""
    for unit in network.units:
        if unit.class_name in _UNREAD:
            context.log.refuse(
                "operation",
                unit,
                f"{unit.path} is a {unit.class_name}, a layer for raw TensorFlow ops; Keras 3 has "
                "no such layer",
            )
        if (
            unit.class_name == "GetItem"
            and not context.target.since("keras3.3")
            and any(call.args and isinstance(call.args[-1], list) for call in unit.calls)
        ):
            context.log.refuse(
                "operation",
                unit,
                f"{unit.path} slices several axes (GetItem), which {context.target.name} cannot "
                "read from a file",
            )
        if str(unit.config.get("function")) in _SHAPES and unit.class_name == LAMBDA:
            context.log.refuse(
                "operation",
                unit,
                f"{unit.path} reads the shape of a tensor, which Keras 3 configs cannot represent",
            )
        if unit.role is Role.OPERATION and context.target.container == "h5":
            context.log.refuse(
                "h5-operations",
                unit,
                f"{unit.path} applies the operation {unit.class_name}, which no Keras 3 release "
                "can read from HDF5; use -o NAME.keras",
            )


def drop_casts(
    network: Network, dtypes: TensorDtypes, *, first_alone: bool
) -> tuple[Network, tuple[Unit, ...]]:
    """
    Return the network without the casts that the following layers perform, and the removed casts.

    :param first_alone: whether layers cast only their first argument, as in Keras 2
    """
    casts = {
        unit.name: unit
        for unit in network.units
        if unit.role is Role.OPERATION and unit.class_name == CAST and len(unit.calls) == 1
    }
    floats = {
        name: unit
        for name, unit in casts.items()
        if _source(unit) is not None and dtypes.of(_source(unit)) in names_of_dtypes.FLOATS
    }
    units = tuple(_rewire(unit, floats, first_alone=first_alone) for unit in network.units)
    used = used_calls(replace(network, units=units))
    dropped_casts = tuple(unit for name, unit in floats.items() if name not in used)
    names = {unit.name for unit in dropped_casts}
    return replace(
        network, units=tuple(unit for unit in units if unit.name not in names)
    ), dropped_casts


def _source(unit: Unit) -> Argument:
    """Return the input of a cast; None if it is not a tensor."""
    arguments = (*unit.calls[0].args, *unit.calls[0].kwargs.values())
    return arguments[0] if arguments and isinstance(arguments[0], Reference) else None


def _rewire(unit: Unit, casts: Mapping[str, Unit], *, first_alone: bool) -> Unit:
    """
    Return a layer that takes the inputs of casts to its own compute dtype, instead of their
    results.
    """
    policy = unit.config.get("dtype")
    if (
        unit.role is not Role.LAYER
        or unit.class_name == INPUT_CLASS
        or not isinstance(policy, Policy)
    ):
        return unit

    def change(reference: Reference) -> Argument:
        cast = casts.get(reference.layer)
        return (
            _source(cast)
            if cast is not None and cast.config.get("dtype") == policy.compute_dtype
            else reference
        )

    calls = tuple(
        Call(
            args=tuple(
                replace_references(item, change) if number == 0 or not first_alone else item
                for number, item in enumerate(call.args)
            ),
            kwargs={
                key: item if first_alone else replace_references(item, change)
                for key, item in call.kwargs.items()
            },
        )
        for call in unit.calls
    )
    return replace(unit, calls=calls)


_SWAP: Final = "Swapaxes"
_FLAGS: Final = ("transpose_a", "transpose_b")


def fold_swaps(network: Network) -> tuple[Network, dict[str, Mapping[str, bool]]]:
    """
    Return a Keras 3 network whose matrix products use the matrices before their transposition, and
    the transposition flags of each such product, by its name.
    """
    sources = {unit.name: _source_of_swap(unit) for unit in network.units}
    flags: dict[str, Mapping[str, bool]] = {}
    units = []
    for unit in network.units:
        swapped = [
            sources.get(argument.layer) if isinstance(argument, Reference) else None
            for argument in (unit.calls[0].args if _is_product(unit) else ())
        ]
        if any(swapped):
            flags[unit.name] = {
                flag: True for flag, source in zip(_FLAGS, swapped, strict=True) if source
            }
            call = unit.calls[0]
            args = tuple(new or old for new, old in zip(swapped, call.args, strict=True))
            unit = replace(unit, calls=(structs.replace(call, args=args),))  # noqa: PLW2901  # as it is now
        units.append(unit)
    folded_network = replace(network, units=tuple(units))
    return (
        prune(folded_network, lambda member: member.class_name == _SWAP) if flags else network
    ), flags


def with_flags(unit: Unit, flags: Mapping[str, bool]) -> Unit:
    """Return the layer of a product in Keras 2 with the flags of its matrices."""
    calls = tuple(Call(args=call.args, kwargs={**call.kwargs, **flags}) for call in unit.calls)
    return replace(unit, calls=calls)


def _is_product(unit: Unit) -> bool:
    return (
        unit.class_name == "Matmul"
        and not unit.custom
        and len(unit.calls) == 1
        and len(unit.calls[0].args) == len(_FLAGS)
    )


def _source_of_swap(unit: Unit) -> Reference | None:
    """Return the tensor whose last two axes an operation swaps; None for other units."""
    if unit.class_name != _SWAP or unit.custom or len(unit.calls) != 1:
        return None
    axes = {unit.config.get("axis1"), unit.config.get("axis2")}
    source = next(iter(unit.calls[0].args), None)
    return source if axes == {-1, -2} and isinstance(source, Reference) else None
