"""The job ``check``: a reference and a candidate run on the same inputs, and compared layer by layer, on each device that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import aside, devices
from .running import Running
from .sides import Sides

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """Return what was measured of ``job["candidate"]`` against ``job["reference"]``, one run for each device."""
    step("importing TensorFlow")
    sides = Sides(job)
    tf = sides.library(job["reference"]["family"]).tf
    devices.configured(tf, job)
    there = {device["name"]: device for device in devices.listed(tf)}

    def prepare(device: str) -> Running:
        with tf.device(device):
            return Running(sides, device, step)

    def measure(device: str, prepared: Running) -> dict[str, Any]:
        with tf.device(device):
            return {"device": there[devices.short(device)], **prepared.measured(there[devices.short(device)])}

    runs = aside.side_by_side(devices.chosen(tf, job["device"]), prepare, measure)
    return {"versions": sides.versions(), "runs": runs}
