"""The estimated losses of the candidates of a search."""

from __future__ import annotations

from msgspec.structs import replace

from policytool.numerics.tuning import candidate_layers
from tests.helpers.example_checks import check
from tests.numerics.verdicts.test_origins import model, traced


def test_layer_that_rounds_integers_has_the_effect_of_its_user() -> None:
    """The gradient by the IDs of an embedding is 0, but their rounding selects other rows."""
    ids, table, dense = (
        traced("ids", isolated=3e-4),
        traced("table", (0,), own=2e-4, rounding=0.96),
        traced("dense", (1,), own=3e-4, rounding=1e-4),
    )
    calls = [
        replace(call, outputs=(replace(call.outputs[0], sensitivity=sensitivity),))
        for call, sensitivity in ((ids, 0.0), (table, 0.9), (dense, 1.0))
    ]
    diagnosis = check(model(*calls)).check
    assert diagnosis is not None
    first = next(candidate_layers.rankings(diagnosis, ("ids", "table", "dense")))
    assert first["ids"] > first["dense"]
