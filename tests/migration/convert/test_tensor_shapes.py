"""Known sizes of images in a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policytool.migration.convert.architecture import Network, Role, Unit
from policytool.migration.convert.tensor_facts import Sizes, image_sizes, input_shape
from policytool.model.calls import Call, Reference
from policytool.support.steps import budget

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Value

DEPTH = 200
OPEN: list[Value] = [None, 3, None, 8, 1]
FIXED: list[Value] = [None, 3, 8, 8, 1]


def layer(class_name: str, name: str, *sources: Reference, **config: Value) -> Unit:
    """Return a layer that is called with each of ``sources``."""
    calls = tuple(Call(args=(source,)) for source in sources)
    return Unit(class_name=class_name, name=name, config=config, calls=calls)


def nested(name: str, network: Network, *sources: Reference) -> Unit:
    """Return a model that is called with each of ``sources``."""
    calls = tuple(Call(args=(source,)) for source in sources)
    return Unit(
        class_name="Model", name=name, config={}, role=Role.MODEL, calls=calls, network=network
    )


def graph(shape: Value, *units: Unit) -> Network:
    """Return a network with the input ``x`` and the output of its last layer."""
    start = layer("InputLayer", "x", batch_shape=shape)
    output = Reference(layer=units[-1].name, call=max(len(units[-1].calls), 1) - 1)
    return Network(units=(start, *units), inputs=[Reference(layer="x")], outputs=output)


@pytest.mark.parametrize(
    ("outside", "inside", "expected"),
    [
        (OPEN, OPEN, Sizes.OPEN),
        (OPEN, FIXED, Sizes.FIXED),
        (FIXED, OPEN, Sizes.FIXED),
        (None, OPEN, Sizes.OPEN_INSIDE),
        (None, None, Sizes.UNKNOWN),
    ],
)
def test_nested_model_has_the_image_sizes_of_its_call(
    outside: Value, inside: Value, expected: Sizes
) -> None:
    """A nested model has the image sizes of its call unless its own input contains them."""
    x = Reference(layer="x")
    inner = graph(inside, layer("Activation", "relu", x))
    model = nested("inner", inner, x)
    first = layer("Activation", "first", x)
    after = layer("Activation", "after", Reference(layer="inner"))
    network = graph(outside, first, nested("inner", inner, Reference(layer="first")), after)
    assert image_sizes(network, "channels_last")["after", 0] is expected
    assert input_shape(model, graph(outside, model)) == outside


def test_image_size_after_a_resizing_layer_is_unknown() -> None:
    """Although its arguments can contain it."""
    resize = layer("Resizing", "resize", Reference(layer="x"), height=8, width=8)
    after = layer("Activation", "after", Reference(layer="resize"))
    sizes = image_sizes(graph(OPEN, resize, after), "channels_last")
    assert (sizes["resize", 0], sizes["after", 0]) == (Sizes.OPEN, Sizes.UNKNOWN)


def test_image_sizes_in_a_sequential_follow_from_the_first_layer() -> None:
    first = layer("Activation", "first", batch_input_shape=OPEN)
    after = layer("Activation", "after")
    sizes = image_sizes(Network(units=(first, after)), "channels_first")
    assert sizes == {("first", 0): Sizes.FIXED, ("after", 0): Sizes.FIXED}
    sizes = image_sizes(Network(units=(first, after)), "channels_last")
    assert sizes == {("first", 0): Sizes.OPEN, ("after", 0): Sizes.OPEN}
    assert image_sizes(Network(units=(after,)), "channels_last") == {("after", 0): Sizes.UNKNOWN}


def test_models_that_are_called_again_and_again_are_read_once() -> None:
    """Reading every call of nested models would not end."""
    x = Reference(layer="x")
    network = graph(OPEN, layer("Activation", "relu", x))
    for _ in range(DEPTH):
        network = graph(OPEN, nested("inner", network, x, Reference(layer="inner")))
    with budget("model.h5") as steps:
        assert image_sizes(network, "channels_last")["inner", 1] is Sizes.OPEN
    assert steps.spent < 10 * DEPTH
