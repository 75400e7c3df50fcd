"""Layers that Keras 2 and Keras 3 write differently, and layers that cannot be converted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from policytool.migration.convert.architecture import walk
from policytool.migration.plan import NoteSeverity
from tests.conftest import run
from tests.helpers.convertible_models import (
    converted,
    converted_config,
    history,
    input2,
    input3,
    keras2,
    keras3,
    layer2,
    layer3,
    named,
    policy,
    refusals,
    tensor,
    told,
    warnings,
)
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import instance, instance3

if TYPE_CHECKING:
    from tests.helpers.convertible_models import Config

K2, K3 = "tf_keras2.21", "keras3.15"
NUMPY = "keras.src.ops.numpy"
ONE = [["x", 0, 0, {}]]


class TestArgumentsOfTraining:
    """Arguments that the target does not have."""

    def test_virtual_batches_are_rejected_for_keras3(self) -> None:
        layer = layer2("BatchNormalization", "norm", ONE, axis=[2], virtual_batch_size=2)
        assert "virtual_batch_size" in str(refusals(keras2(input2("x", 4), layer), K3))

    def test_convolutional_recurrent_layers_are_not_unrolled_in_keras2(self) -> None:
        layer = layer3("ConvLSTM1D", "conv", tensor("x"), filters=2, kernel_size=[2], unroll=True)
        config = converted_config(keras3(input3("x", 3, 4, 2), layer), K2)
        assert named(config, "conv")["config"]["unroll"] is False

    @pytest.mark.parametrize(
        ("class_name", "arguments"),
        [
            ("LSTM", {"units": 2}),
            ("GaussianNoise", {"stddev": 0.1}),
            ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3}),
        ],
    )
    def test_seed_is_omitted_if_the_target_has_none(
        self, class_name: str, arguments: Config
    ) -> None:
        inputs = [tensor("x")] * (2 if class_name == "MultiHeadAttention" else 1)
        layer = layer3(class_name, "layer", *inputs, seed=5, **arguments)
        config, _, log = converted(keras3(input3("x", 3, 4), layer), "tf2.5")
        assert "seed" not in named(config, "layer")["config"]
        assert f"seed of {class_name} is omitted" in str(log.changes)
        assert not log.refusals


class TestCausalAttention:
    """Up to TF 2.9, an attention layer is causal; in Keras 3, its calls are."""

    @pytest.mark.parametrize("class_name", ["Attention", "AdditiveAttention"])
    def test_every_call_of_a_causal_layer_is_causal(self, class_name: str) -> None:
        nodes = [[["x", 0, 0, {}], ["x", 0, 0, {}]]] * 2
        layer = layer2(class_name, "att", *nodes, causal=True, dropout=0.0, use_scale=False)
        config, _, log = converted(keras2(input2("x", 3, 4), layer), K3)
        assert "causal" not in named(config, "att")["config"]
        calls = named(config, "att")["inbound_nodes"]
        assert [call["kwargs"]["use_causal_mask"] for call in calls] == [True, True]
        assert "use_causal_mask of the call" in str(log.changes)
        assert not log.refusals

    def test_call_of_another_layer_is_not(self) -> None:
        nodes = [["x", 0, 0, {}], ["x", 0, 0, {}]]
        layer = layer2("Attention", "att", nodes, causal=False, dropout=0.0, use_scale=False)
        config = converted_config(keras2(input2("x", 3, 4), layer), K3)
        assert "use_causal_mask" not in named(config, "att")["inbound_nodes"][0]["kwargs"]


class TestHardSigmoid:
    def test_activation_layer_gets_a_scaled_input(self) -> None:
        model = keras2(input2("x", 4), layer2("Activation", "act", ONE, activation="hard_sigmoid"))
        config = converted_config(model, K3)
        assert named(config, "act_scale")["config"]["scale"] == 1.2
        assert history(named(config, "act_scale")["inbound_nodes"][0]["args"][0]) == ["x", 0, 0]
        assert history(named(config, "act")["inbound_nodes"][0]["args"][0]) == ["act_scale", 0, 0]

    def test_activation_of_a_dense_becomes_the_output_layer(self) -> None:
        model = keras3(
            input3("x", 4),
            layer3("Dense", "dense", tensor("x"), units=2, activation="hard_sigmoid"),
        )
        config = converted_config(model, K2)
        assert named(config, "dense")["config"]["activation"] == "linear"
        assert named(config, "dense_scale")["config"]["scale"] == pytest.approx(1 / 1.2)
        assert config["config"]["output_layers"] == [["dense_hard_sigmoid", 0, 0]]

    @pytest.mark.parametrize("class_name", ["Activation", "Dense"])
    def test_sum_keeps_the_mask_in_keras2(self, class_name: str) -> None:
        """A Rescaling would lose the mask."""
        masking = layer3("Masking", "masking", tensor("x"), mask_value=0.0)
        units: Config = {} if class_name == "Activation" else {"units": 2}
        hard = layer3(class_name, "hard", tensor("masking"), activation="hard_sigmoid", **units)
        config = converted_config(keras3(input3("x", 3, 4), masking, hard), K2)
        assert named(config, "hard")["config"]["activation"] == "linear"
        assert named(config, "hard_scale")["config"]["scale"] == pytest.approx(1 / 1.2 - 1)
        parts = named(config, "hard_sum")["inbound_nodes"][0]
        assert [part[0] for part in parts] == ["hard", "hard_scale"]
        assert config["config"]["output_layers"] == [["hard_hard_sigmoid", 0, 0]]

    @pytest.mark.parametrize("wrapped", [False, True])
    def test_sequential_with_a_mask_becomes_a_functional_model(self, *, wrapped: bool) -> None:
        """Without one, the conversion is an error."""
        masking = layer3("Masking", "masking", mask_value=0.0)
        hard = layer3("Activation", "hard", activation="hard_sigmoid")
        if wrapped:
            hard = layer3("TimeDistributed", "each", layer=hard)
        layers = [
            {key: value for key, value in one.items() if key not in {"name", "inbound_nodes"}}
            for one in (input3("x", 3, 4), masking, hard)
        ]
        model = {
            **instance3("Sequential", "keras", name="model", trainable=True, layers=layers),
            "build_config": {"input_shape": [None, 3, 4]},
        }
        config = converted_config(model, K2)
        assert config["class_name"] == "Functional"
        outer = "each" if wrapped else "hard"
        assert config["config"]["output_layers"] == [[f"{outer}_hard_sigmoid", 0, 0]]
        del layers[0]
        assert "Rescaling drops the mask" in refusals(model, K2)

    def test_activation_in_a_time_distributed_moves_behind_the_wrapper(self) -> None:
        inner = instance(
            "Dense",
            name="dense",
            trainable=True,
            dtype="float32",
            units=2,
            activation="hard_sigmoid",
        )
        model = keras2(input2("x", 3, 4), layer2("TimeDistributed", "td", ONE, layer=inner))
        config, _, _ = converted(model, K3)
        assert [layer["config"]["name"] for layer in config["config"]["layers"]] == [
            "x",
            "td",
            "td_scale",
            "td_hard_sigmoid",
        ]

    def test_gates_of_an_lstm_need_the_option_weight_rewrite(self) -> None:
        model = keras2(
            input2("x", 3, 4),
            layer2(
                "LSTM", "lstm", ONE, units=2, activation="tanh", recurrent_activation="hard_sigmoid"
            ),
        )
        assert "--allow weight-rewrite" in refusals(model, K3)

    def test_gates_in_a_file_without_weights_are_rejected(self) -> None:
        model = keras2(
            input2("x", 3, 4),
            layer2(
                "LSTM", "lstm", ONE, units=2, activation="tanh", recurrent_activation="hard_sigmoid"
            ),
        )
        said = refusals(model, K3, weights=True, stored=False)
        assert "has no weights to rescale" in said
        assert "--allow weight-rewrite" not in said

    @pytest.mark.parametrize(
        ("class_name", "key", "expected"),
        [
            ("LSTM", "recurrent_activation", (1.2, 1.2, 1.0, 1.2)),
            ("GRU", "recurrent_activation", (1.2, 1.2, 1.0)),
            ("GRU", "activation", (1.0, 1.0, 1.2)),
            ("SimpleRNN", "activation", (1.2,)),
        ],
    )
    def test_weight_rewrite_scales_the_columns_of_gates(
        self, class_name: str, key: str, expected: tuple[float, ...]
    ) -> None:
        model = keras2(
            input2("x", 3, 4), layer2(class_name, "rnn", ONE, units=2, **{key: "hard_sigmoid"})
        )
        _, root, log = converted(model, K3, weights=True)
        assert not log.refusals
        assert root.network is not None
        scales = root.network.unit("rnn").scales
        assert set(scales) == {"kernel", "recurrent_kernel", "bias"}
        assert scales["bias"] == tuple(factor for factor in expected for _ in range(2))

    def test_activation_of_a_cell_state_is_rejected(self) -> None:
        model = keras2(
            input2("x", 3, 4), layer2("LSTM", "lstm", ONE, units=2, activation="hard_sigmoid")
        )
        assert "cell state" in refusals(model, K3, weights=True)

    def test_conversion_within_keras2_scales_no_weights(self) -> None:
        model = keras2(
            input2("x", 3, 4),
            layer2("LSTM", "lstm", ONE, units=2, recurrent_activation="hard_sigmoid"),
        )
        _, root, log = converted(model, "tf2.9")
        assert not log.refusals
        assert root.network is not None
        assert not root.network.unit("lstm").scales


class TestActivations:
    def test_hard_silu_becomes_a_product(self) -> None:
        model = keras3(
            input3("x", 4), layer3("Activation", "act", tensor("x"), activation="hard_silu")
        )
        config = converted_config(model, K2)
        assert named(config, "act_gate")["inbound_nodes"] == [
            [["act", 0, 0, {}], ["act_scale", 0, 0, {}]]
        ]
        assert config["config"]["output_layers"] == [["act_gate", 0, 0]]

    @pytest.mark.parametrize(
        ("activation", "last"), [("hard_silu", "dense_gate"), ("hard_tanh", "dense_hard_tanh")]
    )
    def test_a_sequential_becomes_a_functional_model(self, activation: str, last: str) -> None:
        """The target needs two layers for the activation; without an input layer, it fails."""
        layers = [
            {**input3("x", 4), "inbound_nodes": []},
            layer3("Dense", "dense", None, units=2, activation=activation),
        ]
        chains = []
        for units in (layers, layers[1:]):
            for unit in units:
                unit.pop("inbound_nodes", None)
            model = keras3(*units)
            model |= {"class_name": "Sequential", "registered_name": "Sequential"}
            model["config"] = {"name": "model", "layers": units}
            chains.append(converted(model, K2))
        (config, _, log), (_, _, refused) = chains
        assert not log.refusals
        assert config["class_name"] == "Functional"
        assert config["config"]["output_layers"] == [[last, 0, 0]]
        assert f"activation to {activation}" in told(refused)

    def test_activation_that_needs_op_layers_is_rejected_after_a_mask(self) -> None:
        """Op layers lose masks."""
        model = keras3(
            input3("x", 3, 4),
            layer3("Masking", "masking", tensor("x"), mask_value=0.0),
            layer3("Dense", "dense", tensor("masking"), units=2, activation="celu"),
        )
        assert "activation to celu" in refusals(model, K2)

    def test_activation_that_the_target_lacks_is_rejected_by_name(self) -> None:
        model = keras3(
            input3("x", 4), layer3("Dense", "dense", tensor("x"), units=2, activation="sparsemax")
        )
        assert "activation to sparsemax" in refusals(model, K2)

    @pytest.mark.parametrize(
        ("loader", "name"), [("tf2.3", "swish"), ("tf2.5", "swish"), ("tf2.15", "silu")]
    )
    def test_silu_has_its_old_name_in_old_releases(self, loader: str, name: str) -> None:
        """Both names are the same function (measured in TF 2.3, 2.5 and 2.9)."""
        model = keras3(
            input3("x", 4), layer3("Dense", "dense", tensor("x"), units=2, activation="silu")
        )
        config = converted_config(model, loader)
        assert named(config, "dense")["config"]["activation"] == name


class TestCalls:
    def test_states_in_a_list_become_an_argument(self) -> None:
        model = keras2(
            input2("x", 3, 4),
            input2("h", 2),
            input2("c", 2),
            layer2("LSTM", "lstm", [["x", 0, 0, {}], ["h", 0, 0, {}], ["c", 0, 0, {}]], units=2),
        )
        config, _, _ = converted(model, K3)
        node = named(config, "lstm")["inbound_nodes"][0]
        assert len(node["args"]) == 1
        assert [history(one)[0] for one in node["kwargs"]["initial_state"]] == ["h", "c"]

    def test_initial_state_argument_becomes_a_list_of_states(self) -> None:
        states = [tensor("h"), tensor("c")]
        lstm = layer3(
            "LSTM",
            "lstm",
            tensor("x"),
            kwargs={"initial_state": states, "training": False},
            units=2,
        )
        config, _, _ = converted(
            keras3(input3("x", 3, 4), input3("h", 2), input3("c", 2), lstm), K2
        )
        assert named(config, "lstm")["inbound_nodes"] == [
            [["x", 0, 0, {}], ["h", 0, 0, {}], ["c", 0, 0, {}]]
        ]

    def test_positional_arguments_get_their_names(self) -> None:
        mha = layer3("MultiHeadAttention", "mha", tensor("x"), tensor("v"), num_heads=2, key_dim=3)
        config = converted_config(keras3(input3("x", 3, 4), input3("v", 3, 4), mha), K2)
        assert named(config, "mha")["inbound_nodes"] == [[["x", 0, 0, {"value": ["v", 0, 0]}]]]
        assert named(config, "mha")["config"]["query_shape"] is None

    def test_training_true_is_rejected_for_keras3(self) -> None:
        model = keras2(
            input2("x", 4), layer2("Dropout", "drop", [["x", 0, 0, {"training": True}]], rate=0.5)
        )
        assert "training=True" in refusals(model, K3)

    def test_training_false_is_a_warning(self) -> None:
        model = keras2(
            input2("x", 4), layer2("Dropout", "drop", [["x", 0, 0, {"training": False}]], rate=0.5)
        )
        _, _, log = converted(model, K3)
        assert [note.severity for note in log.notes if note.code == "training-argument"] == [
            NoteSeverity.WARNING
        ]


class TestMasks:
    def embedded(self, compared: float) -> Config:
        embedding = layer3(
            "Embedding", "embedding", tensor("x"), input_dim=5, output_dim=3, mask_zero=True
        )
        mask = layer3("NotEqual", "not_equal", tensor("x"), compared, module="keras.src.ops.numpy")
        return keras3(
            input3("x", 3),
            embedding,
            mask,
            layer3(
                "LSTM", "lstm", tensor("embedding"), kwargs={"mask": tensor("not_equal")}, units=2
            ),
        )

    def test_mask_of_an_embedding_is_propagated_in_keras2(self) -> None:
        config = converted_config(self.embedded(0), K2)
        assert [layer["config"]["name"] for layer in config["config"]["layers"]] == [
            "x",
            "embedding",
            "lstm",
        ]
        assert named(config, "lstm")["inbound_nodes"] == [[["embedding", 0, 0, {}]]]

    def test_mask_of_a_masking_with_a_cast_input_is_propagated_in_keras2(self) -> None:
        ops = "keras.src.ops.numpy"
        layers = [
            layer3("Cast", "cast", tensor("x"), module="keras.src.ops.core", dtype="float16"),
            layer3("NotEqual", "not_equal", tensor("cast"), 0.0, module=ops),
            layer3(
                "Masking", "masking", tensor("x"), mask_value=0.0, dtype=policy("mixed_float16")
            ),
            layer3("Any", "any", tensor("not_equal"), module=ops, axis=-1, keepdims=False),
            layer3("LSTM", "lstm", tensor("masking"), kwargs={"mask": tensor("any")}, units=2),
        ]
        config = converted_config(keras3(input3("x", 3, 4), *layers), K2)
        assert [layer["config"]["name"] for layer in config["config"]["layers"]] == [
            "x",
            "masking",
            "lstm",
        ]

    def test_mask_of_an_attention_is_that_of_the_query(self) -> None:
        layers = [
            layer3(
                "Embedding", "embedding", tensor("x"), input_dim=5, output_dim=3, mask_zero=True
            ),
            layer3("NotEqual", "not_equal", tensor("x"), 0, module="keras.src.ops.numpy"),
            layer3("Attention", "attention", [tensor("embedding"), tensor("embedding")]),
            layer3("ConvertToTensor", "convert", tensor("not_equal"), module="keras.src.ops.core"),
            layer3(
                "GlobalAveragePooling1D",
                "pool",
                tensor("attention"),
                kwargs={"mask": tensor("convert")},
            ),
        ]
        config = converted_config(keras3(input3("x", 3), *layers), K2)
        assert named(config, "pool")["inbound_nodes"] == [[["attention", 0, 0, {}]]]

    def test_mask_of_another_comparison_stays(self) -> None:
        config, _, _ = converted(self.embedded(2), K2)
        assert "not_equal" in [layer["config"]["name"] for layer in config["config"]["layers"]]


class TestMasksBesideStates:
    """
    A recurrent layer of Keras 3 with initial states uses only the mask in its arguments; in Keras 2
    it uses the mask of its sequences.
    """

    def decoder2(self, *between: Config, last: str = "embedding") -> Config:
        embedding = layer2("Embedding", "embedding", ONE, input_dim=5, output_dim=3, mask_zero=True)
        gru = layer2(
            "GRU", "gru", [[last, 0, 0, {}], ["h", 0, 0, {}]], units=2, return_sequences=True
        )
        return keras2(input2("x", 3), input2("h", 2), embedding, *between, gru)

    def test_mask_of_an_embedding_becomes_an_argument_in_keras3(self) -> None:
        dropout = layer2("Dropout", "drop", [["embedding", 0, 0, {}]], rate=0.5)
        config = converted_config(self.decoder2(dropout, last="drop"), K3)
        assert (
            history(named(config, "gru")["inbound_nodes"][0]["kwargs"]["mask"])[0] == "gru_notequal"
        )
        made = named(config, "gru_notequal")["inbound_nodes"][0]["args"]
        assert (history(made[0])[0], made[1]) == ("x", 0)

    def test_mask_of_a_masking_becomes_an_argument_in_keras3(self) -> None:
        masking = layer2("Masking", "masking", ONE, mask_value=-1.0)
        gru = layer2("GRU", "gru", [["masking", 0, 0, {}], ["h", 0, 0, {}]], units=2)
        config = converted_config(keras2(input2("x", 3, 4), input2("h", 2), masking, gru), K3)
        assert history(named(config, "gru_any")["inbound_nodes"][0]["args"][0])[0] == "gru_notequal"
        assert named(config, "gru_notequal")["inbound_nodes"][0]["args"][1] == -1.0

    def test_mask_of_merged_layers_becomes_an_argument_in_keras3(self) -> None:
        masking = layer2("Masking", "masking", [["h3", 0, 0, {}]], mask_value=0.0)
        added = layer2("Add", "add", [["embedding", 0, 0, {}], ["masking", 0, 0, {}]])
        model = self.decoder2(input2("h3", 3, 3), masking, added, last="add")
        config = converted_config(model, K3)
        mask = history(named(config, "gru")["inbound_nodes"][0]["kwargs"]["mask"])[0]
        assert named(config, str(mask))["class_name"] == "LogicalAnd"

    def test_mask_is_not_an_argument_after_a_convolution(self) -> None:
        conv = layer2("Conv1D", "conv", [["embedding", 0, 0, {}]], filters=2, kernel_size=1)
        config = converted_config(self.decoder2(conv, last="conv"), K3)
        assert "mask" not in named(config, "gru")["inbound_nodes"][0]["kwargs"]

    def test_keras2_gets_a_copy_that_hides_the_mask(self) -> None:
        embedding = layer3(
            "Embedding", "embedding", tensor("x"), input_dim=5, output_dim=3, mask_zero=True
        )
        gru = layer3(
            "GRU", "gru", tensor("embedding"), kwargs={"initial_state": tensor("h")}, units=2
        )
        config = converted_config(keras3(input3("x", 3), input3("h", 2), embedding, gru), K2)
        assert named(config, "gru")["inbound_nodes"][0][0][0] == "gru_copy"
        assert named(config, "gru_copy")["config"]["function"] == "identity"


class TestMasksOfAttention:
    """A MultiHeadAttention uses propagated masks from TF 2.10 on."""

    def transformer(self, version: str, **embedding: object) -> Config:
        masked = layer2("Embedding", "embedding", ONE, input_dim=5, output_dim=4, **embedding)
        mha = layer2(
            "MultiHeadAttention",
            "mha",
            [["embedding", 0, 0, {"value": ["embedding", 0, 0]}]],
            num_heads=2,
            key_dim=2,
            value_dim=2,
        )
        return keras2(input2("x", 3), masked, mha) | {"keras_version": version}

    def test_attention_of_tf_2_9_gets_copies_that_hide_the_mask(self) -> None:
        config = converted_config(self.transformer("2.9.0", mask_zero=True), K3)
        args = named(config, "mha")["inbound_nodes"][0]["args"]
        assert [history(one)[0] for one in args] == ["mha_copy", "mha_copy"]

    @pytest.mark.parametrize(
        ("version", "embedding"), [("2.9.0", {}), ("2.15.0", {"mask_zero": True})]
    )
    def test_attention_that_used_the_mask_or_had_none_stays_unchanged(
        self, version: str, embedding: dict[str, bool]
    ) -> None:
        config = converted_config(self.transformer(version, **embedding), K3)
        node = named(config, "mha")["inbound_nodes"][0]
        assert [history(one)[0] for one in node["args"]] == ["embedding", "embedding"]
        assert "attention_mask" not in node["kwargs"]

    def test_causal_mask_is_rejected_for_tf_2_9(self) -> None:
        mha = layer3(
            "MultiHeadAttention",
            "mha",
            tensor("x"),
            tensor("x"),
            kwargs={"use_causal_mask": True},
            num_heads=2,
            key_dim=3,
        )
        assert "called with use_causal_mask, which TF 2.9 does not support" in refusals(
            keras3(input3("x", 3, 4), mha), "tf2.9"
        )

    def test_older_target_in_keras2_gets_the_mask_as_an_argument(self) -> None:
        model = self.transformer("2.15.0", mask_zero=True)
        config = converted_config(model, "tf2.4")
        assert "attention_mask" in named(config, "mha")["inbound_nodes"][0][0][3]


class TestKeys:
    def test_leaky_relu_slope_is_renamed(self) -> None:
        model = keras2(input2("x", 4), layer2("LeakyReLU", "leaky", ONE, alpha=0.25))
        config = named(converted(model, K3)[0], "leaky")["config"]
        assert config["negative_slope"] == 0.25
        assert "alpha" not in config

    def test_thresholded_relu_becomes_a_relu(self) -> None:
        model = keras2(input2("x", 4), layer2("ThresholdedReLU", "relu", ONE, theta=0.5))
        layer = named(converted(model, K3)[0], "relu")
        assert (layer["class_name"], layer["config"]["threshold"]) == ("ReLU", 0.5)

    def test_axis_in_a_list_becomes_a_number(self) -> None:
        model = keras2(input2("x", 4), layer2("BatchNormalization", "bn", ONE, axis=[1]))
        assert named(converted(model, K3)[0], "bn")["config"]["axis"] == 1

    def test_several_axes_are_rejected(self) -> None:
        model = keras2(input2("x", 4, 4), layer2("BatchNormalization", "bn", ONE, axis=[1, 2]))
        assert "axis [1, 2]" in refusals(model, K3)

    @pytest.mark.parametrize(
        ("keys", "expected"),
        [
            ({"function": ["", None, None], "function_type": "lambda"}, '"code_function": ...'),
            ({"function": "distance", "function_type": "function"}, '"distance": distance'),
            ({"function": "relu", "function_type": "function"}, None),  # another one in Keras 3
            ({"function": "eval", "function_type": "function"}, None),
            ({"function": ["", None, None], "mask": ["", None, None]}, None),
        ],
    )
    def test_lambda_without_readable_code_calls_a_function_by_name(
        self, keys: Config, expected: str | None
    ) -> None:
        """The user passes the function; a name that Keras finds itself is rejected."""
        model = keras2(input2("x", 4), layer2("Lambda", "code", ONE, **keys))
        if expected is None:
            assert "bytecode" in refusals(model, K3)
            return
        config, _, log = converted(model, K3)
        assert f"custom_objects={{{expected}}}" in warnings(log)
        function = named(config, "code")["config"]["function"]
        assert function["class_name"] == "function"
        assert function["config"] == expected.split('"')[1]

    def test_lambdas_have_different_functions(self) -> None:
        """Layers of nested models may have the same name; a named function may be shared."""
        codes = json.loads((FIXTURES / "lambda_code.json").read_text(encoding="utf-8"))["3.8"]
        layers = [
            layer2("Lambda", "code", ONE, function=[codes["x * x"], None, None]),
            layer2("Lambda", "more", [["code", 0, 0, {}]], function=[codes["1.0 / x"], None, None]),
        ]
        inner = keras2(input2("x", 4), layer2("Lambda", "code", ONE, function=["", None, None]))
        outer = {**inner, "name": "inner", "inbound_nodes": [[["more", 0, 0, {}]]]}
        outer["config"] = {**inner["config"], "name": "inner"}
        config, _, log = converted(keras2(input2("x", 4), *layers, outer), K3)
        assert (
            'custom_objects={"code_function": lambda x: x * x, "more_function": lambda x: 1.0 / x, '
            '"code_function_": ...}'
        ) in warnings(log)
        nested = named(config, "inner")
        assert named(nested, "code")["config"]["function"]["config"] == "code_function_"

    def test_lambda_keeps_its_arguments(self) -> None:
        codes = json.loads((FIXTURES / "lambda_code.json").read_text(encoding="utf-8"))["3.8"]
        keys = {
            "function": [codes["x * x"], None, None],
            "arguments": {"scale": 3},
            "output_shape": [4],
            "output_shape_type": "raw",
            "module": "__main__",
            "function_type": "lambda",
        }
        model = keras2(input2("x", 4), layer2("Lambda", "code", ONE, **keys))
        config, _, log = converted(model, K3)
        layer = named(config, "code")["config"]
        assert layer["arguments"] == {"scale": 3}
        assert not {"module", "function_type", "output_shape", "output_shape_type"} & layer.keys()
        assert '"code_function": lambda x, scale: x * x' in warnings(log)

    @pytest.mark.parametrize(
        ("text", "dtype", "becomes_rescaling"),
        [
            ("(x - 127.5) / 127.5", "float32", True),
            ("(x - 127.5) / 127.5", "uint8", False),  # TensorFlow divides integers differently
            ("tf.cast(x, tf.float32) / 255.0", "uint8", True),
            ("K.mean(x, axis=1)", "float32", False),
            ("1.0 / x", "float32", False),
        ],
    )
    def test_lambda_that_scales_becomes_a_rescaling(
        self, text: str, dtype: str, *, becomes_rescaling: bool
    ) -> None:
        codes = json.loads((FIXTURES / "lambda_code.json").read_text(encoding="utf-8"))
        function = [codes["3.8"][text], None, None]
        code = layer2("Lambda", "code", ONE, function=function, function_type="lambda")
        given = input2("x", 4)
        given["config"]["dtype"] = dtype
        model = keras2(given, code)
        if not becomes_rescaling:
            functions = f'custom_objects={{"code_function": lambda x: {text}}}'
            assert functions in warnings(converted(model, K3)[2])
            return
        layer = named(converted_config(model, K3), "code")
        assert layer["class_name"] == "Rescaling"
        assert {"scale", "offset"} < layer["config"].keys()
        assert "function" not in layer["config"]

    @pytest.mark.parametrize(
        ("text", "policy", "reason"),
        [
            ("x / 255.0", "mixed_float16", "; a Rescaling would round its numbers to float16"),
            ("K.mean(x, axis=1)", "mixed_float16", ""),
            ("K.mean(x, axis=1)", "float32", ""),
        ],
    )
    def test_lambda_that_scales_in_half_precision_stays_a_function(
        self, text: str, policy: str, reason: str
    ) -> None:
        """Results of both layers would differ by the rounding of the factor."""
        codes = json.loads((FIXTURES / "lambda_code.json").read_text(encoding="utf-8"))
        function = [codes["3.8"][text], None, None]
        code = layer2("Lambda", "code", ONE, function=function, function_type="lambda")
        code["config"]["dtype"] = {"class_name": "Policy", "config": {"name": policy}}
        _, _, log = converted(keras2(input2("x", 4), code), K3)
        words = f"Lambda calls the function code_function instead of its bytecode{reason}"
        assert words in [change.text for change in log.changes]
        assert not log.unknown_functions

    def test_function_without_readable_code_is_recorded(self) -> None:
        """To run the result, the user must define it."""
        function = ["4wAAAA==", None, None]
        code = layer2("Lambda", "code", ONE, function=function, function_type="lambda")
        _, _, log = converted(keras2(input2("x", 4), code), K3)
        assert (list(log.unknown_functions), log.functions) == (["code_function"], {})

    @pytest.mark.parametrize("path", ["keras3.15/lambda.keras", "tf2.3/lambda.h5"])
    @pytest.mark.parametrize("target", [K2, K3])
    def test_lambda_that_is_replaced_needs_no_proof(self, path: str, target: str) -> None:
        """Also in the library of the file, because an edited file would still contain its code."""
        printed = run("migrate", FIXTURES / path, "--target", target, "--preview").out
        assert "Lambda becomes Rescaling, which computes values * 2.0" in printed
        assert "untested" not in printed

    def test_lambda_of_a_model_with_masks_stays_a_lambda(self) -> None:
        """A Lambda drops the mask of its input, and a Rescaling of Keras 3 keeps it."""
        codes = json.loads((FIXTURES / "lambda_code.json").read_text(encoding="utf-8"))
        function = [codes["3.8"]["x / 255.0"], None, None]
        calls = [["masking", 0, 0, {}]]
        code = layer2("Lambda", "code", calls, function=function, function_type="lambda")
        model = keras2(input2("x", 3, 4), layer2("Masking", "masking", ONE, mask_value=0.0), code)
        config, _, log = converted(model, K3)
        assert named(config, "code")["class_name"] == "Lambda"
        assert '"code_function": lambda x: x / 255.0' in warnings(log)

    @pytest.mark.parametrize(
        ("known", "flattened", "expected"),
        [(True, True, [5, 3]), (False, False, [None, 3]), (False, True, None)],
    )
    def test_open_sizes_of_an_einsum_are_written_if_a_flatten_needs_them(
        self, *, known: bool, flattened: bool, expected: list[int | None] | None
    ) -> None:
        """
        The output shape of an EinsumDense contains sizes only if a later Flatten needs them,
        because Keras 3 reads the sizes only from the config.
        """
        einsum = layer2(
            "EinsumDense",
            "e",
            [["r", 0, 0, {}]],
            equation="abc,cd->abd",
            output_shape=[None, 3],
            bias_axes="d",
        )
        if known:
            einsum["build_config"] = {"input_shape": [None, 5, 4]}
        last = layer2("Flatten" if flattened else "ReLU", "last", [["e", 0, 0, {}]])
        model = keras2(input2("x", 5, 4), layer2("ReLU", "r", ONE), einsum, last)
        config, _, log = converted(model, K3)
        if expected is None:
            assert "unknown size" in told(log)
        else:
            assert named(config, "e")["config"]["output_shape"] == expected

    @pytest.mark.parametrize(
        ("class_name", "cropping", "empty"),
        [
            ("Cropping2D", [[2, 2], [1, 1]], True),
            ("Cropping2D", [[2, 1], [1, 1]], False),
            ("Cropping1D", [1, 3], True),
        ],
    )
    def test_cropping_of_the_entire_input_is_rejected(
        self, class_name: str, cropping: list[object], *, empty: bool
    ) -> None:
        shape = (4, 4, 2)[1 if class_name == "Cropping1D" else 0 :]
        model = keras2(input2("x", *shape), layer2(class_name, "crop", ONE, cropping=cropping))
        assert ("removes its entire input" in refusals(model, K3)) is empty

    def test_slash_in_a_name_becomes_an_underscore(self) -> None:
        model = keras2(
            input2("a/x", 4),
            layer2("Dense", "b/y", [["a/x", 0, 0, {}]], units=2),
            layer2("ReLU", "b_y", [["b/y", 0, 0, {}]]),
        )
        config, _, log = converted(model, K3)
        assert [layer["config"]["name"] for layer in config["config"]["layers"]] == [
            "a_x",
            "b_y_",
            "b_y",
        ]
        assert history(named(config, "b_y")["inbound_nodes"][0]["args"][0]) == ["b_y_", 0, 0]
        assert config["config"]["input_layers"] in ([["a_x", 0, 0]], ["a_x", 0, 0])
        assert {change.code for change in log.changes} >= {"renamed"}

    def test_name_that_is_not_a_valid_scope_is_changed_for_keras2(self) -> None:
        model = keras3(
            input3("_in", 4),
            layer3("Dense", "_x", tensor("_in"), units=2),
            layer3("Dense", "x", tensor("_x"), units=2),
            layer3("ReLU", "größe 1", tensor("x")),
        )
        config, _, log = converted(model, K2)
        names = [layer["name"] for layer in config["config"]["layers"]]
        assert names == ["in", "x_", "x", "gr__e_1"]
        assert named(config, "x")["inbound_nodes"] == [[["x_", 0, 0, {}]]]
        assert config["config"]["output_layers"] == [["gr__e_1", 0, 0]]
        assert {change.code for change in log.changes} >= {"renamed"}

    @pytest.mark.parametrize(
        ("mask_zero", "name"), [(True, "concatenate_"), (False, "concatenate")]
    )
    def test_operation_on_masks_has_the_name_of_the_first_such_layer(
        self, *, mask_zero: bool, name: str
    ) -> None:
        """
        The operation that joins masks has the name that Keras 3 would give to the first such layer.
        """
        model = keras2(
            input2("x", 4),
            layer2("Embedding", "e", ONE, input_dim=9, output_dim=2, mask_zero=mask_zero),
            layer2("Concatenate", "concatenate", [["e", 0, 0, {}], ["e", 0, 0, {}]], axis=1),
        )
        config = converted_config(model, K3)
        assert config["config"]["layers"][-1]["name"] == name
        assert config["config"]["output_layers"] == [name, 0, 0]

    @pytest.mark.parametrize(
        ("loader", "expected"), [("keras3.0", "OrthogonalInitializer"), (K3, "Orthogonal")]
    )
    def test_an_initialiser_has_the_name_that_the_release_knows(
        self, loader: str, expected: str
    ) -> None:
        given = {"class_name": "Orthogonal", "config": {"gain": 1.0, "seed": None}}
        model = keras2(
            input2("x", 3, 4), layer2("LSTM", "lstm", ONE, units=2, recurrent_initializer=given)
        )
        config = converted_config(model, loader)
        assert named(config, "lstm")["config"]["recurrent_initializer"]["class_name"] == expected


class TestDirections:
    def test_layers_of_a_bidirectional_lose_their_name_prefixes(self) -> None:
        inner = [layer3("LSTM", f"{way}_lstm", units=2) for way in ("forward", "backward")]
        model = keras3(
            input3("x", 3, 4),
            layer3("Bidirectional", "both", tensor("x"), layer=inner[0], backward_layer=inner[1]),
        )
        config = named(converted(model, K2)[0], "both")["config"]
        assert [config[key]["config"]["name"] for key in ("layer", "backward_layer")] == [
            "lstm",
            "lstm",
        ]

    @pytest.mark.parametrize("goes_backwards", [True, False])
    @pytest.mark.parametrize(
        ("class_name", "config"),
        [
            ("LSTM", {"units": 2}),
            ("ConvLSTM2D", {"filters": 2, "kernel_size": [3, 3]}),
            ("RNN", {"cell": layer2("LSTMCell", "cell", units=2)}),
        ],
    )
    def test_backward_layer_is_written(
        self, class_name: str, config: dict[str, object], *, goes_backwards: bool
    ) -> None:
        """
        A Bidirectional is written with its backward layer, because Keras 3 would otherwise create
        one with the wrong direction or reuse an existing layer.
        """
        inner = layer2(class_name, "inner", go_backwards=goes_backwards, **config)
        model = keras2(input2("x", 3, 4), layer2("Bidirectional", "both", ONE, layer=inner))
        found, root, log = converted(model, K3)
        assert not log.refusals
        both = named(found, "both")["config"]
        assert both["layer"]["config"]["go_backwards"] is goes_backwards
        assert both["backward_layer"]["config"]["go_backwards"] is not goes_backwards
        assert both["backward_layer"]["config"]["name"] == "backward_inner"
        sites = [unit.site for unit in walk(root)]
        assert len(sites) == len(set(sites))

    @pytest.mark.parametrize(("steps", "unrolled"), [(None, False), (3, True)])
    def test_input_shape_decides_whether_steps_are_known(
        self, steps: int | None, *, unrolled: bool
    ) -> None:
        """Converted files and HDF5 do not contain the shape for which a layer was built."""
        layer = layer3("LSTM", "lstm", tensor("x"), units=2, unroll=True)
        config, _, _ = converted(keras3(input3("x", steps, 4), layer), K2)
        assert named(config, "lstm")["config"]["unroll"] is unrolled

    @pytest.mark.parametrize("steps", [None, 3])
    @pytest.mark.parametrize("returns", [False, True])
    def test_unrolled_backward_layer_with_unknown_masked_steps_is_rejected(
        self, steps: int | None, *, returns: bool
    ) -> None:
        """
        An unrolled backward layer with a mask and an unknown number of steps is an error unless it
        is the last, because its masks would differ.
        """
        inner = [
            layer3(
                *("LSTM", f"{way}_lstm"),
                units=2,
                unroll=True,
                return_sequences=returns,
                go_backwards=way == "backward",
            )
            for way in ("forward", "backward")
        ]
        for one in inner:
            one["build_config"] = {"input_shape": [None, steps, 4]}
        masking = layer3("Masking", "masking", tensor("x"), mask_value=0.0)
        both = layer3(
            *("Bidirectional", "both", tensor("masking")), layer=inner[0], backward_layer=inner[1]
        )
        found = refusals(keras3(input3("x", steps, 4), masking, both), K2)
        assert (
            "backward_lstm (LSTM) runs backwards and is unrolled, so it reads masks" in found
        ) is (steps is None and returns)

    @pytest.mark.parametrize(("steps", "unrolled"), [(None, False), (3, True)])
    def test_an_unknown_number_of_steps_is_not_unrolled(
        self, steps: int | None, *, unrolled: bool
    ) -> None:
        """Keras 2 fails on it."""
        layer = layer3("LSTM", "lstm", tensor("x"), units=2, unroll=True)
        layer["build_config"] = {"input_shape": [None, steps, 4]}
        config, _, _ = converted(keras3(input3("x", steps, 4), layer), K2)
        assert named(config, "lstm")["config"]["unroll"] is unrolled

    def test_float32_states_of_a_16_bit_layer_are_rejected(self) -> None:
        gru = layer3("GRU", "gru", tensor("x"), kwargs={"initial_state": [tensor("h")]}, units=2)
        gru["config"]["dtype"] = policy("mixed_float16")
        assert "float32 states" in refusals(keras3(input3("x", 3, 4), input3("h", 2), gru), K2)


class TestProductsOfTransposedMatrices:
    def model(self, *swaps: Config, first: str, second: str) -> Config:
        product = layer3("Matmul", "product", tensor(first), tensor(second), module=NUMPY)
        return keras3(input3("x", 3, 4), input3("y", 3, 4), *swaps, product)

    def swap(self, name: str, source: str, **axes: Any) -> Config:
        return layer3("Swapaxes", name, tensor(source), module=NUMPY, **axes)

    def test_swapped_axes_become_flags_in_keras2(self) -> None:
        swap = self.swap("swap", "y", axis1=-1, axis2=-2)
        config = converted_config(self.model(swap, first="x", second="swap"), K2)
        call = named(config, "product")["inbound_nodes"][0]
        assert call[:3] == ["x", 0, 0]
        assert call[3]["b"] == ["y", 0, 0]
        assert call[3]["transpose_b"] is True
        assert "transpose_a" not in call[3]
        assert [one["config"]["name"] for one in config["config"]["layers"]] == [
            "x",
            "y",
            "product",
        ]

    def test_swaps_of_other_axes_are_rejected(self) -> None:
        swap = self.swap("swap", "y", axis1=1, axis2=2)
        log = converted(self.model(swap, first="x", second="swap"), K2)[2]
        assert "swaps axes of a tensor" in told(log)

    def test_swap_with_another_consumer_is_rejected(self) -> None:
        swap = self.swap("swap", "y", axis1=-1, axis2=-2)
        again = self.swap("again", "swap", axis1=-2, axis2=-3)
        log = converted(self.model(swap, again, first="swap", second="again"), K2)[2]
        assert "again swaps axes" in told(log)


class TestLookups:
    """Counts are int64 in Keras 3 regardless of the layer's dtype, and floats in Keras 2."""

    @pytest.mark.parametrize(
        ("mode", "behind"), [("multi_hot", True), ("count", True), ("int", False)]
    )
    def test_counts_are_cast(self, mode: str, *, behind: bool) -> None:
        lookup = layer2("IntegerLookup", "lookup", ONE, vocabulary=[1, 2], output_mode=mode)
        dense = layer2("Dense", "dense", [["lookup", 0, 0, {}]], units=2)
        config = converted_config(keras2(input2("x", 3), lookup, dense), K3)
        taken = history(named(config, "dense")["inbound_nodes"][0]["args"][0])[0]
        assert taken == ("lookup_as_floats" if behind else "lookup")
        if behind:
            assert named(config, str(taken))["class_name"] == "Rescaling"

    def test_keras2_needs_no_cast(self) -> None:
        lookup = layer3(
            "IntegerLookup", "lookup", tensor("x"), vocabulary=[1, 2], output_mode="count"
        )
        config = converted_config(keras3(input3("x", 3), lookup), K2)
        assert len(config["config"]["layers"]) == 2

    @pytest.mark.parametrize(
        ("mode", "shape", "is_flat"),
        [
            ("one_hot", (1,), True),
            ("one_hot", (3,), False),
            ("multi_hot", (3,), True),
            ("count", (3, 1), False),
            ("int", (3, 2), True),
        ],
    )
    def test_keras2_encodes_only_vectors(
        self, mode: str, shape: tuple[int, ...], *, is_flat: bool
    ) -> None:
        """Of 70 models of lookups, CategoryEncoding and Hashing, tf_keras 2.21 built the same."""
        lookup = layer3("IntegerLookup", "lookup", tensor("x"), vocabulary=[1, 2], output_mode=mode)
        words = refusals(keras3(input3("x", *shape), lookup), K2)
        assert ("only for results with two axes" in str(words)) is not is_flat


class TestConvLSTM:
    """A ConvLSTM can be built in Keras 3 only for images of a fixed size."""

    @pytest.mark.parametrize(
        ("size", "before", "is_refused"),
        [
            ((None, 8), (), True),
            ((8, 8), (), False),
            ((None, 8), ("Activation", {"activation": "relu"}), True),
            ((8, 8), ("Activation", {"activation": "relu"}), False),
            ((None, 8), ("Reshape", {"target_shape": [2, 4, 4, 1]}), False),
            ((None, 8), ("Add", {}), True),
        ],
    )
    def test_images_of_any_size_are_rejected(
        self, size: Any, before: Any, *, is_refused: bool
    ) -> None:
        layers = [layer2(before[0], "before", ONE, **before[1])] if before else []
        node: list[object] = [["before" if before else "x", 0, 0, {}]]
        arguments = {"filters": 2, "kernel_size": [2, 2], "recurrent_activation": "sigmoid"}
        lstm = layer2("ConvLSTM2D", "lstm", node, **arguments)
        model = keras2(input2("x", None, *size, 1), *layers, lstm)
        log = converted(model, K3)[2]
        assert ("accepts images of any size" in told(log)) is is_refused

    @pytest.mark.parametrize(
        ("inside", "height", "is_refused"),
        [(None, None, True), (8, 8, False), (None, 8, False)],
    )
    def test_images_of_any_size_from_a_nested_model_are_rejected(
        self, inside: int | None, height: int | None, *, is_refused: bool
    ) -> None:
        inner = keras2(
            input2("y", None, inside, 8, 1),
            layer2("Activation", "relu", [["y", 0, 0, {}]], activation="relu"),
        )
        nested = {**inner, "name": "inner", "inbound_nodes": [[["x", 0, 0, {}]]]}
        nested["config"] = {**inner["config"], "name": "inner"}
        arguments = {"filters": 2, "kernel_size": [2, 2], "recurrent_activation": "sigmoid"}
        lstm = layer2("ConvLSTM2D", "lstm", [["inner", 0, 0, {}]], **arguments)
        model = keras2(input2("x", None, height, 8, 1), nested, lstm)
        log = converted(model, K3)[2]
        assert ("accepts images of any size" in told(log)) is is_refused

    @pytest.mark.parametrize(("call", "is_refused"), [(0, True), (1, False)])
    def test_only_the_call_that_feeds_the_convlstm_counts(
        self, call: int, *, is_refused: bool
    ) -> None:
        """Other calls of the layer before it can have any size."""
        shared = layer2(
            "Activation", "relu", [["x", 0, 0, {}]], [["y", 0, 0, {}]], activation="relu"
        )
        arguments = {"filters": 2, "kernel_size": [2, 2], "recurrent_activation": "sigmoid"}
        lstm = layer2("ConvLSTM2D", "lstm", [["relu", call, 0, {}]], **arguments)
        model = keras2(input2("x", None, None, 8, 1), input2("y", None, 8, 8, 1), shared, lstm)
        log = converted(model, K3)[2]
        assert ("accepts images of any size" in told(log)) is is_refused


class TestEncodersUnderMixedPolicies:
    @pytest.mark.parametrize("name", ["mixed_float16", "mixed_bfloat16"])
    def test_encoder_has_the_variable_dtype_in_keras2(self, name: str) -> None:
        layer = layer3("CategoryEncoding", "encode", tensor("x"), num_tokens=3, output_mode="count")
        layer["config"]["dtype"] = policy(name)
        config = converted_config(keras3(input3("x", 4), layer), K2)
        assert "float32" in str(named(config, "encode")["config"]["dtype"])

    def test_an_encoder_of_integers_has_none(self) -> None:
        layer = layer3(
            "Discretization", "bins", tensor("x"), bin_boundaries=[0.0], output_mode="int"
        )
        layer["config"]["dtype"] = policy("mixed_float16")
        config, _, _ = converted(keras3(input3("x", 4), layer), K2)
        assert "dtype" not in named(config, "bins")["config"]


@pytest.mark.parametrize(
    ("class_name", "config", "said"),
    [
        ("RMSNormalization", {}, "tf_keras 2.21 has no RMSNormalization"),
        (
            "SpectralNormalization",
            {"layer": layer3("Embedding", "inner", input_dim=3, output_dim=2)},
            "tf_keras 2.21 cannot load a SpectralNormalization, even from files that",
        ),
    ],
)
def test_classes_that_the_target_lacks_or_fails_to_load_are_rejected(
    class_name: str, config: Config, said: str
) -> None:
    """tf_keras 2.21 has SpectralNormalization but fails on its own files with it."""
    layer = layer3(class_name, "layer", tensor("x"), **config)
    assert said in refusals(keras3(input3("x", 4), layer), K2)


@pytest.mark.parametrize(
    ("inner", "masked", "converts"),
    [
        (layer3("Dense", "inner", units=2), True, True),
        (layer3("Dense", "inner", units=2, dtype=policy("float64")), False, False),
        (layer3("Conv1D", "inner", filters=2, kernel_size=[1]), False, True),
        (layer3("Conv1D", "inner", filters=2, kernel_size=[1]), True, False),
    ],
)
def test_spectral_normalization_is_replaced_with_its_layer(
    inner: Config, *, masked: bool, converts: bool
) -> None:
    """
    A SpectralNormalization is replaced with its layer, except a Conv1D after a mask: the wrapper
    casts the output and propagates masks, which a Conv1D does not.
    """
    first = layer3("Masking" if masked else "ReLU", "first", tensor("x"))
    layer = layer3("SpectralNormalization", "layer", tensor("first"), layer=inner)
    config, _, log = converted(keras3(input3("x", 3, 4), first, layer), K2)
    assert not log.refusals or not converts
    if converts:
        assert named(config, "layer")["class_name"] == inner["class_name"]
        assert "spectral-normalization" in {note.code for note in log.notes}
    else:
        assert "cannot load" in told(log)


@pytest.mark.parametrize("wrapper", ["TimeDistributed", "Bidirectional"])
@pytest.mark.parametrize(
    ("outer", "inner"), [("float32", "mixed_float16"), ("mixed_float16", "float32")]
)
def test_wrappers_get_the_policy_of_the_wrapped_layer(wrapper: str, outer: str, inner: str) -> None:
    """Keras 3 casts outputs to the wrapper's dtype and Keras 2 to that of the layer."""
    policies = {name: {"class_name": "Policy", "config": {"name": name}} for name in (outer, inner)}
    class_name = "LSTM" if wrapper == "Bidirectional" else "Dense"
    config = {"name": "inner", "trainable": True, "dtype": policies[inner], "units": 2}
    layer = {"class_name": class_name, "config": config}
    model = keras2(
        input2("x", 3, 4), layer2(wrapper, "wrapper", ONE, layer=layer, dtype=policies[outer])
    )
    dtype = named(converted_config(model, K3), "wrapper")["config"]["dtype"]
    assert dtype["config"]["name"] == inner if isinstance(dtype, dict) else dtype == inner


@pytest.mark.parametrize(
    ("outer", "forward", "backward", "expected", "casts"),
    [
        ("float32", "mixed_float16", "float32", "float32", {0: "mixed_float16"}),
        ("mixed_float16", "float32", "mixed_float16", "float32", {1: "mixed_float16"}),
        ("float32", "float32", "float64", "float64", {0: "float32"}),
        (
            "float64",
            "mixed_float16",
            "mixed_bfloat16",
            "float32",
            {0: "mixed_float16", 1: "mixed_bfloat16"},
        ),
        ("float32", "mixed_float16", "float16", "mixed_float16", {}),
    ],
)
def test_directions_of_different_dtypes_keep_them(
    outer: str, forward: str, backward: str, expected: str, casts: dict[int, str]
) -> None:
    """Bidirectional of Keras 3 casts both results to its own dtype."""

    def policy_of(name: str) -> dict[str, Any]:
        return {"class_name": "Policy", "config": {"name": name}}

    def inner(name: str, *, backwards: bool) -> dict[str, Any]:
        config = {"name": name, "units": 2, "dtype": policy_of(name), "go_backwards": backwards}
        return {"class_name": "LSTM", "config": config}

    both = layer2(
        *("Bidirectional", "both", ONE),
        layer=inner(forward, backwards=False),
        backward_layer=inner(backward, backwards=True),
        merge_mode=None,
        dtype=policy_of(outer),
    )
    model = keras2(input2("x", 3, 4), both)
    model["config"]["output_layers"] = [["both", 0, place] for place in range(2)]
    config = converted_config(model, K3)

    def name_of(layer: str) -> str:
        dtype = named(config, layer)["config"]["dtype"]
        return str(dtype["config"]["name"] if isinstance(dtype, dict) else dtype)

    assert name_of("both") == expected
    for place, (layer, _, output) in enumerate(config["config"]["output_layers"]):
        if place in casts:
            assert (output, name_of(layer)) == (0, casts[place])
            assert "keras_history" in str(named(config, layer)["inbound_nodes"])
        else:
            assert (layer, output) == ("both", place)


@pytest.mark.parametrize(
    ("outer", "inner"), [("float32", "mixed_float16"), ("mixed_float16", "float32")]
)
def test_the_layer_of_time_distributed_gets_the_policy_of_the_wrapper(
    outer: str, inner: str
) -> None:
    """Keras 3 calls the layer in the dtype of the wrapper, and Keras 2 in that of the layer."""
    layer = layer3("Dense", "inner", units=2, dtype=policy(inner))
    layer = {key: value for key, value in layer.items() if key != "inbound_nodes"}
    wrapper = layer3("TimeDistributed", "wrapper", tensor("x"), layer=layer, dtype=policy(outer))
    config = converted_config(keras3(input3("x", 3, 4), wrapper), K2)
    dtype = named(config, "wrapper")["config"]["layer"]["config"]["dtype"]
    assert (dtype["config"]["name"] if isinstance(dtype, dict) else dtype) == outer


def test_another_dtype_of_a_bidirectional_is_a_warning() -> None:
    """Bidirectional of Keras 3 casts the results of its layers, and that of Keras 2 does not."""
    layer = layer3("LSTM", "inner", units=2, dtype=policy("mixed_float16"))
    layer = {key: value for key, value in layer.items() if key != "inbound_nodes"}
    wrapper = layer3("Bidirectional", "wrapper", tensor("x"), layer=layer)
    _, _, log = converted(keras3(input3("x", 3, 4), wrapper), K2)
    assert "wrapper-dtype" in {note.code for note in log.notes}
