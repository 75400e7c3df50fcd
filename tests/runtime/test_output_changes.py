"""Changes of output values, compared with plain code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policytool.numerics.check_results import metrics
from policytool.runtime.engine.output_changes import OutputChanges
from policytool.support.text import codec


def changes(reference: Any, candidate: Any, batch: int = 7) -> metrics.OutputChanges:
    """Return the changes of an output, as the command reads them."""
    result = OutputChanges()
    for start in range(0, len(reference), batch):
        result.update(reference[start : start + batch], candidate[start : start + batch])
    return codec.read(metrics.OutputChanges, result.to_json())


def random(*shape: int, seed: int = 1) -> Any:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_classes_sides_and_neighbours_are_counted() -> None:
    """The counts equal those of plain code, for any split of rows into batches."""
    first = random(100, 6)
    second = first + 0.3 * random(100, 6, seed=2)
    result = changes(first, second)
    assert result.samples == result.compared == result.rows == 100
    assert result.class_changes is not None
    assert result.class_changes.changed == (first.argmax(1) != second.argmax(1)).sum() > 0
    assert result.side_changes is not None
    assert result.side_changes.total == pytest.approx(((first > 0) != (second > 0)).mean(1).sum())
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second)]
    nearest = []
    for side in units:
        near = side @ side.T
        np.fill_diagonal(near, -1)
        nearest.append(near.argmax(1))
    assert result.neighbor_changes is not None
    assert result.neighbor_changes.changed == (nearest[0] != nearest[1]).sum() > 0


def test_a_single_class_of_the_reference_is_noted() -> None:
    """Over all batches; outputs with one value have no classes."""
    first = random(20, 6)
    assert changes(first, first).has_one_class is False
    first[:, 2] = 9
    assert changes(first, first).has_one_class is True
    first[15, 3] = 10
    assert changes(first, first).has_one_class is False
    assert changes(first[:, :1], first[:, :1]).has_one_class is None


@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3), (50, 5, 2), (50, 20), (50, 4, 4, 9)])
def test_errors_are_relative_to_the_spread(shape: tuple[int, ...]) -> None:
    """With many channels, the spread is that of all values; offsets do not count."""
    first = random(*shape) + 500
    second = first + 0.01 * random(*shape, seed=3)
    result = changes(first.astype("float64"), second.astype("float64"))
    flat = [side.reshape(-1, shape[-1] if len(shape) > 1 else 1) for side in (first, second)]
    errors = np.square(flat[1] - flat[0].astype("float64")).sum(0)
    spreads = np.square(flat[0] - flat[0].mean(0, dtype="float64")).sum(0)
    if flat[0].shape[1] > 8:
        errors, spreads = errors.sum(keepdims=True), spreads.sum(keepdims=True)
    assert len(result.channels) == len(errors)
    for channel, error, spread in zip(result.channels, errors, spreads, strict=True):
        assert channel.error == pytest.approx(error, rel=1e-4)
        assert channel.spread == pytest.approx(spread, rel=1e-4)
        assert channel.worst <= channel.error


def test_probabilities_are_recognised() -> None:
    """Probabilities are detected from the values of the reference only."""
    scores = np.exp(random(40, 5))
    result = changes(scores / scores.sum(1, keepdims=True), scores)
    assert (result.sums_to_one, result.is_probability, result.has_unit_norm) == (True, True, False)
    result = changes(1 / (1 + scores), scores)
    assert (result.sums_to_one, result.is_probability) == (False, True)
    result = changes(scores / np.linalg.norm(scores, axis=1, keepdims=True), scores)
    assert (result.sums_to_one, result.has_unit_norm) == (False, True)


def test_masks_are_compared_by_intersection_over_union() -> None:
    first = np.zeros((3, 4, 4, 1), "float32")
    second = first.copy()
    first[1, :2] = second[1, 1:3] = 0.9
    result = changes(first, second).unmatched_masks
    assert result is not None
    assert (result.samples, result.changed) == (3, 1)
    assert result.total == pytest.approx(1 - 4 / 12)


def test_new_nan_is_counted_by_row() -> None:
    first, second = random(20, 3), random(20, 3)
    first[3, 0] = second[3, 1] = np.nan
    second[5, 2] = np.inf
    second[6] = np.nan
    result = changes(first, second)
    assert (result.samples, result.compared, result.spoiled) == (20, 17, 3 - 0)


def test_other_values_are_compared_for_equality() -> None:
    for item in (np.arange(12).reshape(4, 3), np.array([["a", "b"], ["c", "d"]], object)):
        other = item.copy()
        other[1, 0] = other[0, 0]
        result = changes(item, other)
        assert result.value_changes is not None
        assert result.value_changes.changed == 1
        assert result.range is None


def test_a_constant_output_does_not_vary() -> None:
    """A constant output has no spread, so that it allows no conclusion."""
    assert not changes(np.ones((9, 2)), np.ones((9, 2))).varies
    assert changes(random(9, 2), random(9, 2)).varies


def test_an_empty_batch_counts_for_nothing() -> None:
    result = OutputChanges()
    result.update(np.zeros((0, 3)), np.zeros((0, 3)))
    assert result.to_json()["samples"] == 0


def test_sides_do_not_depend_on_batches() -> None:
    """A later value below 0 shows that earlier values are not probabilities."""
    one = np.concatenate([np.full((32, 1), 0.3), random(968, 1)]).astype("float32")
    for batch in (32, 1000):
        result = changes(one, -one, batch)
        assert result.side_changes is not None
        assert result.side_changes.changed == 1000
        assert result.unmatched_masks is None


def test_nan_in_one_row_is_no_variation() -> None:
    one = np.full((100, 3), 0.25, "float32")
    one[7] = np.nan
    assert not changes(one, one).varies


def test_batches_may_have_different_shapes() -> None:
    """If the lengths of sequences differ, all channels count as one."""
    result = OutputChanges()
    for length, seed in ((12, 1), (17, 2), (12, 3)):
        one = random(1, length, seed=seed)
        result.update(one, one + 0.1)
        assert result.varies or seed == 1
    outcome = codec.read(metrics.OutputChanges, result.to_json())
    (channel,) = outcome.channels
    assert channel.values == 41
    assert channel.error == pytest.approx(0.41, rel=1e-3)
    values = np.concatenate(
        [random(length, seed=seed) for length, seed in ((12, 1), (17, 2), (12, 3))]
    )
    assert channel.spread == pytest.approx(41 * values.var(), rel=1e-3)
