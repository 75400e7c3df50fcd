"""
What is reduced on the device is what NumPy finds in float64: every field, for each pair of dtypes,
over several batches, in a graph.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.numerics.check_results.metrics import (
    TensorReductions,
    metrics,
)
from policytool.support.text import codec
from tests.compat.asking import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

pytestmark = pytest.mark.compat

SCRIPT: Final = Path(__file__).with_name("reductions.py")
SECONDS: Final = 300
PRECISION: Final = 5e-6
"""Of sums in float32: what tensors of one value need, several times what others do."""


@pytest.fixture(scope="session")
def reduced(
    compat_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Sequence[Any]]:
    """Return the comparisons by how they were made, from one process."""
    results = tmp_path_factory.mktemp("reductions") / "results.json"
    done = subprocess.run(
        [compat_python, SCRIPT, results],
        check=False,
        timeout=SECONDS,
        env={**os.environ, **ENVIRONMENT},
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    grouped = defaultdict(list)
    for item in json.loads(results.read_text(encoding="utf-8")):
        grouped[item["how"]].append(item)
    return grouped


def wrong(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not what NumPy found, with both values."""
    close = {}
    for name, value in expected.items():
        if name.endswith("_at_largest") or name == "flushed":
            continue
        exact = value is None or isinstance(value, int)
        least = (
            1e-18 * expected["squared_reference"] if name == "squared_error" else 1e-300
        )  # float64 numbers that a CPU takes for 0
        close[name] = value if exact else pytest.approx(value, rel=PRECISION, abs=least)
    differing = {
        name: (found[name], expected[name]) for name, value in close.items() if found[name] != value
    }
    fewest, most = expected["flushed"]
    if not fewest <= found["flushed"] <= most:
        differing["flushed"] = (found["flushed"], expected["flushed"])
    pair = found["reference_at_largest"], found["candidate_at_largest"]
    if expected["reference_at_largest"] is None or None in pair:
        return (
            differing
            if pair == (None, None) and expected["reference_at_largest"] is None
            else {**differing, "pair": pair}
        )
    # Of several errors that round to one in float32, another may be the first.
    if abs(pair[0] - pair[1]) != pytest.approx(
        expected["largest_error"], rel=PRECISION, abs=1e-300
    ):
        differing["pair"] = pair
    return differing


@pytest.mark.parametrize("how", ["full", "open", "unranked", "empty"])
def test_reductions_equal_those_of_numpy(reduced: Mapping[str, Sequence[Any]], how: str) -> None:
    """
    Values are ordinary, special, huge and tiny, in shapes that are known, partly known or unknown.
    """
    assert reduced[how]
    assert not [
        (*item["of"], item["kind"], found)
        for item in reduced[how]
        if (found := wrong(item["found"], item["expected"]))
    ]


def test_only_values_too_small_for_the_dtype_underflow(
    reduced: Mapping[str, Sequence[Any]],
) -> None:
    """Values of a usual size that are zero in the candidate do not underflow; tiny ones do."""
    counts = {
        (item["kind"], *item["of"][:2]): item["found"]["flushed"]
        for item in reduced["full"]
        if item["kind"] in {"sparse", "to zeros", "tiny"}
    }
    underflowing = {key for key, count in counts.items() if count}
    expected = {key for key in counts if key[0] == "tiny" and key[2] == "float16" != key[1]}
    assert expected
    assert underflowing == expected


def test_equal_tensors_have_no_error(reduced: Mapping[str, Sequence[Any]]) -> None:
    """The squared error is exactly 0."""
    same = [
        item
        for item in reduced["full"]
        if item["kind"] == "rounded" and item["of"][0] == item["of"][1]
    ]
    assert same
    assert {item["found"]["squared_error"] for item in same} == {0.0}


def test_values_that_are_not_floats_are_compared_for_equality(
    reduced: Mapping[str, Sequence[Any]],
) -> None:
    """Only the number of elements and of differing elements is measured."""
    for item in reduced["other"]:
        measured = {name: value for name, value in item["found"].items() if value is not None}
        assert [measured.pop("elements"), measured.pop("differing"), measured] == [
            *item["expected"],
            {},
        ]


def test_the_account_is_read_as_a_value(reduced: Mapping[str, Sequence[Any]]) -> None:
    """The child's fields are those of the value, and the constant layer shows 2 instead of 10."""
    one = next(
        item
        for item in reduced["full"]
        if item["kind"] == "constant" and item["of"] == ["float32", "float16"]
    )
    assert set(one["found"]) == set(TensorReductions.__struct_fields__)
    assert metrics(codec.read(TensorReductions, one["found"]), "float16").pair == (10.0, 2.0)


def test_exponents_equal_those_of_float32(reduced: Mapping[str, Sequence[Any]]) -> None:
    """Zeros, subnormal numbers and infinite values are excluded."""
    assert len(reduced["exponents"]) > 50
    assert not [item for item in reduced["exponents"] if item["found"] != item["expected"]]
    assert any(item["expected"] for item in reduced["exponents"])
