"""What TensorFlow's own ops, by their names in a ``node_def``, are called as functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.model.calls import Argument

FIRST: Final = "@"
"""The function's first parameter, among the inputs of an op."""

REST: Final = "*"
"""The same, where it takes a list: all inputs that no other name is left for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """One op."""

    function: str
    inputs: tuple[str, ...] = (FIRST,)
    """The function's parameters, in the order of the op's inputs."""

    attributes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The attributes that are parameters of the function."""

    needed: Mapping[str, Argument] = field(default_factory=lambda: MappingProxyType({}))
    """The attributes that the function has no parameter for, with the value that it stands for."""

    said: Mapping[str, Argument] = field(default_factory=lambda: MappingProxyType({}))
    """Parameters that the op's name says."""


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
"""What ``tf.image.resize`` of TF 2 asks for."""

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
By the op's name; those that cut out a part are told by
:mod:`policytool.migration.convert.rewrites.operations.node_defs`.
"""
