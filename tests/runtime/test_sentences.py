"""The relevant line of an error of TensorFlow or Keras."""

from __future__ import annotations

from typing import Final

import pytest

from policytool.runtime.library import lambda_advice, layer_of, sentence

NO_INDEX: Final = "indices[0] = 5 is not in [0, 3)"
NO_MATCH: Final = (
    "Input 'b' of 'MatMul' Op has type float16 that does not match type float32 of argument 'a'."
)

RAN: Final = {
    "TF 2.21": "Graph execution error:\n\nDetected at node GatherV2 defined at (most recent call "
    "last):\n "
    ' File "model.py", line 14, in <module>\n\n'
    '  File "model.py", line 13, in g\n\nindices[0] = 5 is not in [0, 3)\n\t [[{{node GatherV2}}]] '
    "[Op:__inference_g_242]",
    "TF 2.9": "Graph execution error:\n\nDetected at node 'GatherV2' defined at (most recent call "
    'last):\n    File "<stdin>", line 4, in <module>\n'
    "      g(tf.constant([5]))\nNode: 'GatherV2'\nindices[0] = 5 is not in [0, 3)\n\t [[{{node "
    "GatherV2}}]] [Op:__inference_g_9]",
    "TF 2.2": " indices[0] = 5 is not in [0, 3)\n\t [[node GatherV2 (defined at <stdin>:3) ]] "
    "[Op:__inference_g_9]\n\nErrors may have originated from an "
    "input operation.\nInput Source operations connected to node GatherV2:\n x (defined at "
    "<stdin>:4)\n\nFunction call stack:\ng\n",
}
"""What tf.gather says in a graph of an index that is too large."""

FUSED: Final = (
    "Graph execution error:\n\nDetected at node model/layer_normalization/add defined at (most "
    "recent call last):\n  File \"model.py\", line 6, in <module>\n\nValue for attr 'T' of half is "
    "not in the list of allowed values: float, bfloat16\n\t; NodeDef: {{node "
    "model/layer_normalization/add}}; Op<name=_MklLayerNorm; signature=x:T -> y:T>\n\t "
    "[[model/layer_normalization/add]] [Op:__inference_function_189]"
)
"""What TF 2.15 says of an op that has no kernel after it was fused."""

TRACED: Final = {
    "TF 2.15": 'in user code:\n\n    File "training.py", line 2440, in predict_function  *\n       '
    " "
    "return step_function(self, iterator)\n"
    '    File "model.py", line 8, in call\n        \n\n    TypeError: Exception encountered when '
    "calling layer 'a' (type A).\n    \n"
    f"    {NO_MATCH}\n    \n    Call arguments received by layer 'a' (type A):\n      • "
    "x=tf.Tensor(shape=(None, 2), dtype=float32)\n",
    "TF 2.2": "in user code:\n\n    training.py:1147 predict_function  *\n        outputs = "
    "self.distribute_strategy.run(\n"
    "    op_def_library.py:503 _apply_op_helper\n        raise TypeError(\n\n    TypeError: "
    f"{NO_MATCH}\n",
    "eager": (
        f"Exception encountered when calling layer 'a' (type A).\n\n{NO_MATCH}\n\nCall arguments "
        "received by layer 'a' (type A):\n  • x=1"
    ),
}
"""What Keras 2 says of a layer that multiplies two dtypes."""


@pytest.mark.parametrize("release", RAN)
def test_graph_error_has_the_message_of_the_node(release: str) -> None:
    """The message has the failure of the node without the place of its creation."""
    assert sentence(ValueError(RAN[release])) == f"ValueError: {NO_INDEX}"


def test_error_of_a_fused_op_has_the_message_of_the_node() -> None:
    message = "Value for attr 'T' of half is not in the list of allowed values: float, bfloat16"
    assert sentence(ValueError(FUSED)) == f"ValueError: {message}"


@pytest.mark.parametrize(
    ("release", "expected"), [("TF 2.15", ' (layer "a", type A)'), ("TF 2.2", "")]
)
def test_layer_of_an_error_is_named(release: str, expected: str) -> None:
    """TF 2.15 names the layer, and TF 2.2 does not."""
    assert layer_of(TypeError(TRACED[release])) == expected


@pytest.mark.parametrize("release", TRACED)
def test_layer_error_has_the_message_of_its_exception(release: str) -> None:
    assert sentence(TypeError(TRACED[release])) == f"TypeError: {NO_MATCH}"


def test_error_without_a_text_is_the_class_name() -> None:
    assert sentence(KeyError()) == "KeyError"


def test_colours_are_left_out() -> None:
    """Terminal colours in error messages of Keras 3 are removed."""
    assert (
        sentence(ValueError("\x1b[1mCannot index into an inner ragged dimension.\x1b[0m"))
        == "ValueError: Cannot index into an inner ragged dimension."
    )


def test_load_error_has_the_reason_of_the_innermost_object() -> None:
    """The message omits the configs that Keras 3 prints."""
    result = (
        "<class '{}'> could not be deserialized properly. Please ensure.\n\nconfig={{'a': "
        "1}}.\n\nException encountered: {}"
    )
    text = result.format(
        "Functional", result.format("Thing", "Thing.__init__() got an unexpected b")
    )
    assert sentence(TypeError(text)) == "TypeError: Thing.__init__() got an unexpected b"


def test_config_at_the_end_of_a_message_is_left_out() -> None:
    """Keras prints the full config of the model."""
    text = (
        "Could not deserialize class 'Functional' because its parent module "
        "tf_keras.engine.functional cannot be imported."
    )
    error = TypeError(f"{text} Full object config: {{'module': 'keras.engine'}}")
    assert sentence(error) == f"TypeError: {text}"


@pytest.mark.parametrize(
    ("error", "release", "advice"),
    [
        (NameError("name 'math' is not defined"), "tf2.4", "a dict with the key 'math'"),
        (TypeError("Could not locate function 'gate'. Make"), None, "a dict with the key 'gate'"),
        (ValueError("bad marshal data (unknown type code)"), "tf2.4", "--python source="),
        (ValueError("bad marshal data (unknown type code)"), None, "policytool migrate"),
        (EOFError("EOF read where object expected"), "tf2.4", "--python source=tf2.4"),
        (TypeError("code() argument 13 must be str, not int"), "tf2.9", "source=tf2.9"),
    ],
)
def test_error_of_lambda_code_has_advice(
    error: Exception, release: str | None, advice: str
) -> None:
    """The options of a conversion and of other commands differ."""
    assert advice in lambda_advice(error, release)


def test_error_of_other_code_has_no_advice_on_lambdas() -> None:
    """Only code of a Lambda comes from another Python version."""
    assert lambda_advice(ValueError("Unknown layer: 'Scale'"), "tf2.4") == ""
