"""The conversion adds masks to the graph if another release would propagate different masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from policytool.migration.convert.architecture import Network
from policytool.migration.convert.tensor_facts import network_dtypes
from policytool.model.calls import Reference
from tests.helpers.convertible_models import (
    converted,
    converted_config,
    input2,
    input3,
    keras2,
    keras3,
    layer2,
    layer3,
    named,
    policy,
    refusals,
    source_layer,
    tensor,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.helpers.convertible_models import Config

K2, K3 = "tf_keras2.21", "keras3.15"
KEEPS_CAST_MASKS: Final = {"keras_version": "3.15.1"}
"""In a config: written by a release whose casts keep masks, unlike those of Keras 3.5 to 3.13."""

NUMPY: Final = "keras.src.ops.numpy"


def embedding2(source: str, name: str) -> Config:
    """Return an Embedding of Keras 2 that creates a mask."""
    return layer2(
        "Embedding", name, [[source, 0, 0, {}]], input_dim=5, output_dim=4, mask_zero=True
    )


def embedding3(source: str, name: str) -> Config:
    """Return an Embedding of Keras 3 that creates a mask."""
    return layer3("Embedding", name, tensor(source), input_dim=5, output_dim=4, mask_zero=True)


def attention2(name: str, query: str, value: str, **call: object) -> Config:
    """Return a MultiHeadAttention of Keras 2 with dropout."""
    node = [[query, 0, 0, {"value": [value, 0, 0], **call}]]
    return layer2(
        "MultiHeadAttention", name, node, num_heads=2, key_dim=2, value_dim=2, dropout=0.5
    )


def attention3(
    name: str, query: str, value: str, call: Mapping[str, bool], mask: str | None = None
) -> Config:
    """Return a MultiHeadAttention of Keras 3.10 or later with dropout and its mask arguments."""
    masks = {
        "query_mask": tensor(mask or f"{query}_mask"),
        "value_mask": tensor(mask or f"{value}_mask"),
    }
    return layer3(
        "MultiHeadAttention",
        name,
        tensor(query),
        tensor(value),
        kwargs={**masks, **call},
        num_heads=2,
        key_dim=2,
        value_dim=2,
        dropout=0.5,
        flash_attention=None,
        seed=None,
    )


def lstm2(source: str, **config: object) -> Config:
    """Return an LSTM of Keras 2."""
    return layer2("LSTM", "lstm", [[source, 0, 0, {}]], units=2, **config)


def merge2(class_name: str, *sources: str, **config: object) -> Config:
    """Return a layer of Keras 2 that merges tensors."""
    return layer2(class_name, "merge", [[one, 0, 0, {}] for one in sources], **config)


def arguments(config: Config, name: str) -> tuple[list[Config], Config]:
    """Return the arguments in the call of a layer of Keras 3."""
    node = named(config, name)["inbound_nodes"][0]
    return node["args"], node["kwargs"]


def class_names(config: Config, *names: str) -> list[str]:
    """Return the class names of layers of Keras 3."""
    return [named(config, name)["class_name"] for name in names]


def joined_mask(axis: int) -> list[Config]:
    """
    Return the layers that Keras 3 writes for the joined mask of ``a`` and ``y``, of which only
    ``a`` has a mask.
    """
    pair = [tensor("wide"), tensor("ones")]
    return [
        layer3("NotEqual", "not_equal", tensor("x"), 0, module=NUMPY),
        layer3("ExpandDims", "expand", tensor("not_equal"), module=NUMPY, axis=-1),
        layer3("ZerosLike", "zeros", tensor("a"), module=NUMPY, dtype="bool"),
        layer3("LogicalOr", "wide", tensor("expand"), tensor("zeros"), module=NUMPY),
        layer3("OnesLike", "ones", tensor("y"), module=NUMPY, dtype="bool"),
        layer3("Concatenate", "both", pair, module=NUMPY, axis=axis),
        layer3("Any", "any", tensor("both"), module=NUMPY, axis=-1, keepdims=False),
    ]


def functions(config: Config) -> dict[str, str]:
    """Return the functions of the op layers of Keras 2, by layer name."""
    layers = config["config"]["layers"]
    return {one["name"]: one["config"].get("function") for one in layers}


class TestSoftmax:
    """
    If all steps of a Softmax are masked, Keras 3.10 and later return zeros, and other releases
    return equal weights.
    """

    def test_zeros_are_written_for_keras2(self) -> None:
        softmax = layer3("Softmax", "softmax", tensor("x"), kwargs={"mask": tensor("kept")})
        kept = layer3("Greater", "kept", tensor("y"), 0, module=NUMPY)
        dense = layer3("Dense", "dense", tensor("softmax"), units=2, quantization_config=None)
        model = keras3(input3("x", 3), input3("y", 3), kept, softmax, dense)
        config = converted_config(model, K2)
        node = named(config, "softmax")["inbound_nodes"][0][0]
        assert functions(config)[node[3]["mask"][0]] == "math.greater"
        taken = named(config, "dense")["inbound_nodes"][0][0][0]
        assert functions(config)[taken] == "where"

    def test_equal_weights_are_written_for_keras3(self) -> None:
        mask = layer2("TFOpLambda", "kept", [["y", 0, 0, {"y": 0}]], function="math.greater")
        softmax = layer2("Softmax", "softmax", [["x", 0, 0, {"mask": ["kept", 0, 0]}]])
        config = converted_config(keras2(input2("x", 3), input2("y", 3), mask, softmax), K3)
        args, kwargs = arguments(config, "softmax")
        assert not kwargs
        assert class_names(config, source_layer(args[0])) == ["Add"]

    def test_softmax_stays_unchanged_for_a_release_with_equal_results(self) -> None:
        mask = layer2("TFOpLambda", "kept", [["y", 0, 0, {"y": 0}]], function="math.greater")
        softmax = layer2("Softmax", "softmax", [["x", 0, 0, {"mask": ["kept", 0, 0]}]])
        config = converted_config(keras2(input2("x", 3), input2("y", 3), mask, softmax), "keras3.6")
        args, kwargs = arguments(config, "softmax")
        assert source_layer(args[0]) == "x"
        assert class_names(config, source_layer(kwargs["mask"])) == ["Greater"]

    def test_equal_weights_are_written_for_a_propagated_mask(self) -> None:
        softmax = layer2("Softmax", "softmax", [["a", 0, 0, {}]])
        model = keras2(input2("x", 3), embedding2("x", "a"), softmax)
        config = converted_config(model, K3)
        args, kwargs = arguments(config, "softmax")
        assert not kwargs
        assert class_names(config, source_layer(args[0])) == ["Add"]

    def test_softmax_in_a_sequential_is_rejected(self) -> None:
        """A Sequential has no place for additional layers."""
        parts = (input2("x", 3), embedding2("x", "a"), layer2("Softmax", "softmax"))
        layers = [{"class_name": one["class_name"], "config": one["config"]} for one in parts]
        model = {
            "class_name": "Sequential",
            "config": {"name": "model", "layers": layers},
            "keras_version": "2.15.0",
            "backend": "tensorflow",
        }
        text = refusals(model, K3)
        assert "softmax (Softmax) uses a mask that the conversion cannot add" in text

    def test_softmax_in_a_model_with_several_calls_is_rejected(self) -> None:
        mask = layer2("TFOpLambda", "kept", [["z", 0, 0, {"y": 0}]], function="math.greater")
        softmax = layer2("Softmax", "softmax", [["z", 0, 0, {"mask": ["kept", 0, 0]}]])
        nested = nested2("x", input2("z", 3), mask, softmax)
        nested["inbound_nodes"].append([["y", 0, 0, {}]])
        model = keras2(input2("x", 3), input2("y", 3), nested, merge2("Add", "inner", "inner"))
        text = refusals(model, K3)
        assert "softmax (Softmax) uses a mask that the conversion cannot add" in text


class TestMerges:
    def test_keras2_joins_masks_by_and(self) -> None:
        model = keras2(
            input2("x", 3),
            input2("y", 3),
            embedding2("x", "a"),
            embedding2("y", "b"),
            merge2("Add", "a", "b"),
            lstm2("merge"),
        )
        config = converted_config(model, K3)
        mask = source_layer(arguments(config, "lstm")[1]["mask"])
        assert class_names(config, mask) == ["LogicalAnd"]

    def test_layer_with_mask_dependent_values_in_keras3_gets_copies(self) -> None:
        model = keras2(
            input2("x", 3),
            embedding2("x", "a"),
            layer2("Dense", "b", [["a", 0, 0, {}]], units=4),
            merge2("Multiply", "a", "b"),
            lstm2("merge"),
        )
        config = converted_config(model, K3)
        copies = [source_layer(one) for one in arguments(config, "merge")[0][0]]
        assert class_names(config, *copies) == ["Copy", "Copy"]

    @pytest.mark.parametrize("name", ["Multiply", "Maximum", "Minimum"])
    def test_values_that_masks_change_are_written_for_keras2(self, name: str) -> None:
        merged = layer3(name, "merge", [tensor("a"), tensor("b")])
        model = keras3(
            input3("x", 3), input3("y", 3), embedding3("x", "a"), embedding3("y", "b"), merged
        )
        config = converted_config(model, K2)
        taken = [one[0] for one in named(config, "merge")["inbound_nodes"][0]]
        assert [functions(config)[one] for one in taken] == ["where", "where"]

    def test_merge_is_rejected_if_keras2_cannot_compute_the_mask(self) -> None:
        """
        A merge of masked inputs is an error if Keras 2 cannot compute the mask, here because the
        dtype of ``b`` differs and the layer casts it.
        """
        merged = layer3("Multiply", "merge", [tensor("a"), tensor("b")])
        model = keras3(
            input3("x", 3),
            input3("y", 3),
            embedding3("x", "a"),
            layer3(
                "Embedding",
                "b",
                tensor("y"),
                input_dim=5,
                output_dim=4,
                mask_zero=True,
                dtype=policy("float64"),
            ),
            merged,
        )
        text = refusals(model | KEEPS_CAST_MASKS, K2)
        assert "(Multiply) uses the mask of 2 of its inputs in Keras 3.15" in text

    def test_more_than_three_inputs_follow_the_rule_of_three(self) -> None:
        names = ("a", "b", "c", "d")
        inputs = [input2(f"x_{name}", 3) for name in names]
        layers = [embedding2(f"x_{name}", name) for name in names]
        model = keras2(*inputs, *layers, merge2("Average", *names), lstm2("merge"))
        config = converted_config(model, K3)
        mask = source_layer(arguments(config, "lstm")[1]["mask"])
        assert class_names(config, mask) == ["LogicalAnd"]
        assert sum(one["class_name"] == "NotEqual" for one in config["config"]["layers"]) == 4

    def test_joined_steps_have_a_concatenated_mask(self) -> None:
        merged = layer3("Concatenate", "merge", [tensor("a"), tensor("y")], axis=1)
        lstm = layer3("LSTM", "lstm", tensor("merge"), kwargs={"mask": tensor("any")}, units=2)
        model = keras3(
            input3("x", 3), input3("y", 2, 4), embedding3("x", "a"), merged, *joined_mask(1), lstm
        )
        config = converted_config(model, K2)
        functions = {one["config"].get("function") for one in config["config"]["layers"]}
        assert {"concat", "math.equal", "math.reduce_any"} <= functions
        assert "zeros_like" not in functions

    def test_features_joined_with_unmasked_features_have_no_masked_steps(self) -> None:
        """Keras 3 fills in ones for the unmasked part, and Keras 2 would use the other mask."""
        merged = layer3("Concatenate", "merge", [tensor("a"), tensor("y")], axis=-1)
        lstm = layer3("LSTM", "lstm", tensor("merge"), kwargs={"mask": tensor("any")}, units=2)
        model = keras3(
            input3("x", 3), input3("y", 3, 4), embedding3("x", "a"), merged, *joined_mask(-1), lstm
        )
        config = converted_config(model, K2)
        functions = {one["config"].get("function") for one in config["config"]["layers"]}
        assert {"math.equal", "math.not_equal", "math.reduce_any"} <= functions
        assert "mask" in named(config, "lstm")["inbound_nodes"][0][0][3]


class TestAttention:
    def test_mask_of_a_dropout_before_attention_is_cleared(self) -> None:
        """Without training a Dropout returns its input tensor."""
        dropout = layer2("Dropout", "drop", [["a", 0, 0, {}]], rate=0.5)
        mha = attention2("mha", "drop", "drop")
        mha["config"]["dropout"] = 0.0
        second = attention2("second", "merge", "a")
        second["config"]["dropout"] = 0.0
        merged = merge2("Add", "a", "mha")
        model = keras2(input2("x", 3), embedding2("x", "a"), dropout, mha, merged, second)
        config = converted_config(model, K3)
        assert "attention_mask" in arguments(config, "second")[1]

    def test_arguments_of_keras3_are_one_in_keras2(self) -> None:
        mha = layer3(
            "MultiHeadAttention",
            "mha",
            tensor("y"),
            tensor("y"),
            kwargs={"query_mask": tensor("m"), "value_mask": tensor("m")},
            num_heads=2,
            key_dim=2,
        )
        model = keras3(input3("y", 3, 4), input3("m", 3), mha)
        config = converted_config(model, K2)
        call = named(config, "mha")["inbound_nodes"][0][0][3]
        assert "attention_mask" in call
        assert not {"query_mask", "value_mask"} & call.keys()

    def test_a_mask_that_keras3_clears_becomes_an_argument(self) -> None:
        mha = layer2(
            "MultiHeadAttention",
            "second",
            [["merge", 0, 0, {"value": ["a", 0, 0]}]],
            num_heads=2,
            key_dim=2,
            value_dim=2,
            dropout=0.0,
        )
        first = {**mha, "name": "first", "config": {**mha["config"], "name": "first"}}
        first["inbound_nodes"] = [[["a", 0, 0, {"value": ["a", 0, 0]}]]]
        model = keras2(
            input2("x", 3), embedding2("x", "a"), first, merge2("Add", "a", "first"), mha
        )
        config = converted_config(model, K3)
        assert "attention_mask" not in arguments(config, "first")[1]
        whole = source_layer(arguments(config, "second")[1]["attention_mask"])
        parts = [source_layer(one) for one in arguments(config, whole)[0]]
        assert class_names(config, whole, *parts) == ["LogicalAnd", "ExpandDims", "ExpandDims"]
        assert {named(config, part)["config"]["axis"] for part in parts} == {-1, 1}
        there = keras3(*config["config"]["layers"])
        assert not refusals(there, K2)

    @pytest.mark.parametrize("query", ["first", "named"])
    def test_a_query_that_keras2_casts_is_cast_before(self, query: str) -> None:
        """The layer's own cast loses the mask."""
        mha = attention3("mha", "a", "a", {})
        mha["config"] |= {"dtype": policy("mixed_float16"), "dropout": 0.0}
        mha["inbound_nodes"][0] = (
            {"args": [tensor("a"), tensor("a")], "kwargs": {}}
            if query == "first"
            else {"args": [], "kwargs": {"query": tensor("a"), "value": tensor("a")}}
        )
        model = keras3(input3("x", 3), embedding3("x", "a"), mha)
        config = converted_config(model, K2)
        cast = named(config, "mha_cast")
        assert cast["class_name"] == "Activation"
        assert cast["inbound_nodes"] == [[["a", 0, 0, {}]]]
        assert named(config, "mha")["inbound_nodes"] == [
            [["mha_cast", 0, 0, {"value": ["a", 0, 0]}]]
        ]

    def test_a_query_that_keras2_casts_has_no_mask_in_keras3(self) -> None:
        mha = attention2("mha", "a", "b")
        mha["config"] |= {"dtype": MIXED2, "dropout": 0.0}
        embeddings = [embedding2("x", name) for name in ("a", "b")]
        config = converted_config(keras2(input2("x", 3), *embeddings, mha), K3)
        sources = [source_layer(one) for one in arguments(config, "mha")[0]]
        assert class_names(config, *sources) == ["Copy", "Embedding"]

    def test_existing_attention_mask_is_combined_with_the_propagated_mask(self) -> None:
        mha = layer2(
            "MultiHeadAttention",
            "mha",
            [["y", 0, 0, {"value": ["a", 0, 0], "attention_mask": ["m", 0, 0]}]],
            num_heads=2,
            key_dim=2,
            value_dim=2,
            dropout=0.0,
        )
        model = keras2(
            input2("x", 3), input2("y", 2, 4), input2("m", 2, 3), embedding2("x", "a"), mha
        )
        config = converted_config(model, "tf2.4")
        last = named(config, "mha")["inbound_nodes"][0][0][3]["attention_mask"][0]
        assert named(config, last)["config"]["function"] == "math.logical_and"

    def test_mask_of_the_values_applies_to_all_queries(self) -> None:
        mha = attention2("mha", "y", "a")
        mha["config"]["dropout"] = 0.0
        model = keras2(input2("x", 3), input2("y", 2, 4), embedding2("x", "a"), mha)
        config = converted_config(model, "tf2.4")
        functions = [one["config"].get("function") for one in config["config"]["layers"]]
        assert functions.count("expand_dims") == 2
        assert "math.equal" in functions


class TestFullyMaskedSteps:
    """
    For fully masked steps, Keras 3.10 and later return zeros with dropout or scores, and Keras 2
    returns an average.
    """

    def model(self, *behind: Config, value: str = "a", outputs: tuple[str, ...] = ()) -> Config:
        return keras2(
            input2("x", 3),
            input2("y", 3),
            embedding2("x", "a"),
            embedding2("y", "b"),
            attention2("mha", "a", value),
            *behind,
            outputs=outputs,
        )

    @pytest.mark.parametrize(
        "behind",
        [
            [],
            [layer2("Flatten", "flat", [["mha", 0, 0, {}]])],
            [layer2("Dense", "dense", [["mha", 0, 0, {}]], units=2)],
            [
                layer2("Conv1D", "conv", [["mha", 0, 0, {}]], filters=2, kernel_size=2),
                lstm2("conv"),
            ],
        ],
        ids=["output", "flattened", "step by step", "beside each other"],
    )
    def test_fully_masked_steps_with_a_causal_mask_are_rejected_at_an_output(
        self, behind: list[Config]
    ) -> None:
        model = self.model(*behind, value="b")
        named({"config": model["config"]}, "mha")["inbound_nodes"][0][0][3]["use_causal_mask"] = (
            True
        )
        assert "may have fully masked steps" in refusals(model, K3)

    @pytest.mark.parametrize("value", ["a", "b"])
    def test_fully_masked_steps_at_an_output_get_the_average_of_keras2(self, value: str) -> None:
        """
        If fully masked steps reach an output, a second call of the attention on the mean of the
        values gives the average of Keras 2.
        """
        dense = layer2("Dense", "dense", [["mha", 0, 0, {}]], units=2)
        config = converted_config(self.model(dense, value=value), K3)
        first, second = named(config, "mha")["inbound_nodes"]
        assert class_names(config, *(source_layer(one) for one in second["args"])) == [
            "Copy",
            "Mean",
        ]
        chosen = source_layer(arguments(config, "dense")[0][0])
        (condition, *others), _ = arguments(config, chosen)
        assert class_names(config, chosen, source_layer(condition)) == ["Where", "Any"]
        assert [one["config"]["keras_history"] for one in others] == [["mha", 0, 0], ["mha", 1, 0]]
        assert not refusals(config, K2)
        assert source_layer(first["args"][0]) == "a"

    @pytest.mark.parametrize(
        "behind",
        [
            [lstm2("mha")],
            [layer2("GlobalAveragePooling1D", "pool", [["mha", 0, 0, {}]])],
            [layer2("Dense", "dense", [["mha", 0, 0, {}]], units=4), lstm2("dense")],
            [merge2("Add", "a", "mha"), lstm2("merge")],
            [merge2("Concatenate", "a", "mha", axis=-1), lstm2("merge")],
            [attention2("next", "mha", "mha"), lstm2("next")],
        ],
        ids=["lstm", "average", "dense", "add", "concatenate", "attention"],
    )
    def test_padding_that_later_layers_ignore_is_accepted(self, behind: list[Config]) -> None:
        assert not refusals(self.model(*behind), K3)

    def test_other_padding_of_the_values_needs_a_selection(self) -> None:
        config = converted_config(self.model(lstm2("mha"), value="b"), K3)
        assert class_names(config, source_layer(arguments(config, "lstm")[0][0])) == ["Where"]

    def test_fully_masked_scores_at_an_output_get_equal_weights(self) -> None:
        mha = attention2("mha", "a", "a", return_attention_scores=True)
        model = keras2(input2("x", 3), embedding2("x", "a"), mha, lstm2("mha"))
        model["config"]["output_layers"] = [["lstm", 0, 0], ["mha", 0, 1]]
        config = converted_config(model, K3)
        chosen = config["config"]["output_layers"][1][0]
        (_, scores, alike), _ = arguments(config, chosen)
        assert scores["config"]["keras_history"] == ["mha", 0, 1]
        assert class_names(config, source_layer(alike)) == ["Softmax"]
        assert not refusals(config, K2)

    @pytest.mark.parametrize(
        "changed", [{"dtype": "float64"}, {"attention_axes": [2]}, {"query_shape": [None, 3, 2, 4]}]
    )
    def test_other_kinds_of_attention_are_rejected(self, changed: Config) -> None:
        """
        Other kinds of attention with fully masked steps are an error, such as float64, where Keras
        2 returns no average, and other axes.
        """
        model = self.model()
        named({"config": model["config"]}, "mha")["config"] |= changed
        assert "may have fully masked steps" in refusals(model, K3)

    @pytest.mark.parametrize(
        ("dtype", "is_refused"), [("float64", True), ("float32", False), ("bfloat16", False)]
    )
    def test_only_float64_attention_with_fully_masked_steps_is_rejected(
        self, dtype: str, *, is_refused: bool
    ) -> None:
        """
        The conversion reports possible fully masked steps in float64, because only there Keras 2
        weights them by their scores. Without dropout, Keras 3 returns the same average in other
        dtypes.
        """
        model = self.model()
        named({"config": model["config"]}, "mha")["config"] |= {"dtype": dtype, "dropout": 0}
        refusal = "may have fully masked steps"
        assert (refusal in refusals(model, K3)) is is_refused

    def test_releases_with_equal_results_convert_the_model(self) -> None:
        assert not refusals(self.model(), "keras3.6")


class TestStepsThatAttendToNoneInKeras3:
    """
    For steps without an unmasked value Keras 2 returns an average; a second call on values without
    steps returns the zeros of Keras 3.
    """

    def model(self, *behind: Config, value: str = "a", **call: bool) -> Config:
        inputs = [input3("x", 3), input3("y", 3)]
        for one in inputs:
            one["config"]["ragged"] = False  # as Keras 3.9 and later write it
        return keras3(
            *inputs,
            embedding3("x", "a"),
            embedding3("y", "b"),
            layer3("NotEqual", "a_mask", tensor("x"), 0, module=NUMPY),
            layer3("NotEqual", "b_mask", tensor("y"), 0, module=NUMPY),
            attention3("mha", "a", value, call),
            *behind,
        )

    @pytest.mark.parametrize("value", ["a", "b"])
    def test_steps_get_the_result_of_a_call_without_values(self, value: str) -> None:
        dense = layer3("Dense", "dense", tensor("mha"), units=2)
        config = converted_config(self.model(dense, value=value), K2)
        _, ((query, _, _, others),) = named(config, "mha")["inbound_nodes"]
        assert named(config, query)["config"]["function"] == "identity"
        source, _, _, taken = named(config, others["value"][0])["inbound_nodes"][0]
        assert source == value
        assert taken["slice_spec"][1] == {"start": None, "stop": 0, "step": None}
        chosen = named(config, named(config, "dense")["inbound_nodes"][0][0][0])
        condition, _, _, both = chosen["inbound_nodes"][0]
        assert (both["x"], both["y"]) == (["mha", 0, 0], ["mha", 1, 0])
        assert named(config, condition)["config"]["function"] == "math.reduce_any"
        assert not refusals(config, K3)

    def test_scores_of_such_steps_are_zero(self) -> None:
        model = self.model(return_attention_scores=True)
        model["config"]["output_layers"] = [["mha", 0, 1]]
        config = converted_config(model, K2)
        chosen = named(config, config["config"]["output_layers"][0][0])
        others = chosen["inbound_nodes"][0][3]
        assert others["x"] == ["mha", 0, 1]
        assert named(config, others["y"][0])["config"]["function"] == "zeros_like"
        assert not refusals(config, K3)

    def test_causal_mask_with_equal_padding_is_accepted(self) -> None:
        config = converted_config(self.model(use_causal_mask=True), K2)
        assert not refusals(config, K3)

    def test_causal_mask_over_other_padding_is_rejected(self) -> None:
        model = self.model(value="b", use_causal_mask=True)
        assert "may have fully masked steps" in refusals(model, K2)

    def test_mask_is_passed_to_the_next_attention(self) -> None:
        """An op layer returns no mask."""
        again = attention3("again", "dense", "dense", {}, mask="a_mask")
        dense = layer3("Dense", "dense", tensor("mha"), units=4)
        config = converted_config(self.model(dense, again), K2)
        assert "attention_mask" in named(config, "again")["inbound_nodes"][0][0][3]
        assert not refusals(config, K3)

    def test_selection_by_an_unrelated_mask_is_rejected(self) -> None:
        """The average of Keras 2 is visible in the selected steps."""
        config, _, _ = converted(self.model(), K2)
        layers = config["config"]["layers"]
        chosen = next(one for one in layers if one["config"].get("function") == "where")
        chosen["inbound_nodes"][0][0] = "seen"
        added = [
            layer2("TFOpLambda", "other", ["y", 0, 0, {"y": 0}], function="math.not_equal"),
            layer2("TFOpLambda", "seen", ["other", 0, 0, {"axis": -1}], function="expand_dims"),
        ]
        place = layers.index(chosen)
        layers[place:place] = added
        assert "may have fully masked steps" in refusals(config, K3)

    @pytest.mark.parametrize("changed", [{"attention_axes": [2]}, {"query_shape": [None, 3, 2, 4]}])
    def test_other_kinds_of_attention_are_rejected(self, changed: Config) -> None:
        model = self.model()
        mha = named(model, "mha")
        mha["build_config"] = {"shapes_dict": changed}
        mha["config"] |= {key: value for key, value in changed.items() if "axes" in key}
        assert "may have fully masked steps" in refusals(model, K2)


class TestOtherMasks:
    def test_mask_of_a_16_bit_masking_is_computed_after_the_cast(self) -> None:
        mixed = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
        masking = layer2("Masking", "masking", [["x", 0, 0, {}]], mask_value=0.5, dtype=mixed)
        gru = layer2("GRU", "gru", [["masking", 0, 0, {}], ["h", 0, 0, {}]], units=2, dtype=mixed)
        config = converted_config(keras2(input2("x", 3, 4), input2("h", 2), masking, gru), K3)
        mask = source_layer(arguments(config, "gru")[1]["mask"])
        compared = source_layer(arguments(config, mask)[0][0])
        cast, value = arguments(config, compared)[0]
        assert str(value) == "0.5"
        assert named(config, source_layer(cast))["config"]["dtype"] == "float16"

    def test_mask_from_a_model_input_stays(self) -> None:
        lstm = layer3("LSTM", "lstm", tensor("y"), kwargs={"mask": tensor("m")}, units=2)
        config = converted_config(keras3(input3("y", 3, 4), input3("m", 3), lstm), K2)
        assert named(config, "lstm")["inbound_nodes"][0][0][3]["mask"] == ["m", 0, 0]

    def test_masks_of_attention_in_a_list_are_converted(self) -> None:
        attended = layer3(
            "Attention",
            "attention",
            [tensor("a"), tensor("y")],
            kwargs={"mask": [None, tensor("m")]},
        )
        model = keras3(
            input3("x", 3), input3("y", 3, 4), input3("m", 3), embedding3("x", "a"), attended
        )
        config = converted_config(model, K2)
        assert named(config, "attention")["inbound_nodes"]

    def test_mask_that_enters_a_nested_model_is_followed(self) -> None:
        inner = keras2(
            input2("z", 3, 4),
            layer2("Rescaling", "scale", [["z", 0, 0, {}]], scale=2.0, offset=0.0),
            lstm2("scale"),
        )
        nested = {
            "class_name": "Functional",
            "name": "inner",
            "config": {**inner["config"], "name": "inner"},
            "inbound_nodes": [[["a", 0, 0, {}]]],
        }
        config = converted_config(keras2(input2("x", 3), embedding2("x", "a"), nested), K3)
        inside = {
            one["config"]["name"]: one["class_name"]
            for one in named(config, "inner")["config"]["layers"]
        }
        assert inside["lstm_copy"] == "Copy"

    def test_sequential_that_loses_the_mask_is_rejected(self) -> None:
        layers = [
            {"class_name": one["class_name"], "config": one["config"]}
            for one in (
                input2("x", 3),
                embedding2("x", "a"),
                layer2("Rescaling", "scale", scale=2.0, offset=0.0),
                lstm2("scale"),
            )
        ]
        model = {
            "class_name": "Sequential",
            "config": {"name": "model", "layers": layers},
            "keras_version": "2.15.0",
            "backend": "tensorflow",
        }
        text = refusals(model, K3)
        assert "(LSTM) uses no mask in TF 2.15" in text

    def test_repeated_masks_are_read_once(self) -> None:
        """The work for a chain of mask operations grows with its length."""
        layers = [layer3("NotEqual", "mask_0", tensor("x"), 1, module=NUMPY)]
        for number in range(60):
            name = "LogicalAnd" if number % 2 else "LogicalOr"
            both = (tensor(f"mask_{number}"), tensor(f"mask_{number}"))
            layers.append(layer3(name, f"mask_{number + 1}", *both, module=NUMPY))
        lstm = layer3("LSTM", "lstm", tensor("a"), kwargs={"mask": tensor("mask_60")}, units=2)
        model = keras3(input3("x", 3), embedding3("x", "a"), *layers, lstm)
        config = converted_config(model, K2)
        assert "mask" in named(config, "lstm")["inbound_nodes"][0][0][3]

    def test_mask_of_a_16_bit_masking_is_propagated_in_keras2(self) -> None:
        masking = layer3(
            "Masking", "masking", tensor("x"), mask_value=0.0, dtype=policy("mixed_float16")
        )
        lstm = layer3("LSTM", "lstm", tensor("masking"), units=2)
        model = keras3(input3("x", 3, 4), masking, lstm)
        config = converted_config(model | KEEPS_CAST_MASKS, K2)
        assert named(config, "lstm")["inbound_nodes"] == [[["masking", 0, 0, {}]]]

    def test_cast_in_the_graph_has_no_mask(self) -> None:
        """Keras 3.6 writes the cast, which Keras 2 does not need, and the LSTM has no mask."""
        cast = layer3("Cast", "cast", tensor("a"), module="keras.src.ops.core", dtype="float16")
        lstm = layer3("LSTM", "lstm", tensor("cast"), units=2, dtype=policy("mixed_float16"))
        model = keras3(input3("x", 3), embedding3("x", "a"), cast, lstm)
        config = converted_config(model | {"keras_version": "3.6.0"}, K2)
        source = named(config, "lstm")["inbound_nodes"][0][0][0]
        assert source != "a"
        assert named(config, source)["class_name"] != "Embedding"

    @pytest.mark.parametrize(
        ("version", "adds_argument"), [("3.4.1", False), ("3.8.0", True), ("3.14.0", False)]
    )
    def test_cast_input_loses_its_mask_in_some_releases(
        self, version: str, *, adds_argument: bool
    ) -> None:
        """Keras 3.5 to 3.13 lose the mask of a float32 Embedding in a layer of mixed precision."""
        lstm = layer3("LSTM", "lstm", tensor("a"), units=2, dtype=policy("mixed_float16"))
        model = keras3(input3("x", 3), embedding3("x", "a"), lstm)
        config = converted_config(model | {"keras_version": version}, K2)
        source = named(config, "lstm")["inbound_nodes"][0][0][0]
        assert (source != "a") is adds_argument


MIXED2: Final = {"class_name": "Policy", "config": {"name": "mixed_bfloat16"}}


def nested2(source: str, *layers: Config, name: str = "inner") -> Config:
    """Return a model of Keras 2 as a layer of another model."""
    return {
        "class_name": "Functional",
        "name": name,
        "config": {**keras2(*layers)["config"], "name": name},
        "inbound_nodes": [[[source, 0, 0, {}]]],
    }


def nested3(source: str, *layers: Config, name: str = "inner") -> Config:
    """Return a model of Keras 3 as a layer of another model."""
    model = keras3(*layers)
    return {
        **model,
        "config": {**model["config"], "name": name},
        "name": name,
        "inbound_nodes": [{"args": [tensor(source)], "kwargs": {}}],
    }


class TestBordersOfNestedModels:
    """
    Keras 2 casts the inputs of a nested model to the dtype of its input layer and loses their
    masks.
    """

    def masking3(self) -> Config:
        return layer3(
            "Masking", "masking", tensor("x"), mask_value=0.0, dtype=policy("mixed_bfloat16")
        )

    def test_keras2_gets_a_cast_before_the_nested_model(self) -> None:
        lstm = layer3("LSTM", "lstm", tensor("z"), units=2, dtype=policy("mixed_bfloat16"))
        model = keras3(
            input3("x", 3, 4), self.masking3(), nested3("masking", input3("z", 3, 4), lstm)
        )
        config = converted_config(model | KEEPS_CAST_MASKS, K2)
        cast = named(config, "inner_cast")
        assert (cast["class_name"], cast["config"]["activation"]) == ("Activation", "linear")
        assert cast["inbound_nodes"] == [[["masking", 0, 0, {}]]]
        assert named(config, "inner")["inbound_nodes"] == [[["inner_cast", 0, 0, {}]]]

    def test_nested_model_without_mask_readers_gets_no_cast(self) -> None:
        dense = layer3("Dense", "dense", tensor("z"), units=2, dtype=policy("mixed_bfloat16"))
        model = keras3(
            input3("x", 3, 4), self.masking3(), nested3("masking", input3("z", 3, 4), dense)
        )
        config = converted_config(model, K2)
        assert named(config, "inner")["inbound_nodes"] == [[["masking", 0, 0, {}]]]

    @pytest.mark.parametrize("is_chain", [False, True])
    def test_keras3_gets_a_copy_before_the_nested_model(self, *, is_chain: bool) -> None:
        masking = layer2("Masking", "masking", [["x", 0, 0, {}]], mask_value=0.0, dtype=MIXED2)
        lstm = layer2("LSTM", "lstm", [["z", 0, 0, {}]], units=2, dtype=MIXED2)
        nested = nested2("masking", input2("z", 3, 4), lstm)
        if is_chain:
            layers = [
                {"class_name": one["class_name"], "config": one["config"]}
                for one in (input2("z", 3, 4), lstm)
            ]
            nested |= {"class_name": "Sequential", "config": {"name": "inner", "layers": layers}}
        config = converted_config(keras2(input2("x", 3, 4), masking, nested), K3)
        copy = source_layer(arguments(config, "inner")[0][0])
        assert class_names(config, copy) == ["Copy"]

    @pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
    def test_mask_cleared_in_a_nested_model_is_cleared_outside(self, dtype: str) -> None:
        """
        A mask that attention clears in a nested model is cleared outside too, unless the input was
        cast, because the cast result is another tensor.
        """
        mha = layer3("MultiHeadAttention", "mha", tensor("z"), tensor("z"), num_heads=2, key_dim=2)
        embedding = embedding3("x", "a")
        embedding["config"]["dtype"] = policy(dtype)
        attended = layer3("AdditiveAttention", "attention", [tensor("inner"), tensor("a")])
        model = keras3(input3("x", 3), embedding, nested3("a", input3("z", 3, 4), mha), attended)
        config = converted_config(model | KEEPS_CAST_MASKS, K2)
        *_, call = named(config, "attention")["inbound_nodes"][0][0]
        assert (call["mask"][-1] is None) is (dtype == "float32")

    def test_linear_activation_returns_the_same_tensor(self) -> None:
        mha = layer3("MultiHeadAttention", "mha", tensor("same"), tensor("same"))
        mha["config"] |= {"num_heads": 2, "key_dim": 2}
        linear = layer3("Activation", "same", tensor("a"), activation="linear")
        attended = layer3("AdditiveAttention", "attention", [tensor("mha"), tensor("a")])
        model = keras3(input3("x", 3), embedding3("x", "a"), linear, mha, attended)
        config = converted_config(model, K2)
        assert "mask" in named(config, "attention")["inbound_nodes"][0][0][3]

    def test_mask_cleared_by_attention_is_an_argument_of_a_nested_model(self) -> None:
        nested = nested2("a", input2("z", 3, 4), lstm2("z"))
        before = [input2("x", 3), embedding2("x", "a"), attention2("mha", "a", "a"), lstm2("mha")]
        before[-1]["config"]["name"] = before[-1]["name"] = "behind"
        behind = layer2("Dense", "dense", [["behind", 0, 0, {}]], units=2)
        model = keras2(*before, behind, nested, merge2("Add", "dense", "inner"))
        config = converted_config(model, K3)
        args, kwargs = arguments(config, "inner")
        assert class_names(config, source_layer(args[0]), source_layer(kwargs["mask"])) == [
            "Copy",
            "NotEqual",
        ]

    def test_nested_model_with_two_calls_gets_copies(self) -> None:
        dense = layer2("Dense", "dense", [["z", 0, 0, {}]], units=4)
        nested = nested2("a", input2("z", 3, 4), dense, merge2("Multiply", "z", "dense"))
        nested["inbound_nodes"].append([["b", 0, 0, {}]])
        embeddings = [embedding2("x", "a"), embedding2("x", "b")]
        config = converted_config(keras2(input2("x", 3), *embeddings, nested), K3)
        inner = named(config, "inner")
        copies = [source_layer(one) for one in arguments(inner, "merge")[0][0]]
        assert class_names(inner, *copies) == ["Copy", "Copy"]

    def test_fully_masked_steps_by_a_mask_from_outside_are_rejected(self) -> None:
        """No tensor in the nested model contains that mask."""
        nested = nested2("a", input2("z", 3, 4), attention2("mha", "z", "z"))
        model = keras2(input2("x", 3), embedding2("x", "a"), nested)
        text = refusals(model, K3)
        assert "mha (MultiHeadAttention) may have fully masked steps" in text

    def test_nested_model_in_a_sequential_gets_copies(self) -> None:
        scale = layer2("Rescaling", "scale", [["z", 0, 0, {}]], scale=2.0, offset=0.0)
        nested = nested2("a", input2("z", 3, 4), scale, lstm2("scale"))
        layers = [
            {"class_name": one["class_name"], "config": one["config"]}
            for one in (input2("x", 3), embedding2("x", "a"), nested)
        ]
        chain = {"name": "model", "layers": layers}
        model = keras2(input2("x", 3)) | {"class_name": "Sequential", "config": chain}
        config = converted_config(model, K3)
        copy = source_layer(arguments(named(config, "inner"), "lstm")[0][0])
        assert class_names(named(config, "inner"), copy) == ["Copy"]


class TestOddCalls:
    """Calls in files that no release writes."""

    def model(self, mha: Config, *others: Config) -> Config:
        """Return a model of Keras 3.10 or later."""
        inputs = [input3("y", 3, 4), input3("m", 3)]
        for one in inputs:
            one["config"] |= {"ragged": False, "optional": False}
        return keras3(*inputs, mha, *others)

    def test_attention_without_a_query_is_rejected(self) -> None:
        mha = attention3("mha", "y", "y", {}, mask="m")
        node = mha["inbound_nodes"][0]
        node["args"], node["kwargs"] = [], {**node["kwargs"], "value": tensor("y")}
        assert refusals(self.model(mha), K2)

    def test_a_condition_of_nothing_selects_nothing(self) -> None:
        mha = attention3("mha", "y", "y", {}, mask="m")
        expand = layer3("ExpandDims", "expand", module=NUMPY, axis=1)
        where = layer3("Where", "where", tensor("expand"), tensor("mha"), tensor("y"), module=NUMPY)
        assert refusals(self.model(mha, expand, where), K2)

    def test_a_nested_model_gets_fewer_masks_than_inputs(self) -> None:
        inner = keras2(input2("a", 3, 4), input2("b", 3, 4), merge2("Add", "a", "b"))["config"]
        calls = [[["x", 0, 0, {"mask": ["m", 0, 0]}], ["y", 0, 0, {}]]]
        nested = layer2("Functional", "inner", *calls) | {"config": {**inner, "name": "inner"}}
        model = keras2(input2("x", 3, 4), input2("y", 3, 4), input2("m", 3), nested)
        config, _, log = converted(model, K3)
        assert log.refusals or named(config, "inner")

    def test_a_tensor_that_no_layer_gives_has_no_dtype(self) -> None:
        """Such as the output of a nested model without a class."""
        network = Network(units=(), inputs=[], outputs=[])
        assert network_dtypes(network).of(Reference(layer="missing")) is None


@pytest.mark.parametrize("version", ["2.2.4-tf", "2.3.0-tf", "2.4.0"])
def test_masks_of_releases_that_store_the_first_policies_are_known(version: str) -> None:
    """TF 2.1 to 2.3 write ``Policy`` without a loss scale, and use masks as later releases do."""
    mixed = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    dense = layer2("Dense", "out", [["lstm", 0, 0, {}]], units=1)
    lstm = lstm2("embedding", recurrent_activation="sigmoid", dtype=mixed)
    model = keras2(input2("ids", 3), embedding2("ids", "embedding"), lstm, dense)
    assert not refusals({**model, "keras_version": version}, K3)
