"""
Small models of one op each, run by the real libraries: written as JSON with what they compute, and
read again.

``op_models.py write OUT`` writes every case of both libraries. ``op_models.py read OUT`` reads what
policytool made of them and compares.
"""

# ruff: noqa: E402, PLW0108, PLC3002, PLR0915  # TensorFlow reads the environment; a case is a function of its own, however short

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["KERAS_BACKEND"] = "tensorflow"
warnings.simplefilter("ignore")

import keras
import numpy as np
import tensorflow as tf
import tf_keras

Input = tuple[tuple[int, ...], str]
Cases = dict[str, tuple[tuple[Input, ...], Any]]
"""Name to inputs and the function of them."""

SEED = 7
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-12}

A = ((3, 4), "float32")
H = ((3, 4), "float16")
B = ((3, 4), "bfloat16")
D = ((3, 4), "float64")
I = ((3, 4), "int32")
L = ((3, 4), "int64")
BOOL = ((3, 4), "bool")
M = ((4, 4), "float32")
IMAGE = ((4, 6, 3), "float32")
DEEP = ((4, 6, 4), "float32")
INDEX = ((3,), "int32")
ONE = ((1, 4), "float32")


def keras2_cases() -> Cases:
    """Return name to (inputs, function) of what users of TF 2.4 and later write."""
    cases: Cases = {}

    def add(name: str, function: Any, *inputs: Input) -> None:
        cases[name] = (inputs or (A,), function)

    for kind, letter in (("f32", A), ("f16", H), ("f64", D), ("bf16", B), ("i32", I)):
        for word, function in {
            "add": lambda x: x + 1,
            "radd": lambda x: 2 + x,
            "sub": lambda x: x - 2,
            "mul": lambda x: x * 2,
            "self": lambda x: x * x - x,
            "neg": lambda x: -x,
            "abs": lambda x: tf.abs(x),
            "max": lambda x: tf.maximum(x, 1),
            "min": lambda x: tf.minimum(x, 1),
            "compare": lambda x: x > 1,
            "equal": lambda x: tf.equal(x, 1),
            "sign": lambda x: tf.sign(x),
            "square": lambda x: tf.square(x),
            "where": lambda x: tf.where(x > 0, x, tf.zeros_like(x)),
            "reduce_max": lambda x: tf.reduce_max(x, axis=1),
            "argmax": lambda x: tf.argmax(x, axis=-1),
            "argmin": lambda x: tf.argmin(x, axis=1, output_type=tf.int64),
            "concat": lambda x: tf.concat([x, x], axis=-1),
            "array": lambda x: x + tf.constant([1, 2, 3, 4], x.dtype),
            "clip": lambda x: tf.clip_by_value(x, -1, 1),
            "cumsum": lambda x: tf.cumsum(x, axis=1),
            "sum": lambda x: tf.reduce_sum(x, axis=-1),
            "cast": lambda x: tf.cast(x, tf.float16),
            "cast_int": lambda x: tf.cast(x, "int32"),
            "floordiv": lambda x: x // 2,
            "mod": lambda x: x % 2,
            "sort": lambda x: tf.sort(x, axis=1),
        }.items():
            add(f"{word}_{kind}", function, letter)
    floats = {
        "rsub": lambda x: 1 - x,
        "rdiv": lambda x: 1 / (x + 5),
        "div": lambda x: x / 3,
        "truediv": lambda x: tf.truediv(x, 3),
        "pow": lambda x: x**2,
        "rpow": lambda x: 2.0**x,
        "less": lambda x: tf.cast(x < 0.5, x.dtype),
        "logic": lambda x: ((x < 0.5) & (x > -0.5)) | ~(x >= 0),
        "not_equal": lambda x: tf.not_equal(x, 1.0),
        "less_equal": lambda x: x <= 0.5,
        "xor": lambda x: tf.math.logical_xor(x < 0.5, x > -0.5),
        "atan2": lambda x: tf.atan2(x, x + 3),
        "divide_no_nan": lambda x: tf.math.divide_no_nan(x, tf.nn.relu(x)),
        "clip_tensor": lambda x: tf.clip_by_value(
            x, tf.reduce_min(x, axis=1, keepdims=True) * 0.5, 0.5
        ),
        "mean_all": lambda x: tf.reduce_mean(x),
        "mean_axes": lambda x: tf.reduce_mean(x, [1, 2], keepdims=True),
        "prod": lambda x: tf.reduce_prod(x, axis=1),
        "any": lambda x: tf.reduce_any(x > 1, axis=1),
        "all": lambda x: tf.reduce_all(x > -1, axis=-1, keepdims=True),
        "variance": lambda x: tf.math.reduce_variance(x, axis=1),
        "std": lambda x: tf.math.reduce_std(x, axis=1),
        "logsumexp": lambda x: tf.reduce_logsumexp(x, axis=1),
        "cumprod": lambda x: tf.math.cumprod(x, axis=-1),
        "l2_normalize": lambda x: tf.math.l2_normalize(x, axis=-1),
        "norm": lambda x: tf.norm(x, axis=-1),
        "norm_keep": lambda x: tf.norm(x, axis=1, keepdims=True),
        "squared_difference": lambda x: tf.math.squared_difference(x, 1.0),
        "add_n": lambda x: tf.add_n([x, x, x]),
        "top_k": lambda x: tf.math.top_k(x, 2).values,
        "top_k_indices": lambda x: tf.math.top_k(x, k=2).indices,
        "argsort": lambda x: tf.argsort(x, axis=-1),
        "softmax": lambda x: tf.nn.softmax(x),
        "softmax_axis": lambda x: tf.nn.softmax(x, axis=1),
        "log_softmax": lambda x: tf.nn.log_softmax(x),
        "leaky": lambda x: tf.nn.leaky_relu(x),
        "leaky_alpha": lambda x: tf.nn.leaky_relu(x, alpha=0.1),
        "gelu": lambda x: tf.nn.gelu(x),
        "gelu_approximate": lambda x: tf.nn.gelu(x, approximate=True),
        "matmul_t": lambda x: tf.matmul(x, x, transpose_b=True),
        "matmul_ta": lambda x: tf.matmul(x, x, transpose_a=True),
        "tensordot": lambda x: tf.tensordot(x, tf.transpose(x, [0, 2, 1])[0], 1),
        "stop": lambda x: tf.stop_gradient(x),
        "keras_mean": lambda x: tf_keras.backend.mean(x, axis=1),
        "keras_relu": lambda x: tf_keras.activations.relu(x, max_value=6),
        "keras_sigmoid": lambda x: tf_keras.backend.sigmoid(x),
        "keras_sum": lambda x: tf_keras.backend.sum(x, axis=-1, keepdims=True),
        "keras_exp": lambda x: tf_keras.backend.exp(x),
        "keras_l2": lambda x: tf_keras.backend.l2_normalize(x, axis=-1),
    }
    positive = ("sqrt", "rsqrt", "log", "log1p", "acosh")
    for word in (
        "sqrt",
        "rsqrt",
        "log",
        "log1p",
        "exp",
        "expm1",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "floor",
        "ceil",
        "round",
        "erf",
        "is_nan",
        "is_inf",
        "is_finite",
        "sigmoid",
        "softplus",
        "reciprocal",
        "log_sigmoid",
        "atan",
    ):
        floats[word] = (lambda f, up: lambda x: f(tf.abs(x) + 1.5) if up else f(x))(
            getattr(tf.math, word), word in positive
        )
    for word in ("asin", "acos", "atanh", "erfinv"):
        floats[word] = (lambda f: lambda x: f(tf.tanh(x)))(getattr(tf.math, word))
    for word in ("relu", "relu6", "elu", "selu", "softsign", "silu", "swish"):
        floats[word] = getattr(tf.nn, word)
    for word, function in floats.items():
        for kind, letter in (("f32", A), ("f16", H)):
            add(f"{word}_{kind}", function, letter)
    add("div_i32", lambda x: x / 2, I)
    add("mean_i32", lambda x: tf.reduce_mean(x, axis=1), I)
    add("two", lambda x, y: x - y, A, ONE)
    add("two_i64", lambda x, y: x + y, L, L)
    add("rarray", lambda x: tf.constant([1.0, 2, 3, 4]) - x)
    add("numpy", lambda x: np.ones((4,), "float32") * x)
    add("where_scalar", lambda x: tf.where(x > 0, x, 0.0))
    add("where_front", lambda x: tf.where(x > 0, 1.0, x))
    add("to_bool", lambda x: tf.cast(x, tf.bool), I)
    add("from_bool", lambda x: tf.cast(x, tf.float32), BOOL)
    add("not", lambda x: ~x, BOOL)
    add("reshape", lambda x: tf.reshape(x, (-1, 12)))
    add("reshape_shape", lambda x: tf.reshape(x, [tf.shape(x)[0], 2, 6]))
    add("transpose", lambda x: tf.transpose(x, [0, 2, 1]))
    add("transpose_all", lambda x: tf.transpose(x))
    add("expand", lambda x: tf.expand_dims(x, -1))
    add("squeeze", lambda x: tf.squeeze(x, 1), ONE)
    add("squeeze_list", lambda x: tf.squeeze(x, axis=[1]), ONE)
    add("tile", lambda x: tf.tile(x, [1, 2, 1]))
    add("repeat", lambda x: tf.repeat(x, 2, axis=1))
    add("broadcast", lambda x: tf.broadcast_to(x, [2, 2, 3, 4]))
    add("reverse", lambda x: tf.reverse(x, [1]))
    add("roll", lambda x: tf.roll(x, 1, axis=1))
    add("stack", lambda x, y: tf.stack([x, y], axis=1), A, A)
    add("stack_default", lambda x, y: tf.stack([x, y]), A, A)
    add("unstack", lambda x: tf.unstack(x, axis=1)[1])
    add("split", lambda x: tf.split(x, 2, axis=-1)[1])
    add("split_sizes", lambda x: tf.split(x, [1, 3], axis=-1))
    add("concat_two", lambda x, y: tf.concat([x, y, x], 1), A, A)
    add("pad", lambda x: tf.pad(x, [[0, 0], [1, 1], [0, 2]]))
    add("pad_value", lambda x: tf.pad(x, [[0, 0], [1, 1], [0, 2]], constant_values=1.5))
    add("pad_reflect", lambda x: tf.pad(x, [[0, 0], [1, 1], [0, 0]], mode="REFLECT"))
    add("pad_symmetric", lambda x: tf.pad(x, [[0, 0], [1, 1], [0, 0]], "SYMMETRIC"))
    add("gather", lambda x: tf.gather(x, [0, 2], axis=1))
    add("gather_one", lambda x: tf.gather(x, 1, axis=-1))
    add("gather_batch", lambda x: tf.gather(x, [0, 1]))
    add("one_hot", lambda x: tf.one_hot(x, 5), INDEX)
    add("one_hot_half", lambda x: tf.one_hot(x, 5, axis=1, dtype=tf.float16), INDEX)
    add("matmul", lambda x, y: x @ y, M, M)
    add("resize", lambda x: tf.image.resize(x, (8, 8)), IMAGE)
    add("resize_nearest", lambda x: tf.image.resize(x, (8, 9), method="nearest"), IMAGE)
    add(
        "resize_bicubic",
        lambda x: tf.image.resize(x, [7, 5], method="bicubic", antialias=True),
        IMAGE,
    )
    add("resize_half", lambda x: tf.image.resize(x, [7, 5]), ((4, 6, 3), "float16"))
    add("resize_int", lambda x: tf.image.resize(x, [7, 5]), ((4, 6, 3), "int32"))
    add("depth_to_space", lambda x: tf.nn.depth_to_space(x, 2), DEEP)
    add("space_to_depth", lambda x: tf.nn.space_to_depth(x, 2), DEEP)
    add("slice_int", lambda x: x[:, 0])
    add("slice_last", lambda x: x[:, -1, 1:])
    add("slice_first", lambda x: x[0])
    add("slice_ellipsis", lambda x: x[..., 1:3])
    add("slice_new", lambda x: x[:, tf.newaxis, ::2, -1])
    add("slice_back", lambda x: x[:, ::-1])
    add("slice_plain", lambda x: x[1:])
    for kind, letter in (("f32", A), ("f16", H), ("i32", I)):
        add(f"zeros_dtype_{kind}", lambda x: tf.zeros_like(x, dtype=tf.bool), letter)
        add(f"ones_dtype_{kind}", lambda x: tf.ones_like(x, dtype="float16"), letter)
    for order in (1, 2, 3, np.inf):
        add(f"norm_{order}", lambda x, order=order: tf.norm(x, ord=order, axis=1))
    add("norm_1_all", lambda x: tf.norm(x, ord=1))
    add("norm_1_keep", lambda x: tf.norm(x, ord=1, axis=-1, keepdims=True))
    add("norm_axes", lambda x: tf.norm(x, axis=[1, 2]))
    for kind, pool in (("avg", tf.nn.avg_pool2d), ("max", tf.nn.max_pool2d)):
        add(f"{kind}_pool", lambda x, pool=pool: pool(x, 2, 2, "VALID"), IMAGE)
        add(f"{kind}_pool_same", lambda x, pool=pool: pool(x, [3, 2], [2, 1], "SAME"), IMAGE)
        add(f"{kind}_pool_whole", lambda x, pool=pool: pool(x, [1, 3, 2, 1], 1, "SAME"), IMAGE)
    add("avg_pool_any", lambda x: tf.nn.avg_pool(x, 2, 2, "VALID"), A)
    add("max_pool1d", lambda x: tf.nn.max_pool1d(x, 2, 2, "VALID"), A)
    add("keras_pool", lambda x: tf_keras.backend.pool2d(x, (2, 2), pool_mode="avg"), IMAGE)
    add("moments", lambda x: tf.nn.moments(x, [1])[1])
    add("einsum", lambda x: tf.einsum("abc,adc->abd", x, x))
    add("det", lambda x: tf.linalg.det(x), M)
    add("inv", lambda x: tf.linalg.inv(x), M)
    add("cholesky", lambda x: tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True)), M)
    add("solve", lambda x, y: tf.linalg.solve(x, y), M, M)
    add("cross", lambda x: tf.linalg.cross(x, x[:, ::-1]), ((4, 3), "float32"))
    return cases


def sample(inputs: tuple[Input, ...], generator: np.random.Generator) -> list[Any]:
    """Return arrays for inputs."""
    actual = []
    for shape, dtype in inputs:
        if dtype == "bool":
            actual.append(generator.random((2, *shape)) > 0.5)
        elif dtype.startswith("int"):
            actual.append(generator.integers(0, 3, (2, *shape)).astype(dtype))
        else:
            actual.append(tf.cast(generator.normal(size=(2, *shape)), dtype).numpy())
    return actual


def keras3_cases() -> Cases:
    """Return name to (inputs, function) of operations of Keras 3."""
    ops = keras.ops
    cases: Cases = {}

    def add(name: str, function: Any, *inputs: Input) -> None:
        cases[name] = (inputs or (A,), function)

    for kind, letter in (("f32", A), ("f16", H), ("bf16", B), ("f64", D), ("i32", I)):
        for word, function in {
            "add": lambda x: x + 1,
            "radd": lambda x: 2 + x,
            "add_float": lambda x: x + 1.5,
            "rsub": lambda x: 1 - x,
            "rsub_float": lambda x: 1.5 - x,
            "self": lambda x: x * x - x,
            "divide": lambda x: x / 3,
            "rdivide": lambda x: 3 / (x + 7),
            "greater": lambda x: x > 1,
            "rgreater": lambda x: ops.greater(1, x),
            "rmaximum": lambda x: ops.maximum(1, x),
            "maximum": lambda x: ops.maximum(x, 0.5),
            "mean": lambda x: ops.mean(x, axis=1),
            "sum": lambda x: ops.sum(x, axis=1, keepdims=True),
            "max": lambda x: ops.max(x, axis=(1, 2)),
            "argmax": lambda x: ops.argmax(x, axis=-1),
            "where": lambda x: ops.where(x > 0, x, 0.0),
            "where_front": lambda x: ops.where(x > 0, 0.0, x),
            "cast": lambda x: ops.cast(x, "float16"),
            "cast_int": lambda x: ops.cast(x, "int32"),
            "array": lambda x: x + np.array([1, 2, 3, 4], "float32"),
            "abs": ops.abs,
            "sign": ops.sign,
            "square": ops.square,
            "exp": ops.exp,
            "cumsum": lambda x: ops.cumsum(x, axis=1),
            "clip": lambda x: ops.clip(x, -1, 1),
            "power": lambda x: x**2,
            "rpower": lambda x: 2**x,
            "floordiv": lambda x: x // 2,
            "mod": lambda x: x % 2,
            "zeros": ops.zeros_like,
            "sort": lambda x: ops.sort(x, axis=1),
            "one": lambda x: ops.ones_like(x) + x,
        }.items():
            add(f"{word}_{kind}", function, letter)
    floats = {
        "divide_no_nan": lambda x: ops.divide_no_nan(x, ops.relu(x)),
        "arctan2": lambda x: ops.arctan2(x, x + 3),
        "var": lambda x: ops.var(x, axis=1),
        "std": lambda x: ops.std(x, axis=1),
        "prod": lambda x: ops.prod(x, axis=1),
        "logsumexp": lambda x: ops.logsumexp(x, axis=1),
        "cumprod": lambda x: ops.cumprod(x, axis=1),
        "top_k": lambda x: ops.top_k(x, 2)[0],
        "top_k_indices": lambda x: ops.top_k(x, 2)[1],
        "softmax": lambda x: ops.softmax(x, axis=1),
        "log_softmax": lambda x: ops.log_softmax(x),
        "leaky": lambda x: ops.leaky_relu(x, 0.3),
        "elu": lambda x: ops.elu(x, 1.0),
        "gelu": ops.gelu,
        "gelu_exact": lambda x: ops.gelu(x, approximate=False),
        "logic": lambda x: ops.logical_or(
            ops.logical_and(x < 0.5, x > -0.5), ops.logical_not(x >= 0)
        ),
        "xor": lambda x: ops.logical_xor(x < 0.5, x > -0.5),
        "any": lambda x: ops.any(x > 1, axis=1),
        "all": lambda x: ops.all(x > -1, axis=1, keepdims=True),
        "equal": lambda x: ops.equal(x, 1.0),
        "not_equal": lambda x: ops.not_equal(x, 1.0),
        "less_equal": lambda x: x <= 0.5,
        "round": ops.round,
        "tensordot": lambda x: ops.tensordot(x, ops.transpose(x, (0, 2, 1))[0], 1),
        "matmul": lambda x: x @ ops.transpose(x, (0, 2, 1)),
        "stop": ops.stop_gradient,
        "copy": ops.copy,
        "normalize": lambda x: ops.normalize(ops.where(x > 0, x, x * 0), axis=1),
        "normalize_1": lambda x: ops.normalize(x, order=1),
        "norm": lambda x: ops.norm(x, axis=-1, keepdims=True),
        "norm_2": lambda x: ops.norm(x, ord=2, axis=1),
        "norm_all": lambda x: ops.norm(x, axis=(1, 2)),
        "hard_sigmoid": ops.hard_sigmoid,
        "hard_silu": ops.hard_silu,
    }
    positive = ("sqrt", "rsqrt", "log", "log1p", "log2", "log10", "arccosh")
    for word in (
        "sqrt",
        "rsqrt",
        "log",
        "log1p",
        "log2",
        "log10",
        "expm1",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "arcsinh",
        "arccosh",
        "arctan",
        "floor",
        "ceil",
        "erf",
        "isnan",
        "isinf",
        "isfinite",
        "sigmoid",
        "softplus",
        "reciprocal",
        "log_sigmoid",
        "relu",
        "relu6",
        "selu",
        "softsign",
        "silu",
        "negative",
    ):
        floats[word] = (lambda f, up: lambda x: f(ops.abs(x) + 1.5) if up else f(x))(
            getattr(ops, word), word in positive
        )
    for word in ("arcsin", "arccos", "arctanh", "erfinv"):
        floats[word] = (lambda f: lambda x: f(ops.tanh(x)))(getattr(ops, word))
    for word, function in floats.items():
        for kind, letter in (("f32", A), ("f16", H)):
            add(f"{word}_{kind}", function, letter)
    for first, second in ((A, H), (H, B), (A, I), (H, I), (I, L), (BOOL, A), (D, A)):
        for word in ("add", "multiply", "maximum", "less"):
            add(
                f"{word}_{first[1]}_{second[1]}",
                lambda x, y, word=word: getattr(ops, word)(x, y),
                first,
                second,
            )
        add(
            f"concat_{first[1]}_{second[1]}",
            lambda x, y: ops.concatenate([x, y], axis=-1),
            first,
            second,
        )
        add(
            f"where_{first[1]}_{second[1]}",
            lambda x, y: ops.where(ops.greater(x, 0.5), x, y),
            first,
            second,
        )
    add("reshape", lambda x: ops.reshape(x, (-1, 12)))
    add("transpose", lambda x: ops.transpose(x, (0, 2, 1)))
    add("transpose_all", lambda x: ops.transpose(x))
    add("expand", lambda x: ops.expand_dims(x, -1))
    add("squeeze", lambda x: ops.squeeze(x, 1), ONE)
    add("tile", lambda x: ops.tile(x, (1, 2, 1)))
    add("repeat", lambda x: ops.repeat(x, 2, axis=1))
    add("broadcast", lambda x: ops.broadcast_to(x, (2, 2, 3, 4)))
    add("flip", lambda x: ops.flip(x, axis=1))
    add("roll", lambda x: ops.roll(x, 1, axis=1))
    add("stack", lambda x, y: ops.stack([x, y], axis=1), A, A)
    add("unstack", lambda x: ops.unstack(x, axis=1)[1])
    add("split", lambda x: ops.split(x, 2, axis=-1)[1])
    add("split_cuts", lambda x: ops.split(x, [1, 3], axis=-1))
    add("concat", lambda x, y: ops.concatenate([x, y, x], axis=1), A, A)
    add("pad", lambda x: ops.pad(x, ((0, 0), (1, 1), (0, 2))))
    add("pad_value", lambda x: ops.pad(x, ((0, 0), (1, 1), (0, 2)), constant_values=1.5))
    add("pad_reflect", lambda x: ops.pad(x, ((0, 0), (1, 1), (0, 0)), mode="reflect"))
    add("take", lambda x: ops.take(x, [0, 2], axis=1))
    add("take_one", lambda x: ops.take(x, 1, axis=-1))
    add("take_tensor", lambda x, y: ops.take(x, y, axis=1), A, INDEX)
    add("one_hot", lambda x: ops.one_hot(x, 5), INDEX)
    add("argsort", lambda x: ops.argsort(x, axis=-1))
    for method in ("bilinear", "nearest", "bicubic"):
        for kind, image in (("f32", IMAGE), ("f16", ((4, 6, 3), "float16"))):
            add(
                f"resize_{method}_{kind}",
                lambda x, method=method: ops.image.resize(x, (5, 3), interpolation=method),
                image,
            )
    add("resize_crop", lambda x: ops.image.resize(x, (2, 2), crop_to_aspect_ratio=True), IMAGE)
    add("slice_int", lambda x: x[:, 0])
    add("slice_ellipsis", lambda x: x[..., 1:3])
    add("slice_new", lambda x: x[:, None, ::2, -1])
    add("slice_plain", lambda x: x[1:])
    add("det", lambda x: ops.det(x), M)
    add("inv", lambda x: ops.inv(x), M)
    add("solve", lambda x, y: ops.solve(x, y), M, M)
    add("cross", lambda x: ops.cross(x, x[:, ::-1]), ((4, 3), "float32"))
    return cases | keras3_composed_cases()


def keras3_composed_cases() -> Cases:
    """Return operations of Keras 3 that several functions of TensorFlow compute together."""
    ops = keras.ops
    cases: Cases = {}

    def add(name: str, function: Any, *inputs: Input) -> None:
        cases[name] = (inputs or (A,), function)

    for kind, letter in (("f32", A), ("f16", H), ("i32", I)):
        add(f"zeros_dtype_{kind}", lambda x: ops.zeros_like(x, dtype="bool"), letter)
        add(f"ones_dtype_{kind}", lambda x: ops.ones_like(x, dtype="float16"), letter)
    for kind, letter in (("f32", A), ("f16", H)):
        add(f"full_{kind}", lambda x: ops.full_like(x, 2.5) + x, letter)
        add(f"full_dtype_{kind}", lambda x: ops.full_like(x, 2, dtype="int32"), letter)
        add(f"moments_{kind}", lambda x: ops.moments(x, axes=[1], keepdims=True), letter)
        for order in (1, 3, np.inf, -np.inf):
            add(
                f"norm_{order}_{kind}",
                lambda x, order=order: ops.norm(x, ord=order, axis=1),
                letter,
            )
        add(f"normalize_3_{kind}", lambda x: ops.normalize(x, order=3, axis=1), letter)
        for word in (
            *("celu", "glu", "squareplus", "soft_shrink", "hard_shrink", "tanh_shrink"),
            *("sparse_plus", "hard_tanh", "sparse_sigmoid", "sparsemax"),
        ):
            add(f"{word}_{kind}", lambda x, word=word: getattr(ops, word)(x * 2), letter)
        add(f"threshold_{kind}", lambda x: ops.threshold(x, 0.5, -2.0), letter)
    for number, (equation, *shapes) in enumerate(
        [
            ("abc,adc->abd", (3, 4), (5, 4)),
            ("abcd,aecd->acbe", (3, 2, 4), (5, 2, 4)),
            ("acbe,aecd->abcd", (2, 3, 5), (5, 2, 4)),
            ("abc,adc->adb", (3, 4), (5, 4)),
            ("ab,ac->abc", (3,), (4,)),
            ("ab,ab->a", (3,), (3,)),
            ("ab,ab->ba", (3,), (3,)),
            ("abc,ab->ac", (3, 4), (3,)),
            ("abc,ac->a", (3, 4), (4,)),
            ("abc,adcb->ad", (3, 4), (2, 4, 3)),
            ("abc,dec->abde", (3, 4), (5, 4)),
            ("abc,dbc->ad", (3, 4), (3, 4)),
        ]
    ):
        inputs = [(shape, "float32") for shape in shapes]
        add(f"einsum_{number}", lambda x, y, e=equation: ops.einsum(e, x, y), *inputs)
    add("einsum_turn", lambda x: ops.einsum("abc->acb", x) * 2)
    add("einsum_sum", lambda x: ops.einsum("abc->ba", x))
    add("einsum_half", lambda x: ops.einsum("abc,adc->abd", x, x), H)
    add("einsum_mixed", lambda x, y: ops.einsum("abc,adc->abd", x, y), A, H)
    add("celu_alpha", lambda x: ops.celu(x, 0.7))
    add("glu_axis", lambda x: ops.glu(x, axis=1), DEEP)
    for word in ("average_pool", "max_pool"):
        pool = getattr(ops, word)
        add(word, lambda x, pool=pool: pool(x, 2, 1, "same"), IMAGE)
        add(f"{word}_sizes", lambda x, pool=pool: pool(x, (3, 2)), IMAGE)
        add(f"{word}_rows", lambda x, pool=pool: pool(x, 2), A)
    return cases


def flat(value: Any) -> list[tuple[Any, str]]:
    """Return outputs as a list of arrays with their dtypes."""
    values = value if isinstance(value, list | tuple) else [value]
    return [
        (np.asarray(tf.cast(item, "float64") if item.dtype != tf.bool else item), item.dtype.name)
        for item in values
    ]


def write(out: Path) -> None:
    """Write every case."""
    skipped: dict[str, str] = {}
    for library, cases in (("keras2", keras2_cases()), ("keras3", keras3_cases())):
        engine = tf_keras if library == "keras2" else keras
        for name, (inputs, function) in cases.items():
            arrays = sample(inputs, np.random.default_rng(SEED))
            try:
                engine.backend.clear_session()
                ends = [
                    engine.Input(shape, dtype=dtype, name=f"in{number}")
                    for number, (shape, dtype) in enumerate(inputs)
                ]
                model = engine.Model(ends, function(*ends))
                results = flat(
                    model(
                        [tf.constant(array) for array in arrays]
                        if len(arrays) > 1
                        else tf.constant(arrays[0])
                    )
                )
                text = model.to_json()
            except Exception as error:  # noqa: BLE001  # a kernel that TensorFlow lacks
                skipped[f"{library}-{name}"] = str(error)[:200]
                continue
            (out / f"{library}-{name}.json").write_text(text)
            np.savez(
                out / f"{library}-{name}.npz",
                **{f"y{number}": array for number, (array, _) in enumerate(results)},
                dtypes=[dtype for _, dtype in results],
            )
    (out / "skipped.json").write_text(json.dumps(skipped))


def read(out: Path) -> None:
    """Compare what was made of every case."""
    found = {}
    for path in sorted(out.glob("*.made")):
        library, _, name = path.stem.partition("-")
        found[path.stem] = judged(
            path, library, (keras2_cases() if library == "keras2" else keras3_cases())[name][0]
        )
    (out / "found.json").write_text(json.dumps(found))


def judged(path: Path, library: str, inputs: tuple[Input, ...]) -> str:
    """Return what differs; nothing where all is the same."""
    arrays = [tf.constant(array) for array in sample(inputs, np.random.default_rng(SEED))]
    engine = keras if library == "keras2" else tf_keras
    try:
        model = engine.models.model_from_json(path.read_text())
        results = flat(model(arrays if len(arrays) > 1 else arrays[0]))
    except Exception as error:  # noqa: BLE001  # whatever the library says is the answer
        return f"{type(error).__name__}: {str(error)[:300]}"
    expected = np.load(path.with_suffix(".npz"))
    dtypes = list(expected["dtypes"])
    if [dtype for _, dtype in results] != dtypes:
        return f"dtypes {[dtype for _, dtype in results]} for {[str(dtype) for dtype in dtypes]}"
    for number, ((array, dtype), _) in enumerate(zip(results, dtypes, strict=True)):
        there = expected[f"y{number}"]
        if array.shape != there.shape:
            return f"shape {array.shape} for {there.shape}"
        largest = max(float(np.max(np.abs(there), initial=0.0)), 1.0) if dtype != "bool" else 1.0
        if not np.allclose(
            array.astype("float64"),
            there.astype("float64"),
            rtol=0,
            atol=TOLERANCE.get(dtype, 0.0) * largest,
            equal_nan=True,
        ):
            return (
                "values differ by "
                f"{np.max(np.abs(array.astype('float64') - there.astype('float64')))}"
            )
    return ""


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](Path(sys.argv[2]))
