"""Ops on tensors of a graph: those of Python, of ``keras.ops``, and of TensorFlow in tf_keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def call(keras: Any, name: str, values: list[Any], config: dict[str, Any]) -> Any:
    """Return what an op makes of tensors."""
    if name in _PYTHON:
        return _PYTHON[name](*values, **config)
    if hasattr(keras, "ops"):
        return _KERAS3[name](keras.ops, *values, **config)
    import tensorflow as tf

    return _TENSORFLOW[name](tf, *values, **config)


def _slice(x: Any, index: list[Any]) -> Any:
    words = {"all": slice(None), "ellipsis": Ellipsis, "new": None}
    return x[
        tuple(
            words[one] if isinstance(one, str) else slice(*one) if isinstance(one, list) else one
            for one in index
        )
    ]


_PYTHON: Final[Mapping[str, Callable[..., Any]]] = {
    "add_number": lambda x, number: x + number,
    "multiply_number": lambda x, number: x * number,
    "number_minus": lambda x, number: number - x,
    "divide_number": lambda x, number: x / number,
    "negative": lambda x: -x,
    "square": lambda x: x**2,
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "slice": _slice,
}

_KERAS3: Final[Mapping[str, Callable[..., Any]]] = {
    "relu": lambda ops, x: ops.relu(x),
    "sigmoid": lambda ops, x: ops.sigmoid(x),
    "tanh": lambda ops, x: ops.tanh(x),
    "softplus": lambda ops, x: ops.softplus(x),
    "abs": lambda ops, x: ops.abs(x),
    "exp_negative_square": lambda ops, x: ops.exp(-ops.square(x)),
    "clip": lambda ops, x: ops.clip(x, -1.0, 1.5),
    "softmax": lambda ops, x: ops.softmax(x, axis=-1),
    "mean": lambda ops, x, axis, keepdims: ops.mean(x, axis=axis, keepdims=keepdims),
    "sum": lambda ops, x, axis, keepdims: ops.sum(x, axis=axis, keepdims=keepdims),
    "max": lambda ops, x, axis, keepdims: ops.max(x, axis=axis, keepdims=keepdims),
    "min": lambda ops, x, axis, keepdims: ops.min(x, axis=axis, keepdims=keepdims),
    "reshape": lambda ops, x, sizes: ops.reshape(x, sizes),
    "transpose": lambda ops, x, order: ops.transpose(x, order),
    "expand": lambda ops, x, axis: ops.expand_dims(x, axis),
    "squeeze": lambda ops, x, axis: ops.squeeze(x, axis),
    "normalize": lambda ops, x: ops.normalize(x, axis=-1),
    "maximum": lambda ops, x, y: ops.maximum(x, y),
    "concat": lambda ops, *xs: ops.concatenate(xs, axis=-1),
    "stack": lambda ops, *xs: ops.stack(xs, axis=1),
    "matmul": lambda ops, x, y: ops.matmul(x, ops.transpose(y, [0, 2, 1])),
    "greater": lambda ops, x, y: ops.where(ops.greater(x, y), x, y * 0.5),
}

_TENSORFLOW: Final[Mapping[str, Callable[..., Any]]] = {
    "relu": lambda tf, x: tf.nn.relu(x),
    "sigmoid": lambda tf, x: tf.sigmoid(x),
    "tanh": lambda tf, x: tf.tanh(x),
    "softplus": lambda tf, x: tf.math.softplus(x),
    "abs": lambda tf, x: tf.abs(x),
    "exp_negative_square": lambda tf, x: tf.exp(-tf.square(x)),
    "clip": lambda tf, x: tf.clip_by_value(x, -1.0, 1.5),
    "softmax": lambda tf, x: tf.nn.softmax(x, axis=-1),
    "mean": lambda tf, x, axis, keepdims: tf.reduce_mean(x, axis=axis, keepdims=keepdims),
    "sum": lambda tf, x, axis, keepdims: tf.reduce_sum(x, axis=axis, keepdims=keepdims),
    "max": lambda tf, x, axis, keepdims: tf.reduce_max(x, axis=axis, keepdims=keepdims),
    "min": lambda tf, x, axis, keepdims: tf.reduce_min(x, axis=axis, keepdims=keepdims),
    "reshape": lambda tf, x, sizes: tf.reshape(x, sizes),
    "transpose": lambda tf, x, order: tf.transpose(x, order),
    "expand": lambda tf, x, axis: tf.expand_dims(x, axis),
    "squeeze": lambda tf, x, axis: tf.squeeze(x, axis),
    "normalize": lambda tf, x: tf.math.l2_normalize(x, axis=-1),
    "maximum": lambda tf, x, y: tf.maximum(x, y),
    "concat": lambda tf, *xs: tf.concat(xs, axis=-1),
    "stack": lambda tf, *xs: tf.stack(xs, axis=1),
    "matmul": lambda tf, x, y: tf.matmul(x, y, transpose_b=True),
    "greater": lambda tf, x, y: tf.where(tf.greater(x, y), x, y * 0.5),
}
