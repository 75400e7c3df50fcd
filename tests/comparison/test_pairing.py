"""Which layers belong together, in models built for the question."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool import comparison as comparing
from policytool.comparison.pairing import out_of_order
from policytool.comparison.result import Aspect, Pairing, Presence
from policytool.comparison.variables import Opened
from policytool.formats.document import Document, Layout, Tensor
from tests.helpers.marks import THOROUGH
from tests.helpers.small_models import dense, instance, sequential

if TYPE_CHECKING:
    from policytool.comparison.result import Comparison, LayerPair


def document(config: Any, tensors: tuple[Tensor, ...] = (), name: str = "model") -> Document:
    """Return a whole model in HDF5."""
    return Document(
        path=name,
        format="h5",
        parts={"model_config": config},
        config_part="model_config",
        layout=Layout.LEGACY_H5,
        tensors=tensors,
    )


def kernel(layer: str, *shape: int, dtype: str = "float32") -> Tensor:
    """Return a layer's kernel."""
    return Tensor(path=(layer, layer, "kernel:0"), shape=shape, dtype=dtype)


def compared(a: Document, b: Document) -> Comparison:
    """Return what differs, values left out."""
    return comparing.compare_models(
        comparing.compared_model(a), comparing.compared_model(b), Opened()
    )


def pairs(found: Comparison) -> list[tuple[str, str, str]]:
    """Return the last names of all layers, and what paired them."""
    return [
        (_last(layer.a), _last(layer.b), layer.paired.value if layer.paired else "")
        for layer in found.layers
    ]


def _last(path: str | None) -> str:
    return (path or "").rpartition("/")[2]


def the(found: Comparison, name: str) -> LayerPair:
    """Return the layer of this name."""
    return next(layer for layer in found.layers if layer.path.rpartition("/")[2] == name)


def functional(*layers: tuple[str, str, list[str]], name: str = "net") -> Any:
    """Return a functional model of layers: name, class, what feeds it."""
    entries = [
        {
            **instance(class_name, name=layer, trainable=True, dtype="float32"),
            "name": layer,
            "inbound_nodes": [[[source, 0, 0, {}] for source in sources]] if sources else [],
        }
        for layer, class_name, sources in layers
    ]
    return instance(
        "Functional",
        name=name,
        layers=entries,
        input_layers=[[layers[0][0], 0, 0]],
        output_layers=[[layers[-1][0], 0, 0]],
    )


def test_models_with_different_names_pair() -> None:
    """The name of the root is a difference, and paths of layers are relative to the root."""
    comparison = compared(
        document(sequential(dense("a"), name="one")), document(sequential(dense("a"), name="two"))
    )
    assert pairs(comparison) == [("one", "two", "root"), ("a", "a", "path")]
    assert [(change.aspect, change.a, change.b) for change in comparison.layers[0].changes] == [
        (Aspect.NAME, "one", "two")
    ]


def test_layers_of_only_one_model_are_reported_in_place() -> None:
    """Such a layer keeps its position in the report."""
    comparison = compared(
        document(sequential(dense("a"), dense("b"), dense("c"))),
        document(sequential(dense("a"), dense("new", units=9), dense("d", units=9), dense("c"))),
    )
    assert [
        (layer.path, layer.presence)
        for layer in comparison.layers
        if layer.presence is not Presence.BOTH
    ] == [
        ("mlp/new", Presence.B),
        ("mlp/d", Presence.B),
        ("mlp/b", Presence.A),
    ]


def test_renamed_layers_pair_by_position() -> None:
    """Both models have the same number of layers of a class with equal variable shapes."""
    first = document(
        sequential(dense("a"), dense("b"), dense("c")),
        (kernel("a", 2, 3), kernel("b", 3, 3), kernel("c", 3, 3)),
    )
    second = document(
        sequential(dense("x"), dense("y"), dense("z")),
        (kernel("x", 2, 3), kernel("y", 3, 3), kernel("z", 3, 3)),
    )
    assert pairs(compared(first, second))[1:] == [
        ("a", "x", "position"),
        ("b", "y", "position"),
        ("c", "z", "position"),
    ]


def test_a_rule_that_leaves_a_choice_pairs_nothing() -> None:
    """Two candidates for one layer are no pair."""
    first = document(sequential(dense("a"), dense("b")), (kernel("a", 3, 3), kernel("b", 3, 3)))
    second = document(sequential(dense("x")), (kernel("x", 3, 3),))
    assert [layer.presence for layer in compared(first, second).layers] == [
        Presence.BOTH,
        Presence.B,
        Presence.A,
        Presence.A,
    ]


def test_other_shapes_pair_nothing() -> None:
    """A layer of another size and another name is another layer."""
    first, second = (
        document(sequential(dense("a")), (kernel("a", 3, 3),)),
        document(sequential(dense("x")), (kernel("x", 3, 4),)),
    )
    assert {layer.presence for layer in compared(first, second).layers[1:]} == {
        Presence.A,
        Presence.B,
    }


def test_layers_with_equal_names_pair_despite_different_classes() -> None:
    """The class is then the difference."""
    comparison = compared(
        document(sequential(dense("a"))),
        document(sequential({**dense("a"), "class_name": "EinsumDense"})),
    )
    assert [(change.aspect, change.a, change.b) for change in the(comparison, "a").changes] == [
        (Aspect.CLASS, "Dense", "EinsumDense")
    ]


def test_a_layer_under_another_parent_has_moved() -> None:
    """Name, class and shapes tell it; its place is the difference."""
    inner = sequential(dense("a"), name="inner")
    comparison = compared(
        document(sequential(inner, dense("b"))),
        document(
            sequential(
                {**inner, "config": {**inner["config"], "layers": []}}, dense("b"), dense("a")
            )
        ),
    )
    assert the(comparison, "a").paired is Pairing.MOVED
    assert (Aspect.PLACE, "inner", "") in [
        (change.aspect, change.a, change.b) for change in the(comparison, "a").changes
    ]


def test_order_of_a_sequential_is_compared() -> None:
    """Both of two swapped neighbours have moved, in both directions."""
    first, second = (
        document(sequential(dense("a"), dense("b"), dense("c"))),
        document(sequential(dense("b"), dense("a"), dense("c"))),
    )
    for found in (compared(first, second), compared(second, first)):
        assert {layer.path for layer in found.layers if layer.differs} == {"mlp/a", "mlp/b"}


def test_order_of_layers_in_a_graph_config_is_ignored() -> None:
    """The connections between layers decide."""
    layers = [
        ("i", "InputLayer", []),
        ("a", "Dense", ["i"]),
        ("b", "Dense", ["i"]),
        ("o", "Add", ["a", "b"]),
    ]
    comparison = compared(
        document(functional(*layers)),
        document(functional(layers[0], layers[2], layers[1], layers[3])),
    )
    assert not comparison.differs
    assert comparison.spellings


def test_other_connections_are_a_difference() -> None:
    """All layers can be equal."""
    layers = [
        ("i", "InputLayer", []),
        ("a", "Dense", ["i"]),
        ("b", "Dense", ["a"]),
        ("o", "Add", ["a", "b"]),
    ]
    comparison = compared(
        document(functional(*layers)),
        document(functional(*layers[:2], ("b", "Dense", ["i"]), layers[3])),
    )
    assert [
        (change.aspect, change.a, change.b)
        for layer in comparison.layers
        for change in layer.changes
    ] == [(Aspect.WIRING, ["a"], ["i"])]


def test_other_outputs_are_a_difference() -> None:
    """The outputs are a difference of the model."""
    layers = [("i", "InputLayer", []), ("a", "Dense", ["i"]), ("b", "Dense", ["a"])]
    first, second = functional(*layers), functional(*layers)
    second["config"]["output_layers"] = [["a", 0, 0]]
    assert [
        change.key for change in compared(document(first), document(second)).layers[0].changes
    ] == ["output_layers"]


def test_renamed_layer_changes_no_connections() -> None:
    """The following layers are still fed by the same layer."""
    first = functional(("i", "InputLayer", []), ("a", "Dense", ["i"]), ("b", "Activation", ["a"]))
    second = functional(("i", "InputLayer", []), ("x", "Dense", ["i"]), ("b", "Activation", ["x"]))
    assert [
        change.aspect
        for layer in compared(document(first), document(second)).layers
        for change in layer.changes
    ] == [Aspect.NAME]


@pytest.mark.parametrize(
    ("places", "moved"),
    [
        ([0, 1, 2], set()),
        ([1, 0], {0, 1}),
        ([1, 2, 3, 0], {3}),
        ([3, 0, 1, 2], {0}),
        ([], set()),
        ([2, 1, 0], {0, 1, 2}),
    ],
)
def test_out_of_order_returns_the_fewest_moved_elements(places: list[int], moved: set[int]) -> None:
    """If several sets are possible, all their elements are returned."""
    assert out_of_order(places) == moved


@given(st.permutations(range(7)))
def test_moved_elements_are_equal_for_the_inverse(places: list[int]) -> None:
    """The test compares a permutation with its inverse."""
    inverse = [places.index(number) for number in range(len(places))]
    assert {places[position] for position in out_of_order(places)} == set(out_of_order(inverse))


@given(st.permutations(range(6)))
def test_elements_that_did_not_move_are_in_order(places: list[int]) -> None:
    """
    Moved elements are not in every longest ordered subsequence, as an exhaustive search shows.
    """
    moved = out_of_order(places)
    longest = max(
        size
        for size in range(1, 7)
        if any(list(found) == sorted(found) for found in itertools.combinations(places, size))
    )
    every = [
        set(found)
        for found in itertools.combinations(places, longest)
        if list(found) == sorted(found)
    ]
    assert {places[position] for position in range(6) if position not in moved} == set.intersection(
        *every
    )


NAMES: Final = ("a", "b", "c", "d")
LAYERS: Final = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(["Dense", "Dropout"]),
        st.integers(1, 3),
        st.sampled_from(["float32", "mixed_float16"]),
    ),
    max_size=5,
    unique_by=lambda layer: layer[0],
)


def drawn(layers: list[tuple[str, str, int, str]], nested: int) -> Document:
    """Return a model of these layers, the last of them in a model of its own."""
    entries = [
        instance(class_name, name=name, trainable=True, dtype=dtype, units=units)
        for name, class_name, units, dtype in layers
    ]
    inner, outer = entries[:nested], entries[nested:]
    tensors = tuple(kernel(name, 2, units) for name, _, units, _ in layers[nested:])
    return document(sequential(*outer, sequential(*inner, name="inner")), tensors)


@given(a=LAYERS, b=LAYERS, nested=st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_comparing_the_other_way_round_mirrors(
    a: list[Any], b: list[Any], nested: tuple[int, int]
) -> None:
    """The same pairs, the same differences, each side in the other's place."""
    first, second = drawn(a, nested[0]), drawn(b, nested[1])
    there, back = compared(first, second), compared(second, first)
    assert {mirrored(layer) for layer in there.layers} == {straight(layer) for layer in back.layers}


@given(a=LAYERS, nested=st.integers(0, 2))
def test_model_equals_itself(a: list[Any], nested: int) -> None:
    """The two models have no difference and no difference of the format."""
    comparison = compared(drawn(a, nested), drawn(a, nested))
    assert not comparison.differs
    assert not comparison.spellings


def straight(layer: LayerPair) -> tuple[Any, ...]:
    """Return a layer as a value that can be put into a set."""
    changes = frozenset(
        (change.aspect, change.key, repr(change.a), repr(change.b), change.is_format_only)
        for change in layer.changes
    )
    variables = frozenset(
        (variable.a, variable.b, variable.values.verdict) for variable in layer.variables
    )
    return layer.a, layer.b, layer.paired, layer.differs, changes, variables


def mirrored(layer: LayerPair) -> tuple[Any, ...]:
    """Return a layer as it is seen from the other side."""
    changes = frozenset(
        (change.aspect, change.key, repr(change.b), repr(change.a), change.is_format_only)
        for change in layer.changes
    )
    variables = frozenset(
        (variable.b, variable.a, variable.values.verdict) for variable in layer.variables
    )
    return layer.b, layer.a, layer.paired, layer.differs, changes, variables


def shared(*entries: Any) -> Document:
    """
    Return a model of these layers, in which entries of one ``shared_object_id`` are one layer.
    """
    return document(sequential(*entries, name="net"))


def test_shared_layer_that_one_file_lists_twice_is_one_layer() -> None:
    """The second place is compared with the layer, and no place is missing."""
    inner = sequential({**dense("common"), "shared_object_id": 7}, name="inner")
    once = shared({**dense("common"), "shared_object_id": 7}, inner)
    twice = shared(dense("common"), sequential(dense("common"), name="inner"))
    for a, b in ((once, twice), (twice, once)):
        comparison = compared(a, b)
        assert not comparison.differs
        assert sorted(layer.paired.value for layer in comparison.layers if layer.paired) == [
            "path",
            "path",
            "root",
            "shared",
        ]


def test_missing_place_of_a_shared_layer_is_a_difference() -> None:
    inner = sequential({**dense("common"), "shared_object_id": 7}, name="inner")
    once = shared({**dense("common"), "shared_object_id": 7}, inner)
    without = shared(dense("common"), sequential(dense("other", units=9), name="inner"))
    changes = {
        (change.aspect, repr(change.a), repr(change.b))
        for layer in compared(once, without).layers
        for change in layer.changes
    }
    assert (Aspect.SHARED, "['inner/common']", "[]") in changes


@THOROUGH
def test_extreme_models_are_compared_quickly() -> None:
    """The models have thousands of renamed layers, and configs as deep as the JSON limit."""
    many = [dense(f"a{number}") for number in range(4_000)]
    assert compared(
        document(sequential(*many)),
        document(sequential(*(dense(f"b{number}") for number in range(4_000)))),
    ).differs
    deep: Any = 1
    for _ in range(90):
        deep = {"class_name": "Inner", "config": {"inner": deep}}
    other: Any = json.loads(json.dumps(deep).replace("1", "2"))
    comparison = compared(
        document(sequential(dense(custom=deep))), document(sequential(dense(custom=other)))
    )
    assert [change.key for layer in comparison.layers for change in layer.changes] == ["custom"]


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        (
            {"class_name": "mine>Own", "config": {}},
            {"class_name": "mine>Own", "config": {}, "shared_object_id": 3},
            False,
        ),
        (
            {"class_name": "OwnPolicy", "config": {"name": "a"}},
            {"class_name": "OwnPolicy", "config": {"name": "b"}},
            True,
        ),
        ({"class_name": "OwnPolicy", "config": {"name": "a"}}, "float32", True),
    ],
)
def test_unknown_policies_are_compared_by_their_json(
    one: Any, other: Any, *, differs: bool
) -> None:
    """Such policies are neither equal by default, nor different because of the format."""
    comparison = compared(
        document(sequential(dense("a", one))), document(sequential(dense("a", other)))
    )
    assert comparison.differs == differs


def test_classes_of_two_packages_differ() -> None:
    """The classes have equal names and are registered under different packages."""
    first, second = (
        {**dense("a"), "class_name": f"{package}>Block"} for package in ("mine", "yours")
    )
    comparison = compared(document(sequential(first)), document(sequential(second)))
    assert [(change.aspect, change.a, change.b) for change in the(comparison, "a").changes] == [
        (Aspect.CLASS, "mine>Block", "yours>Block")
    ]


def test_shared_layers_pair_at_any_place() -> None:
    """One file lists the layer first in the inner model, and the other file outside."""
    common = {**dense("common"), "shared_object_id": 7}
    inside, outside = sequential(common, name="inner"), sequential(name="inner")
    outside["config"]["layers"] = [common]
    first, second = shared(inside, common), shared(common, outside)
    comparison = compared(first, second)
    assert the(comparison, "common").paired is Pairing.PATH
    assert not the(comparison, "common").differs


def test_the_first_of_two_shared_places_may_have_another_parent() -> None:
    """No name pairs it then, but its places do."""
    common = {**dense("common"), "shared_object_id": 7}
    first, second = (
        shared(sequential(common, name="x"), sequential(common, dense("b"), name="y")),
        shared(sequential(common, dense("b"), name="y"), sequential(common, name="x")),
    )
    assert the(compared(first, second), "common").paired is Pairing.PATH
