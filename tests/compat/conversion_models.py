"""
Small models of both of the newest libraries, each with one thing that conversions got wrong.

Run as ``python -m tests.compat.conversion_models FOLDER``: saves every model and keeps what it
predicts, says what it saved in a line of JSON, then loads the file that each line of standard input
names, and answers with a line. One process has both libraries, because importing TensorFlow takes
longer than all models.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.compat import mask_models
from tests.compat.conversion_classes import classes

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARIES: Final = ("keras", "tf_keras")
ARCHIVE: Final = ("keras",)
FORMATS: Final = ("keras", "h5")
SAVED_MODEL: Final = ("savedmodel",)
NONE: Final = ()
"""For a library that does not build the model, or does not save it."""

Built = tuple[Any, Any]
"""A model and its inputs."""


@dataclass(frozen=True)
class Case:
    """A model, and the formats in which each library saves it."""

    build: Callable[[Any], Built]
    keras: tuple[str, ...] = FORMATS
    tf_keras: tuple[str, ...] = FORMATS


CASES: Final[dict[str, Case]] = {}


def case(
    **formats: tuple[str, ...],
) -> Callable[[Callable[[Any], Built]], Callable[[Any], Built]]:
    """Return a decorator that adds a model to the table, under the function's name."""

    def add(build: Callable[[Any], Built]) -> Callable[[Any], Built]:
        CASES[build.__name__] = Case(build=build, **formats)
        return build

    return add


def floats(*shape: int) -> Any:
    """Return the same random numbers at every call."""
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def ids(*shape: int) -> Any:
    """Return token ids, each row padded with zeros."""
    found = np.random.default_rng(0).integers(1, 8, size=shape)
    found[:, -2:] = 0
    return found.astype("int32")


@cache
def own_classes(library: str) -> dict[str, Any]:
    """Return the classes of a library's models that are not Keras' own."""
    return classes(sys.modules[library])


def _own(keras: Any, name: str, **arguments: Any) -> Any:
    return own_classes(keras.__name__)[f"pt>{name}"](**arguments)


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed(keras: Any) -> Built:
    """Attributes on both sides of ``layers``, of classes that differ."""
    return _own(keras, "Plain"), floats(2, 4)


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed_and_trained(keras: Any) -> Built:
    """Train it, with an optimizer whose variables nothing tells apart."""
    model = _own(keras, "Plain")
    model.compile("adam", "mse")
    model.fit(floats(8, 4), floats(8, 3), verbose=0)
    return model, floats(2, 4)


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed_lists_apart(keras: Any) -> Built:
    """Layers of one class on both sides of ``layers``."""
    return _own(keras, "Listed"), floats(2, 4)


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed_lists(keras: Any) -> Built:
    """Return lists, dicts, and a layer of someone else's in one of them."""
    return _own(keras, "Gathered"), floats(2, 4)


@case(keras=NONE, tf_keras=ARCHIVE)
def unsorted_dict(keras: Any) -> Built:
    """Return a model with a dict whose items are not in the order of its keys."""
    return _own(keras, "Gathered", keys=("z", "y")), floats(2, 3)


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed_composites(keras: Any) -> Built:
    """Layers that make layers."""
    return _own(keras, "Composite"), np.ones((2, 5), "int32")


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed_of_two(keras: Any) -> Built:
    """Two inputs in a list."""
    return _own(keras, "Pair"), [floats(2, 4), floats(2, 5)]


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed_of_two_swapped(keras: Any) -> Built:
    """Return the same, whose layers are made in the other order."""
    return _own(keras, "Swapped"), [floats(2, 4), floats(2, 5)]


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed_of_a_dict(keras: Any) -> Built:
    """Two inputs in a dict."""
    return _own(keras, "Pair", keys=("l", "r")), {"l": floats(2, 4), "r": floats(2, 5)}


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed_with_build(keras: Any) -> Built:
    """Variables of its own."""
    return _own(keras, "Building"), floats(2, 4)


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def subclassed_around_config(keras: Any) -> Built:
    """Layers in its config."""
    layers = keras.layers
    heads = [layers.Dense(3), layers.Dense(2)]
    return _own(keras, "Held", encoder=layers.Dense(4), heads=heads), floats(2, 4)


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def own_layers(keras: Any) -> Built:
    """Layers of someone else's in a functional model, with all kinds of attributes."""
    inputs = keras.Input((3, 4))
    result = _own(keras, "Attending")(_own(keras, "Block")(_own(keras, "Block")(inputs)))
    return keras.Model(inputs, keras.layers.Dense(2)(result)), floats(2, 3, 4)


@case(keras=ARCHIVE, tf_keras=ARCHIVE)
def own_model_within(keras: Any) -> Built:
    """Return a functional model with a subclassed one in it."""
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(2)(_own(keras, "Plain")(inputs))), floats(2, 4)


@case(tf_keras=NONE)  # tf_keras cannot build it
def encoded_in_mixed_precision(keras: Any) -> Built:
    """Return a layer that gives what it counts in the dtype of variables."""
    layers = keras.layers
    inputs = keras.Input((4,), dtype="int32")
    result = layers.CategoryEncoding(5, output_mode="count", dtype="mixed_bfloat16")(inputs)
    return keras.Model(inputs, layers.Dense(3)(result)), ids(2, 4) % 5


@case(keras=NONE)  # Keras 3 does not build it either
def concatenated_masks(keras: Any) -> Built:
    """Return a Concatenate of masked inputs that has its default name."""
    layers = keras.layers
    inputs = [keras.Input((6,), dtype="int32") for _ in range(2)]
    embedded = [layers.Embedding(9, 4, mask_zero=True)(input_value) for input_value in inputs]
    joined = layers.Concatenate(name="concatenate")(embedded)
    named = layers.Dense(4, name="not_equal")(joined)
    return keras.Model(inputs, layers.LSTM(3)(named)), [ids(2, 6), ids(2, 6)[::-1]]


@case(tf_keras=(*FORMATS, *SAVED_MODEL))
def concatenated_with_an_open_one(keras: Any) -> Built:
    """Return a Concatenate of a masked input and of one that has no mask."""
    layers = keras.layers
    inputs = [keras.Input((6,), dtype="int32"), keras.Input((6, 3))]
    masked = layers.Embedding(9, 4, mask_zero=True)(inputs[0])
    joined = layers.Concatenate()([masked, inputs[1]])
    return keras.Model(inputs, layers.LSTM(3)(joined)), [ids(2, 6), floats(2, 6, 3)]


@case(tf_keras=("h5", *SAVED_MODEL))  # no archive of tf_keras holds an ellipsis
def sliced_with_ellipsis(keras: Any) -> Built:
    """Return slices with an ellipsis before, within and behind other indices."""
    layers = keras.layers
    inputs = keras.Input((4, 5, 6))
    actual = [inputs[..., 0], inputs[:, 1:3, ..., 2], inputs[:, 1, ...], inputs[..., None]]
    flat = [layers.Flatten()(item) for item in actual]
    return keras.Model(inputs, layers.Concatenate()(flat)), floats(2, 4, 5, 6)


@case(tf_keras=(*FORMATS, *SAVED_MODEL))
def sliced(keras: Any) -> Built:
    """Return slices with bounds, steps, numbers and new axes."""
    layers = keras.layers
    inputs = keras.Input((4, 5))
    actual = [inputs[:, 1:], inputs[:, ::2], inputs[:, 1:3, None, -1], inputs[:, 0]]
    flat = [layers.Flatten()(item) for item in actual]
    return keras.Model(inputs, layers.Concatenate()(flat)), floats(2, 4, 5)


@case(tf_keras=(*FORMATS, *SAVED_MODEL))
def adapted_bins(keras: Any) -> Built:
    """Return a layer whose bins adapt() found, and one whose bins were given."""
    layers = keras.layers
    adapted = layers.Discretization(num_bins=4)
    adapted.adapt(floats(100, 1))
    given = layers.Discretization(bin_boundaries=[-1.0, 0.0, 0.5], output_mode="one_hot")
    inputs = keras.Input((3,)), keras.Input((1,))
    result = layers.Flatten()(layers.Embedding(6, 2)(adapted(inputs[0])))
    joined = layers.Concatenate()([result, given(inputs[1])])
    return keras.Model(inputs, joined), [floats(2, 3), floats(2, 1)]


def _look_up(keras: Any, **arguments: Any) -> Built:
    """Return lookups of texts, words and numbers that were adapted."""
    import tensorflow as tf

    layers = keras.layers
    texts, numbers = np.array([["a b c a"], ["b d"], ["a a e"]]), np.array([[5], [7], [7], [9]])
    inputs = keras.Input((1,), dtype="string"), keras.Input((1,), dtype="int64")
    actual = []
    for number, (layer, seen) in enumerate(
        [
            (layers.TextVectorization(**arguments), texts),
            (layers.StringLookup(num_oov_indices=2, **arguments), texts),
            (layers.IntegerLookup(**arguments), numbers),
        ]
    ):
        layer.adapt(seen)
        actual.append(layer(inputs[number // 2]))
    words = tf.constant([["a e b"], ["b d"], ["new"]])
    return keras.Model(inputs, actual), [words, tf.constant([[7], [9], [1]], "int64")]


def _add_lookups() -> None:
    """No HDF5 holds a vocabulary that was adapted."""
    for mode in ("int", "count", "tf_idf"):
        CASES[f"adapted_words_{mode}"] = Case(
            build=partial(_look_up, output_mode=mode),
            keras=ARCHIVE,
            tf_keras=(*ARCHIVE, *SAVED_MODEL),
        )


_add_lookups()


@case(keras=NONE, tf_keras=SAVED_MODEL)
def words_of_a_file(keras: Any) -> Built:
    """Return lookups whose words are in a file, one of which gives words for numbers."""
    import tensorflow as tf

    file = Path(tempfile.mkdtemp()) / "words.txt"
    file.write_text("red\ngreen\nblue", encoding="utf-8")
    layers = keras.layers
    inputs = keras.Input((1,), dtype="string")
    numbers = layers.StringLookup(vocabulary=str(file))(inputs)
    words = layers.StringLookup(vocabulary=["red", "green"])(inputs)
    adapted = layers.StringLookup(invert=True, vocabulary=["red", "green", "blue"])
    again = layers.StringLookup(vocabulary=["blue", "red"])(adapted(numbers))
    back = layers.IntegerLookup(invert=True, oov_token=-1)
    back.adapt(np.array([[70], [50], [50]]))
    return keras.Model(inputs, [numbers, words, again, back(words)]), tf.constant(
        [["red"], ["blue"], ["x"]]
    )


@case(keras=FORMATS, tf_keras=FORMATS)
def given_weights_of_words(keras: Any) -> Built:
    """Return lookups with a vocabulary whose weights were given, which leave out unknown words."""
    import tensorflow as tf

    layers = keras.layers
    inputs = keras.Input((1,), dtype="string")
    given = {"output_mode": "tf_idf", "vocabulary": ["a", "b"], "idf_weights": [0.25, 0.5]}
    padded = layers.StringLookup(max_tokens=5, pad_to_max_tokens=True, **given)
    actual = [layers.TextVectorization(**given)(inputs), padded(inputs)]
    return keras.Model(inputs, actual), tf.constant([["a"], ["b"], ["c"]])


@case()
def steep_behind_a_mask(keras: Any) -> Built:
    """Return a Sequential with a mask that a hard_sigmoid lets through."""
    layers = keras.layers
    convolution = layers.Conv1D(4, 3, padding="same", activation="hard_sigmoid")
    start = [keras.Input((6,), dtype="int32"), layers.Embedding(9, 4, mask_zero=True)]
    return keras.Sequential([*start, convolution, layers.LSTM(3)]), ids(2, 6)


@case(tf_keras=NONE)
def new_activations(keras: Any) -> Built:
    """Return Sequentials, one within the other, with activations that Keras 3 alone has."""
    layers = keras.layers
    distributed = layers.TimeDistributed(layers.Dense(3, activation="celu"))
    convolution = layers.Conv1D(4, 3, activation="hard_silu")
    inner = keras.Sequential([keras.Input((6, 4)), convolution, distributed])
    names = (
        *("hard_shrink", "squareplus", "sparse_plus", "hard_tanh", "soft_shrink"),
        *("sparse_sigmoid", "tanh_shrink", "log_sigmoid"),
    )
    dense = [layers.Dense(4, activation=name) for name in names]
    model = keras.Sequential([keras.Input((6, 4)), inner, *dense, layers.Flatten()])
    model.compile("adam", "mse")
    model.fit(floats(8, 6, 4), floats(8, 16), verbose=0)
    return model, floats(2, 6, 4)


@case(tf_keras=NONE)  # tf_keras does not build it either
def unrolled_over_an_open_axis(keras: Any) -> Built:
    """Return unrolled layers, of which one is over as many steps as there are."""
    layers = keras.layers
    inputs = keras.Input((None, 4))
    result = layers.LSTM(3, unroll=True, return_sequences=True)(inputs)
    result = layers.Bidirectional(layers.GRU(3, unroll=True))(result)
    return keras.Model(inputs, result), floats(2, 5, 4)


@case(keras=NONE)  # Keras 3 does not build it
def emptied(keras: Any) -> Built:
    """Return a cropping that leaves nothing."""
    inputs = keras.Input((4, 4, 4, 2))
    result = keras.layers.Cropping3D(((2, 2), (1, 1), (1, 1)))(inputs)
    return keras.Model(inputs, result), floats(2, 4, 4, 4, 2)


@case(keras=NONE)  # Keras 3 does not build it either
def backwards_first(keras: Any) -> Built:
    """Return a Bidirectional whose forward layer goes backwards, and none is given beside it."""
    layers = keras.layers
    inputs = keras.Input((5, 4))
    first = layers.LSTM(3, go_backwards=True, return_sequences=True)
    result = layers.Bidirectional(first)(inputs)
    second = layers.Bidirectional(layers.GRU(3, go_backwards=True), merge_mode="sum", name="b")
    return keras.Model(inputs, second(result)), floats(2, 5, 4)


@case()
def unrolled(keras: Any) -> Built:
    """Return a layer that is unrolled over a known number of steps."""
    inputs = keras.Input((5, 4))
    return keras.Model(inputs, keras.layers.LSTM(3, unroll=True)(inputs)), floats(2, 5, 4)


@case(keras=NONE)  # Keras 3 does not build it either
def einsum_of_an_open_size(keras: Any) -> Built:
    """Return an output shape with None, whose size a Flatten behind it needs."""
    inputs = keras.Input((5, 4))
    layer = keras.layers.EinsumDense("abc,cd->abd", output_shape=(None, 3), bias_axes="d")
    result = keras.layers.Dense(2)(keras.layers.Flatten()(layer(inputs)))
    return keras.Model(inputs, result), floats(2, 5, 4)


@case(tf_keras=NONE)  # tf_keras does not build it either
def underscored(keras: Any) -> Built:
    """Return layers whose names begin with an underscore, or hold other characters."""
    layers = keras.layers
    inputs = keras.Input((4,), name="_in")
    result = layers.Dense(3, name="_x")(inputs)
    inner_in = keras.Input((3,), name="_inner_in")
    inner = keras.Model(inner_in, layers.Dense(3, name="-y")(inner_in), name="_inner")
    result = layers.Dense(3, name="a b")(inner(result))
    result = layers.Dense(3, name="x")(result)
    return keras.Model(inputs, layers.Dense(2, name="größe")(result), name="_m"), floats(2, 4)


@case(keras=NONE)
def normalized_in_half(keras: Any) -> Built:
    """Return a BatchNormalization under float16, whose variables tf_keras keeps in float32."""
    keras.mixed_precision.set_global_policy("float16")
    inputs = keras.Input((4,))
    layer = keras.layers.BatchNormalization()
    model = keras.Model(inputs, layer(inputs))
    layer.set_weights([floats(4), floats(4), floats(4), abs(floats(4)) * 1e-3])
    keras.mixed_precision.set_global_policy("float32")
    return model, floats(8, 4).astype("float16")


def _train(keras: Any, optimizer: str, policy: str) -> Built:
    keras.mixed_precision.set_global_policy(policy)
    inputs = keras.Input((4,))
    outputs = keras.layers.Dense(1, dtype="float32")(keras.layers.Dense(3)(inputs))
    model = keras.Model(inputs, outputs)
    chosen = getattr(keras.optimizers, optimizer)()
    chosen.build(model.trainable_variables)
    model.compile(chosen, "mse")
    keras.mixed_precision.set_global_policy("float32")
    return model, floats(2, 4)


def _add_trained() -> None:
    for optimizer in ("Adam", "Nadam", "Lion", "Adafactor"):
        # Keras 3 does not save Adafactor as HDF5: two of its variables have one name
        formats = ARCHIVE if optimizer == "Adafactor" else FORMATS
        for policy in ("float32", "mixed_float16"):
            build = partial(_train, optimizer=optimizer, policy=policy)
            CASES[f"{optimizer}_{policy}"] = Case(build=build, keras=formats)


_add_trained()


CASES.update(
    (name, Case(build=build, keras=ARCHIVE, tf_keras=("h5",)))  # no HDF5 of Keras 3 holds masks
    for name, build in mask_models.MODELS.items()
)


class Library:
    """One library, and what its models predicted."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.known: dict[str, tuple[Any, list[Any]]] = {}

    def save(self, name: str, folder: Path) -> list[str]:
        """Return the files that a model is saved as."""
        keras, one = self.module, CASES[name]
        keras.backend.clear_session()
        keras.utils.set_random_seed(0)
        kinds: tuple[str, ...] = getattr(one, keras.__name__)
        if not kinds:
            return []
        model, inputs = one.build(keras)
        self.known[name] = inputs, predictions(model, inputs)
        files = [str(folder / f"{keras.__name__}-{name}.{kind}") for kind in kinds]
        for file, kind in zip(files, kinds, strict=True):
            model.save(file, **({"save_format": "tf"} if kind == "savedmodel" else {}))
        return files

    def compare(self, path: str, known: tuple[Any, list[Any]], *, compiled: bool) -> Any:
        """
        Return by how much of the largest value a converted file's predictions differ, or the error.
        """
        keras = self.module
        keras.backend.clear_session()
        own = own_classes(keras.__name__)
        try:
            model = keras.models.load_model(path, compile=compiled, custom_objects=own)
            result = predictions(model, known[0])
        except Exception as error:  # noqa: BLE001  # whatever a library raises is its refusal
            return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]
        return max(
            float(np.max(np.abs(one - other)) / max(np.max(np.abs(other)), 1e-6))
            for one, other in zip(result, known[1], strict=True)
        )


def predictions(model: Any, inputs: Any) -> list[Any]:
    """Return what a model makes of its inputs."""
    result = model(inputs, training=False)
    return [np.asarray(item) for item in (result if isinstance(result, list | tuple) else [result])]


def tell(value: object) -> None:
    """Write a line of JSON."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Save all models, then answer about files."""
    import keras
    import tf_keras

    folder, *names = sys.argv[1:]
    libraries = {module.__name__: Library(module) for module in (keras, tf_keras)}
    saved = {
        name: {library: one.save(name, Path(folder)) for library, one in libraries.items()}
        for name in names or CASES
    }
    tell(saved)
    for line in sys.stdin:
        name, source, target, path = json.loads(line)
        known = libraries[source].known[name]
        actual = [
            libraries[target].compare(path, known, compiled=compiled) for compiled in (False, True)
        ]
        tell(actual)


if __name__ == "__main__":
    main()
