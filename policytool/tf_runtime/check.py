"""
The jobs ``check`` and ``trial``. A check runs a reference and a candidate on the same inputs, and
compares them layer by layer, on each device that is asked for. A trial compares only the outputs;
the reference stays loaded with its inputs for the next trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import devices
from .engine.model_run import DeviceRun
from .engine.output_trials import Trials
from .engine.sides import Sides
from .engine.task_metrics import Task
from .feeding import inputs as fed
from .feeding.user_functions import OPTION, load_function
from .graphs import graph_check
from .library import Refused

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping


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
        "runs": runs,
        "notes": notes,
    }


def _begin(
    job: Mapping[str, Any], step: Callable[[str], None]
) -> tuple[Sides, dict[str, dict[str, Any]], Task | None]:
    """
    Return the sides of a job, the chosen devices by TensorFlow's names, and the metric of the task.

    The user's functions and labels are read here: loading the models takes longer.

    :raises Refused: if a function or the labels cannot be read.
    """
    step("importing TensorFlow")
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

    with devices.unoptimized(sides.tf):
        compared = devices.side_by_side(
            list(chosen), prepare, lambda _, running: (running, running.compare())
        )
    return [running.told(measured, chosen[running.device]) for running, measured in compared]


def _run_graphs(
    sides: Sides,
    chosen: Mapping[str, dict[str, Any]],
    notes: list[dict[str, str]],
    step: Callable[[str], None],
) -> list[dict[str, Any]]:
    """
    Return a run for each device and signature of a graph, where TensorFlow's own rewrite makes the
    candidate; a signature that cannot run becomes a note.

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
                "code": why["code"],
                "message": "signature {} was not run: {}".format(signature, why["message"]),
            }
            for signature, why in refused
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


_last: dict[str, Trials] = {}
"""The trials of the last search in this process, by its token."""


def run_trial(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Return what was measured of ``job["candidate"]`` on each half of the inputs.

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
