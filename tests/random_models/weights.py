"""Values of variables that no initializer gives, so that a lost variable shows."""

from __future__ import annotations

from typing import Any

import numpy as np


def name_of(variable: Any) -> str:
    """Return a variable's path."""
    return str(getattr(variable, "path", None) or variable.name)


def to_array(value: Any) -> Any:
    """Return a tensor or a variable as an array; 16 bits become 32."""
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return array.astype("float32") if array.dtype.name in {"bfloat16", "float16"} else array


def randomize(model: Any, seed: int) -> None:
    """
    Give a model's variables of floats random values; those that a layer counts with stay as they
    are.
    """
    random = np.random.default_rng(seed)
    for variable in model.weights:
        if "float" not in str(variable.dtype):
            continue
        name, shape = name_of(variable), tuple(variable.shape)
        if "variance" in name:
            values = random.uniform(0.5, 1.5, shape)
        elif "gamma" in name or "scale" in name:
            values = random.uniform(0.6, 1.4, shape)
        elif len(shape) < 2:
            values = random.normal(0, 0.2, shape)
        else:
            fan = max(1, int(np.prod(shape[:-1])))
            values = random.normal(0, min(0.6, 1 / np.sqrt(fan)), shape)
        variable.assign(values.astype("float32"))
    refresh(model)


def refresh(model: Any) -> None:
    """Let layers compute with the values of their variables that they keep elsewhere as well."""
    for layer in model._flatten_layers(include_self=False):  # noqa: SLF001  # public in neither library
        if type(layer).__name__ == "Normalization":
            layer.finalize_state()


def perturb(variables: list[Any], eps: float, seed: int) -> list[Any]:
    """Change variables of floats by about one rounding, and return what they were."""
    random = np.random.default_rng(seed)
    before = []
    for variable in variables:
        if "float" not in str(variable.dtype):
            continue
        old = variable.numpy() if hasattr(variable, "numpy") else np.asarray(variable)
        before.append((variable, old))
        signs = random.choice([-1.0, 1.0], tuple(variable.shape))
        new = np.asarray(old, "float64") * (1 + signs * eps)
        variable.assign(new.astype("float64" if "float64" in str(variable.dtype) else "float32"))
    return before
