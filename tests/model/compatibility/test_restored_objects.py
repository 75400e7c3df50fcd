"""Variables that a SavedModel's checkpoint lacks, and layers that Keras 2 restores from traces."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.formats.document import Document, ObjectNode
from policytool.formats.format_detection import document
from policytool.model.compatibility import restored_objects
from policytool.model.model import Outcome
from policytool.model.tree.site import Site, Unspelled
from policytool.model.tree.storage import NO_VARIABLES
from tests.helpers.cases import for_each
from tests.helpers.damaged_variables import CHECKPOINT_KINDS, damaged_checkpoint
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.support.text.jsontext import Json

CALL: Final = "call_and_return_conditional_losses"

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
    assert [refusal.code for refusal in plan.refusals] == ["unloadable"]


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
    cause = restored_objects.cause(model, NO_VARIABLES, has_generators=has_generators)
    assert (cause is not None) is has_generators


def test_lookup_tables_are_stored_as_two_tensors() -> None:
    """The checkpoint lists one key, and stores the keys and the values of the table."""
    path = FIXTURES / "tf2.3/string_lookup"
    assert None not in document(path, str(path)).restored.values()


def revived(
    *identifiers: str, function: str = CALL, metadata: Json = None, branched: bool = False
) -> list[str]:
    """
    Return the paths of the layers that are restored.

    :param branched: whether all are in the first, instead of each in the one before it
    """
    api = len(identifiers)
    nodes = {
        number: ObjectNode(
            id=number, identifier=name, children=(("keras_api", api),), part=f"#{number}"
        )
        for number, name in enumerate(identifiers)
    }
    nodes[api] = ObjectNode(id=api, identifier="", children=((function, api + 1),))
    sites = [
        Site(
            names=("a", *"bc"[(number - 1 if branched else 0) : number]),
            class_name="Masking" if name == "masking" else "Own",
            attribute="layers",
            parent=(0 if branched else number - 1) if number else None,
            spelled=Unspelled.ABSENT,
            address=None,
            node=number,
        )
        for number, name in enumerate(identifiers)
    ]
    parts = {f"#{number}": metadata for number in nodes}
    model = Document(path="m", format="savedmodel", nodes=nodes, parts=parts)
    return list(restored_objects.traced_paths(model, sites))


@for_each(
    ("identifiers", "paths"),
    [
        (("_tf_keras_network", "_tf_keras_layer", "_tf_keras_layer"), ["a", "a/b", "a/b/c"]),
        (("_tf_keras_model", "_tf_keras_layer"), ["a", "a/b"]),
        (("_tf_keras_sequential", "_tf_keras_layer"), ["a/b"]),
        (("_tf_keras_network", "_tf_keras_rnn_layer", "_tf_keras_layer"), ["a"]),
        (("_tf_keras_layer", "_tf_keras_rnn_layer"), ["a"]),
    ],
)
def test_layers_and_models_are_restored(identifiers: tuple[str, ...], paths: list[str]) -> None:
    """Recurrent layers are not, nor are their cells, which are in their configs."""
    assert revived(*identifiers) == paths


def test_traces_must_exist_and_be_permitted() -> None:
    """A model may be saved without traces, and a layer may need its config."""
    assert revived("_tf_keras_layer") == ["a"]
    assert not revived("_tf_keras_layer", function="__call__")
    assert not revived("_tf_keras_layer", metadata={"must_restore_from_config": True})


def test_masks_of_a_graph_may_lack_a_trace() -> None:
    """Only models of connected layers call the layers again; others are restored whole."""
    masked = ("_tf_keras_layer", "masking")
    for model, paths in (("_tf_keras_network", ["a"]), ("_tf_keras_model", ["a", "a/b"])):
        assert revived(model, *masked, branched=True) == paths
