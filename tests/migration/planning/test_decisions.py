"""Which layers ``--to`` changes, which layers stay in float32, and the effect of ``--set``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.migration.planning.options import (
    RETARGETS,
    Outputs,
    assignment,
    checked_policy,
    options_from_arguments,
)
from policytool.support.errors import UsageError
from tests.helpers.planned_models import (
    after,
    chain,
    dense,
    document,
    functional,
    layer,
    plan,
    policies,
    source,
)
from tests.helpers.small_models import dense as model_dense
from tests.helpers.small_models import instance, sequential


def test_layers_that_follow_the_base_change_and_exceptions_stay() -> None:
    """
    ``--to`` replaces the most common policy of the layers with weights; layers with another policy
    are deliberate exceptions and keep it.
    """
    model = chain(dense("a"), dense("b", "float64"), dense("c"), dense("out"))
    assert policies(after(model, "mixed_bfloat16")) == {
        "x": "float32",
        "a": "mixed_bfloat16",
        "b": "float64",
        "c": "mixed_bfloat16",
        "out": "float32",
    }
    made = plan(model, "mixed_bfloat16")
    assert made.base_policy == "float32"
    assert [note.code for note in made.notes] == ["exceptions-kept"]
    changed = after(model, "mixed_bfloat16", include_exceptions=True)
    assert policies(changed)["b"] == "mixed_bfloat16"


def test_inputs_of_16_bits_stay_and_are_reported() -> None:
    """
    Inputs in a 16-bit dtype keep it, and a note says so because input values are rounded to it;
    ``--set`` can change an input.
    """
    one = dense("a", "float16")
    one["inbound_nodes"] = [[["x", 0, 0, {}]]]
    model = functional(source(dtype="float16"), one, outputs=["a"])
    (note,) = plan(model, "float32").notes
    assert note.code == "inputs-kept"
    assert note.message.startswith("1 input stays in float16 (net/x), ")
    assert not plan(model, "float32", "net/x=float32").notes
    assert not plan(model, "bfloat16").notes


def test_ties_go_to_the_first() -> None:
    """If two policies are equally common, the base policy is that of the first layer."""
    model = chain(dense("a", "mixed_float16"), dense("b", "float32"), dense("out"))
    made = plan(model, "float64")
    assert made.base_policy == "mixed_float16"


def test_output_layers_do_not_count_for_the_base_policy() -> None:
    """
    Output layers do not count for the base policy: a mixed model with two float32 heads is not a
    float32 model, and ``--to float32`` changes its hidden layer.
    """
    model = functional(
        source(),
        dense("a", "mixed_float16", inbound=["x"]),
        dense("one", inbound=["a"]),
        dense("two", inbound=["a"]),
        outputs=["one", "two"],
    )
    assert plan(model, "float32").base_policy == "mixed_float16"
    assert set(policies(after(model, "float32")).values()) == {"float32"}


@pytest.mark.parametrize("to", ["float16", "bfloat16", "mixed_float16", "mixed_bfloat16"])
def test_outputs_and_a_last_softmax_stay_in_float32(to: str) -> None:
    """A softmax in the middle of the model does not."""
    model = chain(
        dense("hidden"),
        layer("Activation", "middle", activation="softmax"),
        dense("a"),
        layer("Softmax", "probabilities"),
        layer("Dropout", "dropout", rate=0.5),
        layer("Reshape", "out", target_shape=[2]),
    )
    kept = policies(after(model, to))
    assert kept == {
        "x": "float32",
        "hidden": to,
        "middle": to,
        "a": "float32",
        "probabilities": "float32",
        "dropout": "float32",
        "out": "float32",
    }
    assert {one.path for one in plan(model, to).kept} == {
        "net/a",
        "net/probabilities",
        "net/dropout",
        "net/out",
    }
    followed = policies(after(model, to, outputs=Outputs.FOLLOW))
    assert {name for name, policy in followed.items() if policy == "float32"} == {"x"}


@pytest.mark.parametrize("to", ["float32", "float64"])
def test_wide_policies_keep_no_output(to: str) -> None:
    """Output layers stay in float32 only if the target policy has 16 bits."""
    model = chain(dense("a", "mixed_float16"), dense("out", "mixed_float16", activation="softmax"))
    assert policies(after(model, to)) == {"x": "float32", "a": to, "out": to}
    assert not plan(model, to).kept


def test_outputs_are_found_through_wrappers_and_nested_models() -> None:
    inner = functional(
        source(),
        dense("hidden", inbound=["x"]),
        dense("head", inbound=["hidden"]),
        outputs=["head"],
        name="inner",
    )
    wrapped = layer("TimeDistributed", "each", inbound=["x"], layer=dense("wrapped"))
    model = functional(
        source(),
        dense("a", inbound=["x"]),
        {**inner, "name": "inner", "inbound_nodes": [[["a", 0, 0, {}]]]},
        wrapped,
        outputs=["inner", "each"],
    )
    changed = policies(after(model, "mixed_float16"))
    assert (changed["a"], changed["hidden"], changed["head"]) == (
        "mixed_float16",
        "mixed_float16",
        "float32",
    )
    assert (changed["each"], changed["wrapped"]) == ("float32", "float32")


def test_op_at_the_end_keeps_the_layer_before_in_float32() -> None:
    """The op casts nothing."""
    op = layer("TFOpLambda", "tf.nn.softmax", function="nn.softmax")
    changed = policies(after(chain(dense("a"), dense("b"), op), "mixed_float16"))
    assert (changed["a"], changed["b"]) == ("mixed_float16", "float32")


def test_a_subclassed_models_outputs_are_unknown() -> None:
    """
    If the file does not show which layers compute the outputs, no layer is kept in float32, and a
    note reports this.
    """
    model = instance("Custom>Mine", name="mine", layers=[dense("a")], trainable=True)
    made = plan(model, "mixed_float16")
    assert not made.kept
    assert "outputs-unknown" in {note.code for note in made.notes}


def test_assignment_to_an_rnn_also_changes_its_cells() -> None:
    """Keras 2 fails if their policies differ."""
    cells = [layer("LSTMCell", "one", units=2), layer("GRUCell", "two", units=2)]
    stacked = layer("StackedRNNCells", "stack", cells=cells)
    model = chain(dense("a"), layer("RNN", "rnn", cell=stacked), dense("out"))
    assert policies(after(model, None, "net/rnn=mixed_bfloat16")) == {
        "x": "float32", "a": "float32", "rnn": "mixed_bfloat16", "stack": "mixed_bfloat16", "one": "mixed_bfloat16", "two": "mixed_bfloat16", "out": "float32",  # noqa: E501  # a table
    }  # fmt: skip


def test_policy_for_one_part_of_a_recurrent_layer_is_rejected() -> None:
    """
    A policy for only one part of a recurrent layer is an error: Keras 2 cannot build an RNN whose
    cell, or a Bidirectional whose backward layer, has another dtype.
    """
    rnn = chain(layer("RNN", "rnn", cell=layer("LSTMCell", "cell", units=2)), dense("out"))
    assert [refusal.code for refusal in plan(rnn, None, "net/rnn/cell=float16").refusals] == [
        "one-unit"
    ]
    assert not plan(rnn, None, "net/rnn=float16").refusals
    both = layer(
        "Bidirectional",
        "both",
        layer=layer("GRU", "gru", units=2),
        backward_layer=layer("GRU", "back", units=2),
        merge_mode="concat",
    )
    model = chain(both, dense("out"))
    assert [
        refusal.code for refusal in plan(model, None, "net/both/backward_back=float64").refusals
    ] == ["one-unit"]
    assert not plan(model, None, "net/both/.*=float64").refusals


def test_both_directions_of_a_bidirectional_are_built_from_one_config() -> None:
    """Different policies for them are an error."""
    model = chain(
        layer("Bidirectional", "both", layer=layer("GRU", "gru", units=2), merge_mode="concat"),
        dense("out"),
    )
    made = plan(model, None, "net/both/forward_gru=float64", "net/both/backward_gru=float16")
    assert [refusal.code for refusal in made.refusals] == ["one-config"]
    alike = policies(after(model, None, "net/both/.*_gru=float64"))
    assert alike["gru"] == "float64"


def test_inputs_and_integer_layers_keep_the_dtype() -> None:
    """Ids and strings have no floats, and the caller provides the inputs."""
    model = functional(
        source(dtype="int32"),
        layer("IntegerLookup", "lookup", "int64", inbound=["x"]),
        layer("Embedding", "embedding", inbound=["lookup"], embeddings_initializer={}),
        dense("out", inbound=["embedding"]),
        outputs=["out"],
    )
    changed = policies(after(model, "mixed_float16", include_exceptions=True))
    assert changed == {
        "x": "int32",
        "lookup": "int64",
        "embedding": "mixed_float16",
        "out": "float32",
    }


def test_inputs_of_nested_models_widen() -> None:
    """
    The input of a nested model follows a wider target, because float32 would round float64 values;
    it does not follow a narrower target.
    """
    inner = functional(
        source("y"), dense("hidden", inbound=["y"]), outputs=["hidden"], name="inner", inputs=("y",)
    )
    model = functional(
        source(),
        {**inner, "name": "inner", "inbound_nodes": [[["x", 0, 0, {}]]]},
        dense("out", inbound=["inner"]),
        outputs=["out"],
    )
    assert policies(after(model, "float64"))["y"] == "float64"
    assert policies(after(model, "float64"))["x"] == "float32"
    assert policies(after(model, "mixed_float16"))["y"] == "float32"


@pytest.mark.parametrize(
    ("entry", "to", "stays"),
    [
        (layer("UnitNormalization", "n"), "mixed_float16", True),
        (layer("UnitNormalization", "n"), "mixed_bfloat16", False),
        (layer("GroupNormalization", "n"), "float16", True),
        (layer("GlobalAveragePooling2D", "n"), "mixed_float16", True),
        (layer("GlobalAveragePooling2D", "n"), "bfloat16", False),
        (layer("LayerNormalization", "n"), "float16", True),
        (layer("LayerNormalization", "n"), "mixed_float16", False),
        (layer("Normalization", "n"), "mixed_bfloat16", True),
        (layer("Dot", "n", normalize=True), "mixed_float16", True),
        (layer("Dot", "n", normalize=False), "mixed_float16", False),
        (layer("Activation", "n", activation="exponential"), "mixed_float16", True),
        (layer("AveragePooling2D", "n", pool_size=[64, 64]), "mixed_float16", True),
        (layer("AveragePooling2D", "n", pool_size=[2, 2]), "mixed_float16", False),
        (layer("CategoryEncoding", "n"), "mixed_bfloat16", True),
        (layer("Discretization", "n"), "mixed_float16", True),
    ],
)
def test_layers_that_are_known_to_fail_stay_in_float32(
    entry: dict[str, Any],
    to: str,
    stays: bool,  # noqa: FBT001
) -> None:  # a case
    """
    A layer that is known to fail under a policy stays in float32 with a reason, and only under the
    policies for which the failure was measured.
    """
    model = chain(dense("a"), entry, dense("b"), dense("out"))
    assert policies(after(model, to))["n"] == ("float32" if stays else to)
    reasons = [one.reason for one in plan(model, to).kept if one.path == "net/n"]
    assert bool(reasons) is stays
    assert all(reasons)


def test_layers_that_pass_ids_to_a_lookup_stay_in_float32() -> None:
    """Layers that pass ids to a lookup stay in float32, because float16 rounds 2049 to 2048."""
    model = chain(
        layer("Reshape", "carry", target_shape=[2]),
        layer("Embedding", "embedding", embeddings_initializer={}),
        dense("a"),
        dense("out"),
    )
    changed = policies(after(model, "mixed_float16"))
    assert (changed["carry"], changed["embedding"], changed["a"]) == (
        "float32",
        "mixed_float16",
        "mixed_float16",
    )


def test_ids_are_followed_into_models_and_wrappers() -> None:
    """
    If a model in a TimeDistributed looks up ids, the TimeDistributed and the layer before it stay
    in float32, because both cast the ids.
    """
    inner = instance(
        "Sequential",
        name="inner",
        layers=[layer("Embedding", "embedding", embeddings_initializer={}), dense("d")],
    )
    model = chain(
        layer("Reshape", "carry", target_shape=[2]),
        layer("TimeDistributed", "each", layer=inner),
        dense("a"),
        dense("out"),
    )
    changed = policies(after(model, "mixed_float16"))
    assert (changed["carry"], changed["each"], changed["embedding"], changed["a"]) == (
        "float32",
        "float32",
        "mixed_float16",
        "mixed_float16",
    )


def test_an_exact_path_comes_before_a_pattern() -> None:
    """
    ``--set`` prefers the exact path of a layer to regular expressions, which must match the full
    path.
    """
    model = chain(dense("a"), dense("b"), dense("ab"))
    assert policies(after(model, None, "net/a=float16", "net/[ab]=float64")) == {
        "x": "float32",
        "a": "float16",
        "b": "float64",
        "ab": "float32",
    }


def test_pattern_matches_only_layers_that_compute_in_floats() -> None:
    """Inputs, layers for ids, and layers without a dtype must be named."""
    first = layer("Embedding", "embedding", inbound=["x"], embeddings_initializer={})
    lstm = layer("LSTM", "lstm", inbound=["embedding"], units=2)
    model = functional(
        source(dtype="int32"), first, lstm, dense("out", inbound=["lstm"]), outputs=["out"]
    )
    changed = policies(after(model, None, ".*=mixed_bfloat16"))
    assert {changed[name] for name in ("embedding", "lstm", "out")} == {"mixed_bfloat16"}
    assert changed["x"] == "int32"
    assert [
        refusal.code for refusal in plan(model, None, "net/lstm/lstm_cell=float32").refusals
    ] == ["no-dtype"]


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (("net/.*=float16", "net/a=float64", ".*/b=float64"), "two patterns"),
        (("nowhere=float16",), "matches no layer"),
        (("net/(=float16",), "regular expression"),
        (("net/a=float16", "net/a=float64"), "twice, to float16 and to float64"),
    ],
)
def test_ambiguous_unmatched_and_invalid_patterns_are_usage_errors(
    sets: tuple[str, ...], says: str
) -> None:
    """The policy of a layer would be undecided."""
    with pytest.raises(UsageError, match=says):
        plan(chain(dense("a"), dense("b")), None, *sets)


@pytest.mark.parametrize(
    ("pattern", "suggestion"),
    [
        ("stem", ". Did you mean 'net/block/stem'?"),
        ("block/dense", ". Did you mean 'net/block/dense'?"),
        ("dense", ". Did you mean 'net/block/dense' or 'net/other/dense'?"),
        ("stm", ". Did you mean 'net/block/stem'?"),
        ("model/block/stem", ". Did you mean 'net/block/stem'?"),
        ("classifier", ""),
    ],
)
def test_pattern_that_matches_nothing_has_a_similar_path(pattern: str, suggestion: str) -> None:
    """The paths that end with the pattern are suggested, or else a similar one."""
    block, other = (
        sequential(
            model_dense("stem" if name == "block" else "head"), model_dense("dense"), name=name
        )
        for name in ("block", "other")
    )
    with pytest.raises(UsageError) as raised:
        plan(sequential(block, other, name="net"), None, f"{pattern}=float16")
    _, _, after_path = str(raised.value).partition("matches no layer of ")
    assert after_path.endswith(f".h5{suggestion}")


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "=float32",
        "a=",
        "a=float99",
        "a=int8_from_float32",
        "a=infer",
        "a=int32",
        "a=float8_e4m3fn",
    ],
)
def test_text_that_is_not_an_assignment_is_an_error(text: str) -> None:
    """A text is an error unless it is ``PATTERN=POLICY`` with a policy that migrate can set."""
    with pytest.raises(UsageError):
        assignment(text)


@given(name=st.text(max_size=30))
def test_any_other_policy_is_an_error(name: str) -> None:
    """``--to`` accepts six policies; any other name is a usage error."""
    if name in RETARGETS:
        assert checked_policy(name, "--to") == name
    else:
        with pytest.raises(UsageError):
            checked_policy(name, "--to")


def test_quantization_is_left_to_tune() -> None:
    """Only check and tune quantize, and only in modes that save bytes."""
    for name, words in (
        ("int8", "policytool tune --to int8"),
        ("int4", "policytool tune --to int4"),
        ("int8_from_float32", "policytool tune --to int8"),
        ("float8", "is for training"),
    ):
        with pytest.raises(UsageError, match=words):
            options_from_arguments(name, ())
    quantized = options_from_arguments("int8", ("a.*=float32",), quantizes=True)
    assert (quantized.quantizes, quantized.suffix) == (True, "int8")
    for assignments, include, words in (
        (("a=float16",), (), "leave these layers unquantized"),
        ((), ("outputs",), "quantizes all layers"),
    ):
        with pytest.raises(UsageError, match=words):
            options_from_arguments("int8", assignments, include=include, quantizes=True)


def test_infer_needs_the_users_word() -> None:
    """The error suggests a ``--set`` option, which then replaces the policy."""
    infer = {"class_name": "Policy", "config": {"name": "infer"}}
    model = document(chain(dense("a", infer), dense("out")), keras="2.3.0-tf")
    made = plan(model)
    assert [refusal.code for refusal in made.refusals] == ["needs-decision"]
    assert "--set 'net/a=float32'" in made.refusals[0].message
    assert policies(after(model, None, "net/a=float32"))["a"] == "float32"


@pytest.mark.parametrize(
    ("removed", "current"),
    [("float16", "mixed_float16"), ("bfloat16", "mixed_bfloat16"), ("float32", "float32")],
)
def test_removed_policy_names_get_their_current_equivalent(removed: str, current: str) -> None:
    """``float16_with_float32_vars`` becomes ``mixed_float16``."""
    model = chain(dense("a", f"{removed}_with_float32_vars"), dense("out"))
    assert policies(after(model))["a"] == current


def test_a_removed_name_that_nothing_replaces_needs_the_users_word() -> None:
    """
    The removed policy ``float64_with_float32_vars`` needs a decision of the user, because no
    current policy computes in float64 with float32 variables.
    """
    made = plan(chain(dense("a", "float64_with_float32_vars"), dense("out")))
    assert [refusal.code for refusal in made.refusals] == ["needs-decision"]


def test_keras1_has_no_policies_to_change() -> None:
    """
    ``--to`` on a Keras 1 model is an error: its layers have no dtype, and no release with policies
    loads its configs.
    """
    model = document(chain(dense("a"), dense("out")), keras="1.2.2")
    assert [refusal.code for refusal in plan(model, "mixed_float16").refusals] == ["no-policies"]
    assert plan(model).is_empty


def test_sub_layers_that_depend_on_the_release_are_reported() -> None:
    """Up to TF 2.13 the layers in a MultiHeadAttention use the global policy."""
    attention = layer("MultiHeadAttention", "mha", num_heads=2, key_dim=2, query_shape=[None, 2, 2])
    model = document(chain(dense("a"), attention, dense("out")), keras="2.9.0")
    assert "sub-layers" in {note.code for note in plan(model, "mixed_float16").notes}


def _quantised_policy(mode: str, source_policy: str) -> dict[str, Any]:
    """Return a quantized policy of Keras 3."""
    return {
        "class_name": "QuantizedDTypePolicy",
        "config": {"mode": mode, "source_name": source_policy},
        "module": "keras.dtype_policies",
    }


def _quantised(mode: str, to: str, *more: Any, source_policy: str = "float32") -> Any:
    """Return the plan for a model of Keras 3 with a quantized hidden layer and other policies."""
    policy_b, policy_out = more or ("float32", "float32")
    hidden = dense("a", _quantised_policy(mode, source_policy))
    model = chain(hidden, dense("b", policy_b), dense("out", policy_out))
    for entry in model["config"]["layers"]:
        if entry["class_name"] == "InputLayer":
            entry["config"]["batch_shape"] = entry["config"].pop("batch_input_shape")
    tensors = {
        "a/a/kernel": "int8",
        "a/a/kernel_scale": "float32",
        "b/b/kernel": "float32",
        "out/out/kernel": "float32",
    }
    return plan(
        document(
            {**model, "module": "keras.src.models.functional"}, keras="3.12.0", tensors=tensors
        ),
        to,
    )


@pytest.mark.parametrize(
    ("mode", "to"),
    [
        ("int8", "mixed_float16"),
        ("int8", "float16"),
        ("int4", "mixed_float16"),
        ("int4", "float16"),
    ],
)
def test_quantized_layers_that_keras_cannot_compute_are_rejected(mode: str, to: str) -> None:
    """int8 cannot be built from float16, and int4 per channel computes wrong results in it."""
    made = _quantised(mode, to)
    refusals = [refusal for refusal in made.refusals if refusal.code == "quantized"]
    assert [refusal.path for refusal in refusals] == ["net/a"]


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_quantized_layer_keeps_the_mode_and_the_tensors(mode: str) -> None:
    """A quantized layer changes only its source policy and keeps its mode, scales and integers."""
    made = _quantised(mode, "bfloat16")
    (edit,) = [edit for edit in made.edits if edit.path == "net/a"]
    assert edit.after["config"] == {"mode": mode, "source_name": "bfloat16"}
    assert not [cast for cast in made.casts if cast.path == "net/a"]


def test_quantized_output_layer_keeps_the_mode_in_float32() -> None:
    """An output layer that stays in float32 is quantized from float32."""
    others = [_quantised_policy("int8", "mixed_bfloat16")] * 2
    made = _quantised("int8", "bfloat16", *others, source_policy="mixed_bfloat16")
    (edit,) = [edit for edit in made.edits if edit.path == "net/out"]
    assert edit.after["config"] == {"mode": "int8", "source_name": "float32"}


def test_attention_gets_the_policies_of_its_quantized_projections() -> None:
    """The stored variables show that the projections are quantized, and how."""
    shape = [None, 4, 5]
    attention = layer(
        "MultiHeadAttention",
        "mha",
        num_heads=2,
        key_dim=3,
        value_dim=3,
        use_bias=True,
        query_shape=shape,
        key_shape=shape,
        value_shape=shape,
    )
    model = chain(attention)
    attention["inbound_nodes"] = [[["x", 0, 0, {"value": ["x", 0, 0]}]]]
    paths = [f"mha/{name}" for name in ("query", "key", "value", "attention_output")]
    variables = {"kernel": "int8", "bias": "float32", "kernel_scale": "float32"}
    tensors = {f"mha/{path}/{name}": dtype for path in paths for name, dtype in variables.items()}
    keras3 = {**model, "module": "keras.src.models.functional"}
    edit: Any
    (edit,) = plan(document(keras3, keras="3.12.0", tensors=tensors)).edits
    modes = edit.after["config"]["policy_map"]
    assert list(modes) == paths
    assert all(
        modes[path]["config"] == {"mode": "int4", "source_name": "float32"} for path in paths
    )


def test_policy_under_an_unknown_key_is_reported_and_unchanged() -> None:
    """Only the custom class knows its meaning."""
    own = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    made = plan(chain(layer("Mine", "mine", inner_policy=own), dense("out")))
    assert [(note.code, note.severity.value) for note in made.notes] == [
        ("policy-elsewhere", "warning")
    ]
    assert made.is_empty


def test_layers_of_old_keras_get_a_dtype_key() -> None:
    """Keras 2.2 writes a dtype only for the first layer, and all layers share floatx."""
    hidden = dense("b")
    del hidden["config"]["dtype"]
    model = document(chain(dense("a"), hidden, dense("out")), keras="2.2.4")
    made = plan(model, "mixed_float16")
    added = [edit for edit in made.edits if edit.path == "net/b"]
    assert len(added) == 1
    assert policies(after(model, "mixed_float16"))["b"] == "mixed_float16"


@pytest.mark.parametrize(
    "spelled",
    [
        {"class_name": "Orthogonal", "config": {}},
        {"class_name": "OrthogonalInitializer", "config": {}},
        "orthogonal",
    ],
)
def test_dtype_that_an_initializer_does_not_support_is_rejected(spelled: object) -> None:
    """
    A dtype that an initializer does not support is an error: loading an LSTM runs Orthogonal, whose
    Qr has no bfloat16 kernel. ``mixed_bfloat16`` keeps the variables in float32.
    """
    model = chain(
        dense("a"), layer("LSTM", "rnn", units=2, recurrent_initializer=spelled), dense("out")
    )
    made = plan(model, "bfloat16")
    assert [(refusal.code, refusal.path) for refusal in made.refusals] == [
        ("no-initializer", "net/rnn")
    ]
    assert "mixed_bfloat16" in made.refusals[0].message
    assert not plan(model, "mixed_bfloat16").refusals
    assert not plan(model, "bfloat16", "net/rnn=mixed_bfloat16").refusals


@pytest.mark.parametrize("to", ["float16", "mixed_float16", "float64"])
def test_dtype_without_a_kernel_is_rejected(to: str) -> None:
    """
    A dtype without a CPU kernel is an error unless ``--set`` excludes the layer; MaxPooling3D has
    kernels only for float32 and bfloat16.
    """
    model = chain(
        dense("a"), layer("MaxPooling3D", "pool", pool_size=[2, 2, 2]), dense("b"), dense("out")
    )
    made = plan(model, to)
    assert [(refusal.code, refusal.path) for refusal in made.refusals] == [
        ("no-kernel", "net/pool")
    ]
    assert not plan(model, to, "net/pool=float32").refusals
    assert not plan(model, "mixed_bfloat16").refusals
