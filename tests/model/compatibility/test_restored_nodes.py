"""Verdicts on SavedModels whose checkpoint does not match the graph."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

import policytool
from policytool.formats.document import Document, ObjectNode
from policytool.formats.format_detection import document
from policytool.model.compatibility import restored_nodes
from policytool.model.model import Outcome
from policytool.model.tree.storage import NO_VARIABLES
from tests.helpers.damaged_variables import CHECKPOINT_KINDS, damaged_checkpoint
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

REASONS = {
    "entry missing": "the variable bias of Dense dense_1 is not stored",
    "entry shape": "the variable bias of Dense dense_1 has the shape (3,), but (4,) is stored",
    "entry dtype": "the variable bias of Dense dense_1 has the dtype float32, but float64 is "
    "stored",
    "short": "variables.data-00000-of-00001 is truncated: _CHECKPOINTABLE_OBJECT_GRAPH ends at "
    "byte 744, but the file has only 724 bytes",
    "damaged index": "variables.index is damaged: the block at byte 0 does not match its checksum",
}


@pytest.mark.parametrize("kind", CHECKPOINT_KINDS)
def test_damaged_checkpoints_fail_to_load(tmp_path: Path, kind: str) -> None:
    """Every release that would load the model fails, with the variable and both shapes."""
    copy = tmp_path / "model"
    assert damaged_checkpoint(FIXTURES / "tf2.15/default_float32", copy, kind, Random(5))  # noqa: S311
    releases = policytool.inspect(copy).releases
    assert {releases[name].reason for name in ("tf2.12", "tf2.15", "tf_keras2.21")} == {
        REASONS[kind]
    }
    assert [finding.rule for finding in policytool.audit(copy).findings].count("PT506") == 1


@pytest.mark.parametrize("kind", CHECKPOINT_KINDS)
def test_migrate_rejects_damaged_checkpoints(tmp_path: Path, kind: str) -> None:
    """The output would have the same damaged checkpoint."""
    copy = tmp_path / "model"
    source = FIXTURES / "tf2.15/adam_autowrap_mf16"
    assert damaged_checkpoint(source, copy, kind, Random(5))  # noqa: S311
    plan = policytool.migrate(copy, to="float32", output=tmp_path / "output").plan
    assert [refusal.code for refusal in plan.refusals] == ["unloadable-variables"]


def test_the_state_of_an_optimizer_is_restored(tmp_path: Path) -> None:
    """The checkpoint must have the slots, even for releases that do not compile the model."""
    source = FIXTURES / "tf2.15/adam_autowrap_mf16"
    names = set()
    for number in range(20):
        copy = tmp_path / f"model{number}"
        assert damaged_checkpoint(source, copy, "entry missing", Random(number))  # noqa: S311
        verdict = policytool.inspect(copy).releases["tf2.15"]
        assert verdict.outcome is Outcome.INCOMPATIBLE
        names.add(verdict.reason)
    assert "the variable m/dense_a/kernel is not stored" in names


@pytest.mark.parametrize("has_generators", [True, False])
def test_tf_2_9_does_not_restore_the_generators_of_layers(*, has_generators: bool) -> None:
    """A RandomCrop with a damaged state loads in TF 2.9, and fails in TF 2.12 and tf_keras 2.21."""
    edges = ("crop", "_random_generator", "_generator", "_state_var")
    nodes = {
        number: ObjectNode(
            id=number, identifier="", children=tuple((name, number + 1) for name in names)
        )
        for number, names in enumerate([*((edge,) for edge in edges), ()])
    }
    model = Document(path="m", format="savedmodel", nodes=nodes, restored={len(edges): None})
    cause = restored_nodes.cause(model, NO_VARIABLES, has_generators=has_generators)
    assert (cause is not None) is has_generators


def test_lookup_tables_are_stored_as_two_tensors() -> None:
    """The checkpoint lists one key, and stores the keys and the values of the table."""
    path = FIXTURES / "tf2.3/string_lookup"
    assert None not in document(path, str(path)).restored.values()
