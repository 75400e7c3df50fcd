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
            words[item]
            if isinstance(item, str)
            else slice(*item)
            if isinstance(item, list)
            else item
            for item in index
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
    "is_positive": lambda x: x > 0,
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
    "log1p_abs": lambda ops, x: ops.log1p(ops.abs(x)),
    "sqrt_abs": lambda ops, x: ops.sqrt(ops.abs(x)),
    "rsqrt": lambda ops, x: ops.rsqrt(ops.square(x) + 1.0),
    "reciprocal": lambda ops, x: ops.reciprocal(ops.square(x) + 1.0),
    "sin": lambda ops, x: ops.sin(x),
    "cos": lambda ops, x: ops.cos(x),
    "atan": lambda ops, x: ops.arctan(x),
    "erf": lambda ops, x: ops.erf(x),
    "sign": lambda ops, x: ops.sign(x),
    "elu": lambda ops, x: ops.elu(x),
    "selu": lambda ops, x: ops.selu(x),
    "gelu": lambda ops, x: ops.gelu(x, approximate=False),
    "leaky_relu": lambda ops, x: ops.leaky_relu(x, 0.1),
    "silu": lambda ops, x: ops.silu(x),
    "log_sigmoid": lambda ops, x: ops.log_sigmoid(x),
    "softsign": lambda ops, x: ops.softsign(x),
    "relu6": lambda ops, x: ops.relu6(x),
    "power": lambda ops, x: ops.power(ops.abs(x), 1.5),
    "where_positive": lambda ops, x: ops.where(x > 0, x, ops.zeros_like(x)),
    "at_least": lambda ops, x: ops.maximum(x, 0.1),
    "stop_gradient": lambda ops, x: ops.stop_gradient(x),
    "cast_there_and_back": lambda ops, x: ops.cast(ops.cast(x, "float64"), x.dtype),
    "floor": lambda ops, x: ops.floor(x),
    "ones_like": lambda ops, x: ops.ones_like(x) - x,
    "log_softmax": lambda ops, x: ops.log_softmax(x, axis=-1),
    "cumsum": lambda ops, x: ops.cumsum(x, axis=-1),
    "flip": lambda ops, x: ops.flip(x, axis=-1),
    "sort": lambda ops, x: ops.sort(x, axis=-1),
    "roll": lambda ops, x: ops.roll(x, 1, axis=-1),
    "std": lambda ops, x, axis, keepdims: ops.std(x, axis=axis, keepdims=keepdims),
    "variance": lambda ops, x, axis, keepdims: ops.var(x, axis=axis, keepdims=keepdims),
    "logsumexp": lambda ops, x, axis, keepdims: ops.logsumexp(x, axis=axis, keepdims=keepdims),
    "prod": lambda ops, x, axis, keepdims: ops.prod(x, axis=axis, keepdims=keepdims),
    "tile": lambda ops, x, rank: ops.tile(x, [1] * rank + [2]),
    "repeat": lambda ops, x, rank: ops.repeat(x, 2, axis=rank),
    "pad": lambda ops, x, rank: ops.pad(x, [[0, 0]] * rank + [[1, 2]]),
    "take": lambda ops, x, rank: ops.take(x, [0, 0], axis=rank),
    "split": lambda ops, x, rank: ops.split(x, 2, axis=rank)[1],
    "top_k": lambda ops, x, rank: ops.top_k(x, 2)[0],
    "stack_twice": lambda ops, x: ops.stack([x, x * 2.0], axis=1),
    "one_hot": lambda ops, x, depth: ops.one_hot(ops.argmax(x, axis=-1), depth) * x,
    "unstack": lambda ops, x, number: ops.unstack(x, num=number, axis=1)[0],
    "product": lambda ops, x: ops.matmul(x, ops.transpose(x, [0, 2, 1])),
    "resize": lambda ops, x: ops.image.resize(x, (5, 4)),
    "global_pool": lambda ops, x: ops.mean(x, axis=[1, 2], keepdims=True),
    "space_to_depth": lambda ops, x: ops.space_to_depth(x, 2),
    "depth_to_space": lambda ops, x: ops.depth_to_space(x, 2),
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
    "log1p_abs": lambda tf, x: tf.math.log1p(tf.abs(x)),
    "sqrt_abs": lambda tf, x: tf.sqrt(tf.abs(x)),
    "rsqrt": lambda tf, x: tf.math.rsqrt(tf.square(x) + 1.0),
    "reciprocal": lambda tf, x: tf.math.reciprocal(tf.square(x) + 1.0),
    "sin": lambda tf, x: tf.sin(x),
    "cos": lambda tf, x: tf.cos(x),
    "atan": lambda tf, x: tf.atan(x),
    "erf": lambda tf, x: tf.math.erf(x),
    "sign": lambda tf, x: tf.sign(x),
    "elu": lambda tf, x: tf.nn.elu(x),
    "selu": lambda tf, x: tf.nn.selu(x),
    "gelu": lambda tf, x: tf.nn.gelu(x),
    "leaky_relu": lambda tf, x: tf.nn.leaky_relu(x, 0.1),
    "silu": lambda tf, x: tf.nn.silu(x),
    "log_sigmoid": lambda tf, x: tf.math.log_sigmoid(x),
    "softsign": lambda tf, x: tf.nn.softsign(x),
    "relu6": lambda tf, x: tf.nn.relu6(x),
    "power": lambda tf, x: tf.pow(tf.abs(x), 1.5),
    "where_positive": lambda tf, x: tf.where(x > 0, x, tf.zeros_like(x)),
    "at_least": lambda tf, x: tf.maximum(x, 0.1),
    "stop_gradient": lambda tf, x: tf.stop_gradient(x),
    "cast_there_and_back": lambda tf, x: tf.cast(tf.cast(x, tf.float64), x.dtype),
    "floor": lambda tf, x: tf.floor(x),
    "ones_like": lambda tf, x: tf.ones_like(x) - x,
    "log_softmax": lambda tf, x: tf.nn.log_softmax(x, axis=-1),
    "cumsum": lambda tf, x: tf.cumsum(x, axis=-1),
    "flip": lambda tf, x: tf.reverse(x, axis=[-1]),
    "sort": lambda tf, x: tf.sort(x, axis=-1),
    "roll": lambda tf, x: tf.roll(x, 1, axis=-1),
    "std": lambda tf, x, axis, keepdims: tf.math.reduce_std(x, axis=axis, keepdims=keepdims),
    "variance": lambda tf, x, axis, keepdims: tf.math.reduce_variance(
        x, axis=axis, keepdims=keepdims
    ),
    "logsumexp": lambda tf, x, axis, keepdims: tf.reduce_logsumexp(x, axis=axis, keepdims=keepdims),
    "prod": lambda tf, x, axis, keepdims: tf.reduce_prod(x, axis=axis, keepdims=keepdims),
    "tile": lambda tf, x, rank: tf.tile(x, [1] * rank + [2]),
    "repeat": lambda tf, x, rank: tf.repeat(x, 2, axis=rank),
    "pad": lambda tf, x, rank: tf.pad(x, [[0, 0]] * rank + [[1, 2]]),
    "take": lambda tf, x, rank: tf.gather(x, [0, 0], axis=rank),
    "split": lambda tf, x, rank: tf.split(x, 2, axis=rank)[1],
    "top_k": lambda tf, x, rank: tf.math.top_k(x, 2)[0],
    "stack_twice": lambda tf, x: tf.stack([x, x * 2.0], axis=1),
    "one_hot": lambda tf, x, depth: tf.one_hot(tf.argmax(x, axis=-1), depth, dtype=x.dtype) * x,
    "unstack": lambda tf, x, number: tf.unstack(x, num=number, axis=1)[0],
    "product": lambda tf, x: tf.matmul(x, x, transpose_b=True),
    "resize": lambda tf, x: tf.image.resize(x, (5, 4)),
    "global_pool": lambda tf, x: tf.reduce_mean(x, axis=[1, 2], keepdims=True),
    "space_to_depth": lambda tf, x: tf.nn.space_to_depth(x, 2),
    "depth_to_space": lambda tf, x: tf.nn.depth_to_space(x, 2),
}
