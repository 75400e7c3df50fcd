"""
Make SavedModels and hold their graphs against what mixed precision makes of them: ``python
rewrites.py SCRATCH RESULTS [PATH ...]``.

RESULTS gets ``{case: {policy: answer}}``, where a case is the name of a model that is made here, or
a PATH, and an answer is what ``policytool.runtime.graphs.graph_check`` returns, or
``{"code": ..., "message": ...}`` for a refusal. ``oracle`` holds what NumPy and TensorFlow's own
ops say.
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

tf: Any = import_module("tensorflow")

RUNTIME: Final = Path(__file__).parents[2] / "policytool" / "runtime"
POLICIES: Final = ("mixed_float16", "mixed_bfloat16")
VALUE: Final = 10.0
SIDE: Final = 128
ROWS: Final = 3


def runtime(module: str) -> Any:
    """Return a module of the child's package, as the child itself imports it."""
    if "policytool_runtime" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "policytool_runtime", RUNTIME / "__init__.py", submodule_search_locations=[str(RUNTIME)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["policytool_runtime"] = package
        spec.loader.exec_module(package)
    return import_module(f"policytool_runtime.{module}")


def weights(*shape: int) -> Any:
    """Return the same random weights at every call."""
    return np.random.RandomState(0).normal(size=shape).astype("float32")


def spec(*shape: int | None, name: str = "x", dtype: str = "float32") -> Any:
    """Return what a function takes."""
    return tf.TensorSpec(shape, dtype, name=name)


class Dense(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """Two matrix products with a Relu between."""

    def __init__(self) -> None:
        """Make the weights."""
        super().__init__()
        self.first, self.second = tf.Variable(weights(8, 6)), tf.Variable(weights(6, 4))

    def call(self, x: Any) -> Any:
        """Return what the second makes of the first."""
        with tf.name_scope("first"):
            x = tf.nn.relu(tf.matmul(x, self.first))
        with tf.name_scope("second"):
            return {"y": tf.matmul(x, self.second)}


class Bare(Dense):
    """The same without scopes."""

    def call(self, x: Any) -> Any:
        """Return what the second makes of the first."""
        return {"y": tf.matmul(tf.nn.relu(tf.matmul(x, self.first)), self.second)}


class Pooled(tf.Module):  # type: ignore[misc]  # as above
    """
    A convolution that changes nothing, the mean of its pixels, and a matrix product that changes
    nothing.
    """

    def __init__(self) -> None:
        """Make the weights."""
        super().__init__()
        self.kernel, self.weights = tf.Variable(tf.ones([1, 1, 1, 1])), tf.Variable(tf.eye(1))

    def call(self, x: Any) -> Any:
        """Return the mean of each image."""
        with tf.name_scope("conv"):
            x = tf.nn.relu(tf.nn.conv2d(x, self.kernel, 1, "SAME"))
        with tf.name_scope("pool"):
            x = tf.reduce_mean(x, [1, 2])
        with tf.name_scope("dense"):
            return {"y": tf.matmul(x, self.weights)}


class Stateful(tf.Module):  # type: ignore[misc]  # as above
    """A counter that every call raises, random numbers, tables, and an asset."""

    def __init__(self, words: Path) -> None:
        """Make the weights and tables."""
        super().__init__()
        self.weights, self.count = tf.Variable(weights(8, 4)), tf.Variable(0.0)
        pairs = tf.lookup.KeyValueTensorInitializer(
            tf.constant(["red", "green"]), tf.constant([1, 2], tf.int64)
        )
        self.table = tf.lookup.StaticHashTable(pairs, 7)
        self.words = tf.saved_model.Asset(str(words))
        lines = tf.lookup.TextFileInitializer(
            self.words,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.lines = tf.lookup.StaticHashTable(lines, -1)

    def call(self, x: Any, word: Any) -> Any:
        """Return what depends on all of it."""
        self.count.assign_add(1.0)
        with tf.name_scope("counted"):
            x = tf.matmul(x, self.weights) * self.count
        with tf.name_scope("noisy"):
            noisy = tf.nn.relu(x) + 1000.0 * tf.random.normal(tf.shape(x))
        with tf.name_scope("back"):
            y = tf.matmul(noisy, tf.transpose(self.weights))
        return {
            "y": y,
            "class": tf.argmax(x, -1),
            "id": self.table.lookup(word),
            "line": self.lines.lookup(word),
        }


class Nothing(tf.Module):  # type: ignore[misc]  # as above
    """No op that a rewrite begins with."""

    def call(self, x: Any) -> Any:
        """Return twice the exponential."""
        with tf.name_scope("scaled"):
            return {"y": tf.exp(x) * 2.0}


def save(module: Any, path: Path, *specs: Any, signatures: bool = True) -> None:
    """Save a module with its call as its one signature, or without any."""
    module.serve = tf.function(module.call, input_signature=specs)
    tf.saved_model.save(
        module, str(path), signatures={"serve": module.serve} if signatures else None
    )


def save_twins(path: Path) -> None:
    """
    Save signatures with the same graph, and others that differ from them in a variable, an op, the
    output or the input.
    """
    module = Dense()
    other = tf.Variable(module.first + 1.0)
    module.other = other

    def product(weight: Any, output: str, *, name: str = "x", then: Any = tf.nn.relu) -> Any:
        return tf.function(
            lambda **given: {output: then(tf.matmul(given[name], weight))}, autograph=False
        ).get_concrete_function(**{name: spec(None, 8, name=name)})

    signatures = {
        "a_twin": product(module.first, "y"),
        "serving_default": product(module.first, "y"),
        "variable": product(other, "y"),
        "op": product(module.first, "y", then=tf.nn.tanh),
        "output": product(module.first, "z"),
        "input": product(module.first, "y", name="other"),
    }
    tf.saved_model.save(module, str(path), signatures=signatures)


def save_old_loop(path: Path) -> None:
    """Save a graph of TF 1 with a loop, a branch, and variables of its kind."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.disable_control_flow_v2()
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], "x")
        kernel = tf.compat.v1.get_variable(
            "kernel", initializer=tf.constant(weights(8, 8)), use_resource=False
        )
        _, looped = tf.compat.v1.while_loop(
            lambda turn, _: turn < ROWS,
            lambda turn, one: (turn + 1, tf.nn.relu(tf.matmul(one, kernel)) / 5.0),
            [0, x],
        )
        with tf.compat.v1.name_scope("head"):
            y = tf.matmul(
                tf.cond(tf.reduce_sum(x) > 0, lambda: tf.nn.relu(looped), lambda: looped), kernel
            )
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y})
        tf.compat.v1.enable_control_flow_v2()


def save_unknown_class(path: Path) -> None:
    """Save a Keras model with a layer whose class is gone afterwards."""
    keras: Any = import_module("tf_keras")

    class Gone(keras.layers.Layer):  # type: ignore[misc]  # tf_keras has no types
        def build(self, _: Any) -> None:
            self.kernel = self.add_weight(name="kernel", shape=(8, 4))

        def call(self, inputs: Any) -> Any:
            return tf.matmul(inputs, self.kernel)

    model = keras.Sequential(
        [keras.Input((8,)), Gone(name="gone"), keras.layers.Dense(3, name="head")]
    )
    model.save(str(path), save_format="tf")


def made(scratch: Path) -> dict[str, Path]:
    """Save the models of this file; return where each is."""
    words = scratch / "words.txt"
    words.write_text("green\nred\n", encoding="utf-8")
    names = (
        "dense",
        "unsigned",
        "bare",
        "pooled",
        "stateful",
        "nothing",
        "old_loop",
        "unknown_class",
        "twins",
    )
    paths = {name: scratch / name for name in names}
    save(Dense(), paths["dense"], spec(None, 8))
    save(Dense(), paths["unsigned"], spec(None, 8), signatures=False)
    save(Bare(), paths["bare"], spec(None, 8))
    save(Pooled(), paths["pooled"], spec(None, None, None, 1))
    save(Stateful(words), paths["stateful"], spec(None, 8), spec(None, name="word", dtype="string"))
    save(Nothing(), paths["nothing"], spec(None, 8))
    save_twins(paths["twins"])
    save_old_loop(paths["old_loop"])
    save_unknown_class(paths["unknown_class"])
    return paths


def fed(library: Any) -> Callable[[Any, Any], Any]:
    """Return what gives a signature inputs as a check does."""
    expected = {"file": None, "save": None, "batches": 2, "batch_size": ROWS, "seed": 0}
    return lambda signature, root: runtime("feeding.inputs").feed_signature(
        library, signature, root, expected
    )


def only(batches: list[Any], told: dict[str, Any]) -> Any:
    """Return what feeds these batches and no others."""
    return runtime("feeding.batches").FedInputs(batches, None, ROWS, told)


def tens(_: Any, __: Any) -> Any:
    """Return one batch of images of one value."""
    actual: dict[str, Any] = {
        "kind": "given",
        "seed": None,
        "batches": 1,
        "batch_size": ROWS,
        "inputs": [],
    }
    return only([{"x": tf.fill([ROWS, SIDE, SIDE, 1], VALUE)}], actual)


def words(library: Any) -> Callable[[Any, Any], Any]:
    """
    Return what gives the numbers that are drawn for it with words that the tables know, and one
    that they do not.
    """

    def batches(signature: Any, root: Any) -> Any:
        drawn = fed(library)(signature, root)
        known = tf.constant(["red", "green", "blue"])
        return only([{**batch, "word": known} for batch in drawn.batches], drawn.report)

    return batches


def answered(path: str, wanted: dict[str, Any], inputs_for: Any, library: Any) -> Any:
    """Return the answer, or the refusal."""
    try:
        return runtime("graphs.graph_check").measure_graph(
            library, path, wanted, inputs_for, lambda _: None
        )
    except runtime("library").Refused as error:
        return {"code": error.code, "message": str(error)}


def oracle(scratch: Path, library: Any) -> dict[str, Any]:
    """
    Return what NumPy makes of float16 that is rounded to and from, and what TensorFlow makes of
    means in 16 bits.
    """
    root = tf.saved_model.load(str(scratch / "dense"))
    batches = [
        np.asarray(batch["x"]) for batch in fed(library)(root.signatures["serve"], root).batches
    ]

    def narrow(array: Any) -> Any:
        return array.astype("float16").astype("float32")

    errors = []
    for batch in batches:
        plain = np.maximum(batch @ weights(8, 6), 0) @ weights(6, 4)
        hidden = np.maximum(narrow(narrow(batch) @ narrow(weights(8, 6))), 0)
        errors.append(np.abs(plain - narrow(hidden @ narrow(weights(6, 4)))).max())
    counter = tf.saved_model.load(str(scratch / "stateful"))
    counted = [
        np.asarray(batch["x"]) @ weights(8, 4)
        for batch in words(library)(counter.signatures["serve"], counter).batches
    ]
    image = tf.fill([ROWS, SIDE, SIDE, 1], VALUE)
    means = {
        name: float(tf.reduce_mean(tf.cast(image, name), [1, 2])[0, 0])
        for name in ("float16", "bfloat16")
    }
    return {
        "emulated": float(max(errors)),
        "means": means,
        "counted": float(sum((item.astype("float64") ** 2).sum() for item in counted)),
    }


def main() -> None:
    """Answer every case under both policies, and a few that are refused."""
    scratch, results, *paths = sys.argv[1:]
    cases = {**made(Path(scratch)), **{path: Path(path) for path in paths}}
    library = runtime("library").Library("keras2")
    found: dict[str, Any] = {}
    for name, path in cases.items():
        inputs_for = (
            tens if name == "pooled" else words(library) if name == "stateful" else fed(library)
        )
        found[name] = {
            policy: answered(str(path), {"policy": policy, "device": "cpu"}, inputs_for, library)
            for policy in POLICIES
        }
    refused: dict[str, dict[str, Any]] = {
        "bfloat16 on a GPU": {"policy": "mixed_bfloat16", "device": "gpu:0"},
        "another policy": {"policy": "float64", "device": "cpu"},
        "another signature": {
            "policy": "mixed_float16",
            "device": "cpu",
            "signatures": ["classify"],
        },
    }
    found["refused"] = {
        name: answered(str(cases["dense"]), wanted, fed(library), library)
        for name, wanted in refused.items()
    }
    found["oracle"] = oracle(Path(scratch), library)
    Path(results).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
