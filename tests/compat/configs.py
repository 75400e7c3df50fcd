"""
Load models with one library and write down their configs and weights: ``python configs.py LIBRARY
PATHS RESULTS``.

PATHS is a JSON list of files; RESULTS gets a list with ``config`` (``get_config()`` of the model),
and ``weights`` (the SHA-256 of each), for each of them, or with ``error`` where it does not load.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def told(model: Any) -> dict[str, Any]:
    """Return what a loaded model says of itself."""
    weights = [
        hashlib.sha256(np.ascontiguousarray(weight).tobytes()).hexdigest()
        for weight in model.get_weights()
    ]
    return {
        "config": json.loads(json.dumps(model.get_config(), default=str)),
        "weights": sorted(weights),
    }


def loaded(keras: Any, path: str) -> dict[str, Any]:
    """Return what a library says of the model in a file."""
    try:
        return told(keras.models.load_model(path, compile=False))
    except Exception as raised:  # noqa: BLE001  # whatever a loader raises is what we want to know
        return {"error": f"{type(raised).__name__}: {raised}"}


def main() -> None:
    """Run the command line."""
    library, paths, results = sys.argv[1:]
    keras: Any = import_module(library)
    actual = [loaded(keras, path) for path in json.loads(Path(paths).read_text(encoding="utf-8"))]
    Path(results).write_text(json.dumps(actual), encoding="utf-8")


if __name__ == "__main__":
    main()
