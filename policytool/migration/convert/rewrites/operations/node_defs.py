"""
``TensorFlowOpLayer`` of TF 1.15 to 2.3: a TensorFlow op, stored as its ``node_def`` and its
constant inputs.

These layers are converted to the op layers of TF 2.4 and later, ``TFOpLambda`` and
``SlicingOpLambda``, which the rest of this package reads. Constants are stored by the number of the
input (``_make_op`` of tensorflow/python/keras/engine/base_layer.py, TF 1.15 to 2.3).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.migration.convert.architecture import used_calls
from policytool.migration.convert.rewrites.operations import _building
from policytool.migration.convert.rewrites.operations._building import (
    FLOAT32,
    LAMBDA,
    SLICING,
    UnsupportedOperationError,
)
from policytool.model.calls import Call, Reference, Slice, tensors
from policytool.releases import dtypes as names_of_dtypes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.migration.convert.architecture import Network, Unit, Value
    from policytool.model.calls import Argument


FIRST: Final = "@"
"""The function's first parameter, among the inputs of an op."""

REST: Final = "*"
"""The first parameter if it is a list: all inputs without another name."""


class Op(Struct, frozen=True, kw_only=True):
    """A TensorFlow op, and the function that computes it."""

    function: str
    inputs: tuple[str, ...] = (FIRST,)
    """The parameters of the function, in the order of the op's inputs."""

    attributes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The attributes that are parameters of the function."""

    needed: Mapping[str, Argument] = field(default_factory=lambda: MappingProxyType({}))
    """The attributes without a parameter of the function, with the value that it implies."""

    said: Mapping[str, Argument] = field(default_factory=lambda: MappingProxyType({}))
    """Parameters whose values follow from the name of the op."""


_UNARY: Final = {
    "Relu": "nn.relu",
    "Relu6": "nn.relu6",
    "Selu": "nn.selu",
    "Elu": "nn.elu",
    "Softplus": "math.softplus",
    "Softsign": "nn.softsign",
    "Sigmoid": "math.sigmoid",
    "Tanh": "math.tanh",
    "Softmax": "nn.softmax",
    "LogSoftmax": "nn.log_softmax",
    "Abs": "math.abs",
    "Neg": "math.negative",
    "Square": "math.square",
    "Sign": "math.sign",
    "Reciprocal": "math.reciprocal",
    "Inv": "math.reciprocal",
    "Sqrt": "math.sqrt",
    "Rsqrt": "math.rsqrt",
    "Exp": "math.exp",
    "Expm1": "math.expm1",
    "Log": "math.log",
    "Log1p": "math.log1p",
    "Erf": "math.erf",
    "Sin": "math.sin",
    "Cos": "math.cos",
    "Tan": "math.tan",
    "Asin": "math.asin",
    "Acos": "math.acos",
    "Atan": "math.atan",
    "Sinh": "math.sinh",
    "Cosh": "math.cosh",
    "Asinh": "math.asinh",
    "Acosh": "math.acosh",
    "Atanh": "math.atanh",
    "Floor": "math.floor",
    "Ceil": "math.ceil",
    "Round": "math.round",
    "Rint": "math.round",
    "IsNan": "math.is_nan",
    "IsInf": "math.is_inf",
    "IsFinite": "math.is_finite",
    "LogicalNot": "math.logical_not",
    "StopGradient": "stop_gradient",
    "Identity": "identity",
    "ZerosLike": "zeros_like",
    "OnesLike": "ones_like",
    "Shape": "shape",
}
_BINARY: Final = {
    "Add": "math.add",
    "AddV2": "math.add",
    "Sub": "math.subtract",
    "Mul": "math.multiply",
    "RealDiv": "math.divide",
    "DivNoNan": "math.divide_no_nan",
    "FloorDiv": "math.floordiv",
    "FloorMod": "math.floormod",
    "Pow": "math.pow",
    "Maximum": "math.maximum",
    "Minimum": "math.minimum",
    "Greater": "math.greater",
    "GreaterEqual": "math.greater_equal",
    "Less": "math.less",
    "LessEqual": "math.less_equal",
    "LogicalAnd": "math.logical_and",
    "LogicalOr": "math.logical_or",
    "SquaredDifference": "math.squared_difference",
}
_REDUCTIONS: Final = {
    "Sum": "math.reduce_sum",
    "Mean": "math.reduce_mean",
    "Max": "math.reduce_max",
    "Min": "math.reduce_min",
    "Prod": "math.reduce_prod",
    "Any": "math.reduce_any",
    "All": "math.reduce_all",
}
_NHWC: Final[dict[str, Argument]] = {"data_format": "NHWC"}
_RESIZE: Final[dict[str, Argument]] = {"align_corners": False, "half_pixel_centers": True}
"""The attributes that ``tf.image.resize`` of TF 2 sets."""

OPS: Final[Mapping[str, Op]] = MappingProxyType(
    {
        **{op: Op(function=function) for op, function in _UNARY.items()},
        **{op: Op(function=function, inputs=(FIRST, "y")) for op, function in _BINARY.items()},
        **{
            op: Op(function=function, inputs=(FIRST, "axis"), attributes={"keep_dims": "keepdims"})
            for op, function in _REDUCTIONS.items()
        },
        "Equal": Op(
            function="math.equal", inputs=(FIRST, "y"), needed={"incompatible_shape_error": True}
        ),
        "NotEqual": Op(
            function="math.not_equal",
            inputs=(FIRST, "y"),
            needed={"incompatible_shape_error": True},
        ),
        "Atan2": Op(function="math.atan2", inputs=(FIRST, "x")),
        "BiasAdd": Op(function="math.add", inputs=(FIRST, "y"), needed=_NHWC),
        "AddN": Op(function="math.add_n", inputs=(REST,)),
        "Cast": Op(function="cast", attributes={"DstT": "dtype"}, needed={"Truncate": False}),
        "LeakyRelu": Op(function="nn.leaky_relu", attributes={"alpha": "alpha"}),
        "ClipByValue": Op(
            function="clip_by_value", inputs=(FIRST, "clip_value_min", "clip_value_max")
        ),
        "SelectV2": Op(function="where", inputs=(FIRST, "x", "y")),
        "ArgMax": Op(
            function="math.argmax",
            inputs=(FIRST, "axis"),
            attributes={"output_type": "output_type"},
        ),
        "ArgMin": Op(
            function="math.argmin",
            inputs=(FIRST, "axis"),
            attributes={"output_type": "output_type"},
        ),
        "Cumsum": Op(
            function="math.cumsum",
            inputs=(FIRST, "axis"),
            attributes={"exclusive": "exclusive", "reverse": "reverse"},
        ),
        "Cumprod": Op(
            function="math.cumprod",
            inputs=(FIRST, "axis"),
            attributes={"exclusive": "exclusive", "reverse": "reverse"},
        ),
        "TopKV2": Op(function="math.top_k", inputs=(FIRST, "k"), attributes={"sorted": "sorted"}),
        "Reshape": Op(function="reshape", inputs=(FIRST, "shape")),
        "Transpose": Op(function="transpose", inputs=(FIRST, "perm")),
        "ExpandDims": Op(function="expand_dims", inputs=(FIRST, "axis")),
        "Squeeze": Op(function="squeeze", attributes={"squeeze_dims": "axis"}),
        "Tile": Op(function="tile", inputs=(FIRST, "multiples")),
        "BroadcastTo": Op(function="broadcast_to", inputs=(FIRST, "shape")),
        "ReverseV2": Op(function="reverse", inputs=(FIRST, "axis")),
        "ConcatV2": Op(function="concat", inputs=(REST, "axis")),
        "Pack": Op(function="stack", inputs=(REST,), attributes={"axis": "axis"}),
        "Unpack": Op(function="unstack", attributes={"num": "num", "axis": "axis"}),
        "Split": Op(
            function="split", inputs=("axis", FIRST), attributes={"num_split": "num_or_size_splits"}
        ),
        "SplitV": Op(function="split", inputs=(FIRST, "num_or_size_splits", "axis")),
        "Pad": Op(function="pad", inputs=(FIRST, "paddings")),
        "PadV2": Op(function="pad", inputs=(FIRST, "paddings", "constant_values")),
        "MirrorPad": Op(function="pad", inputs=(FIRST, "paddings"), attributes={"mode": "mode"}),
        "GatherV2": Op(
            function="gather",
            inputs=(FIRST, "indices", "axis"),
            attributes={"batch_dims": "batch_dims"},
        ),
        "OneHot": Op(
            function="one_hot",
            inputs=(FIRST, "depth", "on_value", "off_value"),
            attributes={"axis": "axis", "T": "dtype"},
        ),
        "MatMul": Op(
            function="linalg.matmul",
            inputs=(FIRST, "b"),
            attributes={"transpose_a": "transpose_a", "transpose_b": "transpose_b"},
        ),
        "BatchMatMulV2": Op(
            function="linalg.matmul",
            inputs=(FIRST, "b"),
            attributes={"adj_x": "adjoint_a", "adj_y": "adjoint_b"},
        ),
        "ResizeBilinear": Op(
            function="image.resize",
            inputs=(FIRST, "size"),
            needed=_RESIZE,
            said={"method": "bilinear"},
        ),
        "ResizeNearestNeighbor": Op(
            function="image.resize",
            inputs=(FIRST, "size"),
            needed=_RESIZE,
            said={"method": "nearest"},
        ),
        "DepthToSpace": Op(
            function="nn.depth_to_space", attributes={"block_size": "block_size"}, needed=_NHWC
        ),
        "SpaceToDepth": Op(
            function="nn.space_to_depth", attributes={"block_size": "block_size"}, needed=_NHWC
        ),
    }
)
"""
The known ops, by name, except the slicing ops of ``_SLICES``.
"""


NODE_DEF: Final = "TensorFlowOpLayer"


_SLICES: Final = {"StridedSlice": 4, "Slice": 3}
"""The slicing ops, with the number of their inputs."""

_COUNTS: Final = frozenset({"N", "num", "num_split"})
"""Attributes that only repeat the number of inputs or outputs."""


def modernize(network: Network) -> tuple[Network, dict[str, str]]:
    """
    Return the network with the op layers of TF 2.4 and later, and the reasons why layers are left
    unchanged, by their names.

    If a tensor is reshaped to a shape that is packed from numbers and sizes, the shape is written
    as a list.
    """
    units: dict[str, Unit] = {}
    reasons: dict[str, str] = {}
    packed = {
        unit.name: inputs
        for unit in network.units
        if _op(unit) == "Pack" and len(unit.calls) == 1 and (inputs := _inputs(unit, unit.calls[0]))
    }
    for unit in network.units:
        try:
            units[unit.name] = (
                _op_layer(unit, packed) if unit.class_name == NODE_DEF and not unit.custom else unit
            )
        except UnsupportedOperationError as error:
            units[unit.name], reasons[unit.name] = unit, str(error)
    modern_network = replace(network, units=tuple(units.values()))
    return _without_packs(modern_network, frozenset(packed)), reasons


def _without_packs(network: Network, packs: frozenset[str]) -> Network:
    used = used_calls(network)
    return replace(
        network,
        units=tuple(unit for unit in network.units if unit.name in used or unit.name not in packs),
    )


def _op_layer(unit: Unit, packed: Mapping[str, Sequence[Argument]]) -> Unit:
    """
    Return the op layer of TF 2.4 for a layer.

    :raises UnsupportedOperationError: if there is none
    """
    op, attributes = _op(unit), _attributes(unit)
    config: dict[str, Value] = {"trainable": True, "dtype": FLOAT32}
    if op in _SLICES:
        calls = tuple(_slice_call(op, attributes, _inputs(unit, call)) for call in unit.calls)
        return replace(
            unit, class_name=SLICING, config={**config, "function": _building.FUNCTION}, calls=calls
        )
    if op not in OPS:
        raise UnsupportedOperationError(
            f"calls the TensorFlow op {op}, for which no Keras 3 operation is known"
        )
    calls = tuple(_call_of(op, attributes, _inputs(unit, call), packed) for call in unit.calls)
    return replace(
        unit, class_name=LAMBDA, config={**config, "function": OPS[op].function}, calls=calls
    )


def _op(unit: Unit) -> str:
    node = unit.config.get("node_def")
    return str(node.get("op")) if isinstance(node, dict) else ""


def _attributes(unit: Unit) -> dict[str, Argument]:
    """
    Return the attributes of an op, except internal ones, with types by their Keras names.
    """
    node = unit.config.get("node_def")
    attributes = node.get("attr") if isinstance(node, dict) else None
    return (
        {
            key: _value(key, value)
            for key, value in attributes.items()
            if isinstance(value, dict) and not key.startswith("_")
        }
        if isinstance(attributes, dict)
        else {}
    )


def _value(key: str, value: Mapping[str, Value]) -> Argument:
    """Return an attribute's value; protobuf writes 64-bit numbers as text, and bytes as base64."""
    match value:
        case {"type": dtype}:
            return names_of_dtypes.OF_NODE_DEF.get(str(dtype), str(dtype))
        case {"i": number}:
            return int(str(number))
        case {"f": number}:
            return float(str(number))
        case {"s": text}:
            return _text(str(text))
        case {"list": dict() as listed}:
            numbers = listed.get("i")
            return [int(str(item)) for item in numbers] if isinstance(numbers, list) else None
        case {"b": flag}:
            return flag is True
    raise UnsupportedOperationError(
        f"has an attribute {key} that is not a number, text, type or list of numbers"
    )


def _text(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise UnsupportedOperationError("has an attribute that is not text") from error


def _inputs(unit: Unit, call: Call) -> list[Argument]:
    """
    Return all inputs of an op: the tensors that the layer is called with, and the constants at
    their positions.
    """
    constants = unit.config.get("constants")
    inputs: list[Argument] = [
        reference for argument in call.args for reference in tensors(argument)
    ]
    if isinstance(constants, dict):
        for index in sorted(constants, key=int):
            inputs.insert(int(index), constants[index])  # type: ignore[arg-type]  # numbers and lists of them
    return inputs


def _call_of(
    op: str,
    attributes: Mapping[str, Argument],
    inputs: list[Argument],
    packed: Mapping[str, Sequence[Argument]],
) -> Call:
    """
    Return the call of an op layer of TF 2.4 that is equivalent to an op with these attributes and
    inputs.
    """
    known = OPS[op]
    fixed_inputs = len(known.inputs) - 1
    if REST in known.inputs:
        inputs = [inputs[: len(inputs) - fixed_inputs], *inputs[len(inputs) - fixed_inputs :]]
    if len(inputs) != len(known.inputs):
        raise UnsupportedOperationError(
            f"calls the op {op} with {len(inputs)} inputs instead of {len(known.inputs)}"
        )
    arguments = dict(zip(known.inputs, inputs, strict=True))
    first = arguments.pop(REST if REST in arguments else FIRST)
    if op == "Reshape" and isinstance(shape := arguments["shape"], Reference):
        arguments["shape"] = list(packed.get(shape.layer, ())) or shape
    for attribute, value in attributes.items():
        if attribute in known.attributes:
            arguments[known.attributes[attribute]] = value
        elif attribute in known.needed and value != known.needed[attribute]:
            raise UnsupportedOperationError(
                f"calls the op {op} with {attribute}={value}, which no Keras 3 operation supports"
            )
        elif attribute not in known.needed and not (
            attribute in _COUNTS
            or attribute == "Index"
            or attribute.startswith("T")
            or value in names_of_dtypes.OF_NODE_DEF.values()
        ):
            raise UnsupportedOperationError(
                f"calls the op {op} with {attribute}, whose meaning is unknown"
            )
    return Call(args=(first,), kwargs={**arguments, **known.said})


def _slice_call(op: str, attributes: Mapping[str, Argument], inputs: list[Argument]) -> Call:
    """Return a call that cuts out a part, whose bounds have to be constants."""
    if len(inputs) != _SLICES[op] or any(not isinstance(bounds, list) for bounds in inputs[1:]):
        raise UnsupportedOperationError(
            f"calls the op {op} with tensors as bounds, which Keras 3 configs cannot represent"
        )
    if op == "Slice":
        starts, sizes = (_numbers(item) for item in inputs[1:])
        spec: list[Argument] = [
            _bounds(start, None if size < 0 else start + size)
            for start, size in zip(starts, sizes, strict=True)
        ]
        return Call(args=(inputs[0],), kwargs={"slice_spec": spec})
    masks = {
        name: mask if isinstance(mask := attributes.get(f"{name}_mask"), int) else 0
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    starts, ends, steps = (_numbers(item) for item in inputs[1:])
    spec = []
    for axis, (start, end, step) in enumerate(zip(starts, ends, steps, strict=True)):
        flags = {name for name, mask in masks.items() if mask >> axis & 1}
        if "ellipsis" in flags:
            spec.append(Slice(ellipsis=True))
        elif "new_axis" in flags:
            spec.append(None)
        elif "shrink_axis" in flags:
            spec.append(start)
        else:
            spec.append(
                _bounds(
                    None if "begin" in flags else start,
                    None if "end" in flags else end,
                    None if step == 1 else step,
                )
            )
    return Call(args=(inputs[0],), kwargs={"slice_spec": spec})


def _numbers(value: Argument) -> list[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []


def _bounds(start: int | None, stop: int | None, step: int | None = None) -> Argument:
    return {"start": start, "stop": stop, "step": step}
