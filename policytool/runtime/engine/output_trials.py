"""
Candidates that differ in their policies alone, one after the other, compared by their outputs with
one reference; and how long each layer of the reference takes, called op by op.
"""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from .. import model_calls
from ..feeding import inputs as fed
from ..feeding.reached_layers import last_activations
from ..gradients import backward
from ..library import Refused, refusing, refusing_calls
from ..tensors import dtype_name, tensor_shape, to_array
from . import tensor_errors
from .measurements import Comparisons, Measured, measure_extremes
from .output_changes import OutputChanges

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from .sides import Sides
    from .task_metrics import Task, TaskMetrics


HALVES = (0, 1)
"""The inputs of the search, and those that validate what it found."""


class Batch:
    """One batch, with the outputs of the reference."""

    def __init__(self, tensors: Any, outputs: Sequence[Any], half: int | None) -> None:
        self.tensors = tensors
        self.outputs = list(outputs)
        self.half = half
        """None for an extra batch, which the search uses and which has no labels."""


class Trials:
    """The reference of a search, its inputs and its outputs."""

    def __init__(
        self,
        sides: Sides,
        device: tuple[str, Mapping[str, Any]],
        task: Task | None,
        step: Callable[[str], None],
    ) -> None:
        """
        Load the reference and run it. ``device`` is a name, with its facts from
        :func:`..devices.list_devices`.

        :raises Refused: if the reference cannot be loaded or called.
        """
        self.sides = sides
        self.tf = sides.tf
        self.job = sides.job
        self.device, self.about = device
        self.task = task
        step("loading the reference")
        with self.tf.device(self.device):
            self.library, self.reference = sides.load("reference")
            step("creating inputs")
            with self.library.global_policy(sides.policies[0]):
                self.fed = fed.feed_model(self.library, self.reference, self.job["inputs"])
            step("running the reference")
            self._structure: Any = None
            self._function = self._trace_reference()
            self.batches = self._run_reference()
        gc.collect()
        gc.freeze()  # the libraries and the reference stay; looking at them takes 0.3 s each time
        count = len(self.batches[0].outputs)
        self.names = model_calls.output_names(self.reference, self._structure, count) or [
            str(place) for place in range(count)
        ]

    @property
    def halves(self) -> Sequence[int]:
        """The halves that have inputs."""
        return sorted({batch.half for batch in self.batches if batch.half is not None})

    def measure(self, candidate: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
        """
        Measure a candidate; return a run for each half of the inputs.

        :raises Refused: if it cannot be loaded or called, or its outputs differ from the
            reference's in number or shape.
        """
        self.sides.job = self.job = {**self.job, "candidate": candidate}
        gc.collect()  # the model and the graph of the last trial
        with self.tf.device(self.device):
            step("loading the candidate")
            _, model = self.sides.load("candidate")
            if self.sides.has_random_weights:
                model.set_weights(self.reference.get_weights())
            step("running the candidate")
            function = self._trace_candidate(model)
            metrics = [
                self.task.metrics(self.names) if self.task is not None else None for _ in HALVES
            ]
            measured_halves = self._run(function, metrics)
            gradients = self._gradients(model, step)
            return {
                "split": len(self.halves) > 1,
                "versions": self.sides.versions(),
                "libraries": [self.library.name] * 2,
                "backends": [self.library.backend] * 2,
                "runs": [
                    self._half_json(
                        measured_halves[half], metrics[half], gradients if half == 0 else None
                    )
                    for half in self.halves
                ],
            }

    @property
    def _output_shapes(self) -> Sequence[Any]:
        if self.library.traces:
            return self._function.output_shapes  # type: ignore[no-any-return]
        return [tensor.shape for tensor in self.batches[0].outputs]

    def _trace_reference(self) -> Any:
        comparisons = Comparisons(self.tf)

        def call(inputs: Any) -> Any:
            with self.library.global_policy(self.sides.policies[0]):
                self._structure = model_calls.call(self.reference, inputs)
            return comparisons.tensors(self._structure)

        return self._concrete(call, [self.fed.specs], "reference")

    def _run_reference(self) -> list[Batch]:
        """
        Return the batches with the reference's outputs, and additional batches with extreme inputs.
        """
        batches = [
            Batch(tensors, self._function(tensors), number % len(HALVES))
            for number, tensors in enumerate(self.fed.batches)
        ]
        if not batches:
            raise Refused("inputs", "there are no inputs")
        if not batches[0].outputs:
            raise Refused("outputs", "the model returns no tensor, so nothing can be compared")
        usual_vectors = np.sum([self._own_vectors(batch.outputs) for batch in batches], axis=0)
        extra = measure_extremes(
            self.fed,
            usual_vectors,
            lambda tensors: Batch(tensors, self._function(tensors), None),
            lambda batch: self._own_vectors(batch.outputs),
        )
        return [*batches, *extra]

    def _own_vectors(self, outputs: Sequence[Any]) -> Any:
        """
        Return the vectors of outputs that are compared with themselves, which count their NaN.
        """
        return np.stack(
            [
                np.asarray(tensor_errors.compare_tensors(self.tf, tensor, tensor))
                for tensor in outputs
            ]
        )

    def _trace_candidate(self, model: Any) -> Any:
        """
        Return a function that calls a candidate, and compares its outputs with those of the
        reference.

        The function gets the inputs and the outputs of the reference. It returns a vector for each
        output, and the outputs of the candidate.
        """

        def compare_outputs(inputs: Any, expected: Sequence[Any]) -> Any:
            """
            Return the error vectors of the outputs, and the outputs of the candidate in
            dtypes of NumPy; ``expected`` are the outputs of the reference for the same
            inputs.
            """
            comparisons = Comparisons(self.tf)
            with self.library.global_policy(self.sides.policies[1]):
                outputs = comparisons.tensors(model_calls.call(model, inputs))
            vector_numbers = comparisons.each(expected, outputs)
            if None in vector_numbers or not vector_numbers:
                raise Refused(
                    "outputs",
                    "the reference and the candidate return different outputs, which cannot be "
                    "compared",
                )
            vectors = [
                comparisons.vectors[number] for number in vector_numbers if number is not None
            ]
            return self.tf.stack(vectors), [comparisons.widened(tensor) for tensor in outputs]

        specs = [
            self.tf.TensorSpec(shape, tensor.dtype)
            for tensor, shape in zip(self.batches[0].outputs, self._output_shapes)
        ]
        return self._concrete(compare_outputs, [self.fed.specs, specs], "candidate")

    def _concrete(self, code: Callable[..., Any], specs: Sequence[Any], subject: str) -> Any:
        # a layer's own code may fail in a dtype that it was not written for
        with refusing("not-traceable", "the {} cannot be traced: {}", subject):
            return self.tf.function(
                code, autograph=False, input_signature=specs
            ).get_concrete_function()

    def _run(self, function: Any, metrics: Sequence[TaskMetrics | None]) -> dict[int, Measured]:
        """
        Run a candidate on all batches, and return the measurements of each half of the inputs.
        Extra batches belong to the first half.

        :param metrics: the task metric of each half, which gets the outputs of its batches
        """
        measured_halves: dict[int, Measured] = {}
        for batch in self.batches:
            with refusing_calls(self.tf, "the candidate"):
                vectors, outputs = function(batch.tensors, batch.outputs)
            for half, metric in zip(HALVES, metrics):
                if metric is None or batch.half is None:
                    continue
                if half == batch.half:
                    metric.update(batch.outputs, outputs)
                else:
                    metric.skip(batch.outputs)
            half = batch.half or 0
            changes = (
                measured_halves[half].changes
                if half in measured_halves
                else [OutputChanges() for _ in outputs]
            )
            for change, *pair in zip(changes, batch.outputs, outputs):
                if batch.half is not None:
                    change.update(*map(to_array, pair))
            measured = Measured(np.asarray(vectors), np.zeros([0, 0]), changes)
            measured_halves[half] = (
                measured_halves[half].merge(measured) if half in measured_halves else measured
            )
        return measured_halves

    def _gradients(self, model: Any, step: Callable[[str], None]) -> Any:
        if self.job["gradients"] is None:
            return None
        batches = [batch.tensors for batch in self.batches if batch.half == 0]
        return backward.compare_gradients(
            self.library, self.reference, model, batches, self.job["gradients"], step
        )

    def _half_json(
        self, measured: Measured, metrics: TaskMetrics | None, gradients: Any
    ) -> dict[str, Any]:
        """Return the measurements of one half as a run of a check, without calls of layers."""
        activations = last_activations(self.reference, len(self.names))
        return {
            "device": self.about,
            "signature": None,
            "inputs": self.fed.report,
            "missing": [],
            "fallbacks": [],
            "unmatched": [],
            "random": [],
            "calls": [],
            "outputs": [
                {
                    "shape": tensor_shape(SimpleNamespace(shape=shape)),
                    "dtype_reference": dtype_name(output),
                    "dtype_candidate": dtype_name(output),
                    "accumulated": tensor_errors.to_json(vector),
                    "isolated": None,
                    "tf32": None,
                    "exponents": None,
                    "name": name,
                    "activation": activation,
                    "changes": changes.to_json(),
                }
                for name, output, shape, vector, activation, changes in zip(
                    self.names,
                    self.batches[0].outputs,
                    self._output_shapes,
                    measured.vectors,
                    activations,
                    measured.changes,
                )
            ],
            "gradients": gradients,
            "timings": {},
            "metric": metrics.to_json() if metrics is not None else None,
            "notes": [],
        }
