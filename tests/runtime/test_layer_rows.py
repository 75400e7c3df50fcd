"""The rows of the user's inputs for which layers are compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policytool.runtime.engine.measurements import EXPLAINED_ROWS, LAYER_ROWS, LayerRows


class Spec:
    """A replacement for a spec of TensorFlow."""

    def __init__(self, sizes: list[int | None], dtype: str = "float32") -> None:
        self.shape = sizes
        self.dtype = dtype


TF: Any = SimpleNamespace(
    nest=SimpleNamespace(map_structure=lambda change, nested: change(nested)),
)


def fed(*rows: int, kind: str = "given", fixed: bool = False) -> Any:
    """Return batches with these numbers of rows; each value identifies the batch and the row."""
    return SimpleNamespace(
        batches=[
            np.stack([np.full(count, number), np.arange(count)], axis=1)
            for number, count in enumerate(rows)
        ],
        rows=list(rows),
        has_fixed_rows=fixed,
        specs=Spec([rows[0] if len(set(rows)) == 1 else None, 2]),
        report={"kind": kind},
    )


def parts(inputs: Any, spoiled: dict[int, int], *, explains: bool) -> list[tuple[int, int, int]]:
    """Return the batch number, first row and number of rows of each part."""
    rows = LayerRows(TF, inputs, explains=explains)
    return [(int(batch[0, 0]), int(batch[0, 1]), len(batch)) for batch in rows.batches(spoiled)]


@pytest.mark.parametrize(
    ("inputs", "explains", "is_partial"),
    [
        (fed(*[8] * 5), False, False),
        (fed(*[8] * 6), False, True),
        (fed(*[8] * 6, kind="synthetic"), False, False),
        (fed(*[8] * 6), True, False),
        (fed(EXPLAINED_ROWS, 1), True, True),
        (fed(64, fixed=True), False, True),
    ],
    ids=["few", "enough", "synthetic", "explained", "many", "fixed"],
)
def test_layers_are_compared_in_all_rows_of_few(
    inputs: Any, *, explains: bool, is_partial: bool
) -> None:
    """A run that must explain an error has a higher limit."""
    assert LayerRows(TF, inputs, explains=explains).is_partial is is_partial


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (fed(*[8] * 6), [8, 8]),
        (fed(32, 32), [16]),
        (fed(*[5] * 10), [5, 5, 5, 1]),
        (fed(32, 32, fixed=True), [32]),
        (fed(*[6] * 8, fixed=True), [6, 6, 6]),
    ],
    ids=["whole", "large", "cut", "fixed", "fixed-small"],
)
def test_the_first_rows_are_compared(inputs: Any, expected: list[int]) -> None:
    """A batch is cut unless the batch size is fixed, and the number is reported."""
    compared = parts(inputs, {}, explains=False)
    assert compared == [(number, 0, count) for number, count in enumerate(expected)]
    assert inputs.report["layer_rows"] == sum(expected)


def test_batches_with_new_nan_are_compared_first() -> None:
    """This includes late batches, and rows that would be cut off."""
    assert parts(fed(*[8] * 40), {30: 7, 35: 0}, explains=False) == [(30, 0, 8), (35, 0, 8)]
    many = parts(fed(*[400] * 40), {7: 399}, explains=True)
    assert many == [(7, 0, 400), (0, 0, 400), (1, 0, 200)]
    assert parts(fed(4000), {0: 3500}, explains=True) == [(0, 3000, 1000)]
    assert parts(fed(4000), {0: 1500}, explains=True) == [(0, 1500, 1000)]


@pytest.mark.parametrize(
    ("inputs", "size"),
    [
        (fed(*[8] * 6), 8),
        (fed(32, 32), None),
        (fed(*[5] * 10), None),
        (fed(*[6] * 8, fixed=True), 6),
        (fed(8, 8), 8),
    ],
    ids=["whole", "large", "cut", "fixed", "few"],
)
def test_the_number_of_rows_is_open_only_if_a_batch_is_cut(inputs: Any, size: int | None) -> None:
    """The number of rows is variable only if a batch is cut, so that other shapes stay known."""
    assert LayerRows(TF, inputs, explains=False).specs.shape == [size, 2]


def test_no_number_is_reported_if_all_rows_are_compared() -> None:
    inputs = fed(LAYER_ROWS)
    LayerRows(TF, inputs, explains=False)
    assert inputs.report["layer_rows"] is None
