"""The options for ``migrate`` after a check."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from policytool.commands import check as checks
from policytool.formats import format_detection
from policytool.migration import planning
from policytool.migration.planning.options import Options
from policytool.model import reading
from policytool.numerics.check_results.verdicts import Advice
from tests.helpers.example_checks import call, check, output, run
from tests.helpers.paths import FIXTURES

MODEL = FIXTURES / "keras3.15" / "rnn.keras"


@pytest.mark.parametrize("to", ["mixed_float16", "mixed_bfloat16"])
def test_nothing_is_written_with_all_layers_in_float32(to: str) -> None:
    """If all layers stay in float32, a float32 model is not written; with one layer less, it is."""
    loaded = reading.load_model(format_detection.document(MODEL, MODEL.name))
    candidate = Options(to=to)
    changed = {edit.path for edit in planning.draft(loaded, candidate).edits}
    every = tuple(layer.path for layer in loaded.layers if layer.path in changed)
    assert len(every) > 1
    measured = check(run(call("y", None, 0.5), outputs=(output("y", 0.5),))).check
    assert measured is not None

    def migration(kept: tuple[str, ...]) -> Options | None:
        advice = Advice(layers=kept, trials=3, choices=len(every))
        return checks.migration_options(replace(measured, advice=advice), loaded, candidate)

    assert migration(every) is None
    options = migration(every[1:])
    assert options is not None
    edits = planning.draft(loaded, options).edits
    assert {edit.path for edit in edits} == {every[0]}
