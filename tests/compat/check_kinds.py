"""
Models of every kind that ``check`` has to run: clean ones, nested and shared layers, states, masks,
several inputs, classes of somebody's own, graphs alone.

This runs under the interpreter that has TensorFlow. All but those that say otherwise are saved
under ``mixed_float16``, with their outputs in float32.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.compat import check_classes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLICY: Final = "mixed_float16"


def clean(keras: Any) -> Any:
    """Return a small image classifier."""
    layers = keras.layers
    inputs = tensor = layers.Input((32, 32, 3), name="image")
    for number, filters in enumerate((8, 16)):
        tensor = layers.Conv2D(filters, 3, strides=2, name=f"conv_{number}")(tensor)
        tensor = layers.BatchNormalization(name=f"norm_{number}")(tensor)
        tensor = layers.ReLU(name=f"relu_{number}")(tensor)
    tensor = layers.Dense(5, name="scores")(layers.GlobalAveragePooling2D(name="average")(tensor))
    return keras.Model(
        inputs, layers.Softmax(name="probabilities", dtype="float32")(tensor), name="classifier"
    )


def nested(keras: Any) -> Any:
    """
    Return a model with a model in it that is called twice, and a layer that is called three times.
    """
    layers = keras.layers
    inner_input = layers.Input((8,), name="inner_input")
    inner = keras.Model(inner_input, layers.Dense(8, name="own")(inner_input), name="inner")
    common = layers.Dense(8, activation="tanh", name="common")
    inputs = layers.Input((8,), name="inputs")
    tensor = layers.Add(name="sum")([common(inner(common(inputs))), common(inner(inputs))])
    return keras.Model(
        inputs, layers.Dense(2, name="scores", dtype="float32")(tensor), name="outer"
    )


def stateful(keras: Any) -> Any:
    """Return a recurrent network that remembers the batch before."""
    inputs = keras.layers.Input(batch_shape=(2, 5, 4), name="inputs")
    tensor = keras.layers.LSTM(6, stateful=True, name="memory")(inputs)
    return keras.Model(
        inputs, keras.layers.Dense(2, name="scores", dtype="float32")(tensor), name="remembering"
    )


def masked(keras: Any) -> Any:
    """Return a text classifier whose padding is masked."""
    layers = keras.layers
    inputs = layers.Input((12,), name="tokens", dtype="int32")
    tensor = layers.Embedding(50, 8, mask_zero=True, name="embedding")(inputs)
    tensor = layers.Bidirectional(layers.LSTM(6, name="lstm"), name="both")(tensor)
    return keras.Model(
        inputs,
        layers.Dense(2, activation="softmax", name="probabilities", dtype="float32")(tensor),
        name="text",
    )


def several(keras: Any) -> Any:
    """Return a model with two inputs and two outputs."""
    layers = keras.layers
    image, numbers = layers.Input((8, 8, 1), name="image"), layers.Input((4,), name="numbers")
    tensor = layers.Concatenate(name="joined")(
        [layers.Flatten(name="flat")(layers.Conv2D(2, 3, name="conv")(image)), numbers]
    )
    outputs = [
        layers.Dense(3, name="classes", dtype="float32")(tensor),
        layers.Dense(1, name="amount", dtype="float32")(tensor),
    ]
    return keras.Model([image, numbers], outputs, name="several")


def float_ids(keras: Any) -> Any:
    """
    Return a model whose ids come as floats, more of them than float16 has integers without gaps.
    """
    layers = keras.layers
    inputs = layers.Input((4,), name="ids", dtype="float32")
    tensor = layers.Flatten(name="flat")(layers.Embedding(5000, 4, name="embedding")(inputs))
    return keras.Model(
        inputs, layers.Dense(2, name="scores", dtype="float32")(tensor), name="float_ids"
    )


def code(keras: Any) -> Any:
    """Return a model with a Lambda, which holds byte code."""
    inputs = keras.layers.Input((4,), name="inputs")
    tensor = keras.layers.Lambda(lambda tensor: tensor * 2, name="twice", output_shape=(4,))(inputs)
    return keras.Model(
        inputs, keras.layers.Dense(2, name="scores", dtype="float32")(tensor), name="code"
    )


def custom(keras: Any) -> Any:
    """Return a functional model with a layer of somebody's own that holds layers."""
    inputs = keras.layers.Input((8,), name="inputs")
    tensor = check_classes.classes(keras.__name__.partition(".")[0])["Block"](name="block")(inputs)
    return keras.Model(
        inputs, keras.layers.Dense(2, name="scores", dtype="float32")(tensor), name="custom"
    )


def subclassed(keras: Any, name: str = "Net") -> Any:
    """Return a model of a class of somebody's own."""
    model = check_classes.classes(keras.__name__.partition(".")[0])[name](name="net")
    model(np.ones((1, 8), "float32"))
    return model


KINDS: Final[dict[str, Callable[[Any], Any]]] = {
    "clean": clean,
    "nested": nested,
    "stateful": stateful,
    "masked": masked,
    "several": several,
    "float-ids": float_ids,
    "lambda": code,
    "custom": custom,
    "subclassed": subclassed,
    "traced": lambda keras: subclassed(keras, "Traced"),
}

SAVED: Final = ("clean", "subclassed", "custom")
"""Kinds that tf_keras writes as SavedModels too."""


def write(keras: Any, directory: Path) -> None:
    """Write a Keras' models."""
    for name, make in KINDS.items():
        keras.utils.set_random_seed(5)
        keras.mixed_precision.set_global_policy(POLICY)
        model = make(keras)
        model.save(str(directory / f"{name}.keras"))
        if keras.__name__.startswith("tf_keras"):
            _write_others(model, name, directory)
    keras.mixed_precision.set_global_policy("float32")
    if keras.__name__ == "keras":
        clean(keras).export(str(directory / "export"), verbose=False)
        clean(keras).save(str(directory / "clean-float32.h5"))
        _write_quantised(keras, directory)
    else:
        _write_module(directory)


def _write_quantised(keras: Any, directory: Path) -> None:
    """Write a model as it is, and quantised in each mode."""
    for mode in ("original", "int8", "int4", "float8"):
        keras.utils.set_random_seed(5)
        layers = keras.layers
        model = keras.Sequential(
            [
                layers.Input((6, 8), name="inputs"),
                layers.EinsumDense("abc,cd->abd", (None, 16), activation="relu", name="hidden"),
                layers.LayerNormalization(name="norm"),
                layers.Dense(2, name="scores"),
            ]
        )
        if mode != "original":
            model.quantize(mode)
        model.save(str(directory / f"{mode}.keras"))


def _write_others(model: Any, name: str, directory: Path) -> None:
    """Write a model in the older formats of Keras 2."""
    if name in SAVED:
        model.save(str(directory / name), save_format="tf")
    if name not in {"subclassed", "traced"}:
        model.save(str(directory / f"{name}.h5"))


def _write_module(directory: Path) -> None:
    """Write a SavedModel that no Keras made."""
    tf: Any = import_module("tensorflow")
    module = tf.Module()
    module.kernel = tf.Variable(
        np.random.default_rng(1).standard_normal((8, 4)).astype("float32"), name="kernel"
    )
    serve = tf.function(
        lambda inputs: {"scores": tf.nn.softmax(tf.matmul(inputs, module.kernel))},
        input_signature=[tf.TensorSpec([None, 8], name="inputs")],
    )
    tf.saved_model.save(module, str(directory / "module"), signatures={"serving_default": serve})
