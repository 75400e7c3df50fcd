"""
What the layers of a library say of themselves: ``python layer_answers.py LIBRARY``.

Writes by class the names of the arguments of its call, and whether a layer casts its inputs; null
for a class that none of :data:`ARGUMENTS` builds.
"""

from __future__ import annotations

import inspect
import json
import sys
from importlib import import_module
from typing import Any, Final

ARGUMENTS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"units": 2},
    {"rate": 0.5},
    {"stddev": 0.5},
    {"filters": 2, "kernel_size": 2},
    {"kernel_size": 2},
    {"pool_size": 2},
    {"output_size": 2},
    {"input_dim": 3, "output_dim": 2},
    {"equation": "ab,bc->ac", "output_shape": 2},
    {"activation": "relu"},
    {"num_heads": 2, "key_dim": 2},
    {"head_dim": 2, "num_query_heads": 2, "num_key_value_heads": 1},
    {"target_shape": (2, 2)},
    {"dims": (2, 1)},
    {"n": 2},
    {"axes": 1},
    {"scale": 2.0},
    {"height": 4, "width": 4},
    {"num_tokens": 3},
    {"num_bins": 3},
    {"factor": 0.1},
    {"factor": 4},
    {"height_factor": 0.1},
    {"height_factor": 0.1, "width_factor": 0.1},
)
"""What layers may need to be built; the first that a class takes."""


def casts(layer_class: Any) -> bool | None:
    """Return whether a layer casts its inputs."""
    for arguments in ARGUMENTS:
        try:
            layer = layer_class(**arguments)
        except (AttributeError, ImportError, TypeError, ValueError):  # it needs others
            continue
        return bool(getattr(layer, "autocast", getattr(layer, "_autocast", None)))
    return None


def answer(layer_class: Any) -> dict[str, Any]:
    """Return what a class says."""
    call = [key for key in inspect.signature(layer_class.call).parameters if key != "self"]
    return {"call": call, "casts": casts(layer_class)}


def main() -> None:
    """Ask all public classes of layers."""
    library: Any = import_module(sys.argv[1])
    classes: dict[str, Any] = vars(library.layers)
    answers = {
        layer_class.__name__: answer(layer_class)
        for layer_class in classes.values()
        if inspect.isclass(layer_class) and issubclass(layer_class, library.layers.Layer)
    }
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main()
