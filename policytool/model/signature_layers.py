"""Calls of SavedModels as layers of Keras 3, with ``keras.layers.TFSMLayer``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import EndpointArgument
from policytool.formats.saved_model import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.formats.document import Observation, Signature

_DEFAULT: Final = "serving_default"

_LAYER_DTYPE: Final = "float32"
"""The default dtype of layers, to which they cast float inputs."""

_MOST_NAMES: Final = 4
"""The number of inputs that a call names."""


def is_default(signature: Signature, signatures: Sequence[Signature]) -> bool:
    """Return whether a signature has the inputs and outputs of the default one, like ``serve``."""
    return any(
        (signature.inputs, signature.outputs) == (other.inputs, other.outputs)
        for other in signatures
        if other.name == _DEFAULT
    )


def needs_tf_keras(observations: Iterable[Observation]) -> bool:
    """Return whether TF 2.16 and later load a SavedModel only if tf_keras is installed."""
    return any(observation.code == SLOTS for observation in observations)


def layer_call(signatures: Sequence[Signature]) -> str | None:
    """
    Return a call of a signature as a layer; None if Keras 3 can call none. A signature that calls
    Python runs only in the process that wrote it.
    """
    callable_ones = [
        signature
        for signature in signatures
        if signature.runs_as_layer and not signature.calls_python
    ]
    if not callable_ones:
        return None
    chosen = min(
        callable_ones,
        key=lambda signature: (
            not is_default(signature, signatures),
            signature.endpoint is None,
            signature.name != _DEFAULT,
        ),
    )
    dtypes = "".join(f", dtype={dtype!r}" for dtype in chosen.layer_dtypes - {_LAYER_DTYPE})
    return (
        f"keras.layers.TFSMLayer(path, call_endpoint={chosen.name!r}{dtypes})({_argument(chosen)})"
    )


def _argument(signature: Signature) -> str:
    """Return the argument of the call, with the names of the inputs."""
    endpoint = signature.endpoint
    if endpoint is None or endpoint.argument is EndpointArgument.TENSOR:
        return "inputs"
    if endpoint.argument is EndpointArgument.LIST:
        return f"[{_listed(endpoint.names)}]"
    return "{" + _listed([f"{name!r}: ..." for name in endpoint.names]) + "}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*names[:_MOST_NAMES], *["..."] * (len(names) > _MOST_NAMES)])
