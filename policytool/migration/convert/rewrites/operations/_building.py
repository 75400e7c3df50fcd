"""
Units that replace a unit in a rewrite, in the order of their calls.

Indices and slices are ``SlicingOpLambda`` in Keras 2, and ``GetItem`` in Keras 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, Unit
from policytool.model.calls import Call, Reference, Slice, tensors
from policytool.releases import keras_operations
from policytool.releases.policy import policy_from_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument


LAMBDA: Final = "TFOpLambda"
SLICING: Final = "SlicingOpLambda"


class UnsupportedOperationError(ValueError):
    """
    The other library does not support the operation; the message follows the name of the layer.
    """


@dataclass
class OperationBuilder:
    """
    The units that replace a unit; the last unit has the name of the replaced unit.
    """

    unit: Unit
    names: set[str]
    """All names in the network, including those of added units."""

    added: list[Unit] = field(default_factory=list)

    def fresh(self, word: str) -> str:
        """Return a name that no unit has."""
        number = 0
        name = f"{self.unit.name}_{word}"
        while name in self.names:
            number += 1
            name = f"{self.unit.name}_{word}_{number}"
        self.names.add(name)
        return name

    def operation(
        self,
        operation_name: str,
        args: tuple[Argument, ...],
        config: Mapping[str, Value] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
    ) -> Reference:
        """Add an operation of Keras 3, named as ``module.Class``, and return its result."""
        module, _, op = operation_name.partition(".")
        unit = Unit(
            class_name=op,
            name=self.fresh(op.lower()),
            config=dict(config or {}),
            role=Role.OPERATION,
            module=f"{keras_operations.MODULES}{module}",
            path=self.unit.path,
            calls=(Call(args=args, kwargs=dict(kwargs or {})),),
        )
        return self._put(unit)

    def function(
        self,
        name: str,
        first: Argument,
        kwargs: Mapping[str, Argument] | None = None,
        *,
        layer: str = LAMBDA,
    ) -> Reference:
        """Add an op layer of Keras 2 and return its result."""
        config: dict[str, Value] = {"trainable": True, "dtype": FLOAT32, "function": name}
        call = Call(args=(first,), kwargs=dict(kwargs or {}))
        return self._put(
            Unit(
                class_name=layer,
                name=self.fresh(name.rpartition(".")[2]),
                config=config,
                path=self.unit.path,
                calls=(call,),
            )
        )

    def layer(self, class_name: str, source: Argument, config: Mapping[str, Value]) -> Reference:
        """Add a layer and return its result."""
        call = Call(args=(source,))
        return self._put(
            Unit(
                class_name=class_name,
                name=self.fresh(class_name.lower()),
                config=dict(config),
                path=self.unit.path,
                calls=(call,),
            )
        )

    def _put(self, unit: Unit) -> Reference:
        self.added.append(unit)
        return Reference(layer=unit.name)


FLOAT32 = policy_from_name("float32")
"""The policy of an op layer, which does not affect its compute dtype."""


FUNCTION: Final = "__operators__.getitem"
_SPEC: Final = "slice_spec"
_BOUNDS: Final = ("start", "stop", "step")


def add_keras3_slicing(builder: OperationBuilder, call: Call) -> Reference:
    """
    Add the operation that returns the same slice as a slicing layer.

    :raises UnsupportedOperationError: if an index is a tensor
    """
    if _SPEC not in call.kwargs or not isinstance(call.args[0], Reference):
        raise UnsupportedOperationError("slices a tensor, but the file does not contain the slice")
    spec = call.kwargs[_SPEC]
    if any(True for _ in tensors(spec)):
        raise UnsupportedOperationError(
            "uses a tensor as the index of a slice, which Keras 3 configs cannot represent"
        )
    key: Argument = (
        [_index3(item) for item in spec]
        if isinstance(spec, list | tuple)
        else spec
        if isinstance(spec, int)
        else [_index3(spec)]
    )
    return builder.operation("numpy.GetItem", (call.args[0], key))


def _index3(item: Argument) -> Argument:
    """Return an index of a slice in the Keras 3 format."""
    if isinstance(item, dict) and set(item) <= set(_BOUNDS):
        return Slice(start=item.get("start"), stop=item.get("stop"), step=item.get("step"))
    if (
        item is None
        or (isinstance(item, int) and not isinstance(item, bool))
        or isinstance(item, Slice)
    ):
        return item
    raise UnsupportedOperationError(
        "slices a tensor with a mask or a list, which Keras 3 reads differently"
    )


def add_keras2_slicing(builder: OperationBuilder, call: Call, *, ellipsis: bool) -> Reference:
    """
    Add the slicing layer that returns the same slice as ``GetItem``.

    :param ellipsis: whether the release reads an ellipsis; TF 2.4 only writes it
    :raises UnsupportedOperationError: if an index is a tensor, an array or a list
    """
    arguments = (*call.args, *call.kwargs.values())
    expected = 2
    if len(arguments) != expected or not isinstance(arguments[0], Reference):
        raise UnsupportedOperationError(
            "slices a value that is not a tensor in the graph; policytool does not convert this"
        )
    key = arguments[1]
    if any(True for _ in tensors(key)):
        raise UnsupportedOperationError(
            "uses a tensor as the index of a slice; policytool does not convert this"
        )
    if not ellipsis and any(
        isinstance(item, Slice) and item.ellipsis
        for item in (key if isinstance(key, list | tuple) else (key,))
    ):
        raise UnsupportedOperationError("uses an ellipsis in a slice, which TF 2.4 cannot read")
    spec: Argument = (
        [_index2(item) for item in key] if isinstance(key, list | tuple) else _index2(key)
    )
    return builder.function(FUNCTION, arguments[0], {_SPEC: spec}, layer=SLICING)


def _index2(item: Argument) -> Argument:
    if isinstance(item, Slice):
        return item if item.ellipsis else {key: getattr(item, key) for key in _BOUNDS}
    if item is None or (isinstance(item, int) and not isinstance(item, bool)):
        return item
    raise UnsupportedOperationError(
        "slices a tensor with a mask or an array, which Keras 2 configs cannot represent"
    )
