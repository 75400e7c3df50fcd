"""
Float dtypes along the edges of a graph: op layers with inputs of two dtypes, and casts that are
updated.
"""

from __future__ import annotations

from typing import Any

import pytest

from policytool.migration.planning.options import Outputs
from tests.helpers.planned_models import (
    Config,
    after,
    called3,
    chain,
    dense,
    document,
    functional,
    keras3,
    layer,
    operation3,
    plan,
    policies,
    policy3,
    source,
    tensor3,
)


def op(name: str, *inbound: str, function: str = "math.add") -> Config:
    """
    Return a TFOpLambda as TF 2.4 and later write it: the first parent is the first argument, and
    the second parent is in its kwargs.
    """
    kwargs: dict[str, Any] = {"y": [inbound[1], 0, 0]} if len(inbound) > 1 else {}
    return {
        **layer("TFOpLambda", name, function=function),
        "inbound_nodes": [[inbound[0], 0, 0, kwargs]],
    }


def call(name: str, function: str, node: list[Any]) -> Config:
    """Return a TFOpLambda with one call."""
    return {**layer("TFOpLambda", name, function=function), "inbound_nodes": [node]}


def between(*layers: Config) -> Config:
    """Return a model with layers after ``a``, a Dense on the input, and before ``out``."""
    out = dense("out", inbound=[layers[-1]["name"]])
    return functional(source(), dense("a", inbound=["x"]), *layers, out, outputs=["out"])


def test_layer_that_feeds_an_op_with_a_float32_input_stays_in_float32() -> None:
    """
    If an op would add the float16 output of a layer to the float32 input, the layer stays in
    float32, and the reason names the op.
    """
    model = between(op("tf.add", "a", "x"), dense("b", inbound=["tf.add"]))
    assert policies(after(model, "mixed_float16"))["a"] == "float32"
    assert policies(after(model, "mixed_float16"))["b"] == "mixed_float16"
    assert any(
        one.path == "net/a" and "tf.add" in one.reason for one in plan(model, "mixed_float16").kept
    )


def test_layer_before_a_chain_of_ops_stays_in_float32() -> None:
    """
    An op has the dtype of its input, so the layer before a chain of ops stays in float32 if a later
    op needs float32.
    """
    model = between(op("tf.relu", "a", function="nn.relu"), op("tf.add", "tf.relu", "x"))
    assert policies(after(model, "mixed_bfloat16"))["a"] == "float32"


def test_layers_before_an_add_layer_change_their_policy() -> None:
    """An Add layer has a policy and casts its inputs, unlike an op."""
    model = between(layer("Add", "add", inbound=["a", "x"]))
    assert policies(after(model, "mixed_float16"))["a"] == "mixed_float16"


def test_assignment_that_gives_an_op_two_dtypes_is_rejected_by_name() -> None:
    """
    If the user sets a layer to float16 and an op then has inputs of two dtypes, the error names the
    op and the layer.
    """
    model = between(op("tf.add", "a", "x"))
    made = plan(model, "mixed_float16", "net/a=float16")
    assert [refusal.code for refusal in made.refusals] == ["mixed-inputs"]
    assert "net/tf.add" in made.refusals[0].message
    assert "net/a" in made.refusals[0].message


def test_float64_next_to_the_float32_input_is_rejected() -> None:
    """The caller provides the input."""
    model = between(op("tf.add", "a", "x"))
    assert [refusal.code for refusal in plan(model, "float64").refusals] == ["mixed-inputs"]


def test_a_cast_ends_the_flow() -> None:
    """It defines the dtype of its result."""
    cast = call("tf.cast", "cast", ["a", 0, 0, {"dtype": "float32"}])
    model = between(cast, op("tf.add", "tf.cast", "x"))
    assert policies(after(model, "mixed_float16"))["a"] == "mixed_float16"


def test_dtype_of_ops_of_old_tensorflow_is_rewritten() -> None:
    """The dtype in an op config of TF 1.15 to 2.3 is replaced with the new dtype of its input."""
    node = {"name": "Relu", "op": "Relu", "input": ["a"], "attr": {"T": {"type": "DT_HALF"}}}
    relu = layer("TensorFlowOpLayer", "relu", "mixed_float16", node_def=node, constants={})
    model = document(
        chain(dense("a", "mixed_float16"), relu, dense("out", "mixed_float16")), keras="2.4.0"
    )
    made = plan(model, "float32")
    edits = {edit.address.pointer: (edit.before, edit.after) for edit in made.edits}
    assert edits["/config/layers/2/config/node_def/attr/T/type"] == ("DT_HALF", "DT_FLOAT")


def test_casts_recorded_by_keras3_follow_the_layer() -> None:
    """
    The Cast that Keras 3.5 to 3.9 write before a mixed layer is updated with the layer; an
    unchanged Cast would round the input of a bfloat16 layer to float16.
    """
    policy = policy3("mixed_float16")
    model = keras3(
        operation3("Cast", "cast", tensor3("x"), dtype="float16"),
        called3(dense("a", policy), tensor3("cast", "float16")),
        called3(dense("out", policy), tensor3("a", "float16")),
        keras="3.6.0",
    )
    edits = {edit.address.pointer: edit.after for edit in plan(model, "mixed_bfloat16").edits}
    assert edits["/config/layers/1/config/dtype"] == "bfloat16"


def _of_keras3(operation: str, to: str) -> dict[str, str | None]:
    """
    Return the new policies of a Keras 3 model in which an operation uses the output of a Dense.
    """
    policy = policy3("float32")
    model = keras3(
        called3(dense("a", policy), tensor3("x")),
        operation3(operation, "op", tensor3("a")),
        called3(dense("b", policy), tensor3("op")),
        called3(dense("out", policy), tensor3("b")),
    )
    made = plan(model, to)
    return {"refused": made.refusals[0].code} if made.refusals else policies(after(model, to))


@pytest.mark.parametrize(
    ("operation", "to", "expected"),
    [
        ("Add", "mixed_float16", "mixed_float16"),
        ("RFFT", "mixed_float16", "float32"),
        ("Inv", "bfloat16", "float32"),
        ("RFFT", "float64", "float64"),
        ("Conv", "mixed_bfloat16", "float32"),
    ],
)
def test_operations_of_keras3_that_have_no_16_bit_kernel(
    operation: str, to: str, expected: str
) -> None:
    """
    A layer stays wide if an operation of Keras 3 cannot compute with its 16-bit output: most
    operations promote, but transforms, linear algebra and convolutions with a float32 constant
    kernel do not.
    """
    found = _of_keras3(operation, to)
    assert (found["a"], found["b"]) == (expected, to)


def test_float64_convolution_with_a_float32_constant_is_rejected() -> None:
    """No edit of the file can widen the kernel."""
    assert _of_keras3("Conv", "float64") == {"refused": "mixed-inputs"}


@pytest.mark.parametrize(
    ("function", "kwargs", "expected"),
    [
        ("image.resize", {"size": [8, 8]}, "mixed_float16"),
        ("image.resize", {"size": [8, 8], "method": "nearest"}, "float32"),
        ("image.resize_with_crop_or_pad", {"target_height": 8, "target_width": 8}, "float32"),
        ("one_hot", {"depth": 3, "dtype": "float32"}, "mixed_float16"),
        ("zeros_like", {"dtype": "float32"}, "mixed_float16"),
        ("zeros_like", {}, "float32"),
        ("some.function", {}, "float32"),
    ],
)
def test_function_result_has_the_measured_dtype(
    function: str, kwargs: dict[str, Any], expected: str
) -> None:
    """
    The result of a function has the dtype that TensorFlow 2.21 returned for a float16 input; an
    unknown function is expected to keep the dtype of its inputs.
    """
    computed = call("tf.f", function, ["a", 0, 0, kwargs])
    model = between(computed, op("tf.add", "tf.f", "x"))
    assert policies(after(model, "mixed_float16"))["a"] == expected


def test_results_that_are_not_floats_do_not_limit_float_inputs() -> None:
    """They can select from float32 tensors."""
    where = call("tf.where", "where", ["tf.greater", 0, 0, {"x": ["x", 0, 0], "y": ["x", 0, 0]}])
    model = between(op("tf.greater", "a", "a", function="math.greater"), where)
    assert policies(after(model, "mixed_float16"))["a"] == "mixed_float16"


def test_a_constant_that_comes_first_is_a_float32_tensor() -> None:
    """
    A layer stays in float32 if its output is subtracted from a constant: in Keras 2 ``2.0 - x``
    fails unless x is float32.
    """
    minus = call(
        "tf.math.subtract", "math.subtract", ["_CONSTANT_VALUE", -1, 2.0, {"y": ["a", 0, 0]}]
    )
    model = between(minus, dense("b", inbound=["tf.math.subtract"]))
    assert policies(after(model, "mixed_float16"))["a"] == "float32"
    assert policies(after(model, "mixed_float16"))["b"] == "mixed_float16"


def test_states_that_are_given_are_not_cast() -> None:
    """
    A recurrent layer of Keras 2 stays in float32 if its initial state is the model's float32 input,
    because Keras 2 does not cast the state to the dtype of the variables.
    """
    rnn = {
        **layer("GRU", "rnn", units=2),
        "inbound_nodes": [[["a", 0, 0, {"initial_state": ["x", 0, 0]}]]],
    }
    model = between(rnn)
    changed = policies(after(model, "mixed_float16"))
    assert (changed["a"], changed["rnn"]) == ("mixed_float16", "float32")
    own = {
        **layer("GRU", "rnn", units=2),
        "inbound_nodes": [[["a", 0, 0, {"initial_state": ["a", 0, 0]}], ["a", 0, 0, {}]]],
    }
    fed = between(own)
    assert policies(after(fed, "mixed_float16"))["rnn"] == "mixed_float16"


def test_a_cast_that_narrows_cannot_be_widened() -> None:
    """
    An op that adds a float32 tensor to the result of a cast to float16 is an error, because the
    plan never changes a cast that narrows.
    """
    half = call("tf.cast", "cast", ["a", 0, 0, {"dtype": "float16"}])
    nodes = (
        dense("a", "mixed_float16", inbound=["x"]),
        half,
        dense("b", "mixed_float16", inbound=["x"]),
        op("tf.add", "tf.cast", "b"),
    )
    model = functional(
        source(), *nodes, dense("out", "mixed_float16", inbound=["tf.add"]), outputs=["out"]
    )
    assert [refusal.code for refusal in plan(model, "float32").refusals] == ["mixed-inputs"]


def test_a_cast_at_the_end_comes_after_the_rounding() -> None:
    """
    If a model casts its output to float32, the layer before the cast stays in float32 too, unless
    ``--include outputs`` is set.
    """
    cast = call("tf.cast", "cast", ["b", 0, 0, {"dtype": "float32"}])
    model = functional(
        source(), dense("a", inbound=["x"]), dense("b", inbound=["a"]), cast, outputs=["tf.cast"]
    )
    assert policies(after(model, "mixed_float16"))["b"] == "float32"
    followed = policies(after(model, "mixed_float16", outputs=Outputs.FOLLOW))
    assert followed["b"] == "mixed_float16"


def test_the_wrapper_of_a_kept_layer_is_kept() -> None:
    """In Keras 3 the layer computes in the wrapper's dtype."""
    wrapped = layer("TimeDistributed", "each", layer=layer("UnitNormalization", "inner"))
    changed = policies(after(chain(dense("a"), wrapped, dense("b"), dense("out")), "mixed_float16"))
    assert (changed["each"], changed["inner"]) == ("float32", "float32")
