"""The batches next to random ones: a constant, and the ends of the range of each input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policytool.runtime.engine.measurements import measure_extremes
from policytool.runtime.engine.tensor_errors import FIELDS
from policytool.runtime.feeding.batches import (
    CONSTANT,
    EDGES,
    KINDS,
    LABELS,
    FedInputs,
    Feeder,
    extreme_values,
)
from policytool.runtime.feeding.reached_layers import WHOLE, ReachedLayer
from policytool.runtime.feeding.recipes import SPREAD, Recipe, recipe
from policytool.runtime.feeding.slots import Slot
from tests.helpers.fake_layers import layer


def embedding(count: int, *, scaling: tuple[float, float] = (1.0, 0.0), masks: bool = False) -> Any:
    """Return the use of an input by an Embedding."""
    return ReachedLayer(layer("Embedding", input_dim=count, mask_zero=masks), WHOLE, count, scaling)


def rows(made: Recipe, *shape: int) -> list[list[Any]]:
    """Return the constant row, and the rows with the highest, lowest and alternating values."""
    result: list[list[Any]] = extreme_values(made, KINDS, [5, *shape]).tolist()
    return result


PIXELS = recipe(
    Slot("image", [None, 8, 8, 3], "float32"),
    [ReachedLayer(layer("Rescaling", scale=1 / 255), WHOLE, None)],
    None,
)


@pytest.mark.parametrize(
    ("made", "lowest", "highest", "constant"),
    [
        (recipe(Slot("x", [None, 4], "float32"), [], None), -SPREAD, SPREAD, 1.0),
        (recipe(Slot("x", [None, 4], "int32"), [], None), 0, 15, 1),
        (recipe(Slot("x", [None, 4], "int32"), [embedding(50)], None), 0, 49, 1),
        (recipe(Slot("x", [None, 4], "int32"), [embedding(50, masks=True)], None), 1, 49, 1),
        (recipe(Slot("x", [None, 4], "int32"), [embedding(1)], None), 0, 0, 0),
        (recipe(Slot("x", [None, 4], "float16"), [embedding(5000)], None), 0, 2047, 1),
        (recipe(Slot("x", [None, 4], "bool"), [], None), 0, 1, 1),
        (PIXELS, 0, 255, 128),
    ],
)
def test_edges_are_the_ends_of_the_range(
    made: Recipe, lowest: float, highest: float, constant: float
) -> None:
    """All values are at one end, at the other, or alternate; the masked value is not used."""
    assert rows(made, 4) == [
        [constant] * 4,
        [highest] * 4,
        [lowest] * 4,
        [highest, lowest] * 2,
        [lowest, highest] * 2,
    ]
    assert made.range == [lowest, highest]


def test_drawn_values_are_within_the_range() -> None:
    """Ids, pixels, flags, boundaries and words have a range; normal distributions have no ends."""
    lookup = layer("IntegerLookup", get_vocabulary=lambda: [7, 20], num_oov_indices=1)
    created = [
        recipe(Slot("x", [None, 4], "int32"), [embedding(50)], None),
        recipe(Slot("x", [None, 4], "int64"), [ReachedLayer(lookup, WHOLE, None)], None),
        PIXELS,
    ]
    for item in created:
        values = item.draw(np.random.RandomState(1), [1000])
        assert item.range is not None
        assert item.range[0] <= values.min() < values.max() <= item.range[1]


def test_each_feature_has_a_separate_range() -> None:
    """
    Edge values of features follow the mean of a Normalization; the constant is one deviation above
    it, so that it is positive after normalization.
    """
    result = layer("Normalization", mean=np.array([10.0, -200.0]), variance=np.array([1.0, 100.0]))
    outcome = recipe(Slot("x", [None, 2], "float32"), [ReachedLayer(result, WHOLE, None)], None)
    assert rows(outcome, 2) == [[11, -190], [13, -170], [7, -230], [13, -230], [7, -170]]


@pytest.mark.parametrize("name", ["attention_mask", "other"])
@pytest.mark.parametrize("dtype", ["int32", "bool", "float32"])
def test_masks_are_zero_and_one(name: str, dtype: str) -> None:
    """
    Edge values of masks are zero and one, but never zero for a whole sequence; a mask is detected
    by its name or by the argument it is passed to.
    """
    reached = [ReachedLayer(layer("MultiHeadAttention"), WHOLE, None, is_mask=True)]
    result = recipe(Slot(name, [None, 4], dtype), reached, None)
    assert rows(result, 4) == [[1] * 4, [1] * 4, [1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0]]
    assert result.draw(np.random.RandomState(1), [2, 4]).tolist() == [[1] * 4] * 2
    square = extreme_values(result, [EDGES], [4, 2, 3])
    assert square[1].tolist() == [[1, 0, 0]] * 2


def test_text_has_edges_too() -> None:
    """Edge values of text are the first and the last word."""
    lookup = layer("StringLookup", get_vocabulary=lambda: ["a", "b"], num_oov_indices=0)
    result = recipe(Slot("words", [None, 2], "string"), [ReachedLayer(lookup, WHOLE, None)], None)
    assert rows(result, 2) == [["b", "b"], ["b", "b"], ["a", "a"], ["b", "a"], ["a", "b"]]
    assert result.range is None


@pytest.mark.parametrize(
    ("dtype", "scaling", "low", "high"),
    [
        ("float32", (0.5, 0.0), 0.0, 98.0),
        ("float32", (1 / 255, 0.0), 0.0, 49 * 255),
        ("float32", (-1.0, 49.0), 0.0, 49.0),
        ("int32", (0.5, 0.0), 0, 98),
        ("int32", (20.0, 0.0), 0, 2),
        ("int32", (1.0, 3.0), -3, 46),
        ("uint8", (1 / 255, 0.0), 0, 255),
    ],
)
def test_inputs_before_a_rescaling_become_valid_ids(
    dtype: str, scaling: tuple[float, float], low: float, high: float
) -> None:
    result = recipe(Slot("x", [None, 4], dtype), [embedding(50, scaling=scaling)], None)
    assert result.range == pytest.approx([low, high])
    assert "a Rescaling layer converts to IDs below 50, for embedding" in result.how
    values = result.draw(np.random.RandomState(1), [2000]).astype(dtype)
    both = [values, *(np.asarray(edge).astype(dtype) for edge in result.edges), result.constant]
    for item in both:
        ids = np.asarray(item).astype("float32") * np.float32(scaling[0]) + np.float32(scaling[1])
        assert ids.astype("int32").min() >= 0
        assert ids.astype("int32").max() < 50
    assert len(set(values.tolist())) > 2
    assert result.limit is None


def feeder(rows_: int, made: Recipe, slot: Slot, *, fixed: int | None = None, **wanted: Any) -> Any:
    """Return the feeder of an input, with arrays as tensors; ``fixed`` is its batch size."""
    found: Any = object.__new__(Feeder)
    found.slots = [slot]
    found.options = {"seed": 1, "batches": 1, "extremes": True, **wanted}
    found.batch_size = rows_
    found.fixed = fixed
    found._packed = lambda arrays: arrays  # noqa: SLF001  # no tensors
    found._fed_inputs = lambda batches, _kind, _hows, _ranges, _others: FedInputs(  # noqa: SLF001
        batches, None, rows_, {"notes": [], "batches": len(batches)}
    )
    return found.synthetic([made], 4)


SLOT = Slot("x", [None, 2], "float32")
NORMAL = recipe(SLOT, [], None)


@pytest.mark.parametrize("is_fixed", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_additional_batches_contain_all_edge_rows(
    size: int,
    is_fixed: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    """A model with a fixed batch size gets full batches."""
    fed = feeder(size, NORMAL, SLOT, fixed=size if is_fixed else None)
    assert {len(batch[0]) for batch in fed.batches} == {size}
    rows_beside = size if is_fixed else min(size, 5)
    assert {len(item.tensors[0]) for item in fed.extremes} == {rows_beside}
    seen = {tuple(row) for item in fed.extremes for row in item.tensors[0].tolist()}
    high, low = SPREAD, -SPREAD
    assert seen == {(1, 1), (high, high), (low, low), (high, low), (low, high)}
    assert len(fed.extremes) == {1: 5, 2: 3, 3: 3, 4: 2}.get(size, 1)
    assert fed.report["batches"] == 1 + len(fed.extremes)
    assert fed.report["extra"] == [CONSTANT, EDGES]


def test_a_verification_has_random_batches_only() -> None:
    """``migrate`` verifies only with random batches."""
    fed = feeder(8, NORMAL, SLOT, extremes=False)
    assert fed.extremes == []
    assert len(fed.all) == len(fed.batches) == 1
    assert "extra" not in fed.report


def measured(fed: FedInputs, usual: int, bad: Any) -> list[Any]:
    """Return the kept batches; in ``bad`` ones, the reference has more infinities than usual."""

    def vectors(infinite: int) -> Any:
        found = np.zeros((2, len(FIELDS)))
        found[1, FIELDS.index("infinite_reference")] = infinite
        found[0, FIELDS.index("differing")] = np.nan
        return found

    def run(batch: Any) -> Any:
        return batch, vectors(3 if bad(batch[0]) else usual)

    return [one for one, _ in measure_extremes(fed, vectors(usual), run, lambda one: one[1])]


def test_batch_that_the_reference_cannot_compute_is_left_out() -> None:
    """A note reports the batch, and each kind of rows is tried separately."""
    fed = feeder(8, NORMAL, SLOT)
    result = measured(fed, 0, lambda array: (array < 0).any())
    assert len(result) == 1
    assert (result[0][0] == 1).all()
    assert fed.report["extra"] == [CONSTANT]
    assert fed.report["batches"] == 2
    (note,) = fed.report["notes"]
    assert note.startswith("the batch of the lowest and highest values was left out because the ")


def test_all_batches_may_be_left_out() -> None:
    """If all additional batches are skipped, the random batches are compared."""
    fed = feeder(8, NORMAL, SLOT)
    assert measured(fed, 0, lambda array: True) == []
    assert fed.report["extra"] == []
    assert len(fed.all) == fed.report["batches"] == 1
    assert [
        LABELS[kind] in note for kind, note in zip(KINDS, fed.report["notes"], strict=True)
    ] == [
        True,
        True,
    ]


def test_infinities_of_the_random_batches_are_the_model_s_own() -> None:
    fed = feeder(8, NORMAL, SLOT)
    assert len(measured(fed, 2, lambda array: True)) == 1
    assert fed.report["notes"] == []
