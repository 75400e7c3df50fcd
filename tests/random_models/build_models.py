"""
A child process that builds models from their descriptions, saves them, and records what they
compute.

    python -m tests.random_models.build_models LIBRARY JOBS RESULTS
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.random_models.description import from_json, without_policies
from tests.random_models.live import GraphBuilder, set_policy, train
from tests.random_models.predictions import (
    given_inputs,
    layer_dtypes,
    optimizer_variables,
    predict,
    save_arrays,
)
from tests.random_models.samples import samples
from tests.random_models.serving import reason, serve
from tests.random_models.weights import perturb, randomize, refresh, to_array

if TYPE_CHECKING:
    from tests.random_models.description import Graph, Recipe

_EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
_SINGLE = 2.0**-24
_FAR = 2.0**-6
_STEPS = 4
_LOST = 0.25


def handle(keras: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Build one model; return its truth, or why it cannot be built."""
    try:
        return _build(keras, job)
    except Exception:  # noqa: BLE001  # a model that the library does not take is told with its reason
        return {"error": reason()}


def _build(keras: Any, job: dict[str, Any]) -> dict[str, Any]:
    recipe = from_json(job["recipe"])
    keras.utils.set_random_seed(recipe.seed)
    set_policy(keras, recipe)
    try:
        model = GraphBuilder(keras, recipe.graph).model()
    finally:
        set_policy(keras, None)
    arrays = samples(recipe.graph, recipe.seed)
    inputs = given_inputs(
        recipe.graph.structure, [spec.name for spec in recipe.graph.inputs], arrays
    )
    predict(model, inputs)
    randomize(model, recipe.seed)
    if recipe.training is not None:
        train(keras, model, recipe.training, inputs)
    if not all(np.isfinite(to_array(weight)).all() for weight in model.weights):
        raise ArithmeticError("training has made its weights NaN or infinite")
    outputs = predict(model, inputs)
    model.save(job["path"], **({"save_format": "tf"} if recipe.container == "tf" else {}))
    own, outputs, dtypes = _own_load(keras, job["path"], model, inputs, outputs)
    folder = Path(job["folder"])
    save_arrays(folder / "inputs.npz", {str(n): one for n, one in enumerate(arrays)})
    save_arrays(folder / "outputs.npz", outputs)
    state = optimizer_variables(model)
    save_arrays(folder / "state.npz", {str(n): one for n, one in enumerate(state)})
    computed = {compute for compute, _ in layer_dtypes(model).values()} | _entries(recipe.graph)
    eps = max((_EPS.get(name, _SINGLE) for name in computed), default=_SINGLE)
    return {
        "dtypes": dtypes,
        "noise": max(
            _deviation(keras, recipe, model, inputs) if eps > _SINGLE else 0.0,
            _noise(model, inputs, outputs, eps),
        ),
        "eps": eps,
        "own": own,
        "finite": all(bool(np.isfinite(item).all()) for item in outputs.values()),
    }


def _entries(graph: Graph) -> set[str]:
    """Return the float dtypes that models in a model cast what they are called on to."""
    inner = [node.graph for node in graph.walk() if node.graph is not None]
    return {spec.dtype for item in inner for spec in item.inputs if "float" in spec.dtype}


def _own_load(
    keras: Any, path: str, model: Any, inputs: Any, outputs: dict[str, Any]
) -> tuple[str, dict[str, Any], dict[str, list[str]]]:
    """
    Return why the library itself does not load what it saved, what the file predicts there, and the
    dtypes of its layers: Keras 3 does not store what a SpatialDropout computes in.
    """
    try:
        loaded = keras.models.load_model(path)
        again = predict(loaded, inputs)
    except Exception:  # noqa: BLE001  # what the library says is the result
        return reason(), outputs, _stored_dtypes(model)
    same = all(
        np.array_equal(one, outputs[name], equal_nan=one.dtype.kind == "f")
        if one.dtype.kind != "f"
        else np.allclose(one, outputs[name], rtol=1e-3, atol=1e-5, equal_nan=True)
        for name, one in again.items()
    )
    result = "" if same else "predicts something else once its own library has loaded it"
    return result, again, layer_dtypes(loaded)


def _stored_dtypes(model: Any) -> dict[str, list[str]]:
    """Return the dtypes that a file of a model says, which its library does not load."""
    try:
        return layer_dtypes(type(model).from_config(model.get_config()))
    except Exception:  # noqa: BLE001  # then only the model itself says them
        return layer_dtypes(model)


def _noise(model: Any, inputs: Any, outputs: dict[str, Any], eps: float) -> float:
    """Return how far predictions go, of the largest, if each weight is off by one rounding."""
    perturb(model.weights, 2 * eps, 1)  # half of it would be lost in rounding
    return _distance(predict(model, inputs), outputs)


def _deviation(keras: Any, recipe: Recipe, model: Any, inputs: Any) -> float:
    """
    Return a fraction of how far predictions of a model in 16 bits are from those in float32: about
    as far may those of another library be, which rounds elsewhere.

    :raises ArithmeticError: if they are so far off that they say nothing about a conversion
    """
    plain = GraphBuilder(keras, without_policies(recipe.graph)).model()
    predict(plain, inputs)
    if [tuple(weight.shape) for weight in plain.weights] != [
        tuple(weight.shape) for weight in model.weights
    ]:
        return 0.0
    for one, other in zip(plain.weights, model.weights, strict=True):
        one.assign(to_array(other))
    refresh(plain)
    expected = predict(plain, inputs)
    result = predict(model, inputs)
    floats = [name for name, one in result.items() if one.dtype.kind == "f"]
    if any(np.isfinite(expected[name])[~np.isfinite(result[name])].any() for name in floats):
        raise ArithmeticError("in float32 it predicts numbers where it predicts none in 16 bits")
    distance = _distance(result, expected)
    if distance > _LOST:
        raise ArithmeticError(f"in float32 it predicts something else, {distance:.0%} off")
    return min(distance, _FAR) / _STEPS


def _distance(found: dict[str, Any], outputs: dict[str, Any]) -> float:
    return max(
        (
            float(np.nanmax(np.abs(one - outputs[name])))
            / max(float(np.nanmax(np.abs(outputs[name]))), 1e-30)
            for name, one in found.items()
            if one.dtype.kind == "f" and one.size and np.isfinite(outputs[name]).any()
        ),
        default=0.0,
    )


if __name__ == "__main__":
    serve(handle)
