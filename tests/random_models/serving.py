"""The loop of a child process: jobs from a file, a line of JSON for each."""

from __future__ import annotations

import gc
import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.random_models.custom import custom_classes

if TYPE_CHECKING:
    from collections.abc import Callable


def serve(handle: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> None:
    """Handle each job of the command line with the library that it names."""
    library, listed, results = sys.argv[1:]
    keras = importlib.import_module(library)
    custom_classes(keras)
    jobs = json.loads(Path(listed).read_text(encoding="utf-8"))
    with Path(results).open("a", encoding="utf-8") as stream:
        for job in jobs:
            result = handle(keras, job)
            stream.write(json.dumps(result) + "\n")
            stream.flush()
            keras.backend.clear_session()
            gc.collect()


def reason() -> str:
    """Return the exception that is handled as one line."""
    kind, error, trace = sys.exc_info()
    frames = traceback.extract_tb(trace)
    place = next(
        (f"{Path(item.filename).name}:{item.lineno}" for item in reversed(frames)), "nowhere"
    )
    text = " ".join(str(error).split())
    return f"{kind.__name__ if kind else ''}: {text[:400]} [{place}]"
