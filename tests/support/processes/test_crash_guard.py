"""A library that hangs, crashes or exhausts memory on a file fails only this file's report."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.support import limits
from policytool.support.processes import crash_guard
from tests.conftest import FIXED_SCALE_H5, MIXED_H5, run_process
from tests.helpers.endless import endless_collection, endless_list
from tests.helpers.marks import ALONE, THOROUGH
from tests.helpers.sampling import sampled
from tests.helpers.small_models import keras_members, keras_zip
from tests.numerics.test_workers import is_gone
from tests.support.processes.test_pool import children

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    THOROUGH,
    ALONE,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="a process cannot be copied here"),
]

HASTE: Final = (
    "import policytool.support.limits as limits, policytool.support.processes.crash_guard as "
    "guard\nobject.__setattr__(limits.CALL_SECONDS, 'default', 0.5)\nguard._TICK = 0.02\n"
)
"""Half a second instead of ten, told to the tool and to its processes."""

LITTLE: Final = (
    "import policytool.support.limits as limits\nobject.__setattr__(limits.LIBRARY_BYTES, "
    "'default', "
    "2**26)\n"
)

STUCK: Final = (
    "stopped after 0.5 seconds of CPU time in one library call, possibly because of a "
    "damaged HDF5 file. Raise the limit with --limit call-seconds=1.0"
)

CRASH: Final = (
    "import os, policytool.formats.format_detection as detection\n"
    "was = detection.document\n"
    "def document(path, shown):\n"
    "    if path.name.startswith('bad'):\n"
    "        os.kill(os.getpid(), {number})\n"
    "    return was(path, shown)\n"
    "detection.document = document\n"
)

WAIT: Final = (
    "import os, pathlib, sys, time, policytool.formats.format_detection as detection\n"
    "def document(path, shown):\n"
    "    pathlib.Path(os.environ['BEGUN']).write_text(str(os.getpid()))\n"
    "    try:\n"
    "        time.sleep(60)\n"
    "    finally:\n"
    "        pathlib.Path(os.environ['BEGUN'] + '.end').write_text('tidied')\n"
    "detection.document = document\n"
)
"""Reads for a minute, says by which process, and tidies up."""

CALLS: Final[dict[str, Callable[[str, str], tuple[str, ...]]]] = {
    "inspect": lambda bad, _: ("inspect", bad),
    "audit": lambda bad, _: ("audit", bad),
    "audit --weights": lambda bad, _: ("audit", "--weights", bad),
    "audit --fix": lambda bad, _: ("audit", "--fix", bad),
    "migrate": lambda bad, _: ("migrate", bad),
    "migrate --target": lambda bad, _: ("migrate", "--target", "keras3", bad),
    "the one model here": lambda _, __: ("migrate",),
    "diff, first": lambda bad, good: ("diff", bad, good),
    "diff, second": lambda bad, good: ("diff", good, bad),
    "check": lambda bad, _: ("check", bad, "--to", "float16"),
}


@pytest.fixture
def meddling(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the environment in which Python runs a text at the start of each process."""

    def meddle(text: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("site")
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
        return {"PYTHONPATH": str(folder)}

    return meddle


@pytest.mark.parametrize("call", sampled("calls that never return", CALLS, share=3))
def test_library_that_never_returns_gives_a_one_line_error(
    call: str, meddling: Any, tmp_path: Path
) -> None:
    """Every command ends with exit code 3 and the name of the file."""
    bad = endless_collection(tmp_path / "bad.h5")
    before = bad.read_bytes()
    ended = run_process(
        *CALLS[call](bad.name, str(MIXED_H5)), cwd=tmp_path, environment=meddling(HASTE)
    )
    assert ended.code == 3
    result = ended.err.splitlines()
    assert len(result) == 1
    assert result[0].startswith("error: bad.h5: ")
    assert (" could not be read: " in result[0]) == (not call.startswith(("migrate", "check")))
    assert STUCK in result[0]
    assert result[0].endswith("[worker-timeout]")
    assert (bad.read_bytes(), [path.name for path in tmp_path.iterdir()]) == (before, ["bad.h5"])


def test_json_report_contains_the_timeout(meddling: Any, tmp_path: Path) -> None:
    """The failure has the same form as that of other unreadable files."""
    endless_collection(tmp_path / "bad.h5")
    ended = run_process(
        "inspect", "--format", "json", "bad.h5", cwd=tmp_path, environment=meddling(HASTE)
    )
    assert [(failure["path"], failure["code"]) for failure in ended.json["failures"]] == [
        ("bad.h5", "worker-timeout")
    ]


def test_timeout_of_one_file_does_not_affect_other_files(meddling: Any, tmp_path: Path) -> None:
    """The number of processes has no effect on the report."""
    endless_collection(tmp_path / "bad.h5")
    arguments = ("inspect", "--format", "json", MIXED_H5, "bad.h5", FIXED_SCALE_H5)
    ended = run_process(*arguments, "--jobs", "2", cwd=tmp_path, environment=meddling(HASTE))
    assert (
        ended.code,
        len(ended.json["models"]),
        [failure["code"] for failure in ended.json["failures"]],
    ) == (3, 2, ["worker-timeout"])
    alone = run_process(*arguments, "--jobs", "1", cwd=tmp_path, environment=meddling(HASTE))
    assert alone == ended
    assert ended.err == (
        f"error: bad.h5: could not be read: the worker process was {STUCK}. [worker-timeout]\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the bound on memory is Linux's")
@pytest.mark.parametrize("kind", ["h5", "keras"])
def test_endless_allocation_in_a_library_fails_at_the_memory_limit(
    kind: str, meddling: Any, tmp_path: Path
) -> None:
    """The file is reported as damaged, and the process stays small."""
    bad = endless_list(tmp_path / "bad.h5")
    if kind == "keras":
        bad = keras_zip(
            tmp_path / "bad.keras", {**keras_members(), "model.weights.h5": bad.read_bytes()}
        )
    ended = run_process("inspect", bad.name, cwd=tmp_path, environment=meddling(LITTLE))
    assert (ended.code, ended.err.count("memory allocation failed")) == (3, 1)
    assert ended.err.endswith("[damaged-h5]\n")


def test_a_file_within_the_bound_is_read(tmp_path: Path) -> None:
    """The bound is on what is taken beside what the process has."""
    ended = run_process("inspect", "--format", "json", MIXED_H5, cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")


CRASHES: Final = tuple(
    itertools.product((signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL), ("1", "2"))
)
"""The signal that ends the process that reads, and the number of such processes."""


@pytest.mark.parametrize(("number", "jobs"), sampled("crashes", CRASHES, share=3))
def test_crash_gives_a_one_line_error(
    number: signal.Signals, jobs: str, meddling: Any, tmp_path: Path
) -> None:
    """The file is read by this process or by another one."""
    (tmp_path / "bad.h5").write_bytes(MIXED_H5.read_bytes())
    files = ("bad.h5",) if jobs == "1" else ("bad.h5", str(MIXED_H5))
    ended = run_process(
        "inspect",
        *files,
        "--jobs",
        jobs,
        cwd=tmp_path,
        environment=meddling(CRASH.format(number=int(number))),
    )
    cause = "because a library crashed or memory ran out"
    result = (
        "error: bad.h5: could not be read: the worker process was terminated by "
        f"{number.name}, {cause}. [worker-crashed]\n"
    )
    assert (ended.code, ended.err) == (3, result)


@pytest.fixture
def reading(meddling: Any, tmp_path: Path) -> Any:
    """Return a run that reads for a minute, and the copy of it that reads."""
    begun = tmp_path / "begun"
    environment = {**os.environ, **meddling(WAIT), "BEGUN": str(begun)}
    command = [sys.executable, "-m", "policytool", "inspect", str(MIXED_H5)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    until = time.monotonic() + 30
    while time.monotonic() < until and not (begun.exists() and begun.read_text(encoding="utf-8")):
        time.sleep(0.01)
    copy = int(begun.read_text(encoding="utf-8"))
    assert children(process.pid) == [copy]
    yield process, copy, begun.with_name("begun.end")
    process.kill()
    process.communicate()


REQUESTS: Final = tuple(
    itertools.product((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), ("one", "both"))
)
"""The signal that asks to end, and how many of the two processes get it."""


@pytest.mark.parametrize(("number", "to"), sampled("requests to end", REQUESTS, share=3))
def test_termination_signal_is_forwarded_once(
    number: signal.Signals, to: str, reading: Any
) -> None:
    """A terminal signals both processes, and a script only the process that it started."""
    process, copy, tidied = reading
    (process.send_signal if to == "one" else lambda sent: os.killpg(process.pid, sent))(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err.strip()) == (130, b"", b"error: interrupted.")
    assert tidied.exists()
    assert is_gone(copy)


def test_killed_process_ends_its_copy(reading: Any) -> None:
    """The copy removes its temporary files."""
    process, copy, tidied = reading
    process.kill()
    process.wait()
    assert is_gone(copy)
    assert tidied.exists()


def test_process_of_a_python_user_is_never_copied() -> None:
    assert crash_guard.split() is None
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_waiting_does_not_count_as_a_call_that_takes_too_long() -> None:
    """Only processor time counts, and only while no Python code runs."""
    code = (
        f"{HASTE}import time\nguard.watch()\ntime.sleep(0.8)\nend = time.process_time() + "
        "0.8\nwhile time.process_time() < end: pass\nprint('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n")
    stuck = subprocess.run(
        [sys.executable, "-c", f"{HASTE}guard.watch()\nsum(range(10**10))"],
        capture_output=True,
        check=False,
    )
    assert stuck.returncode == -signal.SIGPROF
    assert crash_guard.crash(signal.SIGPROF).how.startswith(
        f"was stopped after {limits.CALL_SECONDS.default} seconds"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_timer_does_not_stop_a_process_that_waits_for_its_copy() -> None:
    """The copy sleeps longer than a tick, and the original waits until it ends."""
    code = (
        f"{HASTE}import time\nguard.watch()\nguard.allow()\nlost = guard.split()\n"
        "time.sleep(0.8)\nprint('lost' if lost else 'alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")
