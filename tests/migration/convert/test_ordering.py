"""The order of the layers in a loaded model, which follows its graph and not its config."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.migration.convert.architecture import Network, Role, Unit
from policytool.migration.convert.ordering import Edge, implicit_edges, order, order_layers
from policytool.migration.convert.target import Target
from policytool.model.calls import Call, Reference
from policytool.model.flow import inbound
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument

DEEP: Final = 5000


def unit(name: str, *calls: Argument, **kwargs: Argument) -> Unit:
    """
    Return a layer with one call for each of ``calls``, and with ``kwargs``; without calls it is an
    input layer.
    """
    made = tuple(Call(args=(argument,), kwargs=kwargs) for argument in calls)
    return Unit(class_name="Dense" if calls else "InputLayer", name=name, config={}, calls=made)


def names(network: Network) -> list[str]:
    """Return the layer names in the order of the loaded model."""
    return [one.name for one in order(network)]


def to(name: str, call: int = 0) -> Reference:
    """Return the output of a call."""
    return Reference(layer=name, call=call)


@st.composite
def networks(draw: st.DrawFn, *, shared: bool) -> Network:
    """
    Draw functional networks with branches, unconnected inputs and layers, and optionally layers
    with several calls.
    """
    units = [unit(f"in{number}") for number in range(draw(st.integers(1, 3)))]
    made = [to(one.name) for one in units]
    for number in range(draw(st.integers(1, 12))):
        taken = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
        argument: Argument = (
            taken[0]
            if len(taken) == 1
            else dict(zip("cab", taken, strict=False))
            if draw(st.booleans())
            else [*taken]
        )
        again = [one for one in units if one.calls] if shared and draw(st.booleans()) else []
        if again:
            old = draw(st.sampled_from(again))
            made.append(to(old.name, len(old.calls)))
            units[units.index(old)] = replace(old, calls=(*old.calls, Call(args=(argument,))))
        else:
            keywords = {"value": draw(st.sampled_from(made))} if draw(st.booleans()) else {}
            units.append(unit(f"l{number}", argument, **keywords))
            made.append(to(f"l{number}"))
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
    return Network(
        units=tuple(units),
        inputs=[to(one.name) for one in units if not one.calls],
        outputs=[*outputs],
    )


@given(network=networks(shared=True), data=st.data())
def test_order_of_layers_follows_the_graph(network: Network, data: st.DataObject) -> None:
    """
    The order contains each unit once, and the units that lead to an output keep their order if the
    config lists the units in another order.
    """
    found = order(network)
    assert sorted(one.name for one in found) == sorted(one.name for one in network.units)
    kept = _leading(network)
    mixed = replace(network, units=tuple(data.draw(st.permutations(network.units))))
    assert [name for name in names(mixed) if name in kept] == [
        name for name in names(network) if name in kept
    ]
    assert order(replace(network, units=found)) == found


@given(network=networks(shared=False))
def test_layers_come_after_the_layers_that_feed_them(network: Network) -> None:
    """
    If no layer is called twice, each layer that leads to an output comes after the layers that feed
    it.
    """
    kept = _leading(network)
    found = [one for one in order(network) if one.name in kept]
    place = {one.name: number for number, one in enumerate(found)}
    assert all(
        place[taken.layer] < place[one.name]
        for one in found
        for call in one.calls
        for taken in inbound(call)
    )


def _leading(network: Network) -> set[str]:
    """Return the units that have a call that leads to an output."""
    found: set[tuple[str, int]] = set()
    outputs: Sequence[Reference] = (
        [one for one in network.outputs if isinstance(one, Reference)]
        if isinstance(network.outputs, list)
        else []
    )
    pending = [*outputs]
    while pending:
        one = pending.pop()
        if (one.layer, one.call) not in found:
            found.add((one.layer, one.call))
            pending += [
                taken
                for call in network.unit(one.layer).calls[one.call : one.call + 1]
                for taken in inbound(call)
            ]
    return {name for name, _ in found}


def test_the_deeper_branch_comes_first() -> None:
    """
    A layer farther from the output comes first, regardless of the config; layers of equal depth
    follow the order of the arguments of the last call.
    """
    layers = (
        unit("in"),
        unit("near", to("in")),
        unit("far", to("in")),
        unit("after", to("far")),
        unit("sum", [to("near"), to("after")]),
    )
    network = Network(units=layers, inputs=to("in"), outputs=to("sum"))
    assert names(network) == ["in", "far", "near", "after", "sum"]
    turned = replace(network, units=(*layers[:4], unit("sum", [to("after"), to("near")])))
    assert names(turned) == ["in", "far", "after", "near", "sum"]


def test_keyword_arguments_come_last_and_sorted_by_name() -> None:
    """
    Keyword arguments are sorted by name after the positional ones, so that Attention with ``key``
    and ``value`` by name in Keras 2 can have another order of layers than in Keras 3.
    """
    layers = (unit("in"), *(unit(name, to("in")) for name in "qvk"))
    by_name = Network(
        units=(*layers, unit("m", to("q"), value=to("v"), key=to("k"))),
        inputs=to("in"),
        outputs=to("m"),
    )
    assert names(by_name) == ["in", "q", "k", "v", "m"]
    assert [one.name for one in order(by_name, by_name=False)] == [
        "in",
        "q",
        "v",
        "k",
        "m",
    ]  # tf_keras 2.21
    call = Call(args=(to("q"), to("v"), to("k")))
    assert names(replace(by_name, units=(*layers, replace(unit("m"), calls=(call,))))) == [
        "in",
        "q",
        "v",
        "k",
        "m",
    ]


def test_layers_without_an_output_come_after_ordered_layers() -> None:
    """
    Unconnected inputs come first in the last depth, and other layers that lead to no output come
    after all ordered layers.
    """
    layers = (unit("lost", to("in")), unit("in"), unit("free"), unit("out", to("in")))
    assert names(Network(units=layers, inputs=[to("in"), to("free")], outputs=to("out"))) == [
        "in",
        "free",
        "out",
        "lost",
    ]


def test_sequentials_keep_their_order_and_nested_models_are_sorted() -> None:
    inner = Network(units=(unit("b", to("a")), unit("a")), inputs=to("a"), outputs=to("b"))
    nested = Unit(class_name="Functional", name="f", config={}, role=Role.MODEL, network=inner)
    root = order_layers(
        Unit(
            class_name="Sequential",
            name="s",
            config={},
            role=Role.MODEL,
            network=Network(units=(unit("z"), nested)),
        ),
        Target(loader="keras3.15", container="keras"),
    )
    assert root.network is not None
    assert [one.name for one in root.network.units] == ["z", "f"]
    below = root.network.units[1].network
    assert below is not None
    assert [one.name for one in below.units] == ["a", "b"]


@THOROUGH
@pytest.mark.parametrize("outputs", [to("l4999"), [to("in"), to("l4999")]])
def test_depth_has_no_limit(outputs: Argument) -> None:
    """A chain of layers that is deeper than Python's stack is sorted."""
    layers = [
        unit("in"),
        *(unit(f"l{number}", to(f"l{number - 1}" if number else "in")) for number in range(DEEP)),
    ]
    assert names(Network(units=tuple(reversed(layers)), inputs=to("in"), outputs=outputs)) == [
        one.name for one in layers
    ]


@pytest.mark.parametrize(
    ("class_name", "config"),
    [
        ("SpatialDropout1D", {}),
        (
            "Bidirectional",
            {"layer": Unit(class_name="LSTM", name="inner", config={"return_sequences": True})},
        ),
        ("AdditiveAttention", {}),
    ],
)
def test_propagated_masks_make_a_branch_deeper(class_name: str, config: dict[str, Value]) -> None:
    """
    A layer with a joined mask is deeper because of its mask operations (Keras 3.15); otherwise two
    embeddings of the same shape would be swapped in an archive.
    """
    taken: Argument = [to("a"), to("a")] if class_name == "AdditiveAttention" else to("a")
    masked: dict[str, Value] = {"mask_zero": True}
    network = Network(
        units=(
            *(unit("x"), unit("y")),
            replace(unit("a", to("x")), class_name="Embedding", config=masked),
            replace(unit("b", to("y")), class_name="Embedding", config=masked),
            replace(
                unit("middle", taken),
                class_name=class_name,
                config=config,
            ),
            replace(unit("one", [to("middle"), to("b")]), class_name="Concatenate"),
            replace(unit("two", [to("b"), to("one")]), class_name="Concatenate"),
            replace(unit("pool", to("two")), class_name="GlobalAveragePooling1D"),
        ),
        inputs=[to("x"), to("y")],
        outputs=[to("pool")],
    )
    edges = implicit_edges(network, Target(loader="keras3.15", container="keras"))
    found = [one.name for one in order(network, edges, by_name=False)]
    assert found == ["x", "y", "a", "b", "middle", "one", "two", "pool"]


@pytest.mark.parametrize(
    ("class_name", "release", "expected"),
    [
        ("Add", "keras3.3", None),
        ("Add", "keras3.6", [Edge(("a", 0), 1, is_mask=True), Edge(("b", 0), 1, is_mask=True)]),
        ("Concatenate", "keras3.3", None),
        (
            "Concatenate",
            "keras3.6",
            [Edge(("a", 0), 4, is_mask=True), Edge(("b", 0), 4, is_mask=True)],
        ),
        (
            "Concatenate",
            "keras3.15",
            [
                *(Edge(("a", 0), 4, is_mask=True), Edge(("b", 0), 4, is_mask=True)),
                *(Edge(("a", 0), 4), Edge(("b", 0), 4)),
            ],
        ),
    ],
)
def test_releases_merge_masks_in_different_ways(
    class_name: str, release: str, expected: list[Edge] | None
) -> None:
    """
    The mask operations between merged layers depend on the release: before Keras 3.4 a list of
    tensors has no mask (measured with Keras 3.3.3, 3.6.0, 3.12.0 and 3.15.1).
    """
    network = Network(
        units=(
            *(unit("x"), unit("y")),
            *(
                replace(unit(name, to(source)), class_name="Embedding", config={"mask_zero": True})
                for name, source in (("a", "x"), ("b", "y"))
            ),
            replace(unit("both", [to("a"), to("b")]), class_name=class_name),
        ),
        inputs=[to("x"), to("y")],
        outputs=to("both"),
    )
    edges = implicit_edges(network, Target(loader=release, container="keras"))
    assert edges.masks.get(("both", 0)) == expected
