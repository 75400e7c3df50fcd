"""
Whatever is raised over one of several files, at whatever step, is that file's failure: all other
files have their complete report, in this process and in others.
"""

from __future__ import annotations

import importlib
import inspect as introspection
import itertools
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from policytool.commands.batch import parallel
from policytool.support import errors
from policytool.support.errors import (
    ModelFileError,
    PolicytoolError,
    SpellingError,
    UsageError,
    WorkerError,
)
from tests.conftest import FIXED_SCALE_H5, MIXED_H5, MIXED_JSON, MIXED_KERAS, Ended, run
from tests.growth.shapes import SHAPES, Keras3
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

BAD: Final = "bad.h5"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A function that a run calls for each file."""

    module: str
    name: str
    """The attribute of the module, or the class and its method."""

    keeps_findings: bool = False
    """Whether a model is reported without what the step adds, unless a bug ended the step."""


READING: Final = (
    Step(module="policytool.formats.format_detection", name="format_of"),
    Step(module="policytool.formats.format_detection", name="document"),
    Step(module="policytool.model.reading", name="load_model"),
    Step(module="policytool.model.compatibility", name="verdicts"),
)
CACHING: Final = tuple(
    Step(module="policytool.commands.batch.cache", name=f"CachedResults.{name}")
    for name in ("entry", "keep")
)
AUDITING: Final = (
    *READING[1:3],
    Step(module="policytool.rules", name="findings"),
    Step(module="policytool.commands.model_command", name="_Planner.command", keeps_findings=True),
)
MIGRATING: Final = (
    *READING[1:3],
    Step(module="policytool.commands.migration_preview", name="plan_migration"),
    Step(module="policytool.commands.migrate", name="apply_plan"),
)
RUNS: Final[dict[str, tuple[tuple[str, ...], tuple[Step, ...]]]] = {
    "inspect": (("inspect", "--format", "json"), READING),
    "inspect jsonl": (
        ("inspect", "--format", "jsonl"),
        (
            *READING[:1],
            Step(module="policytool.cli.inspect_command", name="model_values"),
        ),
    ),
    "inspect --cache": (("inspect", "--format", "json", "--cache", "cache"), CACHING),
    "inspect --summary": (
        ("inspect", "--summary", "--format", "json"),
        (*READING[2:3], Step(module="policytool.commands.summary", name="model_record")),
    ),
    "audit": (
        ("audit", "--format", "json", "--target", "keras3"),
        (*AUDITING, Step(module="policytool.cli.audit_command", name="suppress")),
    ),
    "audit jsonl": (
        ("audit", "--format", "jsonl", "--target", "keras3"),
        (
            *AUDITING[2:],
            Step(module="policytool.cli.audit_command", name="suppress"),
            Step(module="policytool.cli.audit_command", name="model_values"),
        ),
    ),
    "audit --fix": (
        ("audit", "--format", "json", "--fix"),
        (
            *AUDITING[:3],
            Step(module="policytool.commands.fix", name="_plan_fixes"),
            Step(module="policytool.commands.fix", name="apply_plan"),
        ),
    ),
    "migrate": (("migrate", "--format", "json", "-o", "out/"), MIGRATING),
    "migrate jsonl": (
        ("migrate", "--format", "jsonl", "-o", "out/"),
        (
            *MIGRATING[2:],
            Step(module="policytool.cli.migrate_command", name="plan_values"),
        ),
    ),
}


def every_error() -> list[Exception]:
    """Return an error of each class of the package, of a lack of memory or depth, and of bugs."""
    own: list[Exception] = []
    for _, cls in introspection.getmembers(errors, introspection.isclass):
        if not issubclass(cls, PolicytoolError):
            continue
        if issubclass(cls, ModelFileError):
            own.append(cls(BAD, "damaged-h5", "is damaged"))
        elif issubclass(cls, WorkerError | errors.BundleError):
            own.append(cls("no-cluster", "ended"))
        else:
            own.append(cls("a reason"))
    system = OSError(5, "Input/output error", BAD)
    return [*own, MemoryError(), RecursionError("deep"), system, KeyError("k"), AssertionError()]


RAISED: Final = every_error()


def code_of(error: Exception) -> int:
    """Return the exit code of a run over several files, over one of which this is raised."""
    match error:
        case UsageError():
            return 2
        case PolicytoolError() | MemoryError() | RecursionError() | OSError():
            return 3
    return 70


def concerns(value: Any) -> bool:
    """Return whether a value is about the bad file."""
    for name in ("document", "model", "plan", "_case", "loaded", "path", "display_path"):
        inner = getattr(value, name, None)
        if inner is not None and not callable(inner):
            return concerns(inner)
    return str(value).endswith(BAD)


@contextmanager
def raising(step: Step, error: Exception) -> Iterator[list[int]]:
    """Let a step raise an error for the bad file, and count how often it does."""
    *classes, name = step.name.split(".")
    owner = importlib.import_module(step.module)
    for item in classes:
        owner = getattr(owner, item)
    was: Callable[..., Any] = getattr(owner, name)
    count = [0]

    def instead(*arguments: Any, **others: Any) -> Any:
        if any(concerns(value) for value in arguments):
            count[0] += 1
            raise error
        return was(*arguments, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, instead)
        yield count


class _OtherProcess:
    """Answers lines as a worker process does, in this process."""

    def __init__(self, head: bytes) -> None:
        self._answer = parallel.line_answerer(head)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def answers(self, lines: Sequence[bytes], _after: object) -> Iterator[tuple[int, bytes]]:
        yield from enumerate(map(self._answer, lines))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: the bad file between healthy ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parallel, "_helpers", lambda _task, head, *_: _OtherProcess(head))
    return tmp_path


FILES: Final = {
    "a.h5": MIXED_H5,
    BAD: FIXED_SCALE_H5,
    "c.json": MIXED_JSON,
    "d.keras": MIXED_KERAS,
}


def prepare(place: Path) -> None:
    """Make the files anew."""
    for entry in place.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for name, source in FILES.items():
        copy = place / name
        shutil.copyfile(source, copy)
    for name in FILES:
        os.utime(place / name, (1_600_000_000, 1_600_000_000))


def reported(ended: Ended) -> dict[str, Any]:
    """Return what a report says of each model but the bad one, by path."""
    if ended.out.startswith('{"version"') and '"command"' in ended.out.partition("\n")[0]:
        lines = [json.loads(line) for line in ended.out.splitlines()]
        assert lines[-1]["end"]["complete"] is True
        assert lines[-1]["end"]["exit_code"] == ended.code
        models = [line["model"] for line in lines if "model" in line]
    else:
        report = ended.json
        models = next(
            report[key]
            for key in ("largest", "models", "plans")
            if isinstance(report.get(key), list)
        )
    return {model["path"]: model for model in models if model["path"] != BAD}


def has_failure(ended: Ended) -> bool:
    """Return whether a report has a failure of the bad file, and of no other."""
    if "\n" in ended.out.strip() and '"command"' in ended.out.partition("\n")[0]:
        failures = [
            json.loads(line)["failure"] for line in ended.out.splitlines() if '"failure"' in line
        ]
    else:
        failures = ended.json["failures"]
    assert {item["path"] for item in failures} <= {BAD}
    return bool(failures)


SOME: Final = (errors.LimitError, UsageError, MemoryError, KeyError)
"""Classes that cover each exit code, and the two ways to keep findings."""

JOBS: Final = ("1", "2")


@THOROUGH
@pytest.mark.parametrize(
    ("name", "jobs"), sampled("runs with some errors", itertools.product(RUNS, JOBS), share=3)
)
def test_error_in_one_file_is_a_failure_of_this_file(name: str, jobs: str, place: Path) -> None:
    """The test raises some classes of errors at every step."""
    check(name, jobs, place, [error for error in RAISED if type(error) in SOME])


@SLOW
@pytest.mark.parametrize(
    ("name", "jobs"), sampled("runs with every error", itertools.product(RUNS, JOBS), share=3)
)
def test_every_error_in_one_file_is_a_failure_of_this_file(
    name: str, jobs: str, place: Path
) -> None:
    """The test raises every class of errors at every step."""
    check(name, jobs, place, RAISED)


def check(name: str, jobs: str, place: Path, raised: Sequence[Exception]) -> None:
    """Raise errors at every step of a run."""
    words, steps = RUNS[name]
    arguments = (*words, "--jobs", jobs, *FILES)
    prepare(place)
    healthy = run(*arguments)
    expected = reported(healthy)
    assert len(expected) == len(FILES) - 1
    assert healthy.code in {0, 1}
    for step in steps:
        for error in raised:
            prepare(place)
            with raising(step, error) as count:
                ended = run(*arguments)
            about = f"{step.name} raises {error!r}: {ended.err}"
            assert count[0] > 0, about
            assert reported(ended) == expected, about
            if step.keeps_findings and code_of(error) != 70:
                assert ended.code == healthy.code, about
                assert not has_failure(ended), about
                continue
            assert has_failure(ended) or "error: bad.h5: not fixed: " in ended.err, about
            assert ended.code == code_of(error) or (
                isinstance(error, SpellingError | UsageError) and ended.code == 3
            ), about
            if ended.code == 70:
                assert "this is a bug in policytool" in ended.err, about


def test_findings_are_reported_if_a_limit_ends_the_plan_of_a_command(place: Path) -> None:
    shape = next(shape for shape in SHAPES if shape.name == "nest called twice")
    config = shape.make(Keras3(), 16)
    (place / "calls.json").write_text(json.dumps(config), encoding="utf-8")
    assert (place / "calls.json").stat().st_size < 20_000
    shutil.copyfile(MIXED_H5, place / "other.h5")
    for jobs in ("1", "2"):
        ended = run("audit", ".", "--target", "tf_keras", "--format", "json", "--jobs", jobs)
        models = {model["path"]: model for model in ended.json["models"]}
        assert (ended.code, ended.json["failures"]) == (1, [])
        assert {*models} == {"calls.json", "other.h5"}
        assert models["calls.json"]["findings"][0]["rule"] == "PT104"
        [command] = models["calls.json"]["commands"]
        assert command["arguments"] is None
        assert "layer-calls limit of 25000" in command["reason"]
    refused = run("migrate", "calls.json", "--target", "tf_keras", "--preview")
    assert refused.code == 3
    assert "layer-calls limit of 25000" in " ".join(refused.out.split())


_SERIALLY: Final = """\
import json, os, sys
from policytool.cli.fleets import LineWriter
from policytool.commands import inspect
from policytool.commands.batch import parallel
from policytool.formats.discovery import inputs
from policytool.support.processes import crash_guard
def attempt(found):
    if found.path.name.startswith("bad"):
        os.kill(os.getpid(), 11)
    return inspect.attempt(found)
crash_guard.allow()
with LineWriter("header\\n") as writer:
    for result in parallel.run_serially(inspect.TASK, list(inputs(sys.argv[1:])), False, attempt):
        writer.write(f"{result.path} {getattr(result, 'code', 'read')}\\n")
    writer.write("end\\n", last=True)
"""


@THOROUGH
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process cannot be copied here")
def test_crash_in_a_copied_process_affects_only_one_file(tmp_path: Path) -> None:
    """One process handles commands that need TensorFlow, one file after the other."""
    names = ["a.h5", "bad1.h5", "b.h5", "bad2.h5", "bad3.h5", "c.h5", "bad4.h5"]
    for name in names:
        shutil.copyfile(MIXED_H5, tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", _SERIALLY, *names],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [f"{name} {'worker-crashed' if 'bad' in name else 'read'}" for name in names]
    assert done.stdout.splitlines() == ["header", *expected, "end"], done.stderr
