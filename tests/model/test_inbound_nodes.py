"""Graphs that no release can build are detected, and graphs that a release wrote are not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import policytool
from policytool.formats import format_detection
from policytool.model import inbound_nodes
from policytool.support.errors import ModelFileError
from tests.conftest import run
from tests.helpers.convertible_models import input2, input3, layer2
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import instance

if TYPE_CHECKING:
    from pathlib import Path

Config = dict[str, Any]
Calls = dict[str, list[tuple[str, int]]]

CIRCLES: Final[dict[str, tuple[Calls, tuple[str, ...]]]] = {
    "two": ({"a": [("b", 0)], "b": [("a", 0)]}, ("a", "b")),
    "itself": ({"a": [("a", 0)]}, ("a",)),
    "no such call": ({"a": [("i", 0)], "b": [("a", 3)]}, ("b",)),
    "its own later call": ({"a": [("b", 0), ("i", 0)], "b": [("a", 1)]}, ("a", "b")),
    "beside the outputs": ({"x": [("y", 0)], "y": [("x", 0)], "b": [("i", 0)]}, ("x", "y")),
    "behind a circle": ({"a": [("b", 0)], "b": [("a", 0)], "c": [("b", 0)]}, ("a", "b", "c")),
}
"""
What the calls of layers take, in the order of the config, and the layers that cannot be built.

All but the last were given to tf_keras 2.21, which went on without end, and to Keras 3.15, which
refused them: "The graph of the Functional model either has loops or disconnected subgraphs".
"""

BUILDABLE: Final[dict[str, Calls]] = {
    "a chain": {"a": [("i", 0)], "b": [("a", 0)]},
    "listed backwards": {"b": [("a", 0)], "a": [("i", 0)]},
    "shared, its second call on what comes of its first": {
        "a": [("i", 0), ("b", 0)],
        "b": [("a", 0)],
        "c": [("a", 1)],
    },
}


def keras2(calls: Calls) -> Config:
    """Return the config of a functional model as Keras 2 writes it."""
    return _functional([input2("i", 3)], calls, lambda layer, call: [[layer, call, 0, {}]])


def keras3(calls: Calls) -> Config:
    """Return the config of a functional model as Keras 3 writes it."""

    def node(layer: str, call: int) -> Config:
        history = {"shape": [None, 3], "dtype": "float32", "keras_history": [layer, call, 0]}
        return {"args": [{"class_name": "__keras_tensor__", "config": history}], "kwargs": {}}

    return _functional([input3("i", 3)], calls, node)


def _functional(layers: list[Config], calls: Calls, node: Any) -> Config:
    for name, taken in calls.items():
        nodes = [node(layer, call) for layer, call in taken]
        layers.append(layer2("Activation", name, *nodes, activation="linear"))
    last = list(calls)[-1]
    return {
        "name": "m",
        "trainable": True,
        "layers": layers,
        "input_layers": [["i", 0, 0]],
        "output_layers": [[last, len(calls[last]) - 1, 0]],
    }


@pytest.mark.parametrize("spelled", [keras2, keras3])
@pytest.mark.parametrize("name", CIRCLES)
def test_layers_of_a_circular_dependency_are_returned(name: str, spelled: Any) -> None:
    """
    The layers that cannot be called because of a circular dependency are returned, and no other
    layers.
    """
    calls, stuck = CIRCLES[name]
    assert inbound_nodes.uncallable_layers(spelled(calls)) == stuck


@pytest.mark.parametrize("spelled", [keras2, keras3])
@pytest.mark.parametrize("name", BUILDABLE)
def test_graph_that_can_be_built_has_no_uncallable_layers(name: str, spelled: Any) -> None:
    assert inbound_nodes.uncallable_layers(spelled(BUILDABLE[name])) == ()


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12),
    st.randoms(),
)
def test_layers_with_only_earlier_inputs_can_be_built_and_a_circle_cannot(
    pairs: list[tuple[int, int]], random: Any
) -> None:
    """
    A graph in which layers use only earlier calls can be built, and a call of the first layer on
    the last result makes a circle.
    """
    calls: Calls = {}
    created = [("i", 0)]
    for layer, taken in pairs:
        one = calls.setdefault(f"l{layer % 4}", [])
        one.append(created[taken % len(created)])
        created.append((f"l{layer % 4}", len(one) - 1))
    listed = list(calls)
    random.shuffle(listed)
    shuffled = {layer: calls[layer] for layer in listed}
    assert (
        inbound_nodes.uncallable_layers(keras2(shuffled))
        == inbound_nodes.uncallable_layers(keras3(shuffled))
        == ()
    )
    first = created[1][0]
    closed = {**shuffled, first: [(first, len(shuffled[first]) - 1), *shuffled[first][1:]]}
    assert first in inbound_nodes.uncallable_layers(keras2(closed))
    assert inbound_nodes.uncallable_layers(keras2(closed)) == inbound_nodes.uncallable_layers(
        keras3(closed)
    )


@THOROUGH
def test_no_fixture_has_such_a_graph() -> None:
    seen = 0
    files = [path for suffix in ("h5", "keras", "json") for path in FIXTURES.rglob(f"*.{suffix}")]
    for path in sorted({*files, *(path.parent for path in FIXTURES.rglob("saved_model.pb"))}):
        if path.is_relative_to(FIXTURES / "attacks"):
            continue
        try:
            parts = format_detection.document(path, str(path)).parts
        except ModelFileError:
            continue
        for config in _configs(list(parts.values())):
            assert inbound_nodes.uncallable_layers(config) == (), path
            seen += 1
    assert seen > 300


def _configs(value: Any) -> list[Config]:
    found, pending = [], [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            found += [item] if "output_layers" in item and "layers" in item else []
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return found


@pytest.mark.parametrize(
    "nodes",
    [
        None,
        7,
        [],
        [None],
        [[]],
        [[["a", -9, 0, {}]]],
        [[["a", 10**30, 0]]],
        [{"args": 3}],
        [{"keras_history": ["a"]}],
        [["_CONSTANT_VALUE"]],
        [["_CONSTANT_VALUE", -1]],
        {"a": 1},
    ],
)
@pytest.mark.parametrize("class_name", ["Dense", "TFOpLambda"])
def test_invalid_inbound_nodes_cause_no_error(nodes: Any, class_name: str) -> None:
    """Invalid inbound nodes cause neither an exception nor an invented call."""
    config = {
        **keras2({"a": [("i", 0)], "b": [("a", 0)]}),
        "output_layers": [["b", -3, 0], ["a", True, 0], ["b", 0], 5],
    }
    config["layers"][2] |= {"inbound_nodes": nodes, "class_name": class_name}
    assert not [*inbound_nodes.mismatched_constants(config)]
    assert set(inbound_nodes.uncallable_layers(config)) <= {"b"}
    assert inbound_nodes.depth(config) <= 3
    assert (
        inbound_nodes.depth({**config, "layers": 5})
        == len(inbound_nodes.uncallable_layers({**config, "layers": [3, None]}))
        == 0
    )


@THOROUGH
@pytest.mark.parametrize("spelled", [keras2, keras3])
def test_depth_of_a_graph_is_the_recursion_depth_of_a_release(spelled: Any) -> None:
    """It follows the first tensor first and does not enter a layer twice."""
    chain = {f"l{number}": [(f"l{number - 1}" if number else "i", 0)] for number in range(1200)}
    assert inbound_nodes.depth(spelled(chain)) == 1201
    assert (
        inbound_nodes.depth(
            spelled(BUILDABLE["shared, its second call on what comes of its first"])
        )
        == 5
    )
    assert inbound_nodes.depth(spelled(CIRCLES["two"][0])) == 2


def test_model_deeper_than_the_recursion_limit_is_not_reported_as_loading(tmp_path: Path) -> None:
    for number, shallow in ((800, True), (1200, False)):
        calls = {f"l{item}": [(f"l{item - 1}" if item else "i", 0)] for item in range(number)}
        file = tmp_path / f"{number}.json"
        file.write_text(
            json.dumps(
                {
                    "class_name": "Functional",
                    "config": keras2(calls),
                    "keras_version": "2.15.0",
                    "backend": "tensorflow",
                }
            )
        )
        verdict = policytool.inspect(str(file)).releases["tf2.15"]
        assert verdict.loads == shallow
        assert (
            any(
                "1,201 calls deep" in doubt.reason and "sys.setrecursionlimit" in doubt.reason
                for doubt in verdict.doubts
            )
            != shallow
        )


@pytest.mark.parametrize("target", ["keras3", "tf_keras"])
def test_migrate_reports_a_circular_dependency_and_writes_nothing(
    target: str, tmp_path: Path
) -> None:
    """``migrate`` reports a circular dependency, exits with code 3 and writes nothing."""
    file = tmp_path / "model.json"
    file.write_text(
        json.dumps(
            {
                "class_name": "Functional",
                "config": keras2(CIRCLES["two"][0]),
                "keras_version": "2.15.0",
                "backend": "tensorflow",
            }
        )
    )
    ended = run("migrate", file, "--target", target, "-o", tmp_path / "out.json")
    assert ended.code == 3
    assert "circular dependency" in ended.out + ended.err
    assert not (tmp_path / "out.json").exists()


LISTED: Final = [["dense", 0, 0]]
FLAT: Final = ["dense", 0, 0]


def functional(outputs: Any) -> Config:
    """Return a functional model with outputs."""
    return {"class_name": "Functional", "config": {"output_layers": outputs, "layers": []}}


def chain(*layers: Config) -> Config:
    """Return a Sequential."""
    return {"class_name": "Sequential", "config": {"layers": list(layers)}}


RELU: Final[Config] = {"class_name": "ReLU", "config": {}}
DENSE: Final[Config] = {"class_name": "Dense", "config": {}}
INPUT: Final[Config] = {"class_name": "InputLayer", "config": {"batch_shape": [None, 4]}}
BUILT: Final[Config] = {**DENSE, "build_config": {"input_shape": [None, 4]}}
NORMAL: Final[Config] = {**BUILT, "class_name": "BatchNormalization"}
FLATTEN: Final[Config] = {**BUILT, "class_name": "Flatten"}


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([INPUT, functional(LISTED), DENSE], [True]),
        ([functional(LISTED), DENSE], [False]),
        ([functional(FLAT), DENSE], []),
        ([functional(LISTED), RELU, DENSE], [False]),
        ([chain(functional(LISTED), RELU), DENSE], [False]),
        ([chain(functional(LISTED)), DENSE], []),
        ([chain(functional(LISTED), BUILT), BUILT], [False]),
        ([chain(functional(FLAT)), DENSE], []),
        ([INPUT, functional(LISTED), BUILT], []),
        ([INPUT, functional(LISTED), BUILT, RELU, BUILT], [True]),
        ([INPUT, functional(LISTED), BUILT, NORMAL], [True]),
        ([INPUT, functional(LISTED), NORMAL, BUILT], []),
        ([INPUT, functional(LISTED), FLATTEN], [True]),
    ],
)
def test_layer_after_a_model_with_a_list_of_outputs(
    layers: list[Config], expected: list[bool]
) -> None:
    """
    Measured with 100 files each of Keras 3.0, 3.3, 3.6, 3.10, 3.12 and 3.15 in all these releases,
    and with 60 classes in Keras 3.0, 3.12 and 3.15.
    """
    assert list(inbound_nodes.fails_on_list(chain(*layers))) == expected


@pytest.mark.parametrize(("last", "fails"), [(DENSE, True), (RELU, False)])
def test_layer_after_a_nested_model_that_returns_one_axis(last: Config, *, fails: bool) -> None:
    """Two files of Keras 3.6 and 3.9 that Keras 3.15 fails to load: "expected min_ndim=2"."""

    def called(layer: Config, name: str, *inputs: str) -> Config:
        nodes = [{"args": [{"config": {"keras_history": [one, 0, 0]}}]} for one in inputs]
        return {**layer, "name": name, "inbound_nodes": nodes}

    def graph(*layers: Config) -> Config:
        outputs = [[layers[-1]["name"], 0, 0]]
        return instance("Functional", layers=list(layers), output_layers=outputs)

    inner = called(chain(INPUT, functional(LISTED), BUILT), "chain", "x")
    normal = called({"class_name": "LayerNormalization", "config": {}}, "n", "chain")
    outer = called(graph(called(INPUT, "x"), inner, normal), "inner", "y")
    added = called({"class_name": "Add", "config": {}}, "a", "inner", "y")
    model = graph(called(INPUT, "y"), outer, added, called(last, "last", "a"))
    assert list(inbound_nodes.fails_on_list(model)) == [True] * fails
