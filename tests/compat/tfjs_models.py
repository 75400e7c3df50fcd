"""
Models that TensorFlow.js gets: ``python -m tests.compat.tfjs_models LIBRARY FOLDER``.

Each is saved with random weights, beside inputs and the outputs of the library. With ``predict``
as third argument, the outputs of the files ``converted.*`` are written instead.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def _dense(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, "relu", kernel_regularizer=keras.regularizers.L2(0.01)),
            layers.Dropout(0.5),
            layers.Dense(4, "silu", kernel_initializer="lecun_normal"),
            layers.Dense(3, "softmax"),
        ]
    )


def _convolutions(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(6.0),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.SeparableConv2D(4, 3),
            layers.ZeroPadding2D(1),
            layers.MaxPooling2D(2),
            layers.GlobalAveragePooling2D(),
        ]
    )


def _recurrent(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input((7,), dtype="int32")
    hidden = layers.Embedding(20, 5)(inputs)
    hidden = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(hidden)
    hidden = layers.GRU(3, reset_after=False, return_sequences=True)(hidden)
    hidden = layers.TimeDistributed(layers.Dense(4))(hidden)
    return keras.Model(inputs, layers.SimpleRNN(3)(hidden))


def _masked(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input((7,), dtype="int32")
    hidden = layers.Embedding(20, 5, mask_zero=True)(inputs)
    return keras.Model(inputs, layers.LSTM(3)(hidden))


def _several(keras: Any) -> Any:
    layers = keras.layers
    first, second = keras.Input((4,), name="first"), keras.Input((5,), name="second")
    hidden = layers.Dense(6, "tanh")(first)
    joined = layers.Concatenate()([hidden, layers.Dense(6)(second)])
    added = layers.Add()([hidden, layers.Dense(6)(joined)])
    return keras.Model([first, second], [layers.LayerNormalization()(added), joined])


def _nested(keras: Any) -> Any:
    layers = keras.layers
    inner = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(5, "elu", name="inner_dense"),
            layers.BatchNormalization(),
        ],
        name="inner",
    )
    block_inputs = keras.Input((5,))
    block = keras.Model(
        block_inputs, layers.Add()([inner(block_inputs), block_inputs]), name="block"
    )
    inputs = keras.Input((5,))
    shared = layers.Dense(5, name="shared")
    hidden = shared(block(shared(inputs)))
    return keras.Model(inputs, layers.Dense(2)(block(hidden)))


def _volumes(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input((6, 6, 6, 2))
    hidden = layers.Conv3D(3, 3, padding="same", activation="swish")(inputs)
    return keras.Model(inputs, layers.Flatten()(layers.AveragePooling3D(2)(hidden)))


def _sequences(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input((10, 4))
    hidden = layers.Conv1D(6, 3, padding="same")(inputs)
    hidden = layers.LeakyReLU()(layers.PReLU()(hidden))
    hidden = layers.Permute((2, 1))(layers.MaxPooling1D(2)(hidden))
    return keras.Model(inputs, layers.Dense(3)(layers.Reshape((30,))(hidden)))


def _mixed(keras: Any) -> Any:
    """Return a model in float32 whose layers say so each."""
    layers = keras.layers
    inputs = keras.Input((6,))
    hidden = layers.Dense(4, "gelu", dtype="float32")(inputs)
    return keras.Model(inputs, layers.Activation("hard_sigmoid", dtype="float32")(hidden))


MODELS: Final[dict[str, Callable[[Any], Any]]] = {
    "dense": _dense,
    "convolutions": _convolutions,
    "recurrent": _recurrent,
    "masked": _masked,
    "several": _several,
    "nested": _nested,
    "volumes": _volumes,
    "sequences": _sequences,
    "policies": _mixed,
}


def make(library: str, folder: Path) -> None:
    """Save every model of a library."""
    keras = import_module(library)
    for name, build in MODELS.items():
        keras.backend.clear_session()
        keras.utils.set_random_seed(7)
        model, random = build(keras), np.random.default_rng(7)
        model.set_weights(
            [
                random.uniform(0.1, 0.9, weight.shape).astype(weight.dtype)
                for weight in model.get_weights()
            ]
        )
        inputs = [
            random.integers(0, 20, (2, *tensor.shape[1:])).astype("int32")
            if "int" in str(tensor.dtype)
            else random.uniform(-1, 1, (2, *tensor.shape[1:])).astype("float32")
            for tensor in model.inputs
        ]
        outputs = model.predict(inputs if len(inputs) > 1 else inputs[0], verbose=0)
        place = folder / name
        place.mkdir()
        model.save(place / f"original.{'keras' if library == 'keras' else 'h5'}")
        rows = [
            {
                "shape": input_value.shape,
                "dtype": str(input_value.dtype),
                "values": input_value.ravel().tolist(),
            }
            for input_value in inputs
        ]
        (place / "inputs.json").write_text(json.dumps(rows), encoding="utf-8")
        several = outputs if isinstance(outputs, list) else [outputs]
        np.savez(place / "expected.npz", *several)


def predict(library: str, folder: Path) -> None:
    """Write the outputs of every converted model as ``LIBRARY.npz``."""
    keras = import_module(library)
    for place in sorted(folder.iterdir()):
        suffix = "keras" if library == "keras" else "h5"
        model = keras.models.load_model(place / f"converted.{suffix}", compile=False)
        inputs = [
            np.array(row["values"], row["dtype"]).reshape(row["shape"])
            for row in json.loads((place / "inputs.json").read_text(encoding="utf-8"))
        ]
        outputs = model.predict(inputs if len(inputs) > 1 else inputs[0], verbose=0)
        several = outputs if isinstance(outputs, list) else [outputs]
        np.savez(place / f"{library}.npz", *several)


if __name__ == "__main__":
    (predict if "predict" in sys.argv else make)(sys.argv[1], Path(sys.argv[2]))
