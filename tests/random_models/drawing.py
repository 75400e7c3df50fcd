"""Chances of a generator, and the names, sizes and functions that it draws."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


T = TypeVar("T")

ACTIVATIONS: Final = (
    *("relu", "tanh", "sigmoid", "linear", "elu", "selu", "softplus", "softsign", "gelu"),
    *("swish", "exponential", "softmax", "hard_sigmoid", "relu6", "silu", "leaky_relu", "mish"),
)
"""Known by these names in both libraries; ``relu6`` and others only since some release."""

_TF_KERAS_ACTIVATIONS: Final = tuple(set(ACTIVATIONS) - {"relu6"})
_COMMON: Final = ("relu", "tanh", "sigmoid", "linear", "gelu", "swish", None)
_INITIALIZERS: Final[tuple[Any, ...]] = (
    *("zeros", "ones", "glorot_uniform", "he_normal", "lecun_uniform", "random_normal"),
    {"class": "TruncatedNormal", "of": "initializers", "config": {"stddev": 0.1}},
    {"class": "VarianceScaling", "of": "initializers", "config": {"scale": 0.5, "mode": "fan_avg"}},
    {"class": "Constant", "of": "initializers", "config": {"value": 0.25}},
    {"class": "RandomUniform", "of": "initializers", "config": {"minval": -0.1, "maxval": 0.1}},
)
_REGULARIZERS: Final[tuple[Any, ...]] = (
    *("l2", "l1"),
    {"class": "L1L2", "of": "regularizers", "config": {"l1": 0.01, "l2": 0.001}},
    {"class": "L2", "of": "regularizers", "config": {"l2": 0.02}},
)
_CONSTRAINTS: Final[tuple[Any, ...]] = (
    *("non_neg", "unit_norm"),
    {"class": "MaxNorm", "of": "constraints", "config": {"max_value": 3, "axis": 0}},
    {"class": "MinMaxNorm", "of": "constraints", "config": {"min_value": 0.1, "max_value": 2.0}},
)


class Draw:
    """The chances of one model."""

    def __init__(self, seed: int, library: str) -> None:
        self.random = Random(f"{library}-{seed}")  # a text is hashed the same in every process
        self.library = library
        self.number = 0
        self.joins_ops = True
        """Whether ops join values: in tf_keras they need equal dtypes."""

        self.open_length = self.whole(3, 8)
        """The length of all sequences whose length is not declared: they can be merged."""

    @property
    def keras3(self) -> bool:
        """Whether the model is for Keras 3."""
        return self.library == "keras"

    def chance(self, share: float) -> bool:
        """Return true in a share of the cases."""
        return self.random.random() < share

    def pick(self, options: Sequence[T]) -> T:
        """Return one of several."""
        return options[self.random.randrange(len(options))]

    def whole(self, low: int, high: int) -> int:
        """Return a whole number between two, both included."""
        return self.random.randint(low, high)

    def number_between(self, low: float, high: float) -> float:
        """Return a number with two digits behind the point."""
        return round(self.random.uniform(low, high), 2)

    def units(self) -> int:
        """Return a number of channels."""
        return self.pick((2, 3, 4, 5, 6, 8))

    def fresh(self) -> str:
        """Return an identifier that no other node has."""
        self.number += 1
        return f"n{self.number}"

    def activation(self) -> str | None:
        """Return the name of an activation, mostly an ordinary one."""
        if self.chance(0.6):
            return self.pick(_COMMON)
        return self.pick(ACTIVATIONS if self.keras3 else sorted(_TF_KERAS_ACTIVATIONS))

    def parts(self, *names: str) -> dict[str, Any]:
        """Return initializers, regularizers and constraints for variables, seldom any."""
        found: dict[str, Any] = {}
        for name in names:
            if self.chance(0.12):
                found[f"{name}_initializer"] = self.pick(_INITIALIZERS)
            if self.chance(0.08):
                found[f"{name}_regularizer"] = self.pick(
                    _REGULARIZERS if name == "kernel" else _REGULARIZERS[:3]
                )
            if self.chance(0.05):
                found[f"{name}_constraint"] = self.pick(
                    _CONSTRAINTS if name == "kernel" else _CONSTRAINTS[:1]
                )
        return found
