"""The job ``check``: a reference and a candidate run on the same inputs, and compared layer by layer, on each device that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import aside, devices
from .running import Running
from .sides import Sides

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """Return what was measured of ``job["candidate"]`` against ``job["reference"]``, one run for each device."""
    step("importing TensorFlow")
    sides = Sides(job)
    tf = sides.library(job["reference"]["family"]).tf
    devices.configured(tf, job)
    there = {device["name"]: device for device in devices.listed(tf)}
    chosen = devices.chosen(tf, job["device"])

    def prepare(device: str) -> Running:
        with tf.device(device):
            return Running(sides, device, step)

    with devices.softly(tf):
        compared = aside.side_by_side(chosen, prepare, lambda _, one: (one, one.compare()))
        runs = [one.told(found, there[devices.short(one.device)]) for one, found in compared]
    names = [sides.library(job[name]["family"]).name for name in ("reference", "candidate")]
    return {"versions": sides.versions(), "libraries": names, "runs": runs, "notes": _notes(runs)}


def _notes(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return why something that was asked for could not be measured."""
    return [{"code": "tf32", "message": run["tf32"]} for run in runs if run["tf32"] is not None]
