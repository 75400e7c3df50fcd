"""
Writes the models of ``fixtures/writer/operation_cases.py`` under the newest Keras and loads each.

``operation_calls.py OUT`` writes ``OUT/NUMBER.keras`` and ``OUT/loads.json``: by file name the
expression, and what loading the file raised.
"""

# Keras reads the environment

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))
operation_cases = importlib.import_module("writer.operation_cases")


def main() -> None:
    """Run the command line."""
    folder, found = Path(sys.argv[1]), {}
    for number, text in enumerate(operation_cases.expressions()):
        path = folder / f"{number:03}.keras"
        try:
            operation_cases.model(keras, text).save(path)
        except Exception:  # noqa: BLE001  # no model, or no file, comes of the expression
            path.unlink(missing_ok=True)
            continue
        try:
            keras.saving.load_model(path, compile=False)
            error = None
        except Exception as raised:  # noqa: BLE001  # what the file makes of itself
            error = f"{type(raised).__name__}: {' '.join(str(raised).split())[-300:]}"
        found[path.name] = [text, error]
    (folder / "loads.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
