"""Finds the signatures that are the model's own call, and builds them for another model."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .feeding.recipes import draw_inputs, input_slots, sizes
from .library import Refused, paths, sentence

if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

    from .library import Library

SEEDS = (1, 2)
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
_SLACK = 64.0
"""
The maximum difference, in unit roundoffs of the largest value, between the traced graph and the
rebuilt model.
"""

_MANY = 720
"""The maximum number of tried orders of inputs: those of six inputs."""


class Matched(NamedTuple):
    """A signature that is the model's own call, with the mapping of its inputs and outputs."""

    name: str
    specs: Mapping[str, Any]
    order: Sequence[str]
    """The signature's input names, in the order of the model's inputs."""
    outputs: Mapping[str, int]
    """The signature's output names, with the position of the model's output."""


def call(model: Any, tensors: Any) -> Any:
    """Return the predictions of a model, computed op by op."""
    expects = getattr(model, "_expects_training_arg", True)
    return model(tensors, training=False) if expects else model(tensors)


def output_names(model: Any, outputs: Any, count: int) -> list[str]:
    """
    Return the names of a model's output tensors in the order of ``nest``: the keys of a dict, or
    the output names; empty if their numbers differ.
    """
    names = (
        sorted(outputs)
        if isinstance(outputs, dict)
        else list(getattr(model, "output_names", None) or [])
    )
    return [str(name) for name in names] if len(names) == count else []


def input_structure(model: Any, signatures: Mapping[str, Any]) -> Any:
    """
    Return the specs of a model's inputs, nested as its call expects them. For a model that was
    never called, return those of its only signature with one input.
    """
    saved = model.save_spec() if hasattr(model, "save_spec") else None
    if saved is not None and saved[0]:
        return saved[0][0]
    inputs = getattr(model, "_saved_model_inputs_spec", None)
    if inputs is None:
        inputs = getattr(model, "inputs", None)
    if isinstance(inputs, (list, tuple)) and len(inputs) == 1:
        inputs = inputs[0]
    if inputs is None:
        inputs = only_input(signatures)
    if inputs is None:
        raise Refused("no-inputs", "the inputs of the model are unknown")
    return inputs


def only_input(signatures: Mapping[str, Any]) -> Any:
    """Return the spec of the input if there is one signature with one input; else None."""
    specs = [
        list(signature.structured_input_signature[1].values()) for signature in signatures.values()
    ]
    return specs[0][0] if len(specs) == 1 and len(specs[0]) == 1 else None


def match_signature(
    library: Library, model: Any, nested: Any, name: str, signature: Any
) -> Matched:
    """
    Return the mapping of a signature's inputs and outputs to those of the model's call.

    The signature must return the same values as the model for seeded inputs. Otherwise, the file
    contains its code only as a graph, which cannot be traced again.
    """
    nest = library.tf.nest
    specs = dict(signature.structured_input_signature[1])
    model_inputs = nest.flatten(nested)
    if len(specs) != len(model_inputs):
        raise _not_model_call(
            name, "it has {} inputs, but the model has {}".format(len(specs), len(model_inputs))
        )
    names = list(specs)
    failed: BaseException | None = None
    for size in sizes(input_slots(list(specs.values()))):
        samples = [
            dict(
                zip(
                    names,
                    draw_inputs(
                        library,
                        model,
                        input_slots(
                            [_named(library, specs[input_name], input_name) for input_name in names]
                        ),
                        seed,
                        size,
                    ),
                )
            )
            for seed in SEEDS
        ]
        try:
            signature_outputs = [signature(**sample) for sample in samples]
        except library.tf.errors.OpError as error:
            failed = error  # too small for it
            continue
        for order in _orders(names, specs, model, model_inputs):
            outputs = _match_outputs(
                library,
                model,
                [
                    nest.pack_sequence_as(nested, [sample[input_name] for input_name in order])
                    for sample in samples
                ],
                signature_outputs,
            )
            if outputs is not None:
                return Matched(name, specs, order, outputs)
        raise _not_model_call(
            name,
            "for the same inputs, it returns different values than the model loaded by {}".format(
                library.versions["library"]
            ),
        )
    text = "signature {} cannot be called with inputs of its declared shapes: {}"
    raise Refused(
        "signature-fails",
        text.format(name, sentence(failed) if failed is not None else "no inputs were tried"),
    ) from failed


def signature_of_model(library: Library, model: Any, nested: Any, matched: Matched) -> Any:
    """
    Return the signature of another model, with the same names, shapes and input dtypes, in the
    order of the model's inputs.
    """
    tf = library.tf

    def serve(tensors: Any) -> Any:
        flat = tf.nest.flatten(call(model, tf.nest.pack_sequence_as(nested, tensors)))
        return {name: flat[position] for name, position in matched.outputs.items()}

    specs = [_named(library, matched.specs[input_name], input_name) for input_name in matched.order]
    return tf.function(serve, input_signature=[specs], autograph=False)


def roundoff(model: Any) -> float:
    """Return the largest unit roundoff of the compute dtypes of a model's layers."""
    dtypes = {
        str(getattr(layer, "compute_dtype", None) or getattr(layer, "_compute_dtype", ""))
        for _, layer in paths(model)
    }
    return max([ROUNDOFF[dtype] for dtype in dtypes if dtype in ROUNDOFF], default=2.0**-24)


def _named(library: Library, spec: Any, name: str) -> Any:
    return library.tf.TensorSpec(spec.shape, spec.dtype, name=name)


def _orders(
    names: Sequence[str], specs: Mapping[str, Any], model: Any, model_inputs: Sequence[Any]
) -> Any:
    """
    Yield the possible orders of a signature's inputs as inputs of the model: first by name, and
    then each order that their dtypes and ranks allow.
    """
    own_names = [str(getattr(tensor, "name", "")).partition(":")[0] for tensor in model_inputs]
    for listed in (list(getattr(model, "input_names", None) or []), own_names):
        if sorted(listed) == sorted(names):
            yield listed
    for order in itertools.islice(itertools.permutations(names), _MANY):
        if all(_fits(specs[name], tensor) for name, tensor in zip(order, model_inputs)):
            yield list(order)


def _fits(spec: Any, tensor: Any) -> bool:
    floating = spec.dtype.is_floating and getattr(
        tensor.dtype, "is_floating", "float" in str(tensor.dtype)
    )
    return bool(
        (floating or spec.dtype == tensor.dtype) and spec.shape.is_compatible_with(tensor.shape)
    )


def _match_outputs(
    library: Library, model: Any, inputs: Sequence[Any], signature_outputs: Any
) -> Any:
    """
    Return, for each output of the signature, the position of the same output of the model; None if
    an output has no counterpart.
    """
    nest = library.tf.nest
    try:
        model_outputs = [nest.flatten(call(model, sample)) for sample in inputs]
    except (ValueError, TypeError, library.tf.errors.OpError):
        return None
    names = list(getattr(model, "output_names", None) or [])
    bound = _SLACK * roundoff(model)
    positions: dict[str, int] = {}
    for key in signature_outputs[0]:
        candidates = [
            place
            for place in range(len(model_outputs[0]))
            if all(
                _are_close(result[key], outputs[place], bound)
                for result, outputs in zip(signature_outputs, model_outputs)
            )
        ]
        named = [place for place in candidates if place < len(names) and names[place] == key]
        free = [place for place in candidates if place not in positions.values()]
        if not candidates:
            return None
        positions[key] = (named or free or candidates)[0]
    return positions


def _are_close(signature_output: Any, model_output: Any, bound: float) -> bool:
    """
    Return whether two outputs are equal up to ``bound`` times the largest value. Strings and
    booleans must be equal.
    """
    first, second = (np.asarray(value) for value in (signature_output, model_output))
    if first.shape != second.shape:
        return False
    if first.dtype.kind in "OSUb" or second.dtype.kind in "OSUb":
        return bool(np.array_equal(first, second))
    first, second = first.astype("float64"), second.astype("float64")
    finite = np.isfinite(first) & np.isfinite(second)
    largest = float(np.abs(first[finite]).max()) if finite.any() else 0.0
    agree = (np.isnan(first) == np.isnan(second)) & (np.isfinite(first) == np.isfinite(second))
    return bool(agree.all() and (np.abs(first[finite] - second[finite]) <= bound * largest).all())


def _not_model_call(name: str, reason: str) -> Refused:
    message = (
        "signature {} does not match the model's call ({}) and cannot be traced in another dtype, "
        "because the file does not contain its code; export the model again with that code, or "
        "without this signature"
    )
    return Refused("foreign-signature", message.format(name, reason))
