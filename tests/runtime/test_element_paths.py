"""The path of input values through stand-ins for layers; ``tests/compat`` uses real layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policytool.runtime.feeding.reached_layers import (
    CHANGED,
    WHOLE,
    ReachedLayer,
    input_statistics,
)
from policytool.runtime.feeding.slots import (
    MOST_ELEMENTS,
    Slot,
    elements_after,
    elements_of_input,
)

COUNTED = np.arange(6).reshape(2, 3)


def layer(class_name: str, **attributes: Any) -> Any:
    """Return a replacement for a layer of a class."""
    return type(class_name, (SimpleNamespace,), {})(name=class_name.lower(), **attributes)


def node(*values: Any, **named: Any) -> Any:
    """Return a replacement for the node of a call with its arguments, as in Keras 3."""
    return SimpleNamespace(arguments=SimpleNamespace(args=values, kwargs=named))


@pytest.mark.parametrize(
    ("class_name", "attributes", "shape", "expected"),
    [
        ("Dropout", {}, (None, 2, 3), [[0, 1, 2], [3, 4, 5]]),
        ("Reshape", {}, (None, 3, 2), [[0, 1], [2, 3], [4, 5]]),
        ("Flatten", {"data_format": "channels_last"}, (None, 6), [0, 1, 2, 3, 4, 5]),
        ("Flatten", {"data_format": "channels_first"}, (None, 6), [0, 3, 1, 4, 2, 5]),
        ("Permute", {"dims": (2, 1)}, (None, 3, 2), [[0, 3], [1, 4], [2, 5]]),
        ("ZeroPadding1D", {"padding": (1, 0)}, (None, 3, 3), [[-1] * 3, [0, 1, 2], [3, 4, 5]]),
        ("Cropping1D", {"cropping": (0, 1)}, (None, 1, 3), [[0, 1, 2]]),
        ("RepeatVector", {"n": 1}, (None, 1, 2, 3), [[[0, 1, 2], [3, 4, 5]]]),
        ("Resizing", {}, (None, 4, 3), None),
        ("Dropout", {}, None, None),
    ],
)
def test_layers_move_values(
    class_name: str, attributes: dict[str, Any], shape: Any, expected: Any
) -> None:
    """Values are followed through layers that move them, unless the change is unknown."""
    result = elements_after(layer(class_name, **attributes), ("", None), [COUNTED], shape)
    assert (None if result is None else result.tolist()) == expected


@pytest.mark.parametrize(
    ("key", "shape", "expected"),
    [
        ((slice(None), slice(None), slice(1, 3)), (None, 2, 2), [[1, 2], [4, 5]]),
        ((Ellipsis, 0), (None, 2), [0, 3]),
        ([{"start": None}, {"start": 1, "stop": 2}], (None, 1, 3), [[3, 4, 5]]),
        ((0,), (3,), None),
        (("a tensor",), (None, 3), None),
    ],
)
def test_slices_take_values(key: Any, shape: Any, expected: Any) -> None:
    """Slices of Keras 2 and Keras 3 are followed, except an index of rows."""
    for call in (node("x", key), SimpleNamespace(call_args=["x"], call_kwargs={"slice_spec": key})):
        result = elements_after(layer("GetItem"), ("getitem", call), [COUNTED], shape)
        assert (None if result is None else result.tolist()) == expected


@pytest.mark.parametrize(("axis", "size"), [(-1, 5), (2, 5), (1, 4)])
def test_joined_tensors_keep_their_elements(axis: int, size: int) -> None:
    """
    Elements of the other tensor do not belong to the input. If one tensor is unknown, the result is
    unknown.
    """
    other = np.full((2, size - 3) if size == 5 else (2, 3), -1)
    shape = (None, 2, 5) if size == 5 else (None, 4, 3)
    join = layer("Concatenate", axis=axis)
    result = elements_after(join, ("", None), [other, COUNTED], shape)
    assert result[result >= 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert (result < 0).sum() == other.size
    assert elements_after(join, ("", None), [None, COUNTED], shape) is None


def test_large_inputs_are_not_followed() -> None:
    """Inputs with an unknown rank are not followed either; unknown dimensions count as 1."""
    assert elements_of_input((None, MOST_ELEMENTS + 1)) is None
    assert elements_of_input(None) is None
    assert elements_of_input((None, None, 3)).tolist() == [[0, 1, 2]]


def _batch_layer(mean: Any, axis: Any = -1, variance: Any = None) -> Any:
    return layer(
        "BatchNormalization",
        axis=axis,
        moving_mean=np.array(mean),
        moving_variance=np.ones(len(mean)) if variance is None else np.array(variance),
    )


@pytest.mark.parametrize(("axis", "mean"), [([2], [7.0, 8, 9]), (1, [1.0, 2]), (-1, [7.0, 8, 9])])
def test_features_have_the_axis_of_the_layer(axis: Any, mean: list[float]) -> None:
    """The axis counts from either end with the batch first; Keras 2 writes a list."""
    one = ReachedLayer(_batch_layer(mean, axis), WHOLE, None, elements=COUNTED)
    result = input_statistics(Slot("x", [None, 2, 3], "float32"), [one])
    assert result is not None
    assert (result.mean == np.array(mean).reshape([2, 1] if axis == 1 else [1, 3])).all()


def test_elements_have_the_statistics_of_the_layer_that_receives_them() -> None:
    """The first Normalization counts, and elements without one have mean 0."""
    slot = Slot("x", [None, 4], "float32")
    first = ReachedLayer(
        _batch_layer([10.0, 20.0], variance=[4.0, 16.0]),
        WHOLE,
        None,
        (0.5, 1.0),
        elements=np.array([2, 1]),
    )
    second = ReachedLayer(_batch_layer([5.0, 6.0, 7.0]), WHOLE, None, elements=np.array([0, 1, -1]))
    result = input_statistics(slot, [first, second])
    assert result is not None
    assert result.mean.tolist() == [5.0, 38.0, 18.0, 0.0]
    assert result.spread.tolist() == [1.0, 8.0, 4.0, 1.0]
    assert result.names == ("batchnormalization", "batchnormalization")


@pytest.mark.parametrize(
    ("one", "way"),
    [
        (_batch_layer([1.0, 2.0]), CHANGED),
        (_batch_layer([1.0, 2.0, 3.0]), WHOLE),
        (_batch_layer([1.0, np.nan]), WHOLE),
        (layer("Normalization", mean=None, variance=None), WHOLE),
        (layer("Normalization", mean=1.0, variance=1.0, invert=True), WHOLE),
        (layer("Dense"), WHOLE),
    ],
)
def test_statistics_of_unsuitable_layers_are_not_used_for_an_input(one: Any, way: int) -> None:
    """
    The statistics of a layer are ignored if its input was changed or has another number of
    features, or if they are missing or not finite.
    """
    slot = Slot("x", [None, 2], "float32")
    assert input_statistics(slot, [ReachedLayer(one, way, None)]) is None
