"""Following dtypes from where a decision reaches gives what following all of them gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.migration.planning import propagation
from policytool.migration.planning.decisions import Decision, Decisions
from policytool.model import reading
from policytool.releases import policy
from tests.helpers.planned_models import dense, document, functional, source
from tests.migration.planning.test_propagation import op

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from policytool.model.loaded_model import LoadedModel


def _inputs(loaded: LoadedModel) -> list[Mapping[int, frozenset[str]]]:
    """Return what each layer gets where one layer at a time is set to float16."""
    decided = Decision(policy=policy.policy_from_name("float16"), reason="")
    return [
        propagation.inputs(loaded, Decisions(by_site={index: decided}))
        for index in range(len(loaded.sites))
    ]


def test_one_decision_gives_the_same_dtypes_as_following_the_whole_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through ops that cast nothing, as far as the next layer that does."""
    model = functional(
        source(),
        dense("a", inbound=["x"]),
        op("tf.relu", "a", function="nn.relu"),
        op("tf.add", "tf.relu", "x"),
        dense("b", inbound=["tf.add"]),
        dense("out", inbound=["b"]),
        outputs=["out"],
    )
    loaded = reading.load_model(document(model))
    found = _inputs(loaded)
    reached = {index for flow in found for index in flow if flow[index] != found[0][index]}
    assert len(reached) > len(loaded.sites) // 3
    monkeypatch.setattr(propagation, "_flow_before", lambda *_: {})
    assert found == _inputs(loaded)
