"""Which layers of a SavedModel Keras 2 restores from their traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Document, ObjectNode
from policytool.model.compatibility import revived_layers
from policytool.model.tree.site import Site, Unspelled
from tests.helpers.cases import for_each

if TYPE_CHECKING:
    from policytool.support.text.jsontext import Json

CALL: Final = "call_and_return_conditional_losses"


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
    return list(revived_layers.paths(model, sites))


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
