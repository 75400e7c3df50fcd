"""
An axis counted from the end: the same as one from the start where something proves it, and a
difference where nothing does.
"""

from __future__ import annotations

from typing import Any

import pytest

from policytool import comparison as comparing
from policytool.comparison.variables import Opened
from policytool.formats.document import Document

Layer = dict[str, Any]


def layer(class_name: str, name: str, **config: Any) -> Layer:
    """Return a serialised layer."""
    return {"class_name": class_name, "config": {"name": name, "trainable": True, **config}}


def inputs(*shape: int | None) -> Layer:
    """Return an input layer."""
    return layer("InputLayer", "features", batch_input_shape=[None, *shape])


def sequential(*layers: Layer) -> Layer:
    """Return a Sequential."""
    return {"class_name": "Sequential", "config": {"name": "model", "layers": [*layers]}}


def functional(*layers: Layer) -> Layer:
    """Return a functional model in which each layer is fed by the one before."""
    names = [item["config"]["name"] for item in layers]
    wired = [
        {**one, "name": name, "inbound_nodes": [[[before, 0, 0, {}]]] if before else []}
        for one, name, before in zip(layers, names, ["", *names], strict=False)
    ]
    config = {
        "name": "model",
        "layers": wired,
        "input_layers": [[names[0], 0, 0]],
        "output_layers": [[names[-1], 0, 0]],
    }
    return {"class_name": "Functional", "config": config}


def differs(before: tuple[Layer, ...], one: Any, other: Any, model: Any = functional) -> bool:
    """Return whether models with these two axes behind the same layers differ."""
    a, b = (
        comparing.compared_model(
            Document(
                path="model.json",
                format="json",
                parts={"config": model(*before, layer("BatchNormalization", "norm", axis=axis))},
                config_part="config",
            )
        )
        for axis in (one, other)
    )
    return comparing.compare_models(a, b, Opened()).differs


@pytest.mark.parametrize("model", [functional, sequential])
@pytest.mark.parametrize(
    ("before", "last"),
    [
        ((inputs(6),), 1),
        ((inputs(8, 8, 3),), 3),
        ((inputs(6), layer("Dense", "dense", units=3), layer("Dropout", "drop", rate=0.5)), 1),
        ((inputs(8, 8, 3), layer("Conv2D", "conv", filters=3)), 3),
        ((inputs(8, 3), layer("Flatten", "flat")), 1),
    ],
    ids=["input", "image", "dense", "convolution", "flat"],
)
def test_last_axis_equals_its_number(model: Any, before: tuple[Layer, ...], last: int) -> None:
    """The axis is counted from either end, as a number or in a list. Every other axis differs."""
    for axis in (last, [last]):
        assert not differs(before, axis, -1, model)
        assert not differs(before, [-1], axis, model)
    assert differs(before, [last - 1], -1, model)
    assert differs(before, last, -2, model)


def test_rank_after_a_custom_layer_is_unknown() -> None:
    """The rank after a reshape and of an input without a shape is also unknown."""
    assert differs((inputs(6), layer("mine>Dense", "dense", units=3)), 1, -1)
    assert differs((inputs(6), layer("Reshape", "shaped", target_shape=[2, 3])), 1, -1)
    assert differs((layer("InputLayer", "features"),), 1, -1)


def test_first_layer_of_a_sequential_may_contain_the_input_shape() -> None:
    a, b = (
        comparing.compared_model(
            Document(
                path="model.json",
                format="json",
                parts={
                    "config": sequential(
                        layer("BatchNormalization", "norm", axis=axis, batch_input_shape=[None, 6])
                    )
                },
                config_part="config",
            )
        )
        for axis in ([1], -1)
    )
    assert not comparing.compare_models(a, b, Opened()).differs


@pytest.mark.parametrize("axis", ["1", True, [], [True], None, 1.5, -3, {"a": 1}])
def test_invalid_axes_differ(axis: Any) -> None:
    """The config of an untrusted file may contain any value."""
    assert differs((inputs(6),), axis, -1)


def test_a_long_way_is_followed() -> None:
    """Each layer on it hands on how many dimensions its input has."""
    assert not differs(
        (inputs(6), *(layer("Dense", f"dense_{number}", units=3) for number in range(1000))), 1, -1
    )


@pytest.mark.parametrize("nested", [functional, sequential])
def test_nested_model_has_the_rank_of_its_last_layer(nested: Any) -> None:
    model = nested(inputs(8, 8, 3), layer("Conv2D", "conv", filters=3))
    assert not differs((inputs(8, 8, 3), model), 3, -1)
    flat = nested(inputs(8, 8, 3), layer("Flatten", "flat"))
    assert not differs((inputs(8, 8, 3), flat), 1, -1)
    assert differs((inputs(8, 8, 3), flat), 3, -1)
