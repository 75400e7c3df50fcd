"""
A spread of what ``make signals`` does in full, and runs that are in the middle of a slow step when
the signal arrives.
"""

from __future__ import annotations

import itertools
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.crash import signals
from tests.crash.signals import COMMANDS, INTERRUPTED, SECONDS, Case
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    ALONE,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the test reads /proc"),  # noqa: PTH112
]

BY_NAME: Final = {command.name: command for command in COMMANDS}

SLOW_STEPS: Final = {
    "a library's call": "sum(range(10**11))",
    "waiting": "time.sleep(60)",
    "Python's own code": "while True: pass",
}
"""What reading a file does in place of reading."""

_SITE: Final = """\
import os, pathlib, time
import policytool.formats.format_detection as detection
def document(path, shown):
    import tempfile
    from policytool.support.processes import interrupts
    with interrupts.temporary_directory() as folder:
        pathlib.Path(folder, "model").write_text("a copy")
        pathlib.Path(os.environ["PLACE"], "begun").touch()
        {step}
detection.document = document
"""

DISTURBED: Final = [
    (signal.SIGTERM, (signal.SIGINT, signal.SIGQUIT)),
    (signal.SIGTERM, (signal.SIGHUP,)),
    (signal.SIGINT, ()),
    (signal.SIGHUP, (signal.SIGINT,)),
]
"""A signal, and those that are ignored: a background job of a shell script, ``nohup``, others."""


def load() -> float:
    """Return how much more this machine has to do than its processors can."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes reading slow."""

    def make(step: str) -> Path:
        folder = tmp_path_factory.mktemp("site")
        (folder / "sitecustomize.py").write_text(_SITE.format(step=step), encoding="utf-8")
        return folder

    return make


@THOROUGH
@pytest.mark.parametrize("step", SLOW_STEPS)
@pytest.mark.parametrize("name", ["inspect", "audit --jobs 1"])
def test_a_signal_ends_a_run_in_a_slow_step(
    name: str, step: str, site: Callable[[str], Path], tmp_path: Path
) -> None:
    """A signal ends every slow step, although SIGINT is ignored."""
    disturb(name, DISTURBED[0], site(SLOW_STEPS[step]), tmp_path)


@SLOW
@pytest.mark.parametrize(
    ("name", "step", "disturbed"),
    sampled(
        "signals in slow steps",
        itertools.product(
            # explain reads no model
            [item.name for item in COMMANDS if not item.with_tensorflow and item.name != "explain"],
            SLOW_STEPS,
            DISTURBED,
        ),
        share=3,
    ),
)
def test_each_signal_ends_each_command_in_a_slow_step(
    name: str, step: str, disturbed: Any, site: Callable[[str], Path], tmp_path: Path
) -> None:
    """A sample of all combinations is tried."""
    disturb(name, disturbed, site(SLOW_STEPS[step]), tmp_path)


def disturb(name: str, disturbed: Any, slow: Path, place: Path) -> None:
    """Send a signal in the middle of a slow step, and judge what is left."""
    number, ignored = disturbed
    case = Case(number=number, ignored=ignored, to_group=False, after=0.0)
    ended = signals.run(BY_NAME[name], place / "run", case, site=slow)
    assert ended.code == INTERRUPTED, ended
    assert ended.err.strip() == b"error: interrupted."
    assert 0 < ended.seconds < SECONDS * load(), ended
    assert (ended.temporary, ended.processes) == ((), ())
    if BY_NAME[name].stdout == "jsonl":
        assert ended.out.endswith(b'{"end": {"complete": false, "exit_code": 130}}\n')
    else:
        assert ended.out == b""


@THOROUGH
def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """Under ``nohup``, the run continues to its end."""
    whole = signals.run(BY_NAME["inspect"], tmp_path / "whole", None)
    case = Case(number=signal.SIGHUP, ignored=(signal.SIGHUP,), to_group=True, after=0.2)
    ended = signals.run(BY_NAME["inspect"], tmp_path / "run", case)
    assert (ended.code, ended.out) == (0, whole.out)


@SLOW
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_runs_end_in_time_and_leave_nothing(command: Any, tmp_path: Path) -> None:
    python = os.environ.get("POLICYTOOL_COMPAT")
    if command.with_tensorflow and python is None:
        pytest.skip("POLICYTOOL_COMPAT names no interpreter with TensorFlow")
    count = 3 if command.with_tensorflow else 10
    tally = signals.campaign(command, count, tmp_path, jobs=2, python=python, seed="tests")
    assert (tally.runs, tally.wrong) == (count, [])
