"""How the advice calls a SavedModel as a layer of Keras 3."""

from __future__ import annotations

from policytool.formats import format_detection
from policytool.formats.document import Endpoint, EndpointArgument, Signature
from policytool.model.signature_layers import layer_call, needs_tf_keras
from tests.helpers.cases import for_each
from tests.helpers.paths import FIXTURES

ARCHIVE = "keras.layers.TFSMLayer(path, call_endpoint='serve'"


def signature(*dtypes: str) -> Signature:
    """Return a signature whose function takes a dict of inputs with other names."""
    endpoint = Endpoint(argument=EndpointArgument.DICT, names=("a", "b")[: len(dtypes)])
    inputs = {f"x_{number}": dtype for number, dtype in enumerate(dtypes)}
    return Signature(name="serve", inputs=inputs, outputs={}, endpoint=endpoint)


@for_each(
    ("dtypes", "call"),
    [
        (("float32", "int32"), ARCHIVE + ")({'a': ..., 'b': ...})"),
        (("float16", "int32"), ARCHIVE + ", dtype='float16')({'a': ..., 'b': ...})"),
        (("float64",), ARCHIVE + ", dtype='float64')({'a': ...})"),
        (("int32",), ARCHIVE + ")({'a': ...})"),
        (("float16", "float32"), None),
    ],
)
def test_a_layer_has_the_dtype_of_its_inputs(dtypes: tuple[str, ...], call: str | None) -> None:
    """It casts float inputs to its own dtype, and a function accepts only those of its trace."""
    assert layer_call([signature(*dtypes)]) == call


@for_each(
    ("model", "needed"),
    [("tf2.5/exp_mf16_fixed128", True), ("tf2.15/adam_autowrap_mf16", False)],
)
def test_slot_variables_need_tf_keras(model: str, *, needed: bool) -> None:
    """TF 2.11 and later save optimizers without slot variables."""
    path = FIXTURES / model
    assert needs_tf_keras(format_detection.document(path, path.name).observations) is needed
