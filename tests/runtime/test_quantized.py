"""The error that the rounding of stored weights explains, computed only from the integers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policytool.runtime.engine import sides


class Layer:
    """A replacement for a layer of Keras 3."""

    name = "dense"

    def __init__(self, mode: str | None, kernel: Any = None, *below: Layer) -> None:
        self.quantization_mode = mode
        self._kernel = SimpleNamespace(dtype=str(np.asarray(kernel).dtype), numpy=lambda: kernel)
        self._below = below

    def get_config(self) -> dict[str, Any]:
        """Return an empty config."""
        return {}

    def _flatten_layers(self, **_: Any) -> tuple[Layer, ...]:
        return self._below


INTEGERS = np.random.RandomState(1).randint(-127, 128, size=(64, 32)).astype("int8")
PLAIN = Layer(None, INTEGERS.astype("float32") / 100)


def test_the_same_integers_add_nothing() -> None:
    """Equal integers, and weights that are not quantized, explain no error."""
    assert sides.weight_rounding(Layer("int8", INTEGERS), Layer("int8", INTEGERS)) == 0
    assert sides.weight_rounding(PLAIN, PLAIN) == 0


def test_the_error_of_rounding_is_estimated() -> None:
    """The estimate is within a tenth of the error of random numbers."""
    random = np.random.RandomState(2)
    weights = random.uniform(-127, 127, size=(256, 64))
    rounded = np.round(weights)
    truth = np.linalg.norm(rounded - weights) / np.linalg.norm(weights)
    result = sides.weight_rounding(PLAIN, Layer("int8", rounded.astype("int8")))
    assert result == pytest.approx(truth, rel=0.1)


def test_each_byte_of_int4_holds_two_numbers() -> None:
    """Each byte of an int4 kernel contains two numbers, in either order."""
    numbers = np.random.RandomState(3).randint(-8, 8, size=(2, 16, 8)).astype("int8")
    packed = (numbers[0] & 15) | np.left_shift(numbers[1], 4)
    result = sides.weight_rounding(PLAIN, Layer("int4", packed))
    assert result == pytest.approx(
        1 / math.sqrt(12 * np.mean(np.square(numbers.astype("float64")))), rel=1e-5
    )


def test_layers_within_a_layer_count() -> None:
    """Nested layers add up like random errors, and a kernel of zeros adds none."""
    inner, zeros = Layer("int8", INTEGERS), Layer("int8", INTEGERS * 0)
    alone = sides.weight_rounding(PLAIN, inner)
    outer = Layer(None, 1.0, inner, Layer("int8", INTEGERS), zeros)
    assert sides.weight_rounding(PLAIN, outer) == pytest.approx(math.sqrt(2) * alone)


def test_other_integers_count_on_both_sides() -> None:
    """If both files are quantized with different integers, the errors of both count."""
    first, second = Layer("int8", INTEGERS), Layer("int8", -INTEGERS)
    assert sides.weight_rounding(first, second) == pytest.approx(
        math.sqrt(2) * sides.weight_rounding(PLAIN, first)
    )
