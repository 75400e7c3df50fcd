"""
``python .../tf_runtime/installed.py``: print the release of TensorFlow and of each Keras that this
interpreter can import, as one JSON object.

A module is looked for and not imported, so that the answer takes milliseconds. A release is null if
the environment does not record it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys

MODULES = {
    "tensorflow": (
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-gpu",
        "tensorflow-macos",
        "tensorflow-intel",
        "tf-nightly",
    ),
    "tf_keras": ("tf-keras", "tf_keras", "tf-keras-nightly"),
    "keras": ("keras", "keras-nightly"),
}
"""Each module, and the names of the distributions that hold it."""


def installed() -> dict[str, str | None]:
    """Return the release of each installed module."""
    directory = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != directory]
    return {
        module: release(names)
        for module, names in MODULES.items()
        if importlib.util.find_spec(module) is not None
    }


def release(names: tuple[str, ...]) -> str | None:
    """Return the release of the first installed distribution."""
    try:
        from importlib import metadata
    except ImportError:  # Python 3.7
        return None
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


if __name__ == "__main__":
    print(json.dumps(installed()))  # noqa: T201  # the answer
