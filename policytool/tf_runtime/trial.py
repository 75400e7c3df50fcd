"""
The job ``trial``: the outputs of a candidate compared with those of a reference, which stays loaded
with its inputs for the next trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import source_files
from .devices import available
from .engine.output_trials import Trials
from .engine.sides import Sides
from .engine.task_metrics import Task
from .feeding.input_functions import OPTION
from .user_functions import load_function

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

_last: dict[str, Trials] = {}
"""The trials of the last search in this process, by its token."""


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Return what was measured of ``job["candidate"]`` on each half of the inputs.

    Jobs with the same ``token`` have the same reference, inputs and options.
    """
    trials = _last.get(job["token"])
    if trials is None:
        _last.clear()
        trials = _last[job["token"]] = _begin(job, step)
    with available.soft_placement(trials.tf), available.unoptimized(trials.tf):
        return trials.measure(job["candidate"], step)


def _begin(job: Mapping[str, Any], step: Callable[[str], None]) -> Trials:
    step("importing TensorFlow")
    sides = Sides(job)
    tf = sides.tf
    source_files.check_unchanged(job)  # after TensorFlow's import, which takes seconds
    available.configure(tf, job)
    there = {device["name"]: device for device in available.list_devices(tf)}
    device = available.choose_devices(tf, job["device"])[0]
    if job["inputs"]["function"] is not None:
        load_function(OPTION, job["inputs"]["function"], job["inputs"]["directory"])
    task = (
        Task(sides.library(job["reference"]["family"]), job["metric"])
        if job["metric"] is not None
        else None
    )
    with available.soft_placement(tf), available.unoptimized(tf):
        return Trials(sides, (device, there[available.short(device)]), task, step)
