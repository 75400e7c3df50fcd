"""Padding of inputs that a model masks: rows of each kind, with different padding per input."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policytool.runtime.feeding.batches import PADDING_WAYS, Feeder
from policytool.runtime.feeding.reached_layers import CHANGED, PART, WHOLE, ReachedLayer
from policytool.runtime.feeding.recipes import Recipe, recipe
from policytool.runtime.feeding.slots import Slot
from tests.helpers.fake_layers import layer

LENGTH = 8


def ids(shape: tuple[int, ...] = (LENGTH,)) -> tuple[Slot, Recipe]:
    """Return an input of ids and its recipe."""
    slot = Slot("ids", [None, *shape], "int32")
    embedding = ReachedLayer(layer("Embedding", input_dim=50, mask_zero=True), WHOLE, 50)
    return slot, recipe(slot, [embedding], None)


def drawn(inputs: list[tuple[Slot, Recipe]], *, batch: int | None = None) -> list[Any]:
    """Return the arrays of all batches of each input, as a verification draws them."""
    feeder: Any = object.__new__(Feeder)
    feeder.slots = [slot for slot, _ in inputs]
    feeder.options = {"seed": 11, "batches": 2, "pads_every_way": True}
    feeder.batch_size = batch or 8
    feeder._fed_inputs = lambda batches, *_: SimpleNamespace(batches=batches)  # noqa: SLF001  # no tensors
    fed = feeder.synthetic([made for _, made in inputs], LENGTH)
    return [np.concatenate(arrays) for arrays in zip(*fed.batches, strict=True)]


def kind(row: Any) -> str:
    """Return the padded places of a sequence."""
    there = (row != 0).astype(int)
    if not there.any():
        return "everywhere"
    if there.all():
        return "nowhere"
    return "end" if there[0] and not there[-1] else "beginning" if there[-1] else "elsewhere"


CYCLE = ["nowhere", "end", "beginning", "everywhere"]


@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_rows_are_padded_partly_and_fully(batch: int) -> None:
    (array,) = drawn([ids()], batch=batch)
    kinds = [kind(row) for row in array]
    assert kinds == (CYCLE * len(kinds))[: len(kinds)]
    assert len(kinds) >= PADDING_WAYS


def test_inputs_have_equal_padding_only_in_some_rows() -> None:
    """Different masks are necessary to test rules for merged masks."""
    first, second = drawn([ids(), ids()])
    pairs = [(kind(one), kind(other)) for one, other in zip(first, second, strict=True)]
    assert all(one == other for one, other in pairs[:4])
    assert np.array_equal(first[:4] == 0, second[:4] == 0)
    assert all(one != other for one, other in pairs[4:8])


def test_sentences_of_a_text_end_early() -> None:
    """Texts and sentences are padded; rows with one axis are features."""
    (array,) = drawn([ids((4, LENGTH))])
    assert (array[0, 1, LENGTH // 2 :] == 0).all()
    assert (array[0, 0] != 0).all()
    assert not array[3].any()


def test_a_series_is_padded_with_the_value_that_is_masked() -> None:
    """``Masking`` needs the mask value in all features of a step."""
    slot = Slot("series", [None, LENGTH, 2], "float32")
    result = recipe(slot, [ReachedLayer(layer("Masking", mask_value=-1.0), WHOLE, None)], None)
    (array,) = drawn([(slot, result)])
    masked = (array == -1.0).all(axis=-1)
    assert masked[3].all()
    assert masked[1].any()
    assert not masked[1].all()
    assert not masked[0].any()


@pytest.mark.parametrize(("way", "expected"), [(WHOLE, 0.0), (PART, 0.0), (CHANGED, None)])
def test_a_part_of_the_ids_is_masked_too(way: int, expected: float | None) -> None:
    embedding = ReachedLayer(layer("Embedding", input_dim=50, mask_zero=True), way, 50)
    assert recipe(Slot("ids", [None, 9], "int32"), [embedding], None).padding == expected


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        ("int32", [None, 9], 0.0),
        ("float32", [None, 9, 3], -1.0),
        ("float32", [None, 9], None),
        ("float32", None, -1.0),
    ],
)
def test_inputs_of_a_model_without_known_paths_are_padded(
    dtype: str, shape: list[int | None] | None, expected: float | None
) -> None:
    """Ids are padded as for an Embedding, and series as for a Masking."""
    own = layer(
        "Model",
        layers=[
            layer("Embedding", input_dim=50, mask_zero=True),
            layer("Masking", mask_value=-1.0),
        ],
        _layers=[
            layer("Embedding", input_dim=50, mask_zero=True),
            layer("Masking", mask_value=-1.0),
        ],
    )
    assert recipe(Slot("input", shape, dtype), None, own).padding == expected
