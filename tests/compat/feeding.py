"""
Feed models and tell what came of each: ``python feeding.py FAMILY JOBS RESULTS``, under an
interpreter that has TensorFlow.

FAMILY is ``keras2`` or ``keras3``. JOBS is a JSON list of ``[model, wanted]``: a model is the path
of a file, or the name of one of MODELS, which are built here alike under both libraries; ``wanted``
is what a check asks for. RESULTS gets for each a JSON object: ``loaded`` is false where the library
does not load the file, ``refused`` has the code and the message of a refusal; else there is what
was fed, the specs, and whether every value that was fed is finite.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[2]
RELEASES: Final = {"keras2": "tf_keras2.21", "keras3": "keras3.15"}


def runtime() -> Any:
    """Return the child's own package, by the name that it has in a child."""
    spec = importlib.util.spec_from_file_location(
        "runtime_main", ROOT / "policytool/runtime/__main__.py"
    )
    assert spec is not None
    assert spec.loader is not None
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    main.import_package(str(ROOT / "policytool/runtime"))
    return main


class Models:
    """Small models, built alike under both libraries."""

    def __init__(self, library: Any) -> None:
        self.tf, self.keras = library.tf, library.keras
        self.layers, self.input = self.keras.layers, self.keras.Input
        self.is_keras2 = library.family == "keras2"

    def nested(self) -> Any:
        """
        Return one with a dict of inputs: ids of several tables, a mask in a nested model, an open
        length.
        """
        layers = self.layers
        tokens, segments = (
            self.input((12,), name="tokens"),
            self.input((12,), dtype="int32", name="segments"),
        )
        series = self.input((None, 4), name="series")
        inside = self.input((None, 4), name="inside")
        inner = self.keras.Model(
            inside,
            layers.GRU(3, name="gru")(layers.Masking(-1.0, name="masking")(inside)),
            name="inner",
        )
        embedded = layers.Embedding(50, 4, mask_zero=True, name="words")(tokens)
        typed = layers.Embedding(2, 4, name="kinds")(
            layers.Reshape((12,), name="reshape")(segments)
        )
        joined = layers.GlobalAveragePooling1D(name="pool")(
            layers.Add(name="add")([embedded, typed])
        )
        outputs = layers.Concatenate(name="joined")([joined, inner(series)])
        return self.keras.Model(
            {"series": series, "tokens": tokens, "segments": segments}, outputs, name="net"
        )

    def operations(self) -> Any:
        """
        Return one whose ids come to their layers through operations: a cast and a shape, one column
        of many, an offset, a one-hot.
        """
        layers, tf = self.layers, self.tf
        whole, offset, hot = (
            self.input((3,), dtype="int32", name=name) for name in ("whole", "offset", "hot")
        )
        columns = self.input((3,), name="columns")
        cast: Any = tf.cast if self.is_keras2 else self.keras.ops.cast
        one_hot: Any = tf.one_hot if self.is_keras2 else self.keras.ops.one_hot
        outputs = [
            layers.Embedding(7, 2, name="cast")(
                cast(layers.Reshape((1, 3), name="shaped")(whole), "int64")
            ),
            layers.Embedding(9, 2, name="column")(columns[:, 0]),
            layers.Embedding(20, 2, name="moved")(offset + 1),
            one_hot(hot, 6),
        ]
        return self.keras.Model([whole, columns, offset, hot], outputs, name="net")

    def prepared(self) -> Any:
        """Return one whose inputs come to layers that prepare data."""
        layers = self.layers
        image = self.input((8, 8, 3), name="image")
        features, amounts = self.input((2,), name="features"), self.input((1,), name="amounts")
        numbers = self.input((1,), dtype="int64", name="numbers")
        words, text = (self.input((1,), dtype="string", name=name) for name in ("words", "text"))
        flags, padding = (
            self.input((6,), dtype="bool", name="flags"),
            self.input((6,), dtype="int32", name="padding_mask"),
        )
        vectorize = layers.TextVectorization(
            vocabulary=["red", "green"], output_sequence_length=4, name="vectorize"
        )
        outputs = [
            layers.Rescaling(1 / 127.5, -1, name="rescaling")(image),
            layers.Normalization(mean=[1.0, 200.0], variance=[0.01, 400.0], name="normalization")(
                features
            ),
            layers.Discretization(bin_boundaries=[10.0, 20.0, 50.0], name="bins")(amounts),
            layers.IntegerLookup(vocabulary=[10, 20], name="lookup")(numbers),
            layers.StringLookup(vocabulary=["a", "b"], num_oov_indices=0, name="strict")(words),
            vectorize(text),
            layers.Reshape((6, 1), name="flags_out")(flags),
            layers.Reshape((6, 1), name="mask_out")(padding),
        ]
        return self.keras.Model(
            [image, features, amounts, numbers, words, text, flags, padding], outputs, name="net"
        )

    def stateful(self) -> Any:
        """Return one that fixes its batch size, and leaves a length open."""
        values = self.input(batch_shape=(4, None, 2), name="series")
        return self.keras.Model(
            values, self.layers.LSTM(2, stateful=True, name="lstm")(values), name="net"
        )

    def half(self) -> Any:
        """Return one with an input in bfloat16, which NumPy's files do not know."""
        values = self.input((5,), dtype="bfloat16", name="values")
        return self.keras.Model(
            values, self.layers.Dense(2, dtype="bfloat16", name="dense")(values), name="net"
        )

    def sparse(self) -> Any:
        """Return one with a sparse input."""
        values = self.input((5,), sparse=True, name="values")
        return self.keras.Model(values, self.layers.Dense(2, name="dense")(values), name="net")

    def wide(self) -> Any:
        """Return one for images of any size, of which the smallest are too small."""
        image = self.input((None, None, 3), name="image")
        return self.keras.Model(image, self.layers.Conv2D(1, 20, name="conv")(image), name="net")

    def subclassed(self) -> Any:
        """Return one that says nothing of its inputs but what it was called with."""
        layers, tf = self.layers, self.tf

        class Net(self.keras.Model):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__(name="net")
                self.dense, self.table = (
                    layers.Dense(2, name="dense"),
                    layers.Embedding(5, 2, name="table"),
                )

            def call(self, inputs: Any) -> Any:
                return self.dense(inputs["values"]) + tf.reduce_mean(self.table(inputs["ids"]), 1)

        result = Net()
        result({"values": np.zeros((2, 4), "float32"), "ids": np.zeros((2, 3), "int32")})
        return result

    def scaled(self) -> Any:
        """Return one whose ids are floats before they come to their layers, or other numbers."""
        layers, tf = self.layers, self.tf
        cast: Any = tf.cast if self.is_keras2 else self.keras.ops.cast
        same, half, moved = (self.input((6,), name=name) for name in ("same", "half", "moved"))
        through = self.input((6,), dtype="int32", name="through")
        image = self.input((4, 4, 3), name="image")
        scaled = layers.Rescaling(1 / 255, name="pixels")(image)
        outputs = [
            layers.Embedding(40, 2, name="same_words")(layers.Rescaling(1.0, name="one")(same)),
            layers.Embedding(30, 2, name="half_words")(layers.Rescaling(0.5, name="two")(half)),
            layers.Embedding(50, 2, name="moved_words")(
                layers.Rescaling(1.0, offset=-1.0, name="three")(moved)
            ),
            layers.Embedding(60, 2, name="through_words")(cast(cast(through, "float32"), "int32")),
            layers.Normalization(mean=0.5, variance=0.1, name="normalization")(scaled),
        ]
        return self.keras.Model([same, half, moved, through, image], outputs, name="net")

    def masked(self) -> Any:
        """Return one with masks that are called otherwise."""
        layers = self.layers
        values = self.input((6, 4), name="values")
        keep = self.input((6,), dtype="bool", name="keep")
        square = self.input((6, 6), name="square")
        attention = layers.MultiHeadAttention(2, 2, name="attention")
        attended = attention(values, values, attention_mask=square)
        recurrent = layers.GRU(3, name="gru")(attended, mask=keep)
        return self.keras.Model([values, keep, square], recurrent, name="net")

    def learnt(self) -> Any:
        """
        Return one whose inputs come to layers with statistics, through layers that move values:
        masked, joined, permuted and padded, cut, and scaled.
        """
        layers = self.layers
        plain, columns = self.input((2,), name="plain"), self.input((4,), name="columns")
        series, grid = self.input((None, 2), name="series"), self.input((2, 3), name="grid")
        first, second = self.input((1,), name="one"), self.input((2,), name="other")
        scaled, unit = self.input((2,), name="scaled"), self.input((3,), name="unit")
        steps = self.input((5, 2), name="steps")
        moved = layers.ZeroPadding1D(1, name="pad")(layers.Permute((2, 1), name="swap")(grid))
        outputs = [
            self.normalized("plain_norm", plain, [50.0, -200.0], [0.01, 400.0]),
            self.normalized("masked_norm", layers.Masking(-1.0)(series), [30.0, 86000.0], [1, 9]),
            layers.Normalization(
                mean=[5.0, -60.0, 700.0], variance=[1.0, 4.0, 9.0], name="joined_norm"
            )(layers.Concatenate(name="join")([first, second])),
            self.normalized(
                "moved_norm", layers.Flatten(name="flat")(moved), range(0, 1000, 100), [1.0] * 10
            ),
            layers.Normalization(mean=[8.0, 80.0], variance=[1.0, 1.0], name="cut_norm")(
                columns[:, 1:3]
            ),
            layers.Dense(1, name="rest")(columns),
            self.normalized(
                "scaled_norm",
                layers.Rescaling(0.5, offset=-1.0, name="half")(scaled),
                [10.0, 20.0],
                [4.0, 4.0],
            ),
            layers.Rescaling(1 / 1000, name="thousandth")(unit),
            layers.TimeDistributed(layers.BatchNormalization(), name="each_step")(steps),
        ]
        model = self.keras.Model(
            [plain, columns, series, grid, first, second, scaled, unit, steps], outputs, name="net"
        )
        inner = model.get_layer("each_step").layer
        inner.set_weights([*inner.get_weights()[:2], np.array([3.0, 90.0]), np.ones(2)])
        return model

    def normalized(self, name: str, values: Any, mean: Any, variance: Any) -> Any:
        """Return what a BatchNormalization with these statistics makes."""
        layer = self.layers.BatchNormalization(name=name)
        result = layer(values)
        layer.set_weights([*layer.get_weights()[:2], np.array(list(mean)), np.array(variance)])
        return result

    def unsaid(self) -> Any:
        """Return one that was never called."""
        return self.keras.Sequential([self.layers.Dense(2, name="dense")], name="net")


class Child:
    """One library, and the model of the last job."""

    def __init__(self, family: str) -> None:
        runtime()
        self.library = import_module("policytool_runtime.library").Library(family)
        self.feeding = import_module("policytool_runtime.feeding.inputs")
        self.serving = import_module("policytool_runtime.model_calls")
        sys.path.insert(0, str(ROOT / "fixtures"))
        classes = import_module("writer.custom_classes").classes(
            import_module("writer.api").open_release(RELEASES[family])
        )
        self.library.custom = {
            **classes,
            **{f"fixtures>{name}": cls for name, cls in classes.items()},
        }
        self.library.trust()
        self.last: tuple[str, Any] = ("", None)

    def model(self, name: str) -> Any:
        """Return a model of MODELS or of a file; the same as before where it has the same name."""
        if self.last[0] != name:
            build: Callable[[], Any] | None = getattr(Models(self.library), name, None)
            self.last = (
                name,
                build()
                if build is not None
                else self.library.load(name, compiled=False, trust=True),
            )
        return self.last[1]

    def answer(self, name: str, wanted: dict[str, Any]) -> dict[str, Any]:
        """Return what came of a job."""
        try:
            model = self.model(name)
        except Exception as error:  # noqa: BLE001  # whatever a library raises is its refusal
            return {"loaded": False, "error": str(error)[:200]}
        try:
            fed = self.feeding.feed_model(self.library, model, wanted)
        except self.feeding.Refused as error:
            return {"loaded": True, "refused": [error.code, str(error)]}
        nest = self.library.tf.nest
        called = self.library.tf.function(
            lambda inputs: nest.flatten(self.serving.call(model, inputs)),
            input_signature=[fed.specs],
            autograph=False,
        )
        for batch in fed.batches:
            called(batch)
        flat = [
            tensor
            for batch in fed.batches
            for tensor in nest.flatten(batch, expand_composites=True)
        ]
        floats = [
            np.asarray(tensor).astype("float64") for tensor in flat if tensor.dtype.is_floating
        ]
        return {
            "loaded": True,
            "report": fed.report,
            "batch_size": fed.batch_size,
            "specs": [spec.shape.as_list() for spec in nest.flatten(fed.specs)],
            "batches": [
                len(np.asarray(nest.flatten(batch, expand_composites=True)[0]))
                for batch in fed.batches
            ],
            "finite": all(bool(np.isfinite(array).all()) for array in floats),
        }


def main() -> None:
    """Do every job."""
    family, jobs, results = sys.argv[1:]
    child = Child(family)
    answers = [
        child.answer(name, wanted)
        for name, wanted in json.loads(Path(jobs).read_text(encoding="utf-8"))
    ]
    Path(results).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
