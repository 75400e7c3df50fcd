"""
The job ``trial``: the outputs of a candidate compared with those of a reference, which stays loaded
with its inputs for the next trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .check import begin
from .devices import available
from .engine.output_trials import Trials

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

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
        trials = _last[job["token"]] = _begin(job, step)
    with available.soft_placement(trials.tf), available.unoptimized(trials.tf):
        return trials.measure(job["candidate"], step)


def _begin(job: Mapping[str, Any], step: Callable[[str], None]) -> Trials:
    sides, ((device, *_), devices_by_name), task = begin(job, step)
    tf = sides.tf
    with available.soft_placement(tf), available.unoptimized(tf):
        return Trials(sides, (device, devices_by_name[available.short(device)]), task, step)
