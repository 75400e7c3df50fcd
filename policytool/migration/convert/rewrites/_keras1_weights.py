"""
How the variables of Keras 1 lie, and how those of Keras 2 are made of them.

Keras 2.0 to 2.3 do the same when they load a file of Keras 1 (``preprocess_weights_for_loading`` in
keras/engine/topology.py and keras/engine/saving.py); TF 1.13 and later do it no more, and Keras 3
never did. Theano convolves where TensorFlow correlates: its kernels are reversed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value

_DENSE: Final = {"kernel": "W", "bias": "b"}
_PLAIN: Final = {
    "Dense": _DENSE,
    "TimeDistributedDense": _DENSE,
    "LocallyConnected1D": _DENSE,
    "LocallyConnected2D": _DENSE,
    "SimpleRNN": {"kernel": "W", "recurrent_kernel": "U", "bias": "b"},
    "Embedding": {"embeddings": "W"},
    "PReLU": {"alpha": "alphas"},
    "BatchNormalization": {
        "gamma": "gamma",
        "beta": "beta",
        "moving_mean": "running_mean",
        "moving_variance": "running_std",
    },
}
"""
``running_std`` is a variance: it is what Keras 1 divides by the root of
(keras/layers/normalization.py).
"""

_GATES: Final = {"LSTM": "ifco", "GRU": "zrh", "ConvLSTM2D": "ifco"}
"""In the order that Keras 2 joins them in."""

_CONVOLUTIONS: Final = {"Convolution2D": 2, "AtrousConvolution2D": 2, "Convolution3D": 3}
_FIRST: Final = {2: (2, 3, 1, 0), 3: (2, 3, 4, 1, 0)}
"""From (filters, channels, *size) to (*size, channels, filters)."""


def weight_layout(
    class_name: str,
    config: Mapping[str, Value],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    reverses: bool,
) -> dict[str, Recipe]:
    """
    Return how a layer's variables are made of what a file of Keras 1 stores for it; nothing for a
    layer that has none.

    :param config: as Keras 1 writes it
    :param shapes: what is stored for the layer, by name
    :param reverses: whether the backend that wrote the file convolves, as Theano does
    """
    channels_first = config.get("dim_ordering") == "th"
    if class_name in _PLAIN:
        return {new: Recipe(parts=(old,)) for new, old in _PLAIN[class_name].items()}
    if class_name in _GATES:
        return _recurrent(class_name, shapes, channels_first=channels_first, reverses=reverses)
    bias: dict[str, Recipe] = {"bias": Recipe(parts=("b",))}
    if class_name in _CONVOLUTIONS:
        rank = _CONVOLUTIONS[class_name]
        return {
            "kernel": Recipe(
                parts=("W",),
                axes=_FIRST[rank] if channels_first else (),
                flip=tuple(range(rank)) if reverses else (),
            ),
            **bias,
        }
    if class_name in {"Convolution1D", "AtrousConvolution1D"}:
        return {"kernel": _one_dimensional(config, shapes, reverses=reverses), **bias}
    if class_name == "Deconvolution2D":
        return {
            "kernel": Recipe(parts=("W",), axes=(2, 3, 0, 1) if channels_first else (0, 1, 3, 2)),
            **bias,
        }
    if class_name == "SeparableConvolution2D":
        axes = _FIRST[2] if channels_first else ()
        return {
            **{
                key: Recipe(parts=(key,), axes=axes)
                for key in ("depthwise_kernel", "pointwise_kernel")
            },
            **bias,
        }
    return {}


def _recurrent(
    class_name: str, shapes: Mapping[str, tuple[int, ...]], *, channels_first: bool, reverses: bool
) -> dict[str, Recipe]:
    """
    Return the recipes of gates that are stored one by one, or all in one (``consume_less="gpu"``).
    """
    gates = _GATES[class_name]
    convolves = class_name == "ConvLSTM2D"
    axes = _FIRST[2] if convolves and channels_first else ()
    flip = (0, 1) if convolves and reverses else ()
    joined = not any(name.endswith("W_" + gates[0]) for name in shapes)

    def recipe(old: str, *, lies_otherwise: bool = True) -> Recipe:
        parts = (old,) if joined else tuple(f"{old}_{gate}" for gate in gates)
        return Recipe(parts=parts, axes=axes, flip=flip) if lies_otherwise else Recipe(parts=parts)

    return {
        "kernel": recipe("W"),
        "recurrent_kernel": recipe("U"),
        "bias": recipe("b", lies_otherwise=False),
    }


def _one_dimensional(
    config: Mapping[str, Value], shapes: Mapping[str, tuple[int, ...]], *, reverses: bool
) -> Recipe:
    """
    Return the recipe of a Convolution1D's kernel: (length, 1, channels, filters) in Keras 1.2,
    (filters, channels, length, 1) up to 1.1.
    """
    shape = next(
        (shape for name, shape in shapes.items() if name == "W" or name.endswith("_W")), None
    )
    flip = (0,) if reverses else ()
    if shape is None or len(shape) != 4:  # noqa: PLR2004  # a kernel of two dimensions, one of them 1
        return Recipe(parts=("W",), flip=flip)
    if shape[:2] == (config.get("filter_length"), 1) and shape[3] == config.get("nb_filter"):
        return Recipe(parts=("W",), reshape=(shape[0], *shape[2:]), flip=flip)
    return Recipe(parts=("W",), reshape=shape[:3], axes=(2, 1, 0), flip=flip)
