"""
Calls functions of TensorFlow with small tensors, in the process that ``tests.helpers.attacks``
traces.

A call is ``[NAME]``, which is tried with what ``function_calls`` says or with one small tensor
after the other, or ``[NAME, TEXT, ...]``. It ends with 0 if a try succeeds, and says the names of
the function's parameters; with 1 and the first error if none does, and with 2 if there is no such
function.
"""

from __future__ import annotations

import inspect
import json
import resource
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from tests.compat import function_calls as made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

import_module("tf_keras")
tf_export: Any = import_module("tensorflow.python.util.tf_export")

KINDS: Final = (
    *(
        made.FLOAT,
        made.INT,
        tf.cast(made.INT, tf.bool),
        made.TEXT,
        made.SQUARE,
        made.IMAGE,
        made.COMPLEX,
        made.VECTOR,
        made.INDEX,
    ),
    *(
        tf.cast(made.INDEX, tf.int64),
        made.VOLUME,
        [made.FLOAT, made.FLOAT],
        made.RAGGED,
        made.SPARSE,
        tf.constant(0.5),
        tf.constant(b"ab"),
    ),
)
"""
What stands for every required argument that ``made.PARAMETERS`` does not name, one after the other
until the function accepts it.
"""


def attempts(name: str, function: Callable[..., Any]) -> Iterator[Callable[[], Any]]:
    """Yield calls of a function: the written one, or one with each kind of tensor."""
    if name in made.RECIPES:
        yield partial(made.RECIPES[name], function)
        return
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    needed = [
        item.name for item in parameters if item.default is item.empty and item.kind in positional
    ]
    for tensor in KINDS:
        yield partial(function, *(made.PARAMETERS.get(item, tensor) for item in needed))


def answer(name: str, *texts: str) -> tuple[int, str]:
    """Call a function; return how that ended and what is said of it."""
    function = tf_export.get_symbol_from_name(name)
    if function is None:
        return 2, ""
    errors = []
    for attempt in (partial(function, *texts),) if texts else attempts(name, function):
        try:
            attempt()
        except Exception as error:  # noqa: BLE001  # whatever a function says of arguments that it does not accept
            errors.append(f"{type(error).__name__}: {str(error)[:300]}")
        else:
            return 0, " ".join(inspect.signature(function).parameters)
    return 1, errors[0]


def main() -> None:
    """Call the functions of the first file, and write the second."""
    ended = []
    for call in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        code, text = answer(*call)
        ended.append({"code": code, "out": text, "err": "", "seconds": 0.0})
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    Path(sys.argv[2]).write_text(json.dumps({"ended": ended, "memory": memory}), encoding="utf-8")
