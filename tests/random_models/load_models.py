"""
A child process that loads models, and says what they compute, are made of and were trained to.

    python -m tests.random_models.load_models LIBRARY JOBS RESULTS
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.random_models.predictions import (
    given_inputs,
    layer_dtypes,
    optimizer_variables,
    predict,
    save_arrays,
)
from tests.random_models.serving import reason, serve


def handle(keras: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Load one file with and without its optimizer; return what is wrong, or nothing."""
    found: dict[str, Any] = {}
    for compiled in (False, True):
        if compiled and not job["compiled"]:
            continue
        suffix = "_compiled" if compiled else ""
        try:
            model = keras.models.load_model(job["path"], compile=compiled)
        except Exception:  # noqa: BLE001  # what the library says is the result
            return {**found, f"error{suffix}": reason()}
        try:
            found |= _measure(model, job, suffix)
        except Exception:  # noqa: BLE001  # as above
            return {**found, f"call{suffix}": reason()}
    return found


def _measure(model: Any, job: dict[str, Any], suffix: str) -> dict[str, Any]:
    folder = Path(job["folder"])
    with np.load(job["inputs"]) as stored:
        arrays = [stored[str(number)] for number in range(len(stored.files))]
    inputs = given_inputs(job["structure"], job["names"], arrays)
    save_arrays(folder / f"outputs{suffix}.npz", predict(model, inputs))
    if not suffix:
        return {"dtypes": layer_dtypes(model)}
    state = optimizer_variables(model)
    save_arrays(folder / "state.npz", {str(n): one for n, one in enumerate(state)})
    return {"state": len(state)}


if __name__ == "__main__":
    serve(handle)
