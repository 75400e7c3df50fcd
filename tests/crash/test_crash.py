"""
A spread of what ``make crash`` does in full: faults put into real calls of the system, also those
that libhdf5 makes, by strace.

And the judgement itself: that it finds what is lost, mixed, or told wrongly.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.crash import faults, judging, meddling, runs, tracing
from tests.crash.campaign import WAYS, Subject, total
from tests.crash.judging import LOST, State
from tests.crash.paths import PATHS
from tests.crash.run import RECORD
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.crash.campaign import Way
    from tests.crash.tracing import Call

BY_NAME: Final = {path.name: path for path in PATHS}
FILE: Final = stat.S_IFREG | 0o644


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, runs.Server, runs.Server]]:
    """Start what runs are forks of, once."""
    reason = runs.permitted()
    if reason is not None:
        pytest.skip(reason)
    one, other = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")
    with runs.Server(one) as first, runs.Server(other) as second:
        yield one, first, second


@pytest.fixture
def subject(servers: tuple[Path, runs.Server, runs.Server]) -> Callable[..., Subject]:
    """Return a function that runs a path undisturbed and returns what can be done to it."""

    def make(name: str, way: Way = WAYS[0]) -> Subject:
        result = Subject(BY_NAME[name], way, servers[0], servers[1])
        assert result.outcome.wrong == []
        assert result.outcome.writing >= 8
        return result

    return make


def _names(calls: list[Call]) -> list[Call]:
    """Return the calls that give names or take them, and the one after each."""
    naming = {"link", "linkat", "rename", "renameat2", "unlink", "mkdir", "rmdir"}
    return [
        call
        for index, call in enumerate(calls)
        if call.name in naming or (index and calls[index - 1].name in naming)
    ]


@ALONE
@SLOW
def test_a_file_that_is_replaced_survives_every_fault(subject: Callable[..., Subject]) -> None:
    """
    The faults, at each call that changes a name: the process is killed, or the disk fails once or
    from then on.
    """
    subject_model = subject("json: in place")
    subject_model.check(
        faults.at_writing_calls(
            subject_model.own,
            subject_model.every,
            ("KILL", "EIO", *faults.LASTING[:1]),
            _names(subject_model.own),
        )
    )
    assert subject_model.outcome.wrong == []
    assert total(subject_model.outcome) >= 9


@ALONE
@SLOW
def test_crash_without_links_and_unnamed_files_loses_nothing(
    subject: Callable[..., Subject],
) -> None:
    subject_model = subject("json: in place", WAYS[3])
    subject_model.check(faults.at_writing_calls(subject_model.own, subject_model.every, ("KILL",)))
    assert subject_model.outcome.wrong == []
    assert total(subject_model.outcome) >= 9


@ALONE
@SLOW
def test_faults_in_writes_of_libhdf5_are_tested(subject: Callable[..., Subject]) -> None:
    """The library writes in C, so the test cannot let a Python call fail."""
    subject_model = subject("h5: in place, over an older backup")
    assert {"pwrite64", "ftruncate", "copy_file_range", "fsync", "linkat", "rename"} <= {
        call.name for call in subject_model.own
    }
    subject_model.check(
        faults.at_writing_calls(
            subject_model.own,
            subject_model.every,
            ("EIO",),
            [call for call in subject_model.own if call.name == "pwrite64"],
        )
    )
    subject_model.check(faults.short_writes(subject_model.largest, 2))
    assert subject_model.outcome.wrong == []
    assert total(subject_model.outcome) >= 6
    assert subject_model.outcome.tallies["short writes"].codes == {3: 2}


@ALONE
@SLOW
def test_a_directory_that_is_replaced_survives_every_fault(subject: Callable[..., Subject]) -> None:
    """
    After a fault at any rename, a complete copy has a documented name, and the next run says how to
    continue.
    """
    subject_model = subject("savedmodel: in place")
    subject_model.check(
        faults.at_writing_calls(
            subject_model.own,
            subject_model.every,
            ("KILL", *faults.LASTING[:1]),
            [call for call in subject_model.own if call.name == "rename"],
        )
    )
    assert subject_model.outcome.wrong == []
    assert (
        sum(tally.left[State.ASIDE.value] for tally in subject_model.outcome.tallies.values()) >= 1
    )


@ALONE
@SLOW
@pytest.mark.parametrize("name", ["json: in place", "inspect --format FORMAT=FILE"])
def test_files_written_by_other_processes_are_kept(
    name: str, subject: Callable[..., Subject], servers: tuple[Path, runs.Server, runs.Server]
) -> None:
    """
    At each named step, another run works, an input is saved again, or another process creates the
    output.
    """
    one = subject(name)
    one.own = [call for call in one.own if call.name in {"fchmod", "linkat", "rename"}]
    meddling.check(one, servers[2])
    assert one.outcome.wrong == []
    assert total(one.outcome) >= 9


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"m": b"old"}, State.ORIGINAL),
        ({"m": b"old", ".m.0-1-a.policytool-draft": b"hal"}, State.ORIGINAL),
        ({"m": b"new", "m.bak": b"old"}, State.NEW),
        ({"m": b"old", "m.bak": b"old"}, State.BETWEEN),
        ({"m.bak": b"old"}, State.ASIDE),
        ({"m": b"ne", "m.bak": b"old"}, LOST),
        ({"m": b"new"}, LOST),
        ({"m": b"new", "m.bak": b"new"}, LOST),
        ({"m": b""}, LOST),
        ({}, LOST),
        ({"m": b"old", "x": b"half"}, LOST),
    ],
    ids=str,
)
def test_remaining_files_are_classified(found: dict[str, bytes], expected: State | str) -> None:
    """A directory without the original and without the new file and its backup is a loss."""
    before, after, left = (
        {name: (FILE, data) for name, data in files.items()}
        for files in ({"m": b"old"}, {"m": b"new", "m.bak": b"old"}, found)
    )
    state = judging.state(left, before, after)
    assert state == expected or (isinstance(state, str) and expected == LOST)


@pytest.mark.parametrize(
    ("said", "code", "state", "count"),
    [
        ("", 0, State.NEW, 0),
        ("", 0, State.ORIGINAL, 1),
        ("nothing was changed", 3, State.ORIGINAL, 0),
        ("nothing was changed", 3, State.NEW, 1),
        ("writing failed", 3, State.NEW, 1),
        ("the change could not be undone", 3, State.NEW, 0),
        ("this is a bug", 70, State.ORIGINAL, 1),
        ("Traceback", 1, State.ORIGINAL, 1),
        ("interrupted.", 130, State.NEW, 0),
        ("", -11, State.ORIGINAL, 1),
    ],
)
def test_untrue_messages_and_exit_codes_are_detected(
    said: str, code: int, state: State, count: int
) -> None:
    assert (
        len(list(judging.wrong(said, code, state, expected=0, killed=False, separate=False)))
        == count
    )


@pytest.mark.parametrize(
    ("data", "is_whole"),
    [
        (b'{"version": 1, "models": []}', True),
        (b'{"version": 1, "models": [', False),
        (b'{"version": 1}', False),
        (b"[1]", False),
        (meddling.FOREIGN, False),
    ],
)
def test_complete_report_counts_as_the_expected_report(data: bytes, is_whole: bool) -> None:  # noqa: FBT001
    """The content depends on the run. An incomplete or different report does not count."""
    assert judging.is_whole_report(data, b'{"models": [1], "version": 1}') is is_whole


@THOROUGH
def test_a_fork_waits_when_strace_is_attached(
    servers: tuple[Path, runs.Server, runs.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in a call of the command would else meet the fork's own preparations."""
    attached, seen = runs.Server._attached, []  # noqa: SLF001  # the moment that matters

    def looking(self: runs.Server, pid: int, *how: Any) -> Any:
        seen.append(Path(f"/proc/{pid}/fd/0").readlink())
        return attached(self, pid, *how)

    monkeypatch.setattr(runs.Server, "_attached", looking)
    for _ in range(20):
        assert servers[1].run(("explain", "policies"), trace=["close"]).code == 0
    assert set(seen) == {Path(os.devnull)}


@THOROUGH
def test_runs_are_of_this_tree(tmp_path: Path) -> None:
    """Wherever they work, and whatever is installed."""
    if reason := runs.permitted():
        pytest.skip(reason)
    run = runs.in_a_new_interpreter(("--version",), tmp_path)
    assert run.code == 0
    opened = [call.text for call in run.calls if "/policytool/cli/main.py" in call.text]
    assert opened
    assert all(f'"{ROOT}/policytool/' in text or f"<{ROOT}/policytool/" in text for text in opened)


def test_full_disk_at_stdout_is_not_reported_as_a_bug() -> None:
    """The command is done, the report is incomplete, and the error is one sentence."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    with full.open("wb") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "policytool", "explain", "policies"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
        )
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        (
            "error: Cannot read or write: No space left on device. The report on stdout may be "
            "incomplete."
        )
    ]


def test_unknown_system_calls_are_reported(tmp_path: Path) -> None:
    """
    Every call on the directory must be in a list, so that no way to write is missed. Files there
    are not written through memory.
    """
    log = (
        f'7 quux("{tmp_path}/x") = 0\n7 mmap(NULL, 8, PROT_READ|PROT_WRITE, MAP_SHARED, '
        f'3<{tmp_path}/x>, 0) = 0x7\n7 quux("/elsewhere") = 0\n'
    )
    assert len(list(tracing.unknown(tracing.calls(log), tmp_path))) == 2


def test_the_record_is_of_these_paths() -> None:
    """Every path has a fault at every call that writes, and nothing is lost."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["paths"].keys() == BY_NAME.keys()
    assert record["wrong"] == []
    for name, ways in record["paths"].items():
        result = ways[WAYS[0].name]
        assert BY_NAME[name].processes or {
            result["faults"][kind]["runs"] for kind in ("SIGKILL", "ENOSPC", "EIO")
        } == {result["writing"]}
        assert not any(
            LOST in tally["left"] for way in ways.values() for tally in way["faults"].values()
        )
