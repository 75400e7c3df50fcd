"""
Loads models with every library that may get them, and calls them: ``python loading_child.py JOBS
ANSWERS``, under the interpreter that has TensorFlow.

Before each model it tries to open a file that is not there, ``job-N:``, so that a list of the
process' calls says which model made which.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 60
"""For one model and library; a graph may wait for ever."""


class _LateError(BaseException):
    """A load that did not return."""


def _late(_number: int, _frame: object) -> None:
    raise _LateError


def _marked(folder: str, name: str) -> None:
    with contextlib.suppress(OSError):
        os.close(
            os.open(os.path.join(folder, name), os.O_RDONLY)  # noqa: PTH118  # one call of the system and no other
        )


def _called(library: Any, model: Any) -> None:
    """Call a model with ones, so that what its calls do is seen as well."""
    import numpy as np

    given = [
        np.ones([2 if size is None else size for size in input_value.shape], dtype="float32")
        for input_value in model.inputs
    ]
    model(given if len(given) > 1 else given[0])
    library.utils.set_random_seed(1)


def _loads(path: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the libraries that may get a model, and what loads and calls it."""
    import keras
    import tensorflow as tf
    import tf_keras

    if Path(path).is_dir():
        yield "tensorflow", partial(_serve, tf, path)
        return
    for library in (tf_keras, keras):
        if not (library is tf_keras and path.endswith(".keras")):
            yield library.__name__, partial(_load, library, path)


def _load(library: Any, path: str) -> None:
    """Load a model as Keras does it, and call it."""
    if path.endswith(".json"):
        _called(library, library.models.model_from_json(Path(path).read_text(encoding="utf-8")))
    else:
        _called(library, library.models.load_model(path, compile=False, safe_mode=True))


def _serve(tf: Any, path: str) -> None:
    """Load a SavedModel and call each of its signatures."""
    model = tf.saved_model.load(path, tags=["serve"])
    for served in model.signatures.values():
        inputs = served.structured_input_signature[1]
        served(
            **{
                name: tf.ones(
                    [2 if size is None else size for size in spec.shape or ()], spec.dtype
                )
                for name, spec in inputs.items()
            }
        )


def main(jobs: str, answers: str) -> None:
    """Load every model and write down what became of it."""
    import keras
    import tensorflow as tf
    import tf_keras

    folder, first, paths = json.loads(Path(jobs).read_text(encoding="utf-8"))
    signal.signal(signal.SIGALRM, _late)
    tf.constant(1.0) + 1.0  # devices are set up before anything is watched
    tf_keras.Sequential([tf_keras.layers.Dense(1)])(tf.ones([1, 1]))
    keras.Sequential([keras.layers.Dense(1)])(tf.ones([1, 1]))
    with Path(answers).open("a", encoding="utf-8") as file:
        for number, path in enumerate(paths, first):
            _marked(folder, f"job-{number}:")
            ended = {}
            for name, load in _loads(path):
                signal.alarm(SECONDS)
                try:
                    load()
                    ended[name] = "loaded"
                except BaseException as error:  # noqa: BLE001  # whatever a library raises is its answer
                    ended[name] = f"{type(error).__name__}: {str(error)[:200]}"
                signal.alarm(0)
            file.write(json.dumps(ended) + "\n")
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
