"""
What Keras 2 writes for public functions applied to inputs is on the list of functions that a config
may name.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.compat.test_pure_functions import DATA, NAMES
from tests.helpers.paths import ROOT
from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

METHODS: Final = frozenset(
    f"ClassMethod: {owner}.{name}"
    for owner, names in DATA["class_methods"].items()
    for name in names
)
ATTRIBUTES: Final = frozenset(
    f"{kind}: {name}" for kind, names in DATA["instance_attributes"].items() for name in names
)
FUNCTIONS: Final = frozenset(
    f"{kind}: {name}" for kind in ("TFOpLambda", "SlicingOpLambda") for name in NAMES
)

LEFT_OUT: Final = frozenset({"TFOpLambda: compat.v1.losses.compute_weighted_loss"})
"""What the models name and the review left out: it adds to a collection of the graph."""

COMPOSED: Final = frozenset(
    f"ClassMethod: RaggedTensor.from_nested_{what}"
    for what in ("row_lengths", "row_splits", "value_rowids")
)
"""Methods that Keras wraps if it cannot compose them of those that it wraps anyway."""

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def cases(
    compat_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Mapping[str, Any]]:
    """Return what the files of one model for each function name."""
    path = tmp_path_factory.mktemp("wrapped") / "answer.json"
    command = [str(compat_python), "-m", "tests.compat.wrapped_models", str(path)]
    variables = {**os.environ, **ENVIRONMENT, "TMPDIR": str(path.parent)}
    done = run_captured(command, cwd=ROOT, env=variables, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    result: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return result


def test_pure_functions_that_models_name_are_listed(cases: Mapping[str, Mapping[str, Any]]) -> None:
    """All functions that configs name are in the list, except those that the review left out."""
    named = {name for case in cases.values() for name in case["written"]}
    assert named - FUNCTIONS - METHODS - ATTRIBUTES == LEFT_OUT
    assert {name.partition(": ")[2] for name in LEFT_OUT} <= {
        name for names in DATA["left_out"].values() for name in names
    }
    assert sum(bool(case["written"]) for case in cases.values()) > 800
    assert len(named & FUNCTIONS) > 300


def test_listed_methods_and_attributes_occur_in_models(
    cases: Mapping[str, Mapping[str, Any]],
) -> None:
    """Keras writes each listed method and attribute of ragged and sparse tensors."""
    named = {name for case in cases.values() for name in case["written"]}
    assert (METHODS | ATTRIBUTES) - named == COMPOSED
