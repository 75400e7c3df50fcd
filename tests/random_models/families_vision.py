"""Well-known shapes for images, volumes and signals, in random sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.random_models.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.random_models.description import Graph
    from tests.random_models.drawing import Draw


def _block(sketch: Sketch, value: str, filters: int, **options: Any) -> str:
    value = sketch.layer(
        "Conv2D", value, filters=filters, kernel_size=3, padding="same", use_bias=False, **options
    )
    value = sketch.layer("BatchNormalization", value)
    return sketch.layer("Activation", value, activation=sketch.draw.pick(("relu", "swish")))


def unet(draw: Draw) -> Graph:
    """Return a U-Net with skips between one and three levels."""
    sketch, depth, width = Sketch(draw), draw.whole(1, 3), draw.pick((2, 4))
    sizes = (8, 8) if draw.chance(0.7) else (None, None)
    sketch.draw.open_length = 8
    value = sketch.floats(*sizes, draw.pick((1, 3)), values="image")
    value = sketch.layer("Rescaling", value, scale=1 / 255)
    skips = []
    for level in range(depth):
        value = _block(sketch, value, width * 2**level)
        skips.append(value)
        value = sketch.layer("MaxPooling2D", value, pool_size=2)
    value = sketch.layer("Dropout", _block(sketch, value, width * 2**depth), rate=0.3)
    for level in reversed(range(depth)):
        if draw.chance(0.5):
            value = sketch.layer(
                "Conv2DTranspose", value, filters=width, kernel_size=2, strides=2, padding="same"
            )
        else:
            value = sketch.layer("UpSampling2D", value, size=[2, 2])
        value = sketch.layer("Concatenate", value, skips[level])
        value = _block(sketch, value, width * 2**level)
    return sketch.graph(
        sketch.layer("Conv2D", value, filters=2, kernel_size=1, activation="softmax")
    )


def resnet(draw: Draw) -> Graph:
    """Return residual blocks, some with a projection."""
    sketch, width = Sketch(draw), draw.pick((4, 8))
    value = sketch.floats(8, 8, 3, values="image")
    value = sketch.layer(
        "Normalization", value, mean=[120.0, 110.0, 100.0], variance=[3000.0, 2500.0, 2800.0]
    )
    value = _block(sketch, value, width)
    for _ in range(draw.whole(1, 3)):
        inner = sketch.layer(
            "BatchNormalization",
            sketch.layer(
                "Conv2D",
                _block(sketch, value, width),
                filters=width,
                kernel_size=3,
                padding="same",
                kernel_regularizer="l2",
            ),
        )
        value = sketch.layer("ReLU", sketch.layer("Add", value, inner))
    value = sketch.layer("GlobalAveragePooling2D", value)
    return sketch.graph(sketch.layer("Dense", value, units=5, activation="softmax"))


def efficient_net(draw: Draw) -> Graph:
    """Return inverted bottlenecks with squeeze and excitation."""
    sketch, width = Sketch(draw), draw.pick((4, 6))
    value = sketch.layer("Rescaling", sketch.floats(8, 8, 3, values="image"), scale=1 / 255)
    value = _block(sketch, value, width)
    for _ in range(draw.whole(1, 2)):
        wide = _block(sketch, value, width * 2)
        wide = sketch.layer("ZeroPadding2D", wide, padding=[[0, 1], [0, 1]])
        wide = sketch.layer("DepthwiseConv2D", wide, kernel_size=2, use_bias=False)
        wide = sketch.layer(
            "Activation", sketch.layer("BatchNormalization", wide), activation="swish"
        )
        squeezed = sketch.layer("GlobalAveragePooling2D", wide)
        squeezed = sketch.layer("Reshape", squeezed, target_shape=[1, 1, width * 2])
        squeezed = sketch.layer("Conv2D", squeezed, filters=2, kernel_size=1, activation="swish")
        squeezed = sketch.layer(
            "Conv2D", squeezed, filters=width * 2, kernel_size=1, activation="sigmoid"
        )
        wide = sketch.layer("Multiply", wide, squeezed)
        wide = sketch.layer("Conv2D", wide, filters=width, kernel_size=1, use_bias=False)
        dropped = sketch.layer("Dropout", wide, rate=0.2, noise_shape=[None, 1, 1, 1])
        value = sketch.layer("Add", dropped, value)
    value = sketch.layer("GlobalAveragePooling2D", value)
    return sketch.graph(sketch.layer("Dense", value, units=4, activation="softmax"))


def vision_transformer(draw: Draw) -> Graph:
    """Return patches with positions, and blocks of attention before them."""
    sketch, width, heads = Sketch(draw), draw.pick((4, 8)), draw.pick((1, 2))
    image = sketch.floats(8, 8, 3)
    patches = sketch.layer("Conv2D", image, filters=width, kernel_size=4, strides=4)
    value = sketch.layer("Reshape", patches, target_shape=[4, width])
    if draw.chance(0.5):
        value = sketch.layer("custom:PatchEncoder", value, patches=4, width=width)
    else:
        positions = sketch.ids(4, 4, "ints")
        embedded = sketch.layer("Embedding", positions, input_dim=4, output_dim=width)
        value = sketch.layer("Add", value, embedded)
    for _ in range(draw.whole(1, 2)):
        normal = sketch.layer("LayerNormalization", value, epsilon=1e-6)
        attended = sketch.spread(
            "MultiHeadAttention",
            *(normal, normal),
            call={},
            num_heads=heads,
            key_dim=width // heads,
            dropout=0.1,
        )
        value = sketch.layer("Add", attended, value)
        normal = sketch.layer("LayerNormalization", value, epsilon=1e-6)
        hidden = sketch.layer("Dense", normal, units=width * 2, activation="gelu")
        value = sketch.layer("Add", sketch.layer("Dense", hidden, units=width), value)
    value = sketch.layer("LayerNormalization", value, epsilon=1e-6)
    pooled = (
        sketch.layer("GlobalAveragePooling1D", value)
        if draw.chance(0.5)
        else sketch.op("slice", value, index=["all", 0])
    )
    return sketch.graph(sketch.layer("Dense", pooled, units=3))


def mixer(draw: Draw) -> Graph:
    """Return an MLP-mixer: dense layers over patches, then over channels."""
    sketch, width, patches = Sketch(draw), draw.pick((4, 6)), 4
    value = sketch.floats(patches, width)
    for _ in range(draw.whole(1, 3)):
        turned = sketch.layer("Permute", sketch.layer("LayerNormalization", value), dims=[2, 1])
        turned = sketch.layer("Dense", turned, units=patches * 2, activation="gelu")
        turned = sketch.layer("Dense", turned, units=patches)
        value = sketch.layer("Add", value, sketch.layer("Permute", turned, dims=[2, 1]))
        hidden = sketch.layer("Dense", sketch.layer("LayerNormalization", value), units=width * 2)
        hidden = sketch.layer("Activation", hidden, activation="gelu")
        value = sketch.op("add", value, sketch.layer("Dense", hidden, units=width))
    value = sketch.layer("GlobalAveragePooling1D", value)
    return sketch.graph(sketch.layer("Dense", value, units=3))


def conv_lstm(draw: Draw) -> Graph:
    """Return ConvLSTM layers over frames, and the next frames."""
    sketch = Sketch(draw)
    value = sketch.floats(draw.pick((None, 4)), 6, 6, 1)
    for _ in range(draw.whole(1, 2)):
        value = sketch.layer(
            "ConvLSTM2D",
            value,
            filters=3,
            kernel_size=3,
            padding="same",
            return_sequences=True,
            recurrent_activation=draw.pick(("sigmoid", "sigmoid", "hard_sigmoid")),
        )
        value = sketch.layer("BatchNormalization", value)
    return sketch.graph(
        sketch.layer(
            "Conv3D", value, filters=1, kernel_size=3, padding="same", activation="sigmoid"
        )
    )


def vae(draw: Draw) -> Graph:
    """Return an encoder that samples, and a decoder, as models in a model."""
    size = draw.pick((2, 3))
    encoder = Sketch(draw)
    value = encoder.floats(8, 8, 1)
    value = encoder.layer(
        "Conv2D", value, filters=4, kernel_size=3, strides=2, padding="same", activation="relu"
    )
    value = encoder.layer("Dense", encoder.layer("Flatten", value), units=6, activation="relu")
    mean, spread = (encoder.layer("Dense", value, units=size) for _ in range(2))
    sampled = encoder.layer("custom:Sampling", mean, spread)
    decoder = Sketch(draw)
    decoded = decoder.layer("Dense", decoder.floats(size), units=4 * 4 * 2, activation="relu")
    decoded = decoder.layer("Reshape", decoded, target_shape=[4, 4, 2])
    decoded = decoder.layer(
        *("Conv2DTranspose", decoded), filters=1, kernel_size=3, strides=2, padding="same"
    )
    whole = Sketch(draw)
    image = whole.floats(8, 8, 1)
    latent = whole.model(encoder.graph(mean, spread, sampled), image)
    return whole.graph(whole.model(decoder.graph(decoded), f"{latent}:2"))


def wavenet(draw: Draw) -> Graph:
    """Return dilated causal convolutions with gates and skips."""
    sketch, width = Sketch(draw), draw.pick((2, 4))
    sketch.draw.open_length = 8
    value = sketch.floats(draw.pick((None, 8)), draw.whole(1, 2))
    value = sketch.layer("Conv1D", value, filters=width, kernel_size=2, padding="causal")
    skips = []
    for level in range(draw.whole(2, 3)):
        shared: dict[str, Any] = {
            "filters": width,
            "kernel_size": 2,
            "padding": "causal",
            "dilation_rate": 2**level,
        }
        gates = [
            sketch.layer("Conv1D", value, activation=name, **shared) for name in ("tanh", "sigmoid")
        ]
        gated = sketch.layer("Multiply", *gates)
        skips.append(sketch.layer("Conv1D", gated, filters=width, kernel_size=1))
        value = sketch.layer("Add", value, skips[-1])
    value = sketch.layer("ReLU", sketch.layer("Add", *skips))
    return sketch.graph(
        sketch.layer("Conv1D", value, filters=3, kernel_size=1, activation="softmax")
    )


def inception(draw: Draw) -> Graph:
    """Return parallel convolutions of several sizes, and layers that all earlier ones feed."""
    sketch, filters = Sketch(draw), draw.pick((2, 3))
    value = sketch.floats(8, 8, 3, values="image")
    value = sketch.layer("Rescaling", value, scale=1 / 255)
    for _ in range(draw.whole(1, 2)):
        branches = [
            sketch.layer(
                *("Conv2D", value), filters=filters, kernel_size=size, padding="same",
                activation="relu",
            )
            for size in (1, 3, 5)
        ]  # fmt: skip
        pooled = sketch.layer("MaxPooling2D", value, pool_size=3, strides=1, padding="same")
        branches.append(sketch.layer("Conv2D", pooled, filters=filters, kernel_size=1))
        value = sketch.layer("Concatenate", *branches, *([value] if draw.chance(0.5) else []))
        value = sketch.layer("BatchNormalization", value)
    value = sketch.layer("Dropout", sketch.layer("GlobalAveragePooling2D", value), rate=0.4)
    return sketch.graph(sketch.layer("Dense", value, units=3, activation="softmax"))


def generator(draw: Draw) -> Graph:
    """Return an image that transposed convolutions make of noise and of a class (GAN)."""
    sketch = Sketch(draw)
    noise, label = sketch.floats(5), sketch.ids(1, 4, "ints")
    embedded = sketch.layer("Embedding", label, input_dim=4, output_dim=5)
    value = sketch.layer("Multiply", noise, sketch.layer("Flatten", embedded))
    value = sketch.layer("Dense", value, units=2 * 2 * 4, use_bias=False)
    value = sketch.layer(
        "Reshape", sketch.layer("BatchNormalization", value), target_shape=[2, 2, 4]
    )
    for filters in (4, 3)[: draw.whole(1, 2)]:
        value = sketch.layer(
            "Conv2DTranspose", value, filters=filters, kernel_size=4, strides=2, padding="same"
        )
        value = sketch.layer("LeakyReLU", sketch.layer("BatchNormalization", value))
    return sketch.graph(
        sketch.layer("Conv2D", value, filters=3, kernel_size=3, padding="same", activation="tanh")
    )


def feature_pyramid(draw: Draw) -> Graph:
    """Return a detector: outputs of several sizes, from one head that all levels share."""
    sketch, width = Sketch(draw), draw.pick((2, 4))
    value = sketch.floats(8, 8, 3)
    levels = []
    for _ in range(draw.whole(2, 3)):
        value = _block(sketch, value, width, strides=2)
        levels.append(value)
    levels.reverse()
    joined = [levels[0]]
    for level in levels[1:]:
        larger = sketch.layer("UpSampling2D", joined[-1], size=2)
        joined.append(sketch.layer("Add", larger, level))
    heads: list[str] = []
    for level in joined:
        heads.append(
            sketch.again(heads[0], level)
            if heads
            else sketch.layer("Conv2D", level, filters=5, kernel_size=1)
        )
    outputs = [sketch.layer("Reshape", head, target_shape=[-1, 5]) for head in heads]
    if draw.chance(0.5):
        return sketch.graph(*outputs)
    boxes = sketch.layer("Concatenate", *outputs, axis=1)
    return sketch.graph(
        sketch.op("slice", boxes, index=["all", "all", [None, 4, None]]),
        sketch.op("sigmoid", sketch.op("slice", boxes, index=["ellipsis", [4, None, None]])),
    )


FAMILIES: Final[Mapping[str, Callable[[Draw], Graph]]] = {
    "unet": unet,
    "resnet": resnet,
    "efficient_net": efficient_net,
    "vision_transformer": vision_transformer,
    "mixer": mixer,
    "conv_lstm": conv_lstm,
    "vae": vae,
    "wavenet": wavenet,
    "inception": inception,
    "generator": generator,
    "feature_pyramid": feature_pyramid,
}
