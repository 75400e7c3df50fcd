"""
The job ``check``: a reference and a candidate run on the same inputs, and compared layer by layer,
on each device that is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .devices import available, parallel_devices
from .engine.model_run import Running
from .engine.sides import Sides
from .engine.task_metrics import Task
from .feeding import inputs as fed
from .feeding.input_functions import OPTION
from .graphs import graph_check
from .library import Refused
from .user_functions import load_function

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

GRAPH = "graph"


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Return what was measured of ``job["candidate"]`` against ``job["reference"]``, one run for each
    device.
    """
    sides, (chosen, there), task = begin(job, step)
    tf = sides.tf
    notes: list[dict[str, str]] = []
    with available.soft_placement(tf):
        runs = (
            _run_graphs(sides, chosen, there, (notes, step))
            if job["candidate"]["how"] == GRAPH
            else _run_models(sides, chosen, there, (task, step))
        )
    notes += [note for one in runs for note in one["notes"]]
    libraries = [sides.library(job[name]["family"]) for name in ("reference", "candidate")]
    return {
        "versions": sides.versions(),
        "libraries": [library.name for library in libraries],
        "backends": [library.backend for library in libraries],
        "unquantized": sides.unquantized,
        "runs": runs,
        "notes": notes,
    }


def begin(
    job: Mapping[str, Any], step: Callable[[str], None]
) -> tuple[Sides, tuple[Sequence[str], dict[str, Any]], Task | None]:
    """
    Return the sides of a job, the chosen devices with all devices by name, and the metric of the
    task.

    The user's functions and labels are read here: loading the models takes longer.

    :raises Refused: if a function or the labels cannot be read.
    """
    step("importing TensorFlow")
    sides = Sides(job)
    tf = sides.tf
    available.configure(tf, job)
    there = {device["name"]: device for device in available.list_devices(tf)}
    devices = available.choose_devices(tf, job["device"]), there
    if job["inputs"]["function"] is not None:
        load_function(OPTION, job["inputs"]["function"], job["inputs"]["directory"])
    if job["metric"] is None:
        return sides, devices, None
    return sides, devices, Task(sides.library(job["reference"]["family"]), job["metric"])


def _run_models(
    sides: Sides,
    chosen: Sequence[str],
    there: Mapping[str, Any],
    told: tuple[Task | None, Callable[[str], None]],
) -> list[dict[str, Any]]:
    """
    Return a run for each device: both models on all of them at the same time, and one after the
    other what is asked for besides.
    """
    task, step = told

    def prepare(device: str) -> Running:
        with sides.tf.device(device):
            return Running(sides, device, step, task)

    with available.unoptimized(sides.tf):
        compared = parallel_devices.side_by_side(
            chosen, prepare, lambda _, one: (one, one.compare())
        )
    return [one.told(found, there[available.short(one.device)]) for one, found in compared]


def _run_graphs(
    sides: Sides,
    chosen: Sequence[str],
    there: Mapping[str, Any],
    told: tuple[list[dict[str, str]], Callable[[str], None]],
) -> list[dict[str, Any]]:
    """
    Return a run for each device and signature of a graph, in which TensorFlow's own rewrite makes
    the candidate; what cannot run is a note.

    :raises Refused: where no signature can run.
    """
    job, (notes, step) = sides.job, told
    library = sides.library(job["candidate"]["family"])
    runs = []
    for name in map(available.short, chosen):
        wanted = {"policy": job["candidate"]["policy"], "device": name}
        found = graph_check.measure_graph(
            library,
            job["candidate"]["path"],
            wanted,
            lambda signature, root: fed.feed_signature(library, signature, root, job["inputs"]),
            step,
        )
        refused = [
            (one["signature"], one["refused"])
            for one in found["signatures"]
            if one["refused"] is not None
        ]
        if len(refused) == len(found["signatures"]):
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
        notes += [{"code": "environment", "message": sentence} for sentence in found["ignored"]]
        runs += [
            {**one, "device": there[name]} for one in found["signatures"] if one["refused"] is None
        ]
    return runs
