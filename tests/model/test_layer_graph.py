"""The graph of a model: the inputs of each layer, and the place of each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policytool.model.calls import layer_name
from policytool.support.text.jsontext import place
from tests.helpers.convertible_models import (
    input2,
    input3,
    keras2,
    keras3,
    layer2,
    layer3,
    load,
    tensor,
    written,
)
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import dense, sequential

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "name",
    [
        "keras2.1.6/nested_models.yaml",
        "keras3.15/nested_models.keras",
        "tf2.5/mha_mixed",
        "tf_keras2.21/default_float32",
        "tfjs4.22/nested_models/model.json",
    ],
)
def test_each_node_of_a_graph_refers_to_the_object(name: str) -> None:
    """In a SavedModel, to the object in the metadata of the model that contains the graph."""
    loaded = load(FIXTURES / name)
    assert loaded.graphs
    for model, graph in loaded.graphs.items():
        for node in graph.nodes.values():
            home = loaded.sites[model].entry
            below = node.site is None or graph.source is not None
            entry = home if below else loaded.sites[node.site or 0].entry
            assert entry is not None
            if node.pointer:
                holder, key = place(loaded.document.parts[entry.part], node.pointer)
                assert layer_name(holder[key]) == node.name
            if node.site is not None:
                site = loaded.sites[node.site]
                assert node.name in {site.name, site.given_name}


def test_tensors_in_keyword_arguments_come_after_the_first_argument(tmp_path: Path) -> None:
    """
    Tensors in keyword arguments come after the first argument among the inputs of a layer, although
    Keras 2 writes them with each tensor and Keras 3 after all tensors.
    """
    call = [["a", 0, 0, {"mask": ["m", 0, 0]}], ["b", 0, 0, {"mask": ["m", 0, 0]}]]
    inputs = [input2(name, 4) for name in ("a", "b", "m")]
    older = written(tmp_path / "keras2.json", keras2(*inputs, layer2("Add", "sum", call)))
    inputs = [input3(name, 4) for name in ("a", "b", "m")]
    added = layer3("Add", "sum", [tensor("a"), tensor("b")], kwargs={"mask": tensor("m")})
    newer = written(tmp_path / "keras3.json", keras3(*inputs, added))
    for loaded in (older, newer):
        assert loaded.graphs[0].nodes["sum"].parents == ("a", "b", "m")
        assert (loaded.graphs[0].inputs, loaded.graphs[0].outputs) == (("a", "b", "m"), ("sum",))


def test_a_layer_that_two_sequential_models_share_is_in_both_chains(tmp_path: Path) -> None:
    """Keras writes it twice with the same id."""
    shared = {**dense("shared"), "shared_object_id": 5}
    branches = [
        sequential(shared, dense("first"), name="branch_a"),
        sequential(shared, dense("second"), name="branch_b"),
    ]
    loaded = written(tmp_path / "model.json", sequential(*branches))
    chains = [list(graph.nodes) for graph in loaded.graphs.values()]
    assert chains == [["branch_a", "branch_b"], ["shared", "first"], ["shared", "second"]]
    assert loaded.graphs[4].nodes["second"].parents == ("shared",)
