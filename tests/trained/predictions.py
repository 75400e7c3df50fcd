"""
Predicts with models and their candidates: ``python -m tests.trained.predictions
LIBRARY[,MODULE...] PLACE...``, in an interpreter with the library; the modules register classes.

Each place is a directory of ``tests.trained.pairs``. What is known of the outputs is in
``facts.json``.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from policytool.runtime.feeding.reached_layers import last_activations


def feed(model: Any, rows: dict[str, Any]) -> Any:
    """
    Return rows as the model takes them: sparse and ragged ones as such, of which -1 is the padding.
    """
    fed = {}
    for tensor in model.inputs:
        name = tensor.name.partition(":")[0]
        array = rows[name]
        kind = type(tensor).__name__
        if "Sparse" in kind or getattr(tensor, "sparse", False):
            array = import_module("tensorflow").sparse.from_dense(array)
        elif "Ragged" in kind:
            ragged = import_module("tensorflow").RaggedTensor
            array = ragged.from_tensor(array, padding=-1)
        elif array.dtype.kind == "U":
            array = import_module("tensorflow").constant(array)
        fed[name] = array
    return fed if len(fed) > 1 else next(iter(fed.values()))


def output_names(model: Any) -> list[str]:
    """Return the names of the outputs; a Sequential of Keras 3 has the name of its last layer."""
    return list(getattr(model, "output_names", None) or [model.layers[-1].name])


def predict(model: Any, rows: dict[str, Any]) -> dict[str, Any]:
    """
    Return the outputs by name, in float32.

    JAX and torch run op by op, because JAX cannot compile attention in float16 for CPUs.
    """
    keras = sys.modules.get("keras")
    if keras is None or keras.backend.backend() == "tensorflow":
        result = model.predict(feed(model, rows), verbose=0)
    else:
        convert = keras.ops.convert_to_numpy
        result = keras.tree.map_structure(convert, model(feed(model, rows), training=False))
    if isinstance(result, dict):
        result = list(result.values())
    listed = result if isinstance(result, list) else [result]
    arrays = [np.asarray(array, "float32") for array in listed]
    return dict(zip(output_names(model), arrays, strict=True))


def output_facts(model: Any) -> list[dict[str, Any]]:
    """Return what the graph tells of each output."""
    activations = last_activations(model, len(model.outputs))
    return [
        {"name": name, "activation": activation, "shape": list(output.shape)}
        for name, activation, output in zip(
            output_names(model), activations, model.outputs, strict=True
        )
    ]


def main(arguments: list[str]) -> None:
    """Predict what each place asks for; at the end, name those that fail."""
    named, *places = arguments
    library, *modules = named.split(",")
    keras = import_module(library)
    for module in modules:
        import_module(module)
    if library == "keras":
        keras.config.enable_unsafe_deserialization()
    failures = []
    for place in map(Path, places):
        try:
            predict_place(keras, place)
            print(place, flush=True)
        except Exception as error:  # noqa: BLE001  # such as an input that a backend lacks
            failures.append(f"{place}: {error}")
    sys.exit("\n".join(failures) or 0)


def predict_place(keras: Any, place: Path) -> None:
    """Predict with each model that a place names."""
    with np.load(place / "inputs.npz") as file:
        rows = dict(file)
    for name, path in json.loads((place / "jobs.json").read_text(encoding="utf-8")).items():
        model = keras.models.load_model(path, compile=False)
        np.savez(place / f"{name}.npz", **predict(model, rows))
        if name == "reference":
            text = json.dumps(output_facts(model))
            (place / "facts.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
