"""``--jobs``: what comes back, in which order, and what becomes of the processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import inspect
from policytool.commands.batch import parallel
from policytool.commands.inspect import Failure
from policytool.formats.discovery import Input
from policytool.model.model import Model
from policytool.reports.findings import FINDING_REPORTERS
from policytool.reports.inspection import REPORTERS
from policytool.support.errors import UsageError, WorkerError
from policytool.support.processes import pool
from tests.conftest import (
    MIXED_H5,
    MIXED_JSON,
    MIXED_KERAS,
    MIXED_SAVEDMODEL,
    MIXED_YAML,
    run,
)
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.sampling import sampled
from tests.helpers.special_files import WAITING
from tests.numerics.test_workers import is_gone

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = [THOROUGH, ALONE]


SOURCES: Final = (MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL, MIXED_JSON, MIXED_YAML)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with models, a broken model, and another file."""
    monkeypatch.chdir(tmp_path)
    for number in range(12):
        source = SOURCES[number % len(SOURCES)]
        copy = tmp_path / f"m{number:02}{source.suffix}"
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            shutil.copy(source, copy)
    (tmp_path / "m03b.h5").write_bytes(MIXED_H5.read_bytes()[:3000])
    (tmp_path / "notes.txt").write_text("nothing\n", encoding="utf-8")
    return tmp_path


def every(directory: Path) -> list[Input]:
    """Return what lies in a directory, each named exactly."""
    return [Input(path=path, exact=True) for path in sorted(directory.iterdir())]


def inspected(inputs: list[Input], jobs: int) -> list[Model | Failure | None]:
    """Return what ``inspect`` makes of the inputs."""
    return list(parallel.run_all(inspect.TASK, inputs, False, jobs))


def children(parent: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    actual = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(state[1]) == parent and state[0] not in "ZX":
                actual.append(int(entry.name))
    return actual


@pytest.fixture
def meddling(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes Python run a text at the start of each further process."""

    def meddle(text: str) -> None:
        folder = tmp_path_factory.mktemp("site")
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (folder, ROOT))))

    return meddle


@pytest.mark.parametrize("jobs", sampled("numbers of jobs", [2, 3, 50], share=3))
def test_results_come_in_the_order_of_the_inputs(models: Path, jobs: int) -> None:
    """The same ones as in one process, however many read them."""
    inputs = every(models)
    one = inspected(inputs, 1)
    assert inspected(inputs, jobs) == one
    assert any(isinstance(result, Failure) for result in one)
    assert not children(os.getpid())


def reports() -> Iterator[tuple[str, str]]:
    """Yield each command with each of its formats."""
    yield from (("inspect", reporter.name) for reporter in REPORTERS)
    yield from (("audit", reporter.name) for reporter in FINDING_REPORTERS)


@SLOW
@pytest.mark.usefixtures("models")
def test_reports_of_several_processes_have_equal_bytes() -> None:
    """Stdout, stderr and the exit code agree for every command and format."""
    for command, name in reports():
        result = run(command, "--format", name, "--jobs", "1", ".")
        two = run(command, "--format", name, "--jobs", "2", ".")
        assert two == result
        assert result.code == 3


@pytest.mark.parametrize(
    ("jobs", "inputs", "count"),
    [
        (None, 0, 0),
        (None, 1, 0),
        (None, 2, 2),
        (None, 3, 3),
        (None, 9, 4),
        (1, 9, 0),
        (2, 9, 2),
        (8, 9, 8),
        (8, 3, 3),
        (8, 1, 0),
    ],
)
def test_one_input_needs_no_further_process(
    monkeypatch: pytest.MonkeyPatch, jobs: int | None, inputs: int, count: int
) -> None:
    """Two or more have one per processor, or as many as the user says; none is idle."""
    monkeypatch.setattr(parallel, "processors", lambda: 4)
    assert parallel.workers(jobs, inputs) == count


def test_jobs_are_an_option_a_variable_and_a_setting(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (models / "policytool.toml").write_text("jobs = 3\n", encoding="utf-8")
    monkeypatch.setenv("POLICYTOOL_JOBS", "2")
    assert "jobs = 4  # command line" in run("inspect", "--jobs", "4", "--show-settings").out
    assert "jobs = 2  # $POLICYTOOL_JOBS" in run("inspect", "--show-settings").out
    monkeypatch.delenv("POLICYTOOL_JOBS")
    monkeypatch.setattr(parallel, "processors", lambda: 4)
    assert "jobs = 3  # " in run("audit", "--show-settings").out
    assert run("audit", "--jobs", "0").code == 2


def test_crash_affects_only_one_report(models: Path, meddling: Any) -> None:
    """A crash in a library ends one process, which is replaced, and all other files are read."""
    meddling(
        "import os, signal, sys, policytool.formats.format_detection as detection\n"
        "was = detection.document\n"
        "def read(path, shown):\n"
        "    if path.name in {'m00.h5', 'm05.h5', 'm11.keras'}:\n"
        "        print('the last words', file=sys.stderr, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    return was(path, shown)\n"
        "detection.document = read\n"
    )
    inputs = every(models)
    one, two = inspected(inputs, 1), inspected(inputs, 2)
    lost = [
        number
        for number, result in enumerate(two)
        if isinstance(result, Failure) and result.code == "worker-crashed"
    ]
    assert [inputs[number].path.name for number in lost] == ["m00.h5", "m05.h5", "m11.keras"]
    assert [result for number, result in enumerate(two) if number not in lost] == [
        result for number, result in enumerate(one) if number not in lost
    ]
    first = two[lost[0]]
    assert isinstance(first, Failure)
    assert "was terminated by SIGSEGV" in first.message
    assert "the last words" in first.details
    assert not children(os.getpid())


def test_worker_that_exits_is_reported_with_its_last_message(models: Path, meddling: Any) -> None:
    """Every file may cause such an exit."""
    meddling(
        "import sys, policytool.formats.format_detection as detection\n"
        "def read(path, shown): sys.exit('no way')\n"
        "detection.document = read\n"
    )
    results = inspected(every(models)[:4], 2)
    assert all(
        isinstance(result, Failure) and result.message.endswith("exited with code 1: no way")
        for result in results
    )


def test_output_of_libraries_is_not_an_answer_of_a_worker(
    models: Path, meddling: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """The output appears neither on stdout nor on stderr."""
    meddling("import os\nprint('noise')\nos.write(1, b'noise\\n')\nos.write(2, b'noise\\n')\n")
    inputs = every(models)
    assert inspected(inputs, 2) == inspected(inputs, 1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("models")
def test_nothing_is_imported_from_the_working_directory(models: Path) -> None:
    """The working directory may belong to another user and contain a module with a known name."""
    for name in ("h5py", "numpy", "json", "policytool"):
        (models / f"{name}.py").write_text(
            f"open({str(models / 'ran')!r}, 'w')\n", encoding="utf-8"
        )
    results = inspected([Input(path=models / name, exact=True) for name in ("m00.h5", "m05.h5")], 2)
    assert all(isinstance(result, Model) for result in results)
    assert not (models / "ran").exists()


@pytest.mark.usefixtures("models")
def test_bug_in_a_worker_is_reported_as_a_bug(meddling: Any) -> None:
    """Each file has one message, the exit code is 70, and ``-v`` prints the traceback."""
    meddling(
        "import policytool.formats.format_detection as detection\ndef read(path, shown): raise "
        "RuntimeError('boom')\ndetection.document = read\n"
    )
    ended = run("inspect", "--jobs", "2", ".")
    assert ended.code == 70
    assert ended.err.count("this is a bug in policytool (RuntimeError: boom)") == 14
    assert "in read" not in ended.err
    assert "in read" in run("inspect", "--jobs", "2", "-v", ".").err


def test_usage_error_in_a_worker_is_reported_as_a_usage_error(models: Path, meddling: Any) -> None:
    """The message is that of the worker. For a single file, the error ends the run."""
    meddling(
        "import policytool.formats.format_detection as detection\n"
        "from policytool.support.errors import UsageError\n"
        "def read(path, shown): raise UsageError('no')\ndetection.document = read\n"
    )
    results = inspected(every(models), 2)
    assert {(result.code, result.message) for result in results if isinstance(result, Failure)} == {
        ("usage", "no")
    }
    with pytest.raises(UsageError, match=r"^no$"):
        list(parallel._run_in_processes(inspect.TASK, every(models)[:1], False, 1))  # noqa: SLF001  # run_all reads a single file in this process


def test_workers_that_cannot_start_are_reported(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error contains the last message of the worker, once for all files."""
    monkeypatch.setattr(pool, "_MODULE", "policytool.nowhere")
    with pytest.raises(WorkerError, match=r"No module named policytool\.nowhere; use --jobs 1"):
        inspected(every(models), 2)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(WorkerError, match="/nowhere/python cannot be run"):
        inspected(every(models), 2)


@pytest.fixture
def pipe(models: Path, meddling: Any) -> Path:
    """Return a named pipe next to the models, which blocks other processes like a slow disk."""
    meddling(WAITING)
    path = models / "m00a.h5"
    os.mkfifo(path)
    return path


def reader(pipe: Path, parent: int) -> int:
    """Return the process that reads a pipe, as soon as there is one."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for pid in children(parent):
            try:
                if any(
                    os.path.realpath(descriptor) == str(pipe)
                    for descriptor in Path(f"/proc/{pid}/fd").iterdir()
                ):
                    return pid
            except OSError:
                continue
        time.sleep(0.01)
    raise AssertionError("nobody reads the pipe")


@pytest.fixture
def waiting(pipe: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, list[int]]]:
    """Return a run with two processes, the one that reads a pipe without end, and both."""
    writer = os.open(pipe, os.O_RDWR)
    temporary = pipe.parent / "temporary"
    temporary.mkdir()
    command = [
        sys.executable,
        "-m",
        "policytool",
        "inspect",
        "--format",
        "json",
        "--jobs",
        "2",
        *sorted(path.name for path in pipe.parent.glob("m*")),
    ]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        command, cwd=pipe.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        busy = reader(pipe, process.pid)
        yield process, busy, children(process.pid)
    finally:
        process.kill()
        process.communicate()
        os.close(writer)


def test_killed_worker_loses_only_the_current_file(
    waiting: tuple[subprocess.Popen[bytes], int, list[int]], models: Path
) -> None:
    process, busy, both = waiting
    os.kill(busy, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert out.count(b'"path": "m') > 12
    assert b"error: m00a.h5: could not be read: the worker process was terminated by SIGKILL" in err
    assert all(is_gone(pid) for pid in both)
    assert not list((models / "temporary").iterdir())


def test_interrupt_ends_all_processes(
    waiting: tuple[subprocess.Popen[bytes], int, list[int]], models: Path
) -> None:
    """All processes end at once, without a traceback and without temporary files."""
    process, _, both = waiting
    assert len(both) == 2
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err.strip()) == (130, b"error: interrupted.")
    assert all(is_gone(pid) for pid in both)
    assert not list((models / "temporary").iterdir())


def test_workers_end_with_their_parent(
    waiting: tuple[subprocess.Popen[bytes], int, list[int]],
) -> None:
    """A worker that is reading a file also ends."""
    process, _, both = waiting
    process.kill()
    process.wait()
    assert all(is_gone(pid) for pid in both)
