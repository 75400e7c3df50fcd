"""Activations, pooling and images."""

from __future__ import annotations

from typing import Final

from policytool.migration.convert.operations.rows import (
    OperationRow,
    option,
    tensor,
    unary,
)


def _activation(function: str, op: str, *more: str, of: str = "features") -> OperationRow:
    return unary(function, op, *more, of=of, module="nn", floats=True)


ROWS: Final[tuple[OperationRow, ...]] = (
    _activation("nn.relu", "Relu"),
    _activation("nn.relu6", "Relu6"),
    _activation("nn.selu", "Selu"),
    _activation("math.softplus", "Softplus", "nn.softplus"),
    _activation("nn.softsign", "Softsign", "math.softsign"),
    _activation("math.sigmoid", "Sigmoid", "nn.sigmoid", "sigmoid", of="x"),
    _activation("math.log_sigmoid", "LogSigmoid", of="x"),
    OperationRow(
        functions=("nn.silu", "nn.swish"),
        module="nn",
        op="Silu",
        pairs=(tensor("features"),),
        ignored={"beta": (None, 1, 1.0)},
        floats=True,
    ),
    OperationRow(
        functions=("nn.elu",), module="nn", op="Elu", pairs=(tensor("features"),), floats=True
    ),
    OperationRow(
        functions=("nn.leaky_relu",),
        module="nn",
        op="LeakyRelu",
        pairs=(tensor("features"), option("alpha", "negative_slope", default=0.2, default3=0.2)),
        floats=True,
    ),
    OperationRow(
        functions=("nn.gelu",),
        module="nn",
        op="Gelu",
        pairs=(tensor("features"), option("approximate", default=False, default3=True)),
        floats=True,
    ),
    OperationRow(
        functions=("nn.softmax", "math.softmax"),
        module="nn",
        op="Softmax",
        pairs=(tensor("logits"), option("axis", default=-1, default3=-1)),
        floats=True,
    ),
    OperationRow(
        functions=("nn.log_softmax", "math.log_softmax"),
        module="nn",
        op="LogSoftmax",
        pairs=(tensor("logits"), option("axis", default=-1, default3=-1)),
        floats=True,
    ),
    OperationRow(
        functions=("nn.moments",),
        module="nn",
        op="Moments",
        pairs=(tensor("x"), option("axes"), option("keepdims", default=False, default3=False)),
        ignored={"shift": (None,)},
        floats=True,
    ),
    OperationRow(
        functions=("nn.depth_to_space",),
        module="nn",
        op="DepthToSpace",
        pairs=(tensor("input"), option("block_size")),
        ignored={"data_format": ("NHWC",)},
    ),
    OperationRow(
        functions=("nn.space_to_depth",),
        module="nn",
        op="SpaceToDepth",
        pairs=(tensor("input"), option("block_size")),
        ignored={"data_format": ("NHWC",)},
    ),
)
