"""
Models that are easily measured wrongly: ``python -m tests.compat.check_traps DIRECTORY`` writes
them, in a directory for each library, all in float32.

It also is the module that has their class: ``check_traps:TF_KERAS`` and ``check_traps:KERAS`` are
what ``--custom-objects`` names.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

LIBRARIES: Final = {"TF_KERAS": "tf_keras", "KERAS": "keras"}
SUFFIXES: Final = {"tf_keras": ".h5", "keras": ".keras"}
MASKED: Final = "masked/attention"
"""A layer whose inputs have a mask."""

UNSHAPED: Final = "Unshaped"
"""The class of a model of somebody's own."""


def __getattr__(name: str) -> dict[str, Any]:
    """Return the classes of one Keras by name; only that one is imported."""
    if name not in LIBRARIES:
        raise AttributeError(name)
    return classes(LIBRARIES[name])


@cache
def classes(library: str) -> dict[str, Any]:
    """Return the class, made of a Keras."""
    keras: Any = import_module(library)

    class Unshaped(keras.Model):  # type: ignore[misc]
        """
        A model with a Sequential that no one gives an input shape, so that its first call puts it
        together.
        """

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.stack = keras.Sequential(
                [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(4)], name="stack"
            )

        def call(self, inputs: Any) -> Any:
            return self.stack(inputs)

        def get_config(self) -> dict[str, Any]:
            return {"name": self.name}

    return {UNSHAPED: Unshaped}


def asserting(keras: Any) -> Any:
    """
    Return a model with a layer that asserts something before six others, and one that does so
    behind them.
    """
    layers = keras.layers
    early, late = (layers.Input((1,), dtype="int64", name=name) for name in ("early", "late"))
    tensor = layers.CategoryEncoding(num_tokens=5, output_mode="one_hot", name="first")(early)
    for number in range(6):
        tensor = layers.Dense(4, name=f"dense_{number}")(tensor)
    joined = layers.Concatenate(name="joined")(
        [tensor, layers.CategoryEncoding(num_tokens=5, output_mode="one_hot", name="last")(late)]
    )
    return keras.Model([early, late], layers.Dense(1, name="scores")(joined), name="asserting")


def masked(keras: Any) -> Any:
    """Return a model whose padding attention must not see."""
    layers = keras.layers
    inputs = layers.Input((12,), dtype="int32", name="tokens")
    tensor = layers.Embedding(40, 16, mask_zero=True, name="words")(inputs)
    tensor = layers.MultiHeadAttention(2, 8, name="attention")(tensor, tensor)
    return keras.Model(inputs, layers.Dense(3, name="scores")(tensor), name="masked")


def unshaped(keras: Any) -> Any:
    """Return a model of somebody's own, called once."""
    model = classes(keras.__name__)[UNSHAPED](name="unshaped")
    model(
        keras.ops.zeros((2, 5))
        if hasattr(keras, "ops")
        else import_module("numpy").zeros((2, 5), "float32")
    )
    return model


def write(library: str, directory: Path) -> None:
    """Write the models of one library; what Keras 2 has in no HDF5 file is a SavedModel."""
    keras: Any = import_module(library)
    directory.mkdir(parents=True)
    for make in (asserting, masked, unshaped):
        keras.utils.set_random_seed(1)
        suffix = "" if make is unshaped and library == "tf_keras" else SUFFIXES[library]
        make(keras).save(str(directory / (make.__name__ + suffix)))


if __name__ == "__main__":
    for chosen in LIBRARIES.values():
        write(chosen, Path(sys.argv[1]) / chosen)
