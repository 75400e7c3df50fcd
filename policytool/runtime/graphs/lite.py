"""TensorFlow Lite files, which run in TensorFlow's interpreter, without delegates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..library import Refused

if TYPE_CHECKING:
    from typing import Any

LITE = "lite"
"""The value of ``how`` in a job for a TensorFlow Lite file."""


def lite_signature(tf: Any, path: str) -> Any:
    """
    Return the model of a file as a signature: a concrete function of its inputs, by name.

    Integer inputs and outputs with a scale are quantized here, so that they are compared in floats.
    A file for one row at a time runs once for each row.

    :raises Refused: if TensorFlow has no such interpreter, or if it cannot load the file.
    """
    resolvers = getattr(getattr(tf.lite, "experimental", None), "OpResolverType", None)
    if resolvers is None:
        text = "TensorFlow {} has no TensorFlow Lite interpreter without delegates"
        raise Refused("no-lite", text.format(tf.__version__))
    try:
        interpreter = tf.lite.Interpreter(
            model_path=path,
            num_threads=1,
            experimental_op_resolver_type=resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        text = "TensorFlow Lite cannot load the model: {}"
        raise Refused("not-loadable", text.format(str(error).partition("\n")[0])) from error
    inputs = _named_inputs(interpreter)

    def run(*arrays: Any) -> list[Any]:
        fixed = any(_fixed_rows(details) not in {None, len(arrays[0])} for details in inputs)
        rows = [slice(row, row + 1) for row in range(len(arrays[0]))] if fixed else [slice(None)]
        parts = [_invoke(interpreter, inputs, [array[row] for array in arrays]) for row in rows]
        return [np.concatenate(part) for part in zip(*parts)]

    outputs = [tf.as_dtype(_float_dtype(item)) for item in interpreter.get_output_details()]

    def call(**tensors: Any) -> list[Any]:
        arrays = [tensors[details["argument"]] for details in inputs]
        results: list[Any] = tf.numpy_function(run, arrays, outputs)
        for result, details in zip(results, interpreter.get_output_details()):
            result.set_shape([None, *_open_shape(details)[1:]])
        return results

    specs = {
        details["argument"]: tf.TensorSpec([None, *_open_shape(details)[1:]], _float_dtype(details))
        for details in inputs
    }
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def _named_inputs(interpreter: Any) -> list[dict[str, Any]]:
    """Return the inputs, each with its name in the signature if there is one."""
    signatures = interpreter.get_signature_list()
    details = interpreter.get_input_details()
    if len(signatures) == 1:
        runner = interpreter.get_signature_runner(next(iter(signatures)))
        names = {item["index"]: name for name, item in runner.get_input_details().items()}
        if names.keys() == {item["index"] for item in details}:
            return [{**item, "argument": names[item["index"]]} for item in details]
    return [{**item, "argument": "input_{}".format(place)} for place, item in enumerate(details)]


def _open_shape(details: Any) -> list[int | None]:
    """Return the shape of a tensor, with None for open dimensions; at least one dimension."""
    shape = details.get("shape_signature", details["shape"])
    return [None if size < 0 else int(size) for size in shape] or [None]


def _fixed_rows(details: Any) -> int | None:
    return _open_shape(details)[0]


def _is_quantized(details: Any) -> bool:
    return bool(np.issubdtype(details["dtype"], np.integer) and details["quantization"][0])


def _float_dtype(details: Any) -> Any:
    return np.float32 if _is_quantized(details) else details["dtype"]


def _stored(details: Any, array: Any) -> Any:
    """Return the values of an input as the file stores them."""
    if not _is_quantized(details):
        return array.astype(details["dtype"])
    scale, zero = details["quantization"]
    bounds = np.iinfo(details["dtype"])
    return np.clip(np.round(array / scale) + zero, bounds.min, bounds.max).astype(details["dtype"])


def _invoke(interpreter: Any, inputs: list[dict[str, Any]], arrays: list[Any]) -> list[Any]:
    """Return the outputs for one batch."""
    for details, array in zip(inputs, arrays):
        if tuple(interpreter.get_tensor(details["index"]).shape) != array.shape:
            interpreter.resize_tensor_input(details["index"], array.shape)
    interpreter.allocate_tensors()
    for details, array in zip(inputs, arrays):
        interpreter.set_tensor(details["index"], _stored(details, array))
    interpreter.invoke()
    results = []
    for details in interpreter.get_output_details():
        result = interpreter.get_tensor(details["index"])
        if _is_quantized(details):
            scale, zero = details["quantization"]
            result = (result.astype("float32") - zero) * np.float32(scale)
        results.append(np.atleast_1d(result))
    return results
