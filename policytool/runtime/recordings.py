"""
The job ``record``: runs one model, and returns what it computed: its outputs, and a record of the
values of every tensor that a layer returns. If the outputs of another run are given, they are
compared with them.

Arrays go through files of NumPy's in one directory. The mask of a tensor has a record too, because
it changes the results of later layers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from . import devices, model_calls
from .check import GRAPH
from .engine import tensor_errors
from .engine.call_pairs import Diagnosis, Row
from .engine.layer_hooks import (
    Tape,
    call_depth,
    compute_dtype,
    compute_modes,
    drawing_layers,
    layer_paths_by_id,
    rounding_operations,
)
from .engine.measurements import Comparisons, LayerRows, exponents_to_json
from .engine.output_changes import OutputChanges
from .engine.sides import Sides
from .engine.value_records import ValueRecord, weights_sum
from .feeding import given_arrays
from .feeding.inputs import feed_model, feed_signature, forget_states
from .feeding.reached_layers import last_activations
from .graphs.graph_check import load_root, named_inputs, named_signatures
from .graphs.lite import LITE, lite_signature
from .library import Refused, refusing, refusing_calls
from .tensors import dtype_name, has_rank, is_floating, item_bytes, tensor_shape, to_array

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Sequence

    from .engine.layer_hooks import Call
    from .feeding.batches import FedInputs
    from .library import Library

SIGNATURE = "serving_default"


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Run ``job["candidate"]`` on ``job["inputs"]``, write all arrays to ``job["arrays"]``, and return
    everything else that is recorded. ``job["outputs"]`` describes the outputs of another run, with
    the file of their values; None without one. ``job["all"]`` is whether to write the values of all
    layers.

    :raises Refused: if the model cannot run, or has other outputs than the other run.
    """
    step("importing the backend")
    sides = Sides(job)
    devices.configure(sides.tf, job)
    name = devices.choose_devices(sides.tf, job["device"])[0]
    about = {device["name"]: device for device in devices.list_devices(sides.tf)}
    with devices.soft_placement(sides.tf), devices.unoptimized(sides.tf), sides.tf.device(name):
        recording = _Recording(sides, step)
        answer = recording.run(job["outputs"])
    given_arrays.write_arrays(job["arrays"], recording.arrays)
    return {"versions": sides.versions(), "device": about[devices.short_name(name)], **answer}


class _Recording:
    """A loaded model with its inputs, and what was recorded of it."""

    def __init__(self, sides: Sides, step: Callable[[str], None]) -> None:
        self.job, self.step = sides.job, step
        self.tf = sides.tf
        self.policy = sides.policies[1]
        self.arrays: dict[str, Any] = {}
        """Everything that is written, by name."""

        step("loading the model")
        if self.job["candidate"]["how"] == GRAPH:
            self.library = sides.library(self.job["candidate"]["family"])
            self.root = load_root(self.tf, self.job["candidate"]["path"], None)
            self.model = None
            self._choose_signature()
        elif self.job["candidate"]["how"] == LITE:
            self.library = sides.library(self.job["candidate"]["family"])
            self.model = None
            self.call = lite_signature(self.tf, self.job["candidate"]["path"])
            self.fed = feed_signature(self.library, self.call, None, self.job["inputs"])
        else:
            self.library, self.model = sides.load("candidate")
            self.call = functools.partial(model_calls.call, self.model)
            with self.library.global_policy(self.policy):
                self.fed = feed_model(self.library, self.model, self.job["inputs"])

    def run(self, reference: Any) -> dict[str, Any]:
        """Call the model on all batches, and its layers on some; return what is recorded."""
        self.step("running the model")
        comparisons = Comparisons(self.tf)
        names, batches = self._outputs(comparisons)
        rows = self._layers() if self.model is not None else _NO_LAYERS
        self._keep_inputs(self.fed)
        for place, arrays in enumerate(zip(*batches)):
            self.arrays["outputs/{}".format(place)] = _joined(names[place], arrays)
        outputs = [
            {"name": name, "dtype": dtype_name(tensor), "activation": activation}
            for name, tensor, activation in zip(names, self._last, self._activations(len(names)))
        ]
        for output, arrays in zip(outputs, zip(*batches)):
            output["shape"] = _shape(arrays)
        return {
            "library": self.library.name,
            "backend": self.library.backend,
            "inputs": self.fed.report,
            "outputs": outputs,
            **rows,
            **self._graph_facts(),
            "compared": [] if reference is None else self._compared(reference, outputs, batches),
        }

    def _choose_signature(self) -> None:
        """
        Choose the signature: the default one, else the first that accepts the inputs, as a check
        does. Those with the names of recorded inputs come first.
        """
        signatures = named_signatures(self.tf, self.root)
        names = [SIGNATURE] if SIGNATURE in signatures else sorted(signatures)
        recorded = {entry["name"] for entry in self.job["inputs"].get("like") or ()}
        names.sort(
            key=lambda name: {entry for entry, _ in named_inputs(signatures[name])} != recorded
        )
        reasons = []
        for name in names:
            self.call = signatures[name]
            try:
                self.fed = feed_signature(self.library, self.call, self.root, self.job["inputs"])
            except Refused as error:
                if not names[1:]:
                    raise
                reasons.append("signature {}: {}".format(name, error))
                continue
            if names[1:]:
                others = ", ".join(sorted({*names} - {name}))
                text = "signature {} is compared, and not {}".format(name, others)
                self.fed.report["notes"].append(text)
            return
        raise Refused("no-signature", "no signature accepts the inputs: " + "; ".join(reasons))

    def _call(self, inputs: Any) -> Any:
        """Return the outputs of the model, or of its signature, for a batch."""
        if self.model is None:
            return self.call(**inputs)
        with self.library.global_policy(self.policy):
            return self.call(inputs)

    def _outputs(self, comparisons: Comparisons) -> tuple[list[str], list[list[Any]]]:
        """Return the names of the outputs, and their arrays in all batches."""
        structure: list[Any] = []

        def compute(inputs: Any) -> list[Any]:
            outputs = self._call(inputs)
            structure[:] = [outputs]
            return comparisons.tensors(outputs)

        function = self.tf.function(compute, autograph=False, input_signature=[self.fed.specs])
        with _tracing():
            function.get_concrete_function()
        batches = []
        self._last: list[Any] = []
        for batch in self.fed.batches:
            with refusing_calls(self.tf, "the model"):
                self._last = function(batch)
                batches.append([to_array(tensor) for tensor in self._last])
        count = len(self._last)
        if not count:
            raise Refused("outputs", "the model returns no tensors")
        names = model_calls.output_names(self.model, structure[0], count)
        return names or [str(place) for place in range(count)], batches

    def _graph_facts(self) -> dict[str, Any]:
        """
        Return the sum of the weights of a SavedModel that runs as a graph, and its operations that
        round, in groups; empty for others.
        """
        if self.job["candidate"]["how"] != GRAPH:
            return {}
        variables = {
            id(variable): variable
            for variable in (*self.call.variables, *getattr(self.root, "variables", ()))
        }
        return {
            "weights": str(weights_sum(_weights(to_array(item) for item in variables.values()))),
            "rounding": rounding_operations(self.call.graph),
        }

    def _activations(self, count: int) -> list[Any]:
        return [None] * count if self.model is None else last_activations(self.model, count)

    def _layers(self) -> dict[str, Any]:
        """Return the calls of layers, with the records of what they return."""
        forget_states(self.model)
        rows = LayerRows(self.tf, self.fed, explains=False)
        trace = _LayerTrace(self)
        function = self.tf.function(trace.call, autograph=False, input_signature=[rows.specs])
        with _tracing():
            function = function.get_concrete_function()
        if self.job["all"] and trace.row_bytes:
            size = trace.row_bytes * sum(self.fed.rows)
            self.step("recording all activations, up to {:,} bytes".format(size))
        for batch in rows.batches({}):
            with refusing_calls(self.tf, "the model"):
                function(batch)
        self.arrays["layers/sketches"] = np.array(
            [record.sketch for record in trace.records]
        ).reshape(len(trace.records), -1)
        self.arrays["layers/samples"] = np.array(
            [record.sample for record in trace.records]
        ).reshape(len(trace.records), -1)
        for place, kept in enumerate(trace.activations):
            self.arrays["activations/{}".format(place)] = _joined(str(place), kept)
        return {"calls": trace.calls(), "random": trace.random}

    def _keep_inputs(self, fed: FedInputs) -> None:
        """Keep the inputs by the numbers of their names in the report."""
        arrays_by_name = fed.joined()
        for place, entry in enumerate(fed.report["inputs"]):
            self.arrays["inputs/{}".format(place)] = arrays_by_name[entry["name"]]

    def _compared(
        self,
        reference: Mapping[str, Any],
        outputs: Sequence[Mapping[str, Any]],
        batches: Sequence[Sequence[Any]],
    ) -> list[dict[str, Any]]:
        """Return, for each output of the other run, its errors and changes in this one."""
        expected = reference["outputs"]
        others = given_arrays.arrays_of(reference["file"])
        if len(expected) != len(outputs):
            text = "the model returns {} outputs, but {} were recorded"
            raise Refused("outputs", text.format(len(outputs), len(expected)))
        names = [output["name"] for output in outputs]
        by_name = sorted(names) == sorted(output["name"] for output in expected)
        compared = []
        for place, output in enumerate(expected):
            number = names.index(output["name"]) if by_name else place
            arrays = [batch[number] for batch in batches]
            recorded = others[str(place)]
            if list(recorded.shape) != list(_joined(output["name"], arrays).shape):
                text = "output {} has the shape {}, but the shape {} was recorded"
                shapes = (_joined(output["name"], arrays).shape, recorded.shape)
                raise Refused("outputs", text.format(output["name"], *shapes))
            compared.append(
                {"output": number, **self._errors(recorded, arrays, output, outputs[number])}
            )
        return compared

    def _errors(
        self,
        recorded: Any,
        arrays: Sequence[Any],
        expected: Mapping[str, Any],
        output: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the errors and changes of an output."""
        total: Any = None
        changes = OutputChanges()
        start = 0
        compare = self.tf.function(
            functools.partial(tensor_errors.compare_tensors, self.tf), autograph=False
        )
        for array in arrays:
            rows = len(array) if array.ndim else 1
            other = recorded[start : start + rows] if array.ndim else recorded
            start += rows
            if other.dtype.kind == "S":
                other = other.astype(object)
            vector = compare(
                _tensor(self.tf, other, expected["dtype"]), _tensor(self.tf, array, output["dtype"])
            )
            vector = np.asarray(vector)
            total = vector if total is None else tensor_errors.merge(total, vector)
            changes.update(other, array)
        return {"accumulated": tensor_errors.to_json(total), "changes": changes.to_json()}


_NO_LAYERS: dict[str, Any] = {"calls": [], "random": []}


def _tracing() -> Any:
    """Return a context in which errors of a layer's own code are reasons of a refusal."""
    return refusing("not-traceable", "the model cannot be traced: {}")


class _LayerTrace:
    """The calls of the layers of a model, in the function that records what they return."""

    def __init__(self, recording: _Recording) -> None:
        self.tf = recording.tf
        self.library: Library = recording.library
        self.model = recording.model
        self.records: list[ValueRecord] = []
        self.activations: list[list[Any]] = []
        """The arrays of each recorded tensor if all values are recorded."""

        self.row_bytes = 0
        """The number of bytes of all recorded tensors for one row."""

        self.graph: Any = None
        self._recording = recording
        self._tape: Any = None
        self._forget()

    def _forget(self) -> None:
        """Forget all calls. Without a graph, each batch makes and records them again."""
        self._comparisons = Comparisons(self.tf)
        self._diagnosis = Diagnosis(self.library, self._comparisons)
        self._rows: list[Row] = []
        self._outputs: list[list[tuple[str, Any, int]]] = []
        """For each row, the kind and the tensor of each output, with the number of its record."""

        self._known: dict[int, int] = {}

    def call(self, inputs: Any) -> Any:
        """Call the model, and record the tensors that its layers return."""
        if not self.library.traces:
            self._forget()
        self._tape = Tape(
            self.library, self.model, layer_paths_by_id(self.model), self._record_call
        )
        with self._tape.watching():
            outputs = self._recording._call(inputs)  # noqa: SLF001  # of this module
        self.graph = self._tape.graph
        return self._comparisons.tensors(outputs)

    def calls(self) -> list[dict[str, Any]]:
        """Return the calls with the records of their outputs."""
        begun = {key: place for place, key in enumerate(self._tape.calls)}
        numbers = {row.candidate.key: number for number, row in enumerate(self._rows)}
        layers = {id(row.candidate.layer): row.candidate.layer for row in self._rows}
        sums = {key: _layer_weights(layer) for key, layer in layers.items()}
        return [
            {
                **row.candidate.layer_id.fields(),
                "number": row.candidate.key[1],
                "compute": compute_dtype(row.candidate.layer),
                "inputs": row.inputs,
                "within": compute_modes(row.candidate.layer),
                "depth": call_depth(self.graph, row.candidate),
                "children": len(row.candidate.children),
                "is_model": isinstance(row.candidate.layer, self.library.keras.Model),
                "weights": sums[id(row.candidate.layer)],
                "begun": begun[row.candidate.key],
                "parent": numbers.get(row.candidate.parent.key)
                if row.candidate.parent is not None
                else None,
                "producers": row.trace.producers if row.trace is not None else [],
                "outputs": [
                    {
                        "kind": kind,
                        "dtype": dtype_name(tensor),
                        "shape": tensor_shape(tensor) if has_rank(tensor) else None,
                        "record": number,
                        "exponents": exponents_to_json(self.records[number].exponents),
                        **self.records[number].to_json(),
                    }
                    for kind, tensor, number in outputs
                ],
            }
            for row, outputs in zip(self._rows, self._outputs)
        ]

    @property
    def random(self) -> list[str]:
        """The layers that draw random numbers on which the outputs depend."""
        if not self.library.traces:
            return list(self._tape.drawing_layers)
        return drawing_layers(self.graph, self.graph.get_operations(), [self._tape])

    def _record_call(self, call: Call, make: Callable[..., Any]) -> Any:
        """Make a call, and record its outputs and their masks."""
        row = Row(call, call)
        row.trace = self._diagnosis.entering(row)
        row.inputs = sorted(
            {
                dtype_name(tensor)
                for tensor in self._comparisons.tensors((call.args, call.kwargs))
                if is_floating(tensor)
            }
        )
        outputs = self._tape.make_call(call, make)
        tensors = self._comparisons.tensors(outputs)
        masks = [
            mask
            for mask in map(self.library.mask_of, self.tf.nest.flatten(outputs))
            if self.tf.is_tensor(mask)
        ]
        self._outputs.append(
            [
                (kind, tensor, self._record(tensor))
                for kind, group in (("value", tensors), ("mask", masks))
                for tensor in group
            ]
        )
        self._rows.append(row)
        self._diagnosis.record_outputs(row, len(self._rows) - 1)
        return outputs

    def _record(self, tensor: Any) -> int:
        """Record the values of a tensor in each run of the function; return its number."""
        known = self._known.get(id(tensor))
        if known is not None:  # a model returns the tensors of its last layer
            return known
        number = self._known[id(tensor)] = len(set(self._known.values()))
        self._comparisons.hold(tensor)
        keeps = self._recording.job["all"]
        if number == len(self.records):
            self.records.append(ValueRecord())
            self.activations += [[]] if keeps else []
            elements = int(np.prod([size or 1 for size in tensor_shape(tensor)[1:]]))
            self.row_bytes += elements * item_bytes(tensor)

        def update(array: Any) -> Any:
            self.records[number].update(array)
            if keeps:
                self.activations[number].append(np.array(array))
            return np.int64(0)

        if not self.library.traces:
            update(to_array(tensor))
            return number
        self.tf.numpy_function(update, [self._comparisons.widened(tensor)], self.tf.int64)
        return number


def _layer_weights(layer: Any) -> str | None:
    """Return the sum of the weights of a layer and of the layers in it; None if it has none."""
    arrays = _weights(layer.get_weights()) if hasattr(layer, "get_weights") else []
    return str(weights_sum(arrays)) if arrays else None


def _weights(arrays: Iterable[Any]) -> list[Any]:
    """Return arrays of floats and of quantized values, but not those of counters and seeds."""
    names = {"float16", "bfloat16", "float32", "float64", "int8", "uint8"}
    return [array for array in map(np.asarray, arrays) if array.dtype.name in names]


def _joined(name: str, arrays: Sequence[Any]) -> Any:
    """Return the arrays of all batches as one."""
    if not arrays[0].ndim:
        return np.array(arrays) if len(arrays) > 1 else arrays[0]
    if len({array.shape[1:] for array in arrays}) > 1:
        text = "the batches of output {} have different shapes, which cannot be recorded"
        raise Refused("outputs", text.format(name))
    return np.concatenate(arrays)


def _shape(arrays: Sequence[Any]) -> list[int | None]:
    """Return the shape of all batches of an output; None for the size of batches that differ."""
    shape: list[int | None] = list(arrays[0].shape)
    if shape and len({len(array) for array in arrays}) > 1:
        shape[0] = None
    return shape


def _tensor(tf: Any, array: Any, dtype: str) -> Any:
    """Return an array as a tensor of a dtype."""
    tensor = tf.constant(array)
    return tensor if dtype == "string" else tf.cast(tensor, dtype)
