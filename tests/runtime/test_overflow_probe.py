"""The search for the factor that overflows, with numbers instead of models."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.runtime.engine import overflow_probe
from policytool.runtime.engine.overflow_probe import (
    CLOSE,
    LEAST,
    MOST,
    Outcome,
    first_overflow,
    is_narrow,
    most_factor,
    smallest_factor,
)
from policytool.runtime.engine.tensor_errors import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_RUNS = 8


def counted(at: Callable[[float], Outcome]) -> tuple[Callable[[float], Outcome], list[float]]:
    """Return a function and the list of its arguments."""
    tried: list[float] = []

    def run(factor: float) -> Outcome:
        tried.append(factor)
        return at(factor)

    return run, tried


@given(edge=st.floats(1.01, MOST), largest=st.floats(1e-3, 1e5))
def test_edge_is_found_within_a_fifth(edge: float, largest: float) -> None:
    """Few runs find the edge, unless it is above the largest factor."""
    most = most_factor(largest)
    run, tried = counted(lambda factor: Outcome("dense" if factor >= edge else None))
    finite_to, factor, place = smallest_factor(run, most)
    assert len(tried) <= MOST_RUNS
    if edge > most:
        assert (finite_to, factor, place, tried) == (most, None, None, [most])
        return
    assert factor is not None
    assert place == "dense"
    assert finite_to < edge <= factor
    assert factor / finite_to <= CLOSE * 1.06  # two digits
    assert factor in tried
    assert finite_to in {1.0, *tried}


@given(edge=st.floats(1.01, 100.0), end=st.floats(1.01, 100.0))
def test_reference_has_to_be_finite(edge: float, end: float) -> None:
    def at(factor: float) -> Outcome:
        return Outcome("dense" if factor >= edge else None, is_usable=factor < end)

    run, tried = counted(at)
    finite_to, factor, place = smallest_factor(run, 200.0)
    assert len(tried) <= MOST_RUNS
    assert finite_to < min(edge, end)
    if factor is not None:
        assert edge <= factor < end
        assert place == "dense"
    else:
        assert place is None
        assert end <= edge * CLOSE * 1.06


@given(edge=st.floats(1.01, MOST))
def test_factors_have_two_digits(edge: float) -> None:
    """Tested factors have two digits, except the largest, so that reports print them exactly."""
    run, tried = counted(lambda factor: Outcome("dense" if factor >= edge else None))
    smallest_factor(run, MOST)
    assert all(factor == float(f"{factor:.2g}") for factor in tried if factor != MOST)


@pytest.mark.parametrize(
    ("largest", "expected"),
    [(1e-3, MOST), (3.0, 21000.0), (255.0, 250.0), (30_000.0, LEAST), (1e6, LEAST)],
)
def test_inputs_stay_within_float16(largest: float, expected: float) -> None:
    """The largest factor reaches the range of float16, but is at least 16."""
    assert most_factor(largest) == expected
    assert expected == LEAST or expected * largest <= np.finfo("float16").max


def row(
    name: str, accumulated: int, isolated: int | None, *, parent: Any = None, narrow: bool = True
) -> Any:
    """Return a row with these numbers of comparisons."""
    candidate = SimpleNamespace(key=(name, 0), path=name, parent=parent)
    return SimpleNamespace(
        candidate=candidate,
        accumulated=[accumulated],
        isolated=None if isolated is None else [isolated],
        dtypes=[("float32", "float16" if narrow else "float32")],
    )


def vectors(*overflowed: int) -> Any:
    """Return vectors in which some values overflow."""
    found = np.zeros((len(overflowed), len(FIELDS)))
    found[:, FIELDS.index("overflowed")] = overflowed
    return found


def test_first_overflowing_layer_in_call_order_is_reported() -> None:
    rows = [row("first", 0, 1), row("second", 2, 3), row("third", 4, 5)]
    assert first_overflow(rows, vectors(0, 0, 0, 0, 0, 0)) is None
    assert first_overflow(rows, vectors(0, 0, 1, 1, 9, 9)) is rows[1]
    assert first_overflow([row("alone", 0, None)], vectors(3)).candidate.path == "alone"


def test_outer_layer_is_reported_if_its_code_overflows() -> None:
    """An example is the scores of an attention."""
    attention = row("attention", 2, 3)
    output = row("attention/output", 0, 1, parent=attention.candidate)
    assert first_overflow([output, attention], vectors(1, 0, 1, 1)) is attention
    assert first_overflow([output, attention], vectors(1, 0, 1, 0)) is output


def test_only_float16_is_probed() -> None:
    """Other dtypes have the range of float32."""
    assert is_narrow([row("first", 0, 1, narrow=False), row("second", 2, 3)])
    assert not is_narrow([row("first", 0, 1, narrow=False)])


def test_runs_are_bounded() -> None:
    """Each run halves the octaves of the largest factor."""
    runs = 1 + math.ceil(math.log2(math.log2(overflow_probe.MOST) / math.log2(CLOSE)))
    assert runs <= MOST_RUNS
