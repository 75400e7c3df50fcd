"""``migrate --jobs`` and ``audit --fix --jobs`` do not depend on the number of processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import fix, remote_migration, saved_plans
from policytool.commands.destinations import Destination
from policytool.commands.fix import FixAttempt, FixOptions, FixRequest
from policytool.commands.migrate import MigrateRequest
from policytool.commands.saved_plans import SavedPlan, SavedPlanRequest
from policytool.formats import discovery
from policytool.migration.planning.options import Assignment, LossScales, Options, Outputs
from policytool.rules import AuditOptions
from policytool.rules.selection.suppressions import (
    PathPattern,
    PerFileIgnore,
    Suppression,
    Suppressions,
)
from policytool.support.processes import pool
from policytool.support.text import codec
from tests.conftest import (
    MIXED_H5,
    MIXED_JSON,
    MIXED_KERAS,
    MIXED_SAVEDMODEL,
    MIXED_TFJS,
    MIXED_YAML,
    Ended,
    run,
)
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import EVERY_CASE, sampled
from tests.numerics.test_workers import is_gone
from tests.support.processes.test_pool import children

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.batch.task import Task

pytestmark = [ALONE, THOROUGH]

OLD: Final = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
OTHER: Final = FIXTURES / "keras3.15/int8.keras"
"""Without a layer mlp/dense_a, and refused with --to."""

SOURCES: Final = (OLD, MIXED_KERAS, MIXED_SAVEDMODEL, MIXED_JSON, MIXED_YAML, MIXED_H5)


def copied(source: Path, target: Path) -> Path:
    """Return a copy of a fixture."""
    target.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target))


def filled(directory: Path) -> Path:
    """Return a directory with models, a broken model, weights, and a file that is not a model."""
    for number in range(len(SOURCES)):
        source = SOURCES[number]
        copied(source, directory / f"m{number}{source.suffix}")
    (directory / "m3b.h5").write_bytes(MIXED_H5.read_bytes()[:3000])
    copied(FIXTURES / "tf2.3/weights_only.weights.h5", directory / "m9.weights.h5")
    copied(OTHER, directory / "int8.keras")
    (directory / "notes.txt").write_text("nothing\n", encoding="utf-8")
    (directory / "out").mkdir()
    return directory


def files(directory: Path) -> dict[str, bytes | str]:
    """Return all that a directory holds: bytes, and where links lead."""
    actual = sorted(directory.rglob("*"))
    return {
        path.relative_to(directory).as_posix(): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in actual
        if not path.is_dir()
    }


def names(directory: Path) -> list[str]:
    """Return the names in a directory."""
    return sorted(path.name for path in directory.iterdir())


def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *calls: tuple[str, ...]) -> list[Ended]:
    """Return the results of calls with one process; two processes give the same files."""
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    ends = []
    for jobs, name in (("1", "one"), ("2", "two")):
        monkeypatch.chdir(tmp_path / name)
        ends.append([run(*call, "--jobs", jobs) for call in calls])
    assert ends[1] == ends[0]
    assert files(tmp_path / "two") == files(tmp_path / "one")
    assert not children(os.getpid())
    return ends[0]


@pytest.fixture
def meddling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes Python run a text at the start of each further process."""

    def meddle(text: str) -> None:
        folder = tmp_path / "site"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(folder))

    return meddle


DELAY: Final = (
    "import time, policytool.formats.format_detection as recognition\n"
    "was = recognition.document\n"
    "def document(path, shown):\n"
    "    if 'slow' in str(path) or '.migrated' in str(path):\n"
    "        time.sleep(1.5)\n"
    "    return was(path, shown)\n"
    "recognition.document = document\n"
)
"""Makes one input take so long that the next would overtake it."""


@SLOW
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-v",),
        ("-q",),
        ("--to", "mixed_bfloat16"),
        ("--to", "float16", "--include", "outputs", "--keep", "loss-scale"),
        ("--target", "tf2.4"),
        ("--set", ".*=float32"),
        ("--in-place",),
        ("--in-place=no-backup",),
        ("-o", "out"),
        ("-o", "out.h5"),
        ("--preview",),
        ("--preview", "--format", "diff"),
        ("--to", "float32", "--format", "diff=plan.diff", "--format", "json=plan.json"),
        ("--format", "json"),
        ("--format", "markdown"),
    ],
    ids=" ".join,
)
def test_two_processes_give_the_same_result_as_one(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report, stderr, the exit code and every byte of every file are equal."""
    filled(tmp_path / "one")
    both(tmp_path, monkeypatch, ("migrate", ".", *options))


def test_second_call_detects_the_outputs_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Existing outputs are errors, or are replaced with ``--existing=replace``."""
    filled(tmp_path / "one")
    _, again, once_more = both(
        tmp_path,
        monkeypatch,
        *(("migrate", ".", *options) for options in ((), (), ("--existing=replace",))),
    )
    assert again.err.count("[target-exists]") > 3
    assert "[target-exists]" not in once_more.err


def test_interrupted_run_continues_with_the_missing_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Existing outputs are skipped, and the other models are migrated."""
    place = filled(tmp_path / "one")
    (place / "out/m0.h5").write_bytes(b"an earlier run's")
    options = ("--to", "float32", "-o", "out", "--existing=skip", "--format", "json")
    first, again = both(
        tmp_path, monkeypatch, ("migrate", ".", *options), ("migrate", ".", *options)
    )
    statuses = [
        [
            plan["status"]
            for plan in ended.json["plans"]
            if plan["status"] not in {"blocked", "unchanged"}
        ]
        for ended in (first, again)
    ]
    assert sorted(statuses[0]) == ["skipped", *["written"] * (len(statuses[0]) - 1)]
    assert statuses[1] == ["skipped"] * len(statuses[0])
    assert len(statuses[0]) > 2
    assert (tmp_path / "two/out/m0.h5").read_bytes() == b"an earlier run's"
    assert "target-exists" not in first.err + again.err


def test_skipping_and_replacing_conflict() -> None:
    """The combination is a usage error."""
    ended = run("migrate", OLD, "--existing=skip", "--in-place")
    assert (ended.code, ended.err.count(" conflict: ")) == (2, 1)


def test_saved_plan_is_applied_by_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan also contains plans that no longer match."""
    place = filled(tmp_path / "one")
    monkeypatch.chdir(place)
    (place / "plan.json").write_text(
        run("migrate", ".", "--to", "float32", "--preview", "--format", "json").out,
        encoding="utf-8",
    )
    copied(MIXED_JSON, place / "m0.h5")
    result, shown, _ = both(
        tmp_path,
        monkeypatch,
        ("migrate", "--plan", "plan.json", "--preview"),
        ("migrate", "--plan", "plan.json", "--preview", "--format", "diff"),
        ("migrate", "--plan", "plan.json"),
    )
    assert "[plan-stale]" in result.err
    assert "+++" in shown.out
    assert (place / "m1.float32.keras").exists()


@SLOW
@pytest.mark.parametrize(
    "options",
    [
        ("--diff",),
        ("--diff", "--unsafe-fixes"),
        ("--fix",),
        ("--fix", "--unsafe-fixes", "--no-backup", "--format", "json"),
    ],
)
def test_fixes_are_the_same(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fixes, reasons and remaining findings are equal; backups block a second call."""
    filled(tmp_path / "one")
    first, _ = both(tmp_path, monkeypatch, ("audit", ".", *options), ("audit", ".", *options))
    assert first.out
    assert ("m0.h5.bak" in files(tmp_path / "two")) == (options == ("--fix",))


def test_processes_apply_the_same_suppressions_as_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cases are a suppression, ignored rules of a file, and a baseline with a renamed file."""
    place = tmp_path / "one"
    for name in ("a.h5", "b.h5", "c.h5", "d.h5"):
        copied(OLD, place / name)
    monkeypatch.chdir(place)
    assert run("audit", "--write-baseline", "known.json", "c.h5").code == 0
    Path("c.h5").rename("c2.h5")
    Path("policytool.toml").write_text(
        "[per-file-ignores]\n'b.h5' = ['PT1', 'PT505']\n"
        "[[suppress]]\nrules = ['PT1', 'PT505']\npath = 'a.h5'\nreason = 'r'\n"
        "expires = 2999-01-01\n",
        encoding="utf-8",
    )
    options = (
        "--baseline",
        "known.json",
        "--format",
        "json",
    )
    (ended,) = both(tmp_path, monkeypatch, ("audit", ".", "--fix", *options))
    assert [fixed["path"] for fixed in ended.json["fixes"]] == ["d.h5"]
    assert {
        (model["path"], model["suppressed"][0]["by"]) for model in ended.json["models"][:3]
    } == {
        ("a.h5", "suppression"),
        ("b.h5", "per-file-ignores"),
        ("c2.h5", "baseline"),
    }


@SLOW
@pytest.mark.parametrize(
    ("models", "rest"),
    [
        ({"slow/model.h5": MIXED_H5, "b/model.h5": OLD, "c/model.h5": MIXED_H5}, ("-o", "out")),
        ({"slow.h5": OLD, "slow.migrated.h5": MIXED_H5}, ()),
        ({"m.migrated.h5": MIXED_H5, "m.h5": OLD}, ()),
        (
            {"slow/model": MIXED_SAVEDMODEL, "b/model": FIXTURES / "tf2.5/exp_mf16_fixed128"},
            ("-o", "out"),
        ),
        ({"slow/one.json": MIXED_TFJS, "b/other.json": MIXED_TFJS}, ("-o", "out")),
        ({"slow.h5": OLD, "slow.h5.bak": OLD}, ("--in-place",)),
    ],
    ids=" ".join,
)
def test_inputs_that_share_a_file_are_processed_in_order(
    models: dict[str, Path],
    rest: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    meddling: Any,
) -> None:
    """If two inputs share a file, the second reads the result of the first."""
    for name, source in models.items():
        copied(source, tmp_path / "one" / name)
        for shard in source.parent.glob("*.bin") if source is MIXED_TFJS else ():
            data = bytearray(shard.read_bytes())
            data[0] ^= len(name)  # other weights
            ((tmp_path / "one" / name).parent / shard.name).write_bytes(data)
    (tmp_path / "one/out").mkdir()
    meddling(DELAY)
    both(
        tmp_path,
        monkeypatch,
        *(("migrate", *models, *rest, *options) for options in ((), ("--existing=replace",))),
    )


def test_independent_inputs_may_finish_out_of_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meddling: Any
) -> None:
    models = ("slow.h5", "b.h5", "c.h5", "d.h5")
    for name in models:
        copied(OLD, tmp_path / name)
    meddling(DELAY)
    monkeypatch.chdir(tmp_path)
    ended = run("migrate", *models, "--jobs", "2", "--format", "json")
    assert [plan["path"] for plan in ended.json["plans"]] == list(models)
    assert (tmp_path / "d.migrated.h5").stat().st_mtime_ns < (
        tmp_path / "slow.migrated.h5"
    ).stat().st_mtime_ns


KILLED: Final = (
    "import os, signal\n"
    "from policytool.support.files.atomic import _placing\n"
    "def killing(name):\n"
    "    was = getattr(_placing, name)\n"
    "    def place(new, target, *rest, **named):\n"
    "        if 'fatal' in str(target):\n"
    "            os.kill(os.getpid(), signal.SIGKILL)\n"
    "        return was(new, target, *rest, **named)\n"
    "    setattr(_placing, name, place)\n"
    "killing('place_file')\n"
    "killing('place_directory')\n"
)
"""Ends a process after a file, or a directory, was drafted, and before it has its name."""


def test_killed_process_affects_only_one_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meddling: Any
) -> None:
    place = filled(tmp_path / "place")
    copied(OLD, place / "fatal.h5")
    copied(MIXED_SAVEDMODEL, place / "fatal")
    before = files(place)
    meddling(KILLED)
    monkeypatch.chdir(place)
    ended = run(
        "migrate",
        "fatal",
        "fatal.h5",
        "m0.h5",
        "m1.keras",
        "m2",
        "--to",
        "float32",
        "--jobs",
        "2",
        "--format",
        "json",
    )
    assert ended.code == 3
    assert [plan["path"] for plan in ended.json["plans"]] == ["m0.h5", "m1.keras", "m2"]
    assert [(failure["path"], failure["code"]) for failure in ended.json["failures"]] == [
        ("fatal", "worker-crashed"),
        ("fatal.h5", "worker-crashed"),
    ]
    assert (
        "fatal.h5: may not have been migrated: the worker process was terminated by SIGKILL"
        in ended.err
    )
    assert "The output is either complete or unchanged. [worker-crashed]" in ended.err
    new = set(files(place)) - set(before)
    assert {name.partition("/")[0] for name in new} == {
        "m0.float32.h5",
        "m1.float32.keras",
        "m2.float32",
    }
    assert {name: data for name, data in files(place).items() if name in before} == before
    assert not [name for name in names(place) if name.startswith(".")]


def test_killed_process_affects_only_one_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meddling: Any
) -> None:
    """The model has no report, because it may have been fixed or not."""
    for name in ("a.h5", "fatal.h5", "c.h5"):
        copied(OLD, tmp_path / "place" / name)
    meddling(KILLED)
    monkeypatch.chdir(tmp_path / "place")
    ended = run("audit", "--fix", ".", "--jobs", "2", "--format", "json")
    assert ended.code == 3
    assert [model["path"] for model in ended.json["models"]] == ["a.h5", "c.h5"]
    assert (
        "fatal.h5: may not have been fixed: the worker process was terminated by SIGKILL"
        in ended.err
    )
    assert "The file is intact, either fixed or unchanged. [worker-crashed]" in ended.err
    assert Path("fatal.h5").read_bytes() == OLD.read_bytes()
    assert names(Path()) == ["a.h5", "a.h5.bak", "c.h5", "c.h5.bak", "fatal.h5"]


def test_a_pattern_that_matches_nothing_fails_one_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, after all other models are written and reported."""
    for name in ("b.h5", "c.h5"):
        copied(OLD, tmp_path / "one" / name)
    copied(OTHER, tmp_path / "one/a.keras")
    (ended,) = both(
        tmp_path,
        monkeypatch,
        (
            "migrate",
            *("a.keras", "b.h5", "c.h5", "--set", "mlp/dense_a=float32", "--format", "json"),
        ),
    )
    assert ended.code == 2
    assert [plan["path"] for plan in ended.json["plans"]] == ["b.h5", "c.h5"]
    [failure] = ended.json["failures"]
    assert (failure["path"], failure["code"]) == ("a.keras", "usage")
    assert "mlp/dense_a" in failure["message"]
    assert f"error: a.keras: {failure['message'].partition(';')[0]}" in ended.err


@pytest.mark.parametrize("options", [("--verify",), ("--retrace",)])
def test_files_are_verified_and_retraced_one_after_the_other(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--jobs`` has no effect on these options, because TensorFlow has a separate process."""
    monkeypatch.setattr(pool, "Pool", None)
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        copied(MIXED_SAVEDMODEL, tmp_path / name)
    ended = run("migrate", "a", "b", *options, "--python", "/nowhere/python", "--jobs", "2")
    assert ended.code == 3
    assert ended.err.count("[no-python]") == 2
    (tmp_path / "plan.json").write_text(
        run("migrate", "a", "b", *options, "--preview", "--format", "json", "--jobs", "2").out,
        encoding="utf-8",
    )
    assert (
        run(
            "migrate",
            "--plan",
            "plan.json",
            *options[:1] * (options == ("--verify",)),
            "--python",
            "/nowhere/python",
            "--jobs",
            "2",
        ).code
        == 3
    )


WAITING: Final = (
    "import time\n"
    "from pathlib import Path\n"
    "from policytool.support.files.atomic import _placing\n"
    "def place(new, target, *rest, **named):\n"
    "    Path({marker!r} + new.name).touch()\n"
    "    time.sleep(60)\n"
    "_placing.place_directory = place\n"
)
"""Makes a process wait with a hidden directory that is complete and has not got its name."""


@pytest.fixture
def begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meddling: Any
) -> Iterator[tuple[subprocess.Popen[bytes], list[int], dict[str, bytes | str]]]:
    """Return a call whose two processes have hidden drafts, and the files before it."""
    place, marks = tmp_path / "place", tmp_path / "marks"
    marks.mkdir()
    for name in ("a", "b", "c"):
        copied(MIXED_SAVEDMODEL, place / name)
    before = files(place)
    meddling(WAITING.format(marker=f"{marks}/"))
    monkeypatch.chdir(place)
    command = [
        sys.executable,
        "-m",
        "policytool",
        "migrate",
        "a",
        "b",
        "c",
        "--to",
        "float32",
        "--jobs",
        "2",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=pool.environment(os.environ)
    )
    try:
        until = time.monotonic() + 60
        while len(list(marks.iterdir())) < 2:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert len([name for name in names(place) if name.startswith(".")]) == 2
        yield process, children(process.pid), before
    finally:
        process.kill()
        process.communicate()


def test_an_interrupt_leaves_nothing(
    begun: tuple[subprocess.Popen[bytes], list[int], dict[str, bytes | str]], tmp_path: Path
) -> None:
    """No draft and no process, in one sentence."""
    process, both_of_them, before = begun
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err.strip()) == (130, b"", b"error: interrupted.")
    assert all(is_gone(pid) for pid in both_of_them)
    assert files(tmp_path / "place") == before
    assert names(tmp_path / "place") == ["a", "b", "c"]


def test_orphaned_processes_remove_their_drafts_and_end(
    begun: tuple[subprocess.Popen[bytes], list[int], dict[str, bytes | str]], tmp_path: Path
) -> None:
    process, both_of_them, before = begun
    process.kill()
    process.wait()
    assert all(is_gone(pid) for pid in both_of_them)
    assert files(tmp_path / "place") == before
    assert names(tmp_path / "place") == ["a", "b", "c"]


# From one process to another


@SLOW
@pytest.mark.parametrize(
    "options",
    [Options(to="float16"), Options(target="tf2.4", loss_scale=LossScales.KEEP)],
    ids=["to_float16", "target"],
)
def test_migrations_of_fixtures_survive_encoding(options: Options) -> None:
    """The results include the data of a diff, and the plans for ``--plan``."""
    task = remote_migration.TASK
    read, read_plan = task.readers().result, saved_plans.TASK.readers().item
    request = MigrateRequest(
        options=options, destination=Destination(write=False, allow_overflow=True)
    )
    seen = 0
    every = discovery.inputs([str(FIXTURES)])
    for found in sampled("migrations that come back", every, share=4):
        result = task.attempt(found, request)
        again = read(json.loads(codec.encode(result)))
        assert again == result
        assert repr(again) == repr(result)
        if plan := getattr(result, "plan", None):
            saved = SavedPlan(plan=plan, path=found.local_path)
            assert repr(read_plan(json.loads(codec.encode(saved)))) == repr(saved)
            seen += 1
    assert seen > (200 if EVERY_CASE else 50)


def test_result_of_a_worker_contains_the_backup_and_the_counts(tmp_path: Path) -> None:
    task = remote_migration.TASK
    (outcome,) = discovery.inputs([str(copied(OLD, tmp_path / "a.h5"))])
    result: Any = task.attempt(
        outcome,
        MigrateRequest(
            options=Options(to="float16", outputs=Outputs.FOLLOW),
            destination=Destination(in_place=True),
            details=False,
        ),
    )
    assert result.written.backup == tmp_path / "a.h5.bak"
    assert result.written.counts
    assert not result.parts
    assert repr(task.readers().result(json.loads(codec.encode(result)))) == repr(result)


SUPPRESSIONS: Final = Suppressions(
    directory="/w",
    today=date(2026, 1, 1),
    entries=(
        Suppression(
            words=("PT9",),
            rules=frozenset({"PT901"}),
            reason="r",
            path=PathPattern(glob="*.h5", base="/w"),
            layer="a/b",
            expires=date(2027, 1, 1),
        ),
    ),
    per_file=(
        PerFileIgnore(
            pattern=PathPattern(glob="old/**", base="/w"),
            words=("PT9",),
            rules=frozenset({"PT902"}),
        ),
    ),
    known={"a.h5": Counter({"0" * 32: 2})},
)
"""With every way to let findings pass, and none that is of the rules."""


def test_request_for_a_worker_keeps_every_option() -> None:
    destination = Destination(
        output=Path("out"),
        in_place=True,
        backup=False,
        overwrite=True,
        allow_overflow=True,
        write=False,
    )
    options = Options(
        to="float16",
        assignments=(Assignment(pattern="a", policy="float32"),),
        include_exceptions=True,
        target="tf2.4",
    )
    for module, request in (
        (
            remote_migration,
            MigrateRequest(options=options, destination=destination, several=True, details=False),
        ),
        (saved_plans, SavedPlanRequest(destination=destination, details=False)),
        (
            fix,
            FixRequest(
                options=FixOptions(unsafe=True, targets=("tf2.4",)),
                audit_options=AuditOptions(targets=("tf2.4",)),
                suppressions=SUPPRESSIONS,
            ),
        ),
    ):
        task: Task[Any, Any, Any] = module.TASK
        assert task.readers().request(json.loads(codec.encode(request))) == request


def test_fixes_of_fixtures_survive_encoding() -> None:
    """The results include the findings and the planned output."""
    task = fix.TASK
    readers = task.readers()
    seen = 0
    request = FixRequest(
        options=FixOptions(unsafe=True, write=False),
        audit_options=AuditOptions(),
        suppressions=SUPPRESSIONS,
    )
    for found in discovery.inputs([str(FIXTURES / "tf2.3"), str(FIXTURES / "tf2.5")]):
        assert readers.item(json.loads(codec.encode(found))) == found
        attempt = task.attempt(found, request)
        assert repr(readers.result(json.loads(codec.encode(attempt)))) == repr(attempt)
        seen += isinstance(attempt, FixAttempt) and attempt.fixed is not None
    assert seen > 10
