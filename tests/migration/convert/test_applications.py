"""
Layers that only models of keras.applications use; ``tests/compat/test_unexported.py`` runs them in
both libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.convertible_models import (
    converted,
    input2,
    input3,
    keras2,
    keras3,
    layer2,
    layer3,
    named,
    tensor,
    told,
)

if TYPE_CHECKING:
    from tests.helpers.convertible_models import Config

K2, K3 = "tf_keras2.21", "keras3.15"
PAIR = [["x", 0, 0, {}], ["y", 0, 0, {}]]


def scaled(layer: Config, module: str | None) -> Config:
    """Return a layer of Keras that is not exported, in the format of an archive."""
    return {**layer, "module": module, "registered_name": layer["class_name"]} if module else layer


def test_a_scaled_sum_becomes_rescaling_and_add() -> None:
    """A CustomScaleLayer becomes a Rescaling of the second input and an Add."""
    model = keras2(
        input2("x", 4), input2("y", 4), layer2("Custom>CustomScaleLayer", "sum", PAIR, scale=0.17)
    )
    config, _, log = converted(model, K3)
    assert not log.refusals
    assert "CustomScaleLayer" not in told(log)
    scaling, total = named(config, "sum_scale"), named(config, "sum")
    assert (scaling["class_name"], scaling["config"]["scale"]) == ("Rescaling", 0.17)
    assert [one["config"]["keras_history"] for one in scaling["inbound_nodes"][0]["args"]] == [
        ["y", 0, 0]
    ]
    assert total["class_name"] == "Add"
    assert "scale" not in total["config"]
    assert [one["config"]["keras_history"] for one in total["inbound_nodes"][0]["args"][0]] == [
        ["x", 0, 0],
        ["sum_scale", 0, 0],
    ]


def test_custom_class_with_the_name_of_a_keras_class_is_unchanged() -> None:
    """
    A CustomScaleLayer stays unchanged if it has another package, an additional key, or another
    number of inputs.
    """
    for own in (
        layer2("mine>CustomScaleLayer", "sum", PAIR, scale=0.17),
        layer2("Custom>CustomScaleLayer", "sum", PAIR, scale=0.17, offset=1.0),
        layer2("Custom>CustomScaleLayer", "sum", [["x", 0, 0, {}]], scale=0.17),
    ):
        config, _, _ = converted(keras2(input2("x", 4), input2("y", 4), own), K3)
        assert named(config, "sum")["class_name"] == "CustomScaleLayer"


def test_a_scale_of_channels_becomes_a_product_by_channel() -> None:
    """
    A LayerScale of ConvNeXt becomes an EinsumDense that multiplies each channel of an image by its
    scale.
    """
    own = scaled(
        layer3("LayerScale", "scale", tensor("x"), init_values=0.1, projection_dim=5),
        "keras.src.applications.convnext",
    )
    config, _, log = converted(keras3(input3("x", 3, 3, 5), own), K2)
    assert "LayerScale is" not in told(log)
    found = named(config, "scale")
    assert found["class_name"] == "EinsumDense"
    assert (found["config"]["equation"], found["config"]["output_shape"]) == (
        "abcd,d->abcd",
        [None, None, 5],
    )
    assert "projection_dim" not in found["config"]


def test_another_layer_scale_stays() -> None:
    """A LayerScale of another module stays unchanged."""
    own = scaled(
        layer3("LayerScale", "scale", tensor("x"), init_values=0.1, projection_dim=5),
        "keras_hub.src.layers",
    )
    config, _, _ = converted(keras3(input3("x", 3, 3, 5), own), K2)
    assert named(config, "scale")["class_name"] == "LayerScale"
