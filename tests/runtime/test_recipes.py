"""Drawing inputs for stand-ins of layers; ``tests/compat/test_feeding.py`` uses real layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policytool.runtime.feeding.reached_layers import CHANGED, PART, WHOLE, ReachedLayer
from policytool.runtime.feeding.recipes import Recipe, recipe
from policytool.runtime.feeding.slots import Slot
from tests.helpers.fake_layers import layer


def drawn(made: Recipe, *shape: int) -> Any:
    """Return values that were drawn."""
    return np.asarray(made.draw(np.random.RandomState(1), shape))


def embedding(count: int, *, change: int = WHOLE, mask_zero: bool = False) -> ReachedLayer:
    """Return the use of an input by an Embedding."""
    return ReachedLayer(layer("Embedding", input_dim=count, mask_zero=mask_zero), change, count)


@pytest.mark.parametrize(
    ("dtype", "reached", "bound"),
    [
        ("int32", [embedding(5000), embedding(70)], 70),
        ("float32", [embedding(5000)], 5000),
        ("float16", [embedding(5000)], 2048),
        ("bfloat16", [embedding(5000)], 256),
        ("int8", [embedding(5000)], 127),
        ("int64", [embedding(50, change=CHANGED)], 25),
        ("int64", [embedding(50, change=PART)], 50),
        ("int32", [], 16),
        ("uint8", [], 16),
    ],
)
def test_ids_are_below_the_smallest_bound(
    dtype: str, reached: list[ReachedLayer], bound: int
) -> None:
    """Layers and the dtype have limits, which are halved after an offset."""
    result = recipe(Slot("ids", [None, 100], dtype), reached, None)
    values = drawn(result, 400, 100)
    assert values.min() == 0
    assert bound * 0.9 <= values.max() + 1 <= bound


def test_ids_of_the_user_are_bounded_if_all_reach_the_layer() -> None:
    """Cut or moved ids of the user are not limited."""
    slot = Slot("ids", [None, 3], "int32")
    assert recipe(slot, [embedding(9, change=PART), embedding(50)], None).limit == (50, "embedding")
    assert recipe(slot, [embedding(9, change=PART)], None).limit is None
    assert recipe(slot, [embedding(9, change=CHANGED)], None).limit is None


def test_padding_value_is_drawn_only_as_padding() -> None:
    """A masked 0 is only padding, if other ids exist."""
    slot = Slot("ids", [None, 30], "int32")
    result = recipe(slot, [embedding(4, mask_zero=True)], None)
    assert (result.padding, set(drawn(result, 9, 30).ravel().tolist())) == (0.0, {1, 2, 3})
    assert set(
        drawn(recipe(slot, [embedding(1, mask_zero=True)], None), 9, 30).ravel().tolist()
    ) == {0}
    series = recipe(
        Slot("series", [None, 5, 2], "float32"),
        [ReachedLayer(layer("Masking", mask_value=-1.0), WHOLE, None)],
        None,
    )
    assert series.padding == -1.0


@pytest.mark.parametrize(
    ("name", "shape", "padding"),
    [("attention_mask", [None, 8], 0.0), ("mask", [None, 1, 8, 8], None)],
)
@pytest.mark.parametrize("dtype", ["bool", "int32"])
def test_masks_are_ones(
    name: str, shape: list[int | None], padding: float | None, dtype: str
) -> None:
    """Masks are ones, with an end if they have one value for each place of a sequence."""
    result = recipe(Slot(name, shape, dtype), [], None)
    assert result.padding == padding
    assert drawn(result, *(size or 4 for size in shape)).all()


@pytest.mark.parametrize(
    ("shape", "scale", "is_image"),
    [
        ([None, 8, 8, 3], 1 / 255, True),
        ([None, None, None, 1], [1 / 127.5], True),
        ([None, 8, 8, 3], 0.5, False),
        ([None, 8, 8, 5], 1 / 255, False),
    ],
)
def test_input_scaled_from_pixels_gets_pixels(
    shape: list[int | None], scale: Any, *, is_image: bool
) -> None:
    """An input with the shape of an image gets pixels if its scale maps about 255 to 1."""
    result = recipe(
        Slot("image", shape, "float32"),
        [ReachedLayer(layer("Rescaling", scale=scale), WHOLE, None)],
        None,
    )
    assert (result.how == "pixel values from 0 to 255") is is_image


@pytest.mark.parametrize(
    ("shape", "mean", "expected"),
    [
        ([None, 2], [10.0, -10.0], [10.0, -10.0]),
        ([None, 4, 2], [[[10.0, -10.0]]], [10.0, -10.0]),
        ([None, 2], 7.0, [7.0, 7.0]),
        ([None, 2], [1.0, 2.0, 3.0], [0.0, 0.0]),
        ([None, 8, 8, 3], [123.0, 116.0, 103.0], [127.5] * 3),
    ],
)
def test_normalised_inputs_have_the_mean_that_was_learnt(
    shape: list[int | None], mean: Any, expected: list[float]
) -> None:
    """Without a mean for each value, images get pixels, and others the default."""
    result = ReachedLayer(
        layer("Normalization", mean=np.array(mean), variance=np.ones_like(mean)), WHOLE, None
    )
    values = drawn(
        recipe(Slot("features", shape, "float32"), [result], None),
        4000,
        *(size or 4 for size in shape[1:]),
    )
    assert np.allclose(values.reshape(-1, len(expected)).mean(axis=0), expected, atol=2)


@pytest.mark.parametrize(
    ("scale", "offset", "dtype", "ends"),
    [
        (1 / 1000, 0.0, "float32", [0, 1000]),
        (1 / 127.5, -1.0, "float32", [0, 255]),
        (1 / 20, -5.0, "float32", [0, 200]),
        (-0.01, 1.0, "float32", [0, 100]),
        (1 / 1000, 0.0, "uint8", [0, 255]),
        ([0.1, 0.01], 0.0, "float32", [0, 100]),
        (60.0, 0.0, "float32", [-3, 3]),
    ],
)
def test_scaled_values_are_at_most_1_after_the_rescaling(
    scale: Any, offset: float, dtype: str, ends: list[float]
) -> None:
    """Values begin at 0 or the offset; layers that enlarge values are ignored."""
    result = ReachedLayer(layer("Rescaling", scale=scale, offset=offset), WHOLE, None)
    outcome = recipe(Slot("x", [None, 2], dtype), [result], None)
    assert outcome.range == pytest.approx(ends)
    values = drawn(outcome, 500, 2)
    if ends != [-3, 3]:
        assert ends[0] - 1e-9 <= values.min() < values.max() <= ends[1] + 1e-9


def test_statistics_stay_in_the_range_of_integers() -> None:
    """Statistics are limited to the range of integers, because values below 0 would wrap around."""
    result = ReachedLayer(layer("Normalization", mean=2.0, variance=100.0), WHOLE, None)
    outcome = recipe(Slot("x", [None, 2], "uint8"), [result], None)
    values = drawn(outcome, 500, 2)
    assert 0 <= values.min() < values.max() <= 255
    assert outcome.range == [0.0, 32.0]


@pytest.mark.parametrize(
    ("dtype", "reached", "expected"),
    [
        ("float32", [], True),
        ("float16", [ReachedLayer(layer("Rescaling", scale=1 / 9, offset=0.0), WHOLE, None)], True),
        ("float32", [embedding(9)], False),
        ("float32", [ReachedLayer(layer("Dense"), WHOLE, None, is_mask=True)], False),
        ("int32", [], False),
        ("string", [], False),
    ],
)
def test_only_numbers_can_be_scaled_up(
    dtype: str, reached: list[ReachedLayer], *, expected: bool
) -> None:
    assert recipe(Slot("x", [None, 2], dtype), reached, None).is_scalable is expected
