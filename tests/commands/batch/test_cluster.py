"""
The processes of a Dask cluster give the same results as local processes. A real scheduler with
several worker processes runs on the loopback interface.
"""

from __future__ import annotations

import json
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.commands import audit, inspect, migrate, remote_migration
from policytool.commands.batch import cluster, parallel
from policytool.commands.destinations import Destination
from policytool.commands.inspect import Failure
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.reports.layout import View
from policytool.reports.plans import Migrations
from policytool.reports.plans.fields import REPORT
from policytool.reports.reporter import json_reporter
from policytool.rules import AuditOptions
from policytool.support import limits
from policytool.support.errors import WorkerError
from policytool.support.processes.crash_guard import Crash
from policytool.support.project import VERSION
from policytool.support.text import codec
from tests.conftest import MIXED_H5
from tests.helpers.endless import endless_collection
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.discovery import Input
    from policytool.model.model import Model

pytestmark = THOROUGH

HEAD: Final = codec.encode([inspect.TASK.module, {}, False]).encode()
WORKERS: Final = 2


class LocalDask:
    """A scheduler and its workers."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = _start("dask_scheduler", "--host", "127.0.0.1", "--port", str(port))
        self.workers: list[subprocess.Popen[bytes]] = []

    def add_workers(self, count: int) -> None:
        """Start workers with one thread each, without a supervisor that restarts them."""
        self.workers += [
            _start("dask_worker", self.address, "--nthreads", "1", "--no-nanny")
            for _ in range(count)
        ]

    def close(self) -> None:
        """End the scheduler and all workers."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


def _start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def dask() -> Iterator[LocalDask]:
    """Return a cluster with two workers."""
    result = LocalDask()
    try:
        result.add_workers(WORKERS)
        yield result
    finally:
        result.close()


def inputs(*paths: Path) -> list[Input]:
    """Return the inputs below some paths."""
    return list(discovery.inputs(map(str, paths)))


def on_cluster(dask: LocalDask, found: list[Input]) -> Iterator[Model | Failure | None]:
    """Yield the results of the cluster for inputs."""
    return parallel.run_all(inspect.TASK, found, False, dask.address)


def line(path: Path) -> bytes:
    """Return the line that a worker receives for a file."""
    return codec.encode(inputs(path)[0]).encode()


def answers(*lines: bytes, version: str = VERSION, directory: str | None = None) -> list[object]:
    """Return a worker's answers to lines."""
    result = cluster.answer_lines(version, directory or str(Path.cwd()), HEAD, lines, [])
    return [cluster.read(item) for item in result.split(b"\n")]


class TestAnswerLines:
    """Tests of the code that runs on a worker."""

    def test_worker_answers_each_line(self, tmp_path: Path) -> None:
        first, second = answers(line(MIXED_H5), line(tmp_path / "missing.h5"))
        assert isinstance(first, bytes)
        assert isinstance(second, bytes)
        assert MIXED_H5.name.encode() in first
        assert b"not-found" in second

    def test_relative_paths_are_in_the_directory(self, tmp_path: Path) -> None:
        shutil.copy(MIXED_H5, tmp_path / "model.h5")
        (result,) = answers(
            codec.encode({"path": "model.h5", "exact": True}).encode(), directory=str(tmp_path)
        )
        assert isinstance(result, bytes)
        assert b'"path": "model.h5"' in result

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"version": "0.0.9"}, f"has policytool {VERSION} instead of 0.0.9"),
            ({"directory": "/no/such/directory"}, "has no directory /no/such/directory"),
        ],
    )
    def test_worker_that_cannot_run_a_call_reports_the_reason(
        self, changes: dict[str, str], sentence: str
    ) -> None:
        with pytest.raises(WorkerError, match=sentence):
            answers(line(MIXED_H5), **changes)

    def test_a_crash_is_an_answer(self) -> None:
        crash = Crash(code="worker-crashed", how="was terminated by SIGSEGV", details="a\nb")
        assert cluster.read(cluster.crash_line(crash)) == crash


class FakeFuture:
    """A result of a malicious worker."""

    def __init__(self, value: object) -> None:
        self.value = value

    def result(self, **_: object) -> object:
        """Return the result immediately."""
        return self.value


class FakeClient:
    """A client of a cluster whose single-threaded worker returns a prepared answer."""

    def __init__(self, value: object) -> None:
        self.value, self.scheduler = value, self

    def ncores(self) -> None:
        """Replace the scheduler's function."""

    def sync(self, _: object, **__: object) -> dict[str, int]:
        """Return the number of threads of each worker."""
        return {"worker": 1}

    def submit(self, *_: object, **__: object) -> FakeFuture:
        """Return the answer."""
        return FakeFuture(self.value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {"answers": 1},
        [b"a"],
        b'["result", 1]\n["result", 1]',
        b'["crash", 1]',
        b'["crash"',
        b'["crash", {}, 3]',
        b'["crash"' + b"[" * 100_000,
        b'["refused"]',
    ],
)
def test_anything_but_answers_ends_the_run_with_a_sentence(
    value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An invalid answer ends the run with an error: a wrong type, too few or too many answers, or an
    invalid crash; no answer counts for another file.
    """
    result = cluster.Cluster("tcp://there", HEAD, together=True)
    monkeypatch.setattr(result, "_client", FakeClient(value))
    with pytest.raises(WorkerError, match="something other than the answers"):
        list(result.answers([line(MIXED_H5)], [frozenset()]))


class Harm:
    """An object whose pickle runs a function when it is loaded."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.made = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.made


class HarmfulError(ValueError):
    """An exception whose pickle runs a function when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return eval, ("1",)


@pytest.mark.parametrize(
    "value",
    [
        Harm(eval, "1"),
        Harm(getattr, "a", "upper"),
        Harm(subprocess.check_output, ["true"]),
        Harm(shutil.rmtree, "/nowhere"),
        [Harm(exec, "1")],
        {"answers": (Harm(__import__, "this"),)},
        HarmfulError("x"),
        Path("a"),
        json.loads,
        LocalDask,
    ],
    ids=(
        "eval",
        "getattr",
        "process",
        "rmtree",
        "list",
        "dictionary",
        "exception",
        "path",
        "function",
        "class",
    ),
)
def test_a_cluster_can_have_nothing_run_in_this_process(value: object) -> None:
    """
    Data of workers and scheduler cannot run code in this process, because only exceptions and plain
    values are unpickled.
    """
    from distributed.protocol import pickle as dask_pickle
    from distributed.protocol.serialize import deserialize, serialize

    header, frames = serialize(value, serializers=["pickle"])
    original = dask_pickle.loads
    with cluster.restricted_unpickling(), pytest.raises(pickle.UnpicklingError):
        deserialize(header, frames)  # type: ignore[no-untyped-call]
    assert dask_pickle.loads is original


@pytest.mark.parametrize("value", [b"answers", KeyError("x"), ImportError("x", name="y"), [1, "a"]])
def test_answers_and_errors_of_a_cluster_are_read(value: object) -> None:
    from distributed.protocol.serialize import deserialize, serialize

    with cluster.restricted_unpickling():
        header, frames = serialize(value, serializers=["pickle"])
        result = deserialize(header, frames)  # type: ignore[no-untyped-call]
    assert repr(result) == repr(value)


def test_a_scheduler_that_answers_no_longer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that stops answering is an error after the time limit of the cluster."""

    class Silent(FakeClient):
        def sync(self, _: object, **options: object) -> dict[str, int]:
            assert options["callback_timeout"] == 10
            raise TimeoutError

    result = cluster.Cluster("tcp://there", HEAD, together=True)
    monkeypatch.setattr(result, "_client", Silent(b""))
    with pytest.raises(WorkerError, match="was lost"):
        list(result.answers([line(MIXED_H5)], [frozenset()]))


@pytest.mark.usefixtures("impatient_dask")
def test_missing_scheduler_is_a_one_line_error() -> None:
    for address in ("tcp://127.0.0.1:9", "nonsense://x", "tcp://[::"):
        with pytest.raises(WorkerError, match="cannot connect to the Dask scheduler"):
            list(parallel.run_all(inspect.TASK, inputs(MIXED_H5), False, address))


@SLOW
@pytest.mark.xdist_group("dask")
class TestCluster:
    """Tests of runs on a cluster."""

    def test_results_are_those_of_this_machine(self, dask: LocalDask, tmp_path: Path) -> None:
        """The results equal those of local processes, including failures and skipped files."""
        (tmp_path / "broken.h5").write_bytes(MIXED_H5.read_bytes()[:3000])
        (tmp_path / "notes.txt").write_text("no model")
        actual = [*inputs(FIXTURES / "tf2.3", tmp_path), *inputs(tmp_path / "missing.h5")]
        options = AuditOptions(targets=("keras3.15",))
        local = list(parallel.run_all(audit.TASK, actual, options, 1))
        assert list(parallel.run_all(audit.TASK, actual, options, dask.address)) == local

    def test_a_crash_costs_one_model(self, dask: LocalDask, tmp_path: Path) -> None:
        """A library that does not return is ended with its process, and the worker continues."""
        bad = endless_collection(tmp_path / "bad.h5")
        result = inputs(FIXTURES / "tf2.3", bad, FIXTURES / "tf2.4")
        with limits.override({"call-seconds": 1}):
            results = list(parallel.run_all(inspect.TASK, result, False, dask.address))
            assert results == list(parallel.run_all(inspect.TASK, result, False, 2))
        (lost,) = [result for result in results if isinstance(result, Failure)]
        assert lost.code == "worker-timeout"

    def test_a_worker_that_dies_costs_nothing(self, dask: LocalDask) -> None:
        """If a worker ends, other workers repeat its tasks."""
        dask.add_workers(1)
        result = inputs(FIXTURES)
        results = on_cluster(dask, result)
        got = [next(results)]
        dask.workers[-1].send_signal(signal.SIGKILL)
        got += results
        assert got == list(parallel.run_all(inspect.TASK, result, False, 2))

    def test_conversions_are_those_of_this_machine(self, dask: LocalDask, tmp_path: Path) -> None:
        """Conversions equal those of local processes, and two with the same output run in order."""
        models = tmp_path / "models"
        models.mkdir()
        for source in sorted((FIXTURES / "tf2.3").glob("exp_*.h5")):
            shutil.copy(source, models)
            shutil.copy(source, models / source.with_suffix(".hdf5").name)
        result = inputs(models)

        def convert(jobs: int | str) -> list[object]:
            output = tmp_path / "out"
            output.mkdir()
            request = migrate.MigrateRequest(
                options=Options(target="keras3.15"),
                destination=Destination(output=output),
                several=True,
                details=False,
                no_verify_reason=None,
            )
            results = list(parallel.run_all(remote_migration.TASK, result, request, jobs))
            done = [result for result in results if isinstance(result, migrate.Migration)]
            failed = [result for result in results if isinstance(result, Failure)]
            files = {path.name: path.stat().st_size for path in output.iterdir()}
            shutil.rmtree(output)
            migrations = Migrations(migrations=tuple(done), failures=tuple(failed))
            return [json_reporter(REPORT).render(migrations, View(width=80)), files]

        assert convert(dask.address) == convert(2)

    def test_an_early_end_leaves_the_cluster_free(self, dask: LocalDask) -> None:
        """A caller that stops reading results waits less than a second for the cluster."""
        results = parallel.run_all(inspect.TASK, inputs(FIXTURES), False, dask.address)
        assert not isinstance(next(results), Failure)
        begun = time.monotonic()
        results.close()  # type: ignore[attr-defined]  # a generator
        assert time.monotonic() - begun < 1

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_an_interrupted_run_ends_with_a_valid_report(
        self, dask: LocalDask, tmp_path: Path, number: signal.Signals
    ) -> None:
        for index in range(600):
            shutil.copy(MIXED_H5, tmp_path / f"{index:03}.h5")
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "policytool", "inspect", str(tmp_path)),
                *("--format", "jsonl", "--jobs", dask.address),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(number)
        begun = time.monotonic()
        lines += process.stdout.readlines()
        process.stdout.close()
        assert process.wait(30) == 130
        assert time.monotonic() - begun < 5  # one on an idle machine
        *_, end = map(json.loads, lines)
        assert end["end"]["complete"] is False
        assert 3 < len(lines) < 600
