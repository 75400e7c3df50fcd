"""
Write the models of ``tune_table.py``: ``python tune_models.py DIR --library keras|tf_keras
[--model NAME]``, under the interpreter with TensorFlow.

DIR gets each model with two files of inputs, ``NAME.npz`` and ``NAME.unseen.npz``. The weights are
random, and are then adjusted so that the model behaves like a trained one: BatchNormalization has
the statistics of the inputs, and the scores differ from input to input. In some layers the values
are larger or smaller than float16 can represent; the weights of their neighbours compensate for it,
so the predictions in float32 do not change.
"""

from __future__ import annotations

import argparse
import importlib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SUFFIXES: Final = {"keras": ".keras", "tf_keras": ".h5"}

ROWS: Final = 32
SIDE: Final = 96
"""Pixels."""

WAVES: Final = 8

CLASSES: Final = 10
SPREAD: Final = 2.0
"""The standard deviation of the scores before softmax."""

DAMPED: Final = 0.25
BEYOND_FLOAT16: Final = 3e5
"""The largest value of a planted layer; float16 ends at 65,504."""

LARGE: Final = 1000.0
"""By how much a pool's values are multiplied: their sum exceeds float16, their mean does not."""

TINY: Final = 1e-7
"""By how much embeddings are multiplied: most become zero in float16."""

TOKENS: Final = 500
LENGTH: Final = 48
WIDTH: Final = 64
BLOCKS: Final = 6
TAGS: Final = 12


class Kit:
    """A Keras, with the random numbers of one model."""

    def __init__(self, library: str, name: str) -> None:
        self.library = library
        self.keras: Any = importlib.import_module(library)
        self.layers: Any = self.keras.layers
        self.seed = zlib.crc32(name.encode())
        self.rng = np.random.default_rng(self.seed)
        self.keras.utils.set_random_seed(self.seed % 2**31)

    def values(self, model: Any, tensor: Any, data: Any) -> Any:
        """Return the values of a tensor in a model."""
        return np.asarray(self.keras.Model(model.inputs, tensor)(data, training=False))


def images(kit: Kit) -> Mapping[str, Any]:
    """Return images of waves with noise, all with the same brightness and contrast."""
    rng, place = kit.rng, np.linspace(0, 1, SIDE)
    x, y = np.meshgrid(place, place)
    created = []
    for _ in range(ROWS):
        waves = sum(
            rng.normal(size=3) * np.sin(2 * np.pi * (a * x + b * y + c))[..., None]
            for a, b, c in rng.uniform(-6, 6, (WAVES, 3))
        )
        image = waves + rng.normal(scale=0.5, size=(SIDE, SIDE, 3))
        created.append(128 + 50 * (image - image.mean((0, 1))) / image.std((0, 1)))
    return {"images": np.clip(created, 0, 255).round().astype("float32")}


def sentences(kit: Kit) -> Mapping[str, Any]:
    """Return rows of tokens with the usual frequencies: few are frequent, most are rare."""
    frequencies = 1 / np.arange(1, TOKENS + 1)
    drawn = kit.rng.choice(TOKENS, (ROWS, LENGTH), p=frequencies / frequencies.sum())
    return {"tokens": drawn.astype("int32")}


def placed_sentences(kit: Kit) -> Mapping[str, Any]:
    """Return rows of tokens, and the place of each token."""
    places = np.tile(np.arange(LENGTH, dtype="int32"), (ROWS, 1))
    return {**sentences(kit), "places": places}


def fit_statistics(kit: Kit, model: Any, data: Any, ends: tuple[str, ...]) -> None:
    """
    Give each BatchNormalization random factors, and the statistics of the data.

    Those that end a residual branch, whose names end in one of ``ends``, have small factors, as
    after training: a random network would make any rounding much larger from block to block.
    """
    norms = [layer for layer in model.layers if isinstance(layer, kit.layers.BatchNormalization)]
    dropouts = [layer for layer in model.layers if isinstance(layer, kit.layers.Dropout)]
    before = [item.momentum for item in norms], [item.rate for item in dropouts]
    for layer in norms:
        size = layer.moving_mean.shape[0]
        if layer.scale:
            factor = DAMPED if layer.name.endswith(ends) else 1
            layer.gamma.assign((factor * kit.rng.uniform(0.5, 1.5, size)).astype("float32"))
        layer.beta.assign(kit.rng.normal(scale=0.3, size=size).astype("float32"))
        layer.momentum = 0.0
    for layer in dropouts:
        layer.rate = 0.0
    model(data, training=True)
    for layer, momentum in zip(norms, before[0], strict=True):
        layer.momentum = momentum
    for layer, rate in zip(dropouts, before[1], strict=True):
        layer.rate = rate


def spread_scores(kit: Kit, model: Any, name: str, data: Any) -> None:
    """Scale a layer, so that its scores differ from row to row as those of a trained model do."""
    layer = model.get_layer(name)
    features = kit.values(model, layer.input, data)
    features = features.reshape(-1, features.shape[-1])
    kernel = np.asarray(layer.kernel)
    flat = kernel.reshape(features.shape[-1], -1)
    mean = features.mean(axis=0)
    factor = SPREAD / ((features - mean) @ flat).std()
    layer.kernel.assign(kernel * factor)
    layer.bias.assign(-(mean @ flat) * factor)


def scale(variable: Any, factor: float) -> None:
    """Multiply a variable."""
    variable.assign(np.asarray(variable) * np.float32(factor))


def overflow_before_norm(kit: Kit, model: Any, conv: str, norm: str, data: Any) -> None:
    """Let a convolution exceed float16; the normalization after it removes the factor."""
    layer, after = model.get_layer(conv), model.get_layer(norm)
    factor = BEYOND_FLOAT16 / np.abs(kit.values(model, layer.output, data)).max()
    scale(layer.depthwise_kernel if hasattr(layer, "depthwise_kernel") else layer.kernel, factor)
    if layer.use_bias:
        scale(layer.bias, factor)
    scale(after.moving_mean, factor)
    scale(after.moving_variance, factor**2)


def overflow_between(kit: Kit, model: Any, first: str, last: str, data: Any) -> None:
    """Let a Dense with ReLU exceed float16; the Dense after it removes the factor."""
    layer = model.get_layer(first)
    factor = BEYOND_FLOAT16 / np.abs(kit.values(model, layer.output, data)).max()
    scale(layer.kernel, factor)
    scale(layer.bias, factor)
    scale(model.get_layer(last).kernel, 1 / factor)


def application(kit: Kit, name: str) -> Any:
    """Return a model of the library with random weights."""
    source = kit.keras.Input((SIDE, SIDE, 3), name="images")
    build = getattr(kit.keras.applications, name)
    return build(weights=None, input_tensor=source, classes=CLASSES)


def efficientnet(kit: Kit, data: Any) -> Any:
    """Return EfficientNetV2-B0."""
    model = application(kit, "EfficientNetV2B0")
    fit_statistics(kit, model, data, ("project_bn",))
    spread_scores(kit, model, "predictions", data)
    overflow_before_norm(kit, model, "block3b_project_conv", "block3b_project_bn", data)
    overflow_before_norm(kit, model, "block5c_dwconv2", "block5c_bn", data)
    return model


def resnet(kit: Kit, data: Any) -> Any:
    """Return ResNet50, which gets images in the range of its own preprocessing."""
    model = application(kit, "ResNet50")
    fit_statistics(kit, model, data, ("_3_bn",))
    spread_scores(kit, model, "predictions", data)
    overflow_before_norm(kit, model, "conv3_block2_3_conv", "conv3_block2_3_bn", data)
    return model


def mobilenet_names(kit: Kit, block: str, *names: str) -> list[str]:
    """Return the names of layers of a block, which contain slashes in tf_keras only."""
    actual = [f"{block}/{name}" for name in names]
    if kit.library == "tf_keras":
        return actual
    return [item.replace("BatchNorm", "bn").replace("/", "_").lower() for item in actual]


def mobilenet(kit: Kit, data: Any) -> Any:
    """Return MobileNetV3-Small."""
    model = application(kit, "MobileNetV3Small")
    fit_statistics(kit, model, data, ("project_bn", "project/BatchNorm"))
    head = [layer.name for layer in model.layers if isinstance(layer, kit.layers.Conv2D)][-1]
    spread_scores(kit, model, head, data)
    conv, norm = mobilenet_names(kit, "expanded_conv_6", "project", "project/BatchNorm")
    overflow_before_norm(kit, model, conv, norm, data)
    norm, squeeze, project = mobilenet_names(
        kit, "expanded_conv", "depthwise/BatchNorm", "squeeze_excite/Conv", "project"
    )
    scale(model.get_layer(norm).gamma, LARGE)
    scale(model.get_layer(norm).beta, LARGE)
    scale(model.get_layer(squeeze).kernel, 1 / LARGE)
    scale(model.get_layer(project).kernel, 1 / LARGE)
    return model


def transformer(kit: Kit, data: Any) -> Any:
    """Return a transformer encoder that classifies sentences."""
    layers = kit.layers
    tokens = kit.keras.Input((LENGTH,), dtype="int32", name="tokens")
    places = kit.keras.Input((LENGTH,), dtype="int32", name="places")
    embedded = [
        layers.Embedding(size, WIDTH, name=name)(tensor)
        for size, name, tensor in (
            (TOKENS, "embed_tokens", tokens),
            (LENGTH, "embed_places", places),
        )
    ]
    flow = layers.Add(name="embed")(embedded)
    flow = layers.LayerNormalization(epsilon=1e-22, name="embed_norm")(flow)
    for number in range(BLOCKS):
        block = f"block{number}"
        normal = layers.LayerNormalization(name=f"{block}_attention_norm")(flow)
        result = layers.MultiHeadAttention(4, WIDTH // 4, name=f"{block}_attention")(normal, normal)
        flow = layers.Add(name=f"{block}_attention_add")([flow, result])
        normal = layers.LayerNormalization(name=f"{block}_dense_norm")(flow)
        result = layers.Dense(4 * WIDTH, activation="relu", name=f"{block}_up")(normal)
        result = layers.Dense(WIDTH, name=f"{block}_down")(result)
        flow = layers.Add(name=f"{block}_dense_add")([flow, result])
    flow = layers.LayerNormalization(name="norm")(flow)
    flow = layers.GlobalAveragePooling1D(name="pool")(flow)
    scores = layers.Dense(CLASSES, activation="softmax", name="scores")(flow)
    model = kit.keras.Model([tokens, places], scores)
    for name in ("embed_tokens", "embed_places"):
        scale(model.get_layer(name).embeddings, TINY / np.std(model.get_layer(name).embeddings))
    for layer in model.layers:
        if isinstance(layer, layers.LayerNormalization):
            layer.gamma.assign(kit.rng.uniform(0.5, 1.5, WIDTH).astype("float32"))
    spread_scores(kit, model, "scores", data)
    overflow_between(kit, model, "block2_up", "block2_down", data)
    return model


def tagger(kit: Kit, data: Any) -> Any:
    """Return an LSTM that tags each token of a sentence."""
    layers = kit.layers
    tokens = kit.keras.Input((LENGTH,), dtype="int32", name="tokens")
    flow = layers.Embedding(TOKENS, WIDTH, name="embed")(tokens)
    for number in range(2):
        lstm = layers.LSTM(WIDTH // 2, return_sequences=True, name=f"lstm{number}")
        flow = layers.Bidirectional(lstm, name=f"both{number}")(flow)
    flow = layers.Dense(2 * WIDTH, activation="relu", name="up")(flow)
    flow = layers.Dense(WIDTH, name="down")(flow)
    flow = layers.LayerNormalization(name="norm")(flow)
    flow = layers.Dense(WIDTH, activation="tanh", name="hidden")(flow)
    tags = layers.Dense(TAGS, activation="softmax", name="tags")(flow)
    model = kit.keras.Model(tokens, tags)
    scale(model.get_layer("embed").embeddings, 1 / np.std(model.get_layer("embed").embeddings))
    spread_scores(kit, model, "tags", data)
    overflow_between(kit, model, "up", "down", data)
    return model


Maker = tuple["Callable[[Kit, Any], Any]", "Callable[[Kit], Mapping[str, Any]]"]
"""What builds a model, given inputs, and what draws inputs."""

MODELS: Final[dict[str, Maker]] = {
    "efficientnetv2b0": (efficientnet, images),
    "resnet50": (resnet, images),
    "mobilenetv3small": (mobilenet, images),
    "transformer": (transformer, placed_sentences),
    "tagger": (tagger, sentences),
}


def write(folder: Path, library: str, name: str) -> None:
    """Write a model with its inputs."""
    kit = Kit(library, name)
    build, draw = MODELS[name]
    batches = [draw(kit) for _ in range(3)]
    data = list(batches[0].values())
    model = build(kit, data[0] if len(data) == 1 else data)
    model.save(folder / f"{name}{SUFFIXES[library]}")
    for suffix, batch in zip(("", ".unseen"), batches[1:], strict=True):
        np.savez(folder / f"{name}{suffix}.npz", **batch)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--library", choices=SUFFIXES, required=True)
    parser.add_argument("--model", choices=MODELS, action="append", help="default: all")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.model or MODELS:
        write(arguments.folder, arguments.library, name)


if __name__ == "__main__":
    main()
