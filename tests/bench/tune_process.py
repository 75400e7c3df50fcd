"""
Runs ``policytool tune`` of a source tree in a process of its own, so that the searches of two
revisions are measured alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIER: Final = "ca3a95a9"
"""The commit of the earlier search, which ranked layers without gradients."""

ROOT: Final = Path(__file__).parents[2]


class TuneRun(Struct, frozen=True, kw_only=True):
    """The report of a search, with the time and memory that it used."""

    tuning: Mapping[str, Any]
    seconds: float
    """The processor time of all processes, which other programs on the machine hardly change."""

    mib: int
    """The peak memory of the largest process: of policytool, or of its child with TensorFlow."""

    @property
    def figures(self) -> dict[str, Any]:
        """The size of the set, and the cost of the search."""
        return {
            "kept": len(self.tuning["kept"]),
            "trials": len(self.tuning["trials"]),
            "seconds": round(self.seconds, 1),
            "mib": self.mib,
        }


def run_tune(model: Path, written: Path, *options: str, tree: Path = ROOT) -> TuneRun:
    """
    Tune a model with the revision of a source tree.

    :raises ChildProcessError: if the search printed no report.
    """
    command = (
        *(sys.executable, "-m", "policytool", "tune", str(model.resolve()), *options),
        *("-o", str(written.resolve()), "--format", "json"),
    )
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(command, cwd=tree, stdout=report, stderr=messages)
        _, status, usage = os.wait4(process.pid, 0)  # with the processes that this one waited for
        process.returncode = os.waitstatus_to_exitcode(status)
        report.seek(0)
        messages.seek(0)
        values = json.loads(report.read() or b"{}")
        if not values.get("tuning"):
            raise ChildProcessError(messages.read().decode(errors="replace")[-2000:])
    seconds = usage.ru_utime + usage.ru_stime
    return TuneRun(tuning=values["tuning"], seconds=seconds, mib=usage.ru_maxrss // 1024)
