"""
The jobs ``check``, ``trial`` and ``quantize``. A check runs a reference and a candidate on the same
inputs, and compares them layer by layer, on each device that is asked for. A trial compares only
the outputs; the reference stays loaded with its inputs for the next trials. A quantization saves
the candidate.

:class:`DeviceRun` is the part of a check on one device: both models, their inputs, and everything
that is measured of them, such as the effect of TF32 on the reference.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from . import devices, model_calls, op_placement
from .engine import overflow_probe, tensor_errors
from .engine.call_pairs import Pair
from .engine.layer_hooks import (
    Tape,
    call_depth,
    compute_dtype,
    compute_modes,
    layer_paths_by_id,
)
from .engine.measurements import LayerRows, exponents_to_json
from .engine.output_trials import Trials
from .engine.sides import Sides, weight_rounding
from .engine.task_metrics import Task
from .feeding import inputs as fed
from .feeding.reached_layers import last_activations
from .feeding.user_functions import OPTION, load_function
from .gradients import backward, sensitivity
from .graphs import graph_check
from .library import Refused, refusing, refusing_calls, sentence
from .tensors import is_eager, is_floating, to_array

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from .engine.call_pairs import Row, Trace
    from .engine.measurements import Measured
    from .feeding.batches import FedInputs
    from .library import Library


def measure_tf32(library: Library, model: Any, fed: FedInputs) -> dict[Any, Any]:
    """
    Return the reductions of each output of each call, by the call's key and the output's position.

    Whether float32 is multiplied in TF32 is a setting of the process, so the model runs twice, and
    all activations of a batch stay in memory meanwhile.
    """
    tf = library.tf
    keys: list[Any] = []

    def compute_outputs(inputs: Any) -> list[Any]:
        """Return the outputs of all calls of the model."""
        tape = Tape(library, model, layer_paths_by_id(model))
        with tape.watching():
            model_calls.call(model, inputs)
        flat = [
            ((call.key, place), tensor)
            for call in tape.calls.values()
            for place, tensor in enumerate(tf.nest.flatten(call.outputs, expand_composites=True))
            if tf.is_tensor(tensor) and is_floating(tensor)
        ]
        keys[:] = [key for key, _ in flat]
        return [tensor for _, tensor in flat]

    function = tf.function(compute_outputs, autograph=False)
    compared = tf.function(
        lambda ones, others: tf.stack(
            [
                tensor_errors.compare_tensors(tf, tensor, other)
                for tensor, other in zip(ones, others)
            ]
        ),
        autograph=False,
    )
    total: Any = None
    for batch in fed.all:
        float32_outputs = function(batch)
        with devices.tf32(tf):
            coarse = function(batch)
        vectors = to_array(compared(float32_outputs, coarse))
        total = (
            vectors
            if total is None
            else [tensor_errors.merge(vector, other) for vector, other in zip(total, vectors)]
        )
    return {key: tensor_errors.to_json(vector) for key, vector in zip(keys, total)}


REPEATS = 20
"""The maximum number of timed calls of each model."""


class DeviceRun:
    """A reference and a candidate, loaded and traced on one device."""

    def __init__(
        self, sides: Sides, device: str, step: Callable[[str], None], task: Task | None = None
    ) -> None:
        self.job = sides.job
        self.device = device
        self.step = step
        step("loading the reference")
        first, self.reference = sides.load("reference")
        step("loading the candidate")
        second, self.candidate = sides.load("candidate")
        self.libraries = first, second
        self.tf = first.tf
        self.notes: list[dict[str, str]] = []
        """The reasons why additional measurements failed."""

        step("creating inputs")
        with first.global_policy(
            sides.policies[0]
        ):  # a class may make its layers in its first call
            self.fed = fed.feed_model(first, self.reference, self.job["inputs"])
        if (
            sides.has_random_weights
        ):  # after the inputs: a model that does not say which it takes has no weights yet
            self._share_weights()
        step("tracing both models")
        self.pair = Pair(
            self.libraries,
            (self.reference, self.candidate),
            sides.policies,
            isolated=self.job["isolated"],
            counts_exponents=self.job["exponents"],
            diagnosed=self.job["diagnosis"],
        )
        explains = self.job["isolated"] or self.job["diagnosis"]
        try:
            self.pair.trace(LayerRows(self.tf, self.fed, explains=explains))
        except Refused:
            raise
        except (
            Exception
        ) as error:  # a layer's own code, in a dtype that it may not have been written for
            raise Refused(
                "not-traceable",
                "the {} cannot be traced: {}".format(self.pair.traced, sentence(error)),
            ) from error
        self.metrics = task.metrics(self.pair.output_names()) if task is not None else None
        self.missing = (
            []
            if not first.traces
            else op_placement.missing_kernels(
                self.tf,
                self.pair.operations(),
                devices.short_name(device).partition(":")[0],
                self.pair.layers_of_operations().get,
            )
        )

    @property
    def lacking(self) -> list[dict[str, Any]]:
        """The ops without a kernel on any device; if there are any, the model cannot run."""
        return [op for op in self.missing if not op["elsewhere"]]

    def compare(self) -> Measured | None:
        """
        Run both models and compare them; return None if a kernel is missing.

        :raises Refused: if the models do not accept the inputs.
        """
        if self.lacking:
            return None
        with self.tf.device(self.device), refusing_calls(self.tf, "the models"):
            return self.pair.measure(self.fed, self.step, self.metrics)

    def to_json(self, measured: Measured | None, about: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return the device's run as JSON, with the additional measurements of the job; ``about`` is
        the device, as :func:`..devices.list_devices` returns it.
        """
        report = {
            "device": about,
            "signature": None,
            "inputs": self.fed.report,
            "missing": self.lacking,
            "fallbacks": [op for op in self.missing if op["elsewhere"]],
            "unmatched": sorted(set(self.pair.only[0]) | set(self.pair.only[1])),
            "random": self.pair.drawing_layers(),
        }
        if measured is None:
            return {
                **report,
                "calls": [],
                "outputs": [],
                "gradients": None,
                "timings": {},
                "metric": None,
                "overflow_probe": None,
                "notes": [],
            }
        with self.tf.device(self.device):
            tf32_errors = self._tf32(about)
            sensitivities = self._sensitivities()
            calls = [
                self._call(row, measured, tf32_errors, sensitivities) for row in self.pair.rows
            ]
            for output, all_rows in zip(
                calls[-1]["outputs"], self.pair.outputs_of_all_rows(measured)
            ):
                output.update(all_rows)
            traces = self.pair.traces()
            for call, row, trace in zip(calls, self.pair.rows, traces):
                call["trace"] = {**trace, **_nonfinite_inputs(row.trace, measured)}
            return {
                **report,
                "calls": calls,
                "outputs": self._outputs(calls[-1], measured),
                "gradients": self._gradients(),
                "timings": self._timings(),
                "metric": self.metrics.to_json() if self.metrics is not None else None,
                "overflow_probe": self._probe(measured),
                "notes": self.notes,
            }

    def _call(
        self, row: Row, measured: Measured, tf32_errors: Any, sensitivities: Any
    ) -> dict[str, Any]:
        """Return the measurements of one call of a layer."""
        layer = row.candidate.layer
        outputs = [
            {
                "shape": row.shapes[place],
                "dtype_reference": reference,
                "dtype_candidate": candidate,
                "accumulated": _errors_json(measured, row.accumulated[place]),
                "isolated": _errors_json(measured, _number_at(row.isolated, place)),
                "tf32": tf32_errors.get((row.reference.key, place)),
                "sensitivity": sensitivities.get((row.reference.key, place)),
                **_split(row.trace, place, measured),
                "exponents": _histogram(measured, _number_at(row.exponents, place)),
            }
            for place, (reference, candidate) in enumerate(row.dtypes)
        ]
        return {
            **row.candidate.layer_id.fields(),
            "number": row.candidate.key[1],
            "compute_reference": compute_dtype(row.reference.layer),
            "compute_candidate": compute_dtype(layer),
            "inputs": row.inputs,
            "within": sorted({*compute_modes(row.reference.layer), *compute_modes(layer)}),
            "depth": call_depth(self.pair.graph, row.reference),
            "weight_rounding": weight_rounding(row.reference.layer, layer),
            "children": len(row.reference.children),
            "is_model": isinstance(layer, self.libraries[1].keras.Model),
            "outputs": outputs,
        }

    def _outputs(self, call: Mapping[str, Any], measured: Measured) -> list[dict[str, Any]]:
        """Return the model's own outputs, with their names."""
        names = self.pair.output_names()
        activations = last_activations(self.reference, len(names))
        return [
            {**output, "name": name, "activation": activation, "changes": changes.to_json()}
            for output, name, activation, changes in zip(
                call["outputs"], names, activations, measured.changes
            )
        ]

    def _share_weights(self) -> None:
        """Set the random weights of the reference on the candidate."""
        text = (
            "the architecture contains no weights, and random weights cannot be created for "
            "it ({}); specify a weights file with --weights"
        )
        with refusing("no-weights", text):  # such as a vocabulary table without random values
            weights = self.reference.get_weights()
            if [array.shape for array in weights] != [
                array.shape for array in self.candidate.get_weights()
            ]:
                raise Refused(
                    "weights",
                    "the weights of the two architectures have different shapes, so they cannot "
                    "share random weights; specify a weights file with --weights",
                )
            self.candidate.set_weights(weights)

    def _tf32(self, about: Mapping[str, Any]) -> Mapping[Any, Any]:
        """
        Return the changes by TF32 to each output of the reference's calls; empty if the job does
        not request them, or if the device does not support TF32.
        """
        reason = devices.without_tf32(self.tf, about) if self.job["tf32"] else None
        if reason is not None:
            self.notes.append({"code": "tf32", "message": reason})
        if reason is not None or not self.job["tf32"]:
            return {}
        self.step("running the reference with TF32")
        return measure_tf32(self.libraries[0], self.reference, self.fed)

    def _sensitivities(self) -> Mapping[Any, float]:
        """
        Return the sensitivity of the reference to each output of its calls; nothing if the job does
        not request it, or if an operation has no gradient.
        """
        if not self.job["sensitivity"]:
            return {}
        self.step("measuring sensitivities")
        try:
            with self.libraries[0].global_policy(self.pair.policies[0]):
                return sensitivity.measure_sensitivities(
                    self.libraries[0], self.reference, self.fed.batches[0]
                )
        except (MemoryError, self.tf.errors.ResourceExhaustedError):
            raise
        except Exception:  # an op without a gradient, or any error in the code of a custom class
            return {}

    def _gradients(self) -> Any:
        """
        Return the comparison of gradients; None if the job does not request it, or if it fails,
        which adds a note.
        """
        options = self.job["gradients"]
        if options is None:
            return None
        try:
            return backward.compare_gradients(
                self.libraries[1],
                self.reference,
                self.candidate,
                self.fed.batches,
                options,
                self.step,
            )
        except Refused as error:  # the comparison stands without
            self.notes.append(
                {"code": error.code, "message": "no gradients were measured: {}".format(error)}
            )
            return None

    def _probe(self, measured: Measured) -> dict[str, Any] | None:
        """
        Return the factor by which synthetic inputs may be scaled; the user's inputs are not scaled.
        """
        if not self.job["overflow_probe"] or self.fed.report["kind"] != "synthetic":
            return None
        return overflow_probe.probe_overflow(
            self.tf, self.pair, self.fed, measured.vectors, self.step
        )

    def _timings(self) -> dict[str, Any]:
        """
        Return the timings of each model for one batch; none if the backend cannot compile a model,
        such as attention in float16 by JAX for CPUs, which adds a note.
        """
        if not self.job["timing"]:
            return {}
        timings = {}
        for name, library, model in zip(
            ("reference", "candidate"), self.libraries, (self.reference, self.candidate)
        ):
            self.step("timing the " + name)
            function = (
                self.tf.function(functools.partial(model_calls.call, model), autograph=False)
                if library.traces
                else self.tf.compiled(model)
            )
            try:
                timings[name] = devices.time_calls(
                    library, function, self.fed.batches[0], self.device, REPEATS
                )
            except ValueError as error:
                if library.traces:
                    raise
                text = "the {} was not timed: {}".format(name, sentence(error))
                self.notes.append({"code": "timing", "message": text})
                return {}
        return timings


def _number_at(numbers: Sequence[int | None] | None, place: int) -> int | None:
    return numbers[place] if numbers is not None and place < len(numbers) else None


def _errors_json(measured: Measured, number: int | None) -> Any:
    return None if number is None else tensor_errors.to_json(measured.vectors[number])


def _histogram(measured: Measured, number: int | None) -> Any:
    return None if number is None else exponents_to_json(measured.histograms[number])


def _split(trace: Trace | None, place: int, measured: Measured) -> dict[str, Any]:
    """Return the two parts of an isolated error, in a diagnosis."""
    if trace is None:
        return {}
    return {
        name: _errors_json(measured, _number_at(numbers, place))
        for name, numbers in (("own", trace.own), ("rounding", trace.rounding))
    }


def _nonfinite_inputs(trace: Trace | None, measured: Measured) -> dict[str, bool]:
    """Return whether the candidate's inputs have NaN or infinity where the reference's do not."""
    return {
        "gets_nonfinite": any(
            (tensor_errors.to_json(measured.vectors[number])["overflowed"] or 0) > 0
            for number in (trace.entering if trace is not None else ())
        )
    }


GRAPH = "graph"


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Compare ``job["candidate"]`` with ``job["reference"]``; return the measurements, one run for
    each device.
    """
    sides, chosen, task = _begin(job, step)
    notes: list[dict[str, str]] = []
    with devices.soft_placement(sides.tf):
        runs = (
            _run_graphs(sides, chosen, notes, step)
            if job["candidate"]["how"] == GRAPH
            else _run_models(sides, chosen, task, step)
        )
    notes += [note for device_run in runs for note in device_run["notes"]]
    libraries = [sides.library(job[name]["family"]) for name in ("reference", "candidate")]
    return {
        "versions": sides.versions(),
        "libraries": [library.name for library in libraries],
        "backends": [library.backend for library in libraries],
        "unquantized": sides.unquantized,
        "quantized": [layer["path"] for layer in sides.quantized],
        "runs": runs,
        "notes": notes,
    }


def _begin(
    job: Mapping[str, Any], step: Callable[[str], None]
) -> tuple[Sides, dict[str, dict[str, Any]], Task | None]:
    """
    Return the sides of a job, the chosen devices by TensorFlow's names, and the metric of the task.
    The user's functions and labels are read first, because loading the models takes longer.

    :raises Refused: if a function or the labels cannot be read.
    """
    step("importing the backend")
    sides = Sides(job)
    devices.configure(sides.tf, job)
    devices_by_name = {device["name"]: device for device in devices.list_devices(sides.tf)}
    chosen = {
        name: devices_by_name[devices.short_name(name)]
        for name in devices.choose_devices(sides.tf, job["device"])
    }
    if job["inputs"]["function"] is not None:
        load_function(OPTION, job["inputs"]["function"], job["inputs"]["directory"])
    metric, library = job["metric"], sides.library(job["reference"]["family"])
    return sides, chosen, None if metric is None else Task(library, metric)


def _run_models(
    sides: Sides,
    chosen: Mapping[str, dict[str, Any]],
    task: Task | None,
    step: Callable[[str], None],
) -> list[dict[str, Any]]:
    """
    Return a run for each device: both models run on all devices at the same time; the additional
    measurements of the job run one after the other.
    """

    def prepare(device: str) -> DeviceRun:
        with sides.tf.device(device):
            return DeviceRun(sides, device, step, task)

    def compare(_: str, device_run: DeviceRun) -> tuple[DeviceRun, Measured | None]:
        return device_run, device_run.compare()

    if is_eager(sides.tf):  # its hooks apply to the whole process, so no two devices run at once
        compared = [compare(device, prepare(device)) for device in chosen]
    else:
        with devices.unoptimized(sides.tf):
            compared = devices.side_by_side(list(chosen), prepare, compare)
    return [
        device_run.to_json(measured, chosen[device_run.device]) for device_run, measured in compared
    ]


def _run_graphs(
    sides: Sides,
    chosen: Mapping[str, dict[str, Any]],
    notes: list[dict[str, str]],
    step: Callable[[str], None],
) -> list[dict[str, Any]]:
    """
    Return a run for each device and signature of a graph, whose candidate is TensorFlow's own
    rewrite. A signature that cannot run becomes a note.

    :raises Refused: if no signature can run.
    """
    job = sides.job
    library = sides.library(job["candidate"]["family"])
    runs = []
    for device in chosen.values():
        measurement = graph_check.measure_graph(
            library,
            job["candidate"]["path"],
            {"policy": job["candidate"]["policy"], "device": device["name"]},
            lambda signature, root: fed.feed_signature(library, signature, root, job["inputs"]),
            step,
        )
        refused = [
            (signature_run["signature"], signature_run["refused"])
            for signature_run in measurement["signatures"]
            if signature_run["refused"] is not None
        ]
        if len(refused) == len(measurement["signatures"]):
            raise Refused(
                refused[0][1]["code"],
                "signature {}: {}".format(refused[0][0], refused[0][1]["message"]),
            )
        notes += [
            {
                "code": reason["code"],
                "message": "signature {} was not run: {}".format(signature, reason["message"]),
            }
            for signature, reason in refused
        ]
        notes += [
            {"code": "environment", "message": sentence} for sentence in measurement["ignored"]
        ]
        runs += [
            {**signature_run, "device": device}
            for signature_run in measurement["signatures"]
            if signature_run["refused"] is None
        ]
    return runs


def run_quantization(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Load ``job["candidate"]``, save it as ``job["draft"]`` if there is one, and return the layers
    that were quantised on the way.
    """
    sides, chosen, _ = _begin({**job, "metric": None}, step)
    step("quantizing the model")
    with sides.tf.device(next(iter(chosen))):
        _, model = sides.load("candidate")
        if job["draft"] is not None:
            with refusing("not-saved", "the quantized model cannot be saved: {}"):
                model.save(job["draft"])
    return {"layers": sides.quantized}


_last: dict[str, Trials] = {}
"""The trials of the last search in this process, by its token."""


def run_trial(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Return the measurements of ``job["candidate"]`` on each half of the inputs.

    Jobs with the same ``token`` have the same reference, inputs and options.
    """
    trials = _last.get(job["token"])
    if trials is None:
        _last.clear()
        sides, chosen, task = _begin(job, step)
        with devices.soft_placement(sides.tf), devices.unoptimized(sides.tf):
            trials = Trials(sides, next(iter(chosen.items())), task, step)
        _last[job["token"]] = trials
    with devices.soft_placement(trials.tf), devices.unoptimized(trials.tf):
        return trials.measure(job["candidate"], step)
