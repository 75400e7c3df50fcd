"""
Which layers a 16-bit policy keeps in float32: layers that compute the outputs, and layers that
only change their shape or activation.
"""

from __future__ import annotations

from typing import Any

import pytest

from policytool.migration.planning import keep
from policytool.migration.planning.options import Outputs
from tests.helpers.planned_models import (
    Config,
    after,
    called3,
    chain,
    dense,
    functional,
    keras3,
    layer,
    operation3,
    plan,
    policies,
    source,
    tensor3,
)
from tests.helpers.small_models import instance

TO = "mixed_bfloat16"


def kept(model: Any) -> dict[str, str]:
    """Return the reason for each layer that stays in float32, by path without the model."""
    return {one.path.removeprefix("net/"): one.reason for one in plan(model, TO).kept}


def called(entry: Config, *calls: list[str]) -> Config:
    """Return a layer with its calls. Each call lists its input tensors as ``LAYER:CALL``."""
    nodes = []
    for call in calls:
        parts = [parent.partition(":") for parent in call]
        nodes.append([[name, int(number or 0), 0, {}] for name, _, number in parts])
    return {**entry, "inbound_nodes": nodes}


@pytest.mark.parametrize(
    "entry",
    [
        layer("Reshape", "last", target_shape=[2, 1]),
        layer("Flatten", "last"),
        layer("Permute", "last", dims=[1]),
        layer("RepeatVector", "last", n=2),
        layer("Activation", "last", activation="sigmoid"),
        layer("Softmax", "last"),
        layer("PReLU", "last", alpha_initializer={"class_name": "Zeros", "config": {}}),
        layer("Dropout", "last", rate=0.5),
        layer("ActivityRegularization", "last"),
        layer("Cropping1D", "last", cropping=[1, 1]),
        layer("ZeroPadding1D", "last", padding=[1, 1]),
        layer("UpSampling2D", "last", size=[2, 2], interpolation="bilinear"),
        layer("Rescaling", "last", scale=6.0, offset=283.0),
        layer("GlobalMaxPooling1D", "last"),
        layer("TimeDistributed", "last", layer=layer("Flatten", "inner")),
    ],
    ids=lambda entry: entry["class_name"],
)
def test_layer_before_a_shaping_output_layer_stays_in_float32(entry: Config) -> None:
    """float32 cannot restore values that this layer rounded."""
    found = kept(chain(dense("a"), dense("b"), entry))
    inner = {"last/inner": keep.SHAPED} if entry["class_name"] == "TimeDistributed" else {}
    assert found == {"b": keep.OUTPUT, "last": keep.SHAPED, **inner}


@pytest.mark.parametrize(
    "entry",
    [
        layer("GlobalAveragePooling1D", "last"),
        layer("AveragePooling1D", "last", pool_size=[2]),
        layer("LayerNormalization", "last", gamma_initializer={}),
        layer("Custom>Reshape", "last"),
        layer("Lambda", "last"),
        layer("TimeDistributed", "last", layer=dense("inner")),
        layer("Bidirectional", "last", layer=layer("LSTM", "inner", units=2)),
    ],
    ids=lambda entry: entry["class_name"],
)
def test_a_layer_that_computes_the_output_ends_the_search(entry: Config) -> None:
    """
    Layers before a sum, an average, a layer with weights or a custom layer at the output are not
    kept in float32.
    """
    found = kept(chain(dense("a"), entry, layer("Activation", "tanh", activation="tanh")))
    assert "a" not in found
    assert found["last"] == keep.OUTPUT
    assert found["tanh"] == keep.SHAPED
    assert {name for name in found if name.startswith("last/")} == {
        f"last/{name}"
        for name in {
            "TimeDistributed": ("inner",),
            "Bidirectional": ("forward_inner", "backward_inner"),
        }.get(entry["class_name"], ())
    }


def test_each_output_and_each_branch_of_a_concatenation_is_followed() -> None:
    """A sum computes the output itself."""
    model = functional(
        source(),
        dense("a", inbound=["x"]),
        dense("left", inbound=["a"]),
        dense("right", inbound=["a"]),
        layer("Concatenate", "both", inbound=["left", "right"]),
        layer("Reshape", "boxes", inbound=["both"], target_shape=[2, 2]),
        dense("b", inbound=["a"]),
        dense("c", inbound=["a"]),
        layer("Add", "sum", inbound=["b", "c"]),
        layer("Flatten", "scores", inbound=["sum"]),
        outputs=["boxes", "scores"],
    )
    assert kept(model) == {
        "left": keep.OUTPUT,
        "right": keep.OUTPUT,
        "both": keep.SHAPED,
        "boxes": keep.SHAPED,
        "sum": keep.OUTPUT,
        "scores": keep.SHAPED,
    }


def test_only_the_layer_before_the_output_call_of_an_activation_is_kept() -> None:
    """Layers before its earlier calls are not."""
    relu = called(layer("ReLU", "relu"), ["a"], ["b"], ["c"])
    model = functional(
        source(),
        dense("a", inbound=["x"]),
        called(dense("b"), ["relu:0"]),
        called(dense("c"), ["relu:1"]),
        relu,
        outputs=["relu"],
    )
    model["config"]["output_layers"] = [["relu", 2, 0]]
    assert kept(model) == {"c": keep.OUTPUT, "relu": keep.SHAPED}
    model["config"]["output_layers"] = [["relu", 1, 0], ["relu", 2, 0]]
    assert set(kept(model)) == {"b", "c", "relu"}


def test_a_shared_layer_that_computes_the_output_is_kept() -> None:
    """All calls share one policy."""
    shared = called(dense("shared"), ["x"], ["a"])
    model = functional(
        source(),
        shared,
        called(dense("a"), ["shared:0"]),
        called(layer("Flatten", "flat"), ["shared:1"]),
        outputs=["flat"],
    )
    assert kept(model) == {"shared": keep.OUTPUT, "flat": keep.SHAPED}


def test_nested_models_are_looked_through() -> None:
    """
    The search for output layers continues in nested models, and before nested models that only
    shape the output.
    """
    head = functional(
        source("y"),
        dense("hidden", inbound=["y"]),
        dense("logits", inbound=["hidden"]),
        outputs=["logits"],
        name="head",
        inputs=("y",),
    )
    shaping: Config = instance(
        "Sequential",
        name="shaping",
        layers=[
            layer("Reshape", "reshape", target_shape=[2, 1]),
            layer("Activation", "sigmoid", activation="sigmoid"),
        ],
    )
    model = functional(
        source(),
        dense("a", inbound=["x"]),
        {**head, "name": "head", "inbound_nodes": [[["a", 0, 0, {}]]]},
        {**shaping, "name": "shaping", "inbound_nodes": [[["head", 1, 0, {}]]]},
        layer("Flatten", "flat", inbound=["shaping"]),
        outputs=["flat"],
    )
    assert kept(model) == {
        "head/logits": keep.OUTPUT,
        "shaping/reshape": keep.SHAPED,
        "shaping/sigmoid": keep.SHAPED,
        "flat": keep.SHAPED,
    }


def test_a_sequential_model_is_looked_through() -> None:
    """The search for output layers follows the order of the config in a Sequential model."""
    model = instance(
        "Sequential",
        name="net",
        layers=[
            layer("LSTM", "lstm", units=2),
            dense("kelvin"),
            layer("Reshape", "out", target_shape=[2, 1]),
        ],
    )
    assert kept(model) == {"kelvin": keep.OUTPUT, "out": keep.SHAPED}


@pytest.mark.parametrize(
    ("entry", "computing"),
    [
        (layer("TFOpLambda", "op", function="reshape"), {"b"}),
        (layer("TFOpLambda", "op", function="concat"), {"b", "c"}),
        (layer("TFOpLambda", "op", function="math.add"), {"b", "c"}),
    ],
    ids=["reshape", "concat", "add"],
)
def test_layers_that_feed_an_operation_at_the_output_are_kept(
    entry: Config, computing: set[str]
) -> None:
    """
    An operation has no policy, so the layers that compute its inputs are kept in float32, even if
    other layers follow the operation.
    """
    fed = ["b", "c"] if len(computing) > 1 else ["b"]
    model = functional(
        source(),
        dense("a", inbound=["x"]),
        dense("b", inbound=["a"]),
        dense("c", inbound=["a"]),
        called(entry, fed),
        layer("Activation", "tanh", inbound=["op"], activation="tanh"),
        outputs=["tanh"],
    )
    found = kept(model)
    assert {name for name, reason in found.items() if reason == keep.OUTPUT} == computing
    assert found["tanh"] == keep.SHAPED


def test_sums_of_sums_are_not_followed() -> None:
    """All layers of a residual model feed its last sum."""
    model = functional(
        source(),
        dense("a", inbound=["x"]),
        dense("b", inbound=["a"]),
        called(layer("TFOpLambda", "first", function="math.add"), ["a", "b"]),
        dense("c", inbound=["first"]),
        called(layer("TFOpLambda", "second", function="math.add"), ["first", "c"]),
        layer("Activation", "tanh", inbound=["second"], activation="tanh"),
        outputs=["tanh"],
    )
    assert kept(model) == {"tanh": keep.SHAPED}


def test_a_cast_of_keras3_is_looked_through() -> None:
    """It comes after the rounding."""
    found = keras3(
        called3(dense("a"), tensor3("x")),
        called3(dense("b"), tensor3("a")),
        called3(dense("c"), tensor3("a")),
        operation3("Concatenate", "join", tensor3("b"), tensor3("c")),
        operation3("Cast", "cast", tensor3("join"), dtype="float32"),
        called3(layer("Reshape", "out", target_shape=[4, 1]), tensor3("cast")),
    )
    assert kept(found) == {"b": keep.OUTPUT, "c": keep.OUTPUT, "out": keep.SHAPED}


def test_a_softmax_before_a_layer_that_computes_the_output_is_kept() -> None:
    """
    A softmax whose result weights the values of a final sum is kept as a softmax and not as an
    output.
    """
    model = functional(
        source(),
        dense("a", inbound=["x"]),
        layer("Softmax", "weights", inbound=["a"]),
        layer("Dropout", "dropout", inbound=["weights"], rate=0.5),
        layer("Dot", "sum", inbound=["dropout", "x"], axes=1),
        outputs=["sum"],
    )
    assert kept(model) == {
        "weights": keep.SOFTMAX,
        "dropout": keep.BETWEEN,
        "sum": keep.OUTPUT,
    }


def test_include_outputs_changes_a_model_of_only_output_layers() -> None:
    """If all layers compute or shape the output, ``--include outputs`` changes all of them."""
    model = chain(dense("a"), layer("Reshape", "out", target_shape=[2, 1]))
    assert set(kept(model)) == {"a", "out"}
    changed = policies(after(model, TO, outputs=Outputs.FOLLOW))
    assert changed == {"x": "float32", "a": TO, "out": TO}


def test_a_model_that_holds_itself_ends() -> None:
    """A damaged or malicious file can list a model as one of its own layers."""
    inner: Config = {"class_name": "Functional", "config": {"name": "net", "layers": []}}
    model = functional(
        source(),
        {**inner, "name": "net", "inbound_nodes": [[["x", 0, 0, {}], ["net", 0, 0, {}]]]},
        outputs=["net"],
    )
    assert not kept(model)


@pytest.mark.parametrize("pattern", ["net/b", "net/[ab]"])
@pytest.mark.parametrize("policy", ["float32", TO])
def test_no_layer_is_kept_for_which_the_user_decided(pattern: str, policy: str) -> None:
    """
    A layer with a policy from ``--set`` is never in the list of kept layers; the note of ``check``
    on each layer relies on this.
    """
    found = plan(chain(dense("a"), dense("b")), TO, f"{pattern}={policy}")
    assert not found.kept
