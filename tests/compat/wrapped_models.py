"""
Writes models of one public function each, applied to inputs, and tells what their files name:
``python -m tests.compat.wrapped_models ANSWER``.

It runs under any release from TF 2.4 on. ANSWER gets, for each function, what the layers of the two
files name by their class, or why there is no model.
"""

# ruff: noqa: UP006, UP035, E402  # TF 2.4 runs under Python 3.8; its warnings are silenced first

from __future__ import annotations

import inspect
import json
import operator
import re
import signal
import sys
import tempfile
import warnings
import zipfile
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

warnings.simplefilter("ignore")

import h5py
import tensorflow as tf

from tests.compat import function_calls as made

MODERN = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 16)
keras: Any = import_module("tf_keras") if MODERN else tf.keras
tf_export: Any = import_module("tensorflow.python.util.tf_export")

DATA = json.loads(
    Path(__file__)
    .parents[2]
    .joinpath("policytool", "releases", "data", "pure_functions.json")
    .read_text(encoding="utf-8")
)

OTHERS = re.compile(
    r"(compat\.v1\.)?sparse\.(?!placeholder|map_values)\w+|experimental\.numpy\.(?!random|experimental_)\w+|keras\.losses\.(?!get|serialize|deserialize)\w+"
    r"|keras\.applications\.(imagenet_utils|resnet|vgg16|mobilenet|efficientnet)\.preprocess_input|keras\.preprocessing\.image\.smart_resize|keras\.backend\.(var|zeros_like|normalize_batch_in_training)"
    r"|compat\.v1\.losses\.(mean_squared_error|log_loss|huber_loss)|keras\.layers\.(add|average|concatenate|dot|maximum|minimum|multiply|subtract)"
)
"""Functions of users that are on no list, because Keras writes other names for them."""

KINDS = (
    "FLOAT",
    "INT",
    "TEXT",
    "SQUARE",
    "IMAGE",
    "COMPLEX",
    "VECTOR",
    "INDEX",
    "WIDE",
    "VOLUME",
    "LIST",
    "RAGGED",
    "SPARSE",
)
"""What stands for the required arguments, one kind after the other until Keras writes something."""

NAMED = {
    "TFOpLambda": "function",
    "SlicingOpLambda": "function",
    "InstanceProperty": "attr_name",
    "InstanceMethod": "attr_name",
    "ClassMethod": "method_name",
}
"""The config key that says what a layer of the class calls."""

SECONDS = 5
"""Far more than a model takes; a function that iterates over an input has no end."""

FRESH = 50
"""
After so many models the inputs are made anew: they remember each layer that was called with them.
"""

Case = Callable[[], Any]


def inputs() -> Dict[str, Any]:
    """Return an input for each tensor of ``function_calls`` that users have as one."""
    tensors = (
        "FLOAT",
        "INT",
        "VECTOR",
        "INDEX",
        "COMPLEX",
        "TEXT",
        "SQUARE",
        "WAVE",
        "LINE",
        "IMAGE",
        "VOLUME",
        "PIXELS",
        "LOGITS",
        "WIDE",
        "BACK",
    )
    found = {}
    for name in tensors:
        tensor = getattr(made, name)
        found[name] = keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=name.lower())
    found["RAGGED"] = keras.Input((None,), ragged=True, name="ragged")
    found["SPARSE"] = keras.Input((3,), sparse=True, name="sparse")
    return found


def apply(function: Callable[..., Any], *arguments: Any) -> Any:
    """
    Return a function of arguments; a text is the name of an input, which is looked up when the
    model is made.
    """
    return function(*(getattr(made, item) if isinstance(item, str) else item for item in arguments))


def of_operators() -> Dict[str, Case]:
    """Return what users write without naming a function."""
    found: Dict[str, Case] = {
        "~x": lambda: ~(made.FLOAT > 0),
        "x @ y": lambda: made.SQUARE @ made.SQUARE,
        "1 @ x": lambda: tf.constant([[1.0, 2.0]]) @ made.SQUARE,
        "x[y]": lambda: made.VECTOR[made.INDEX[0]],
        "x[mask]": lambda: made.FLOAT[made.FLOAT > 0.3],
    }
    for word in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
    ):
        for first, second in (
            ("FLOAT", "FLOAT"),
            ("FLOAT", 2.0),
            (2.0, "FLOAT"),
            ("RAGGED", 2.0),
            ("RAGGED", "RAGGED"),
        ):
            found[f"{first} {word} {second}"] = partial(
                apply, getattr(operator, word), first, second
            )
    for word in ("and_", "or_", "xor"):
        found[f"x {word} y"] = partial(apply, partial(bools, getattr(operator, word)), "FLOAT")
    for word in ("neg", "abs"):
        found[f"{word} x"] = partial(apply, getattr(operator, word), "FLOAT")
    for item in (0, slice(1, None), (..., None), (slice(None), slice(None, None, -1))):
        found[f"x[{item}]"] = partial(apply, operator.itemgetter(item), "FLOAT")
    for item in (0, (slice(None), slice(None, 1))):
        found[f"ragged[{item}]"] = partial(apply, operator.itemgetter(item), "RAGGED")
    return found


def bools(function: Callable[..., Any], tensor: Any) -> Any:
    """Return a function of two comparisons."""
    return function(tensor > 0, tensor < 1)


def of_composites() -> Dict[str, Case]:
    """Return what users write of ragged and sparse tensors, and the functions that accept them."""
    found: Dict[str, Case] = {}
    for word in DATA["instance_attributes"]["InstanceProperty"]:
        for kind in ("RAGGED", "SPARSE"):
            found[f"{kind}.{word}"] = partial(apply, operator.attrgetter(word), kind)
    arguments: Dict[str, Tuple[Any, ...]] = {
        "with_row_splits_dtype": (tf.int32,),
        "merge_dims": (0, 1),
    }
    for word in DATA["instance_attributes"]["InstanceMethod"]:
        found[f"ragged.{word}()"] = partial(
            apply, operator.methodcaller(word, *arguments.get(word, ())), "RAGGED"
        )
    found["ragged.with_values()"] = lambda: made.RAGGED.with_values(made.RAGGED.values * 2)
    found["ragged.with_flat_values()"] = lambda: made.RAGGED.with_flat_values(
        made.RAGGED.values * 2
    )
    found["sparse.with_values()"] = lambda: made.SPARSE.with_values(made.SPARSE.values)
    for word in (
        "sqrt",
        "abs",
        "reduce_sum",
        "reduce_mean",
        "reduce_max",
        "sigmoid",
        "log",
        "square",
        "sign",
        "tanh",
        "negative",
    ):
        found[f"math.{word} of ragged"] = partial(apply, getattr(tf.math, word), "RAGGED")
    found["concat of ragged"] = lambda: tf.concat([made.RAGGED, made.RAGGED], 1)
    found["stack of ragged"] = lambda: tf.stack([made.RAGGED, made.RAGGED])
    found["gather of ragged"] = lambda: tf.gather(made.RAGGED, [0])
    found["map_flat_values"] = lambda: tf.ragged.map_flat_values(tf.nn.relu, made.RAGGED)
    return found


def of_class_methods() -> Dict[str, Case]:
    """Return the ways to make a ragged tensor."""
    splits = tf.constant([0, 1, 3], tf.int64)
    rows: Dict[str, Case] = {
        "from_value_rowids": lambda: tf.RaggedTensor.from_value_rowids(made.VECTOR, made.INDEX),
        "from_row_splits": lambda: tf.RaggedTensor.from_row_splits(made.VECTOR, splits),
        "from_row_lengths": lambda: tf.RaggedTensor.from_row_lengths(
            made.VECTOR, tf.constant([1, 2], tf.int64)
        ),
        "from_row_starts": lambda: tf.RaggedTensor.from_row_starts(
            made.VECTOR, tf.constant([0, 1], tf.int64)
        ),
        "from_row_limits": lambda: tf.RaggedTensor.from_row_limits(
            made.VECTOR, tf.constant([1, 3], tf.int64)
        ),
        "from_uniform_row_length": lambda: tf.RaggedTensor.from_uniform_row_length(made.VECTOR, 3),
        "from_nested_value_rowids": lambda: tf.RaggedTensor.from_nested_value_rowids(
            made.VECTOR, [made.INDEX]
        ),
        "from_nested_row_splits": lambda: tf.RaggedTensor.from_nested_row_splits(
            made.VECTOR, [splits]
        ),
        "from_nested_row_lengths": lambda: tf.RaggedTensor.from_nested_row_lengths(
            made.VECTOR, [tf.constant([1, 2], tf.int64)]
        ),
        "from_tensor": lambda: tf.RaggedTensor.from_tensor(made.FLOAT),
        "from_sparse": lambda: tf.RaggedTensor.from_sparse(made.SPARSE),
    }
    return {f"RaggedTensor.{word}": case for word, case in rows.items()}


def of_names() -> Iterator[Tuple[str, Case]]:
    """Yield calls of public functions by their names, each way in which one may accept inputs."""
    listed = {name for names in DATA["functions"].values() for name in names}
    for name, symbol in sorted(tf_export._NAME_TO_SYMBOL_MAPPING.items()):  # noqa: SLF001  # what op layers look names up in
        if name not in listed and (not OTHERS.fullmatch(name) or inspect.isclass(symbol)):
            continue
        if name in made.RECIPES:
            yield name, partial(made.RECIPES[name], symbol)
            continue
        parameters = inspect.signature(symbol).parameters.values()
        needed = [
            item.name
            for item in parameters
            if item.default is item.empty and item.kind == item.POSITIONAL_OR_KEYWORD
        ]
        for kind in KINDS[:2] if name.startswith("experimental.") else KINDS:
            yield name, partial(generic, symbol, needed, kind)


def generic(symbol: Callable[..., Any], needed: List[str], kind: str) -> Any:
    """Return a function of one input for each of its required arguments."""
    tensor = [made.FLOAT, made.FLOAT] if kind == "LIST" else getattr(made, kind)
    return symbol(*(made.PARAMETERS.get(item, tensor) for item in needed))


def written(model: Any, folder: Path) -> Set[str]:
    """Return what the layers of a model's files name, as ``class: name``."""
    actual: Set[str] = set()
    model.save(str(folder / "model.h5"))
    with h5py.File(folder / "model.h5", "r") as file:
        text = file.attrs["model_config"]
    texts = [text if isinstance(text, str) else text.decode()]
    with suppress(
        TypeError, ValueError
    ):  # the newer format has no way to write an ellipsis, which the older one has
        if MODERN:
            model.save(str(folder / "model.keras"))
            with zipfile.ZipFile(folder / "model.keras") as archive:
                texts.append(archive.read("config.json").decode())
    for text in texts:
        for layer in json.loads(text)["config"]["layers"]:
            key = NAMED.get(layer["class_name"])
            if key is not None:
                config = layer["config"]
                prefix = config["cls_symbol"] + "." if "cls_symbol" in config else ""
                actual.add(f"{layer['class_name']}: {prefix}{config[key]}")
    return actual


def _interrupt(_number: int, _frame: Any) -> None:
    raise TimeoutError


def outcome(case: Case, folder: Path) -> Tuple[List[str], str]:
    """Return what the files of a model of the case name, or why there is none."""
    signal.setitimer(
        signal.ITIMER_REAL, SECONDS, 1
    )  # again each second: what is raised in a destructor is lost
    try:
        results = [item for item in tf.nest.flatten(case()) if keras.backend.is_keras_tensor(item)]
        if not results:
            return [], "computes nothing from the inputs"
        sources = {
            item.ref(): item for result in results for item in keras.utils.get_source_inputs(result)
        }
        model = keras.Model(list(sources.values()), results)
        return sorted(written(model, folder)), ""
    except Exception as error:  # noqa: BLE001  # whatever Keras says of a function that it does not wrap
        return [], f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> None:
    """Try every case, and write what came of it."""
    signal.signal(signal.SIGALRM, _interrupt)
    found: Dict[str, Dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, case) in enumerate(
            [
                *of_operators().items(),
                *of_composites().items(),
                *of_class_methods().items(),
                *of_names(),
            ]
        ):
            if found.get(name, {}).get("written"):
                continue
            if number % FRESH == 0:
                keras.backend.clear_session()
                vars(made).update(inputs())
            names, error = outcome(case, Path(folder))
            if names or name not in found:
                found[name] = {"written": names, "error": error}
    Path(sys.argv[1]).write_text(
        json.dumps({"version": tf.__version__, "cases": found}), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
