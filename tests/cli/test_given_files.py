"""Baselines, plans, settings, lists and reports in files and pipes have limits on size and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import h5py
import pytest

from policytool.support import limits
from policytool.support.files import opening
from tests.conftest import MIXED_H5, run
from tests.helpers.marks import ALONE, THOROUGH
from tests.helpers.special_files import make_socket, run_bounded

if TYPE_CHECKING:
    from tests.conftest import Bounded

pytestmark = [
    THOROUGH,
    ALONE,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files"),
]

SOON: Final = ("--limit", "pipe-seconds=1")
LATE: Final = "it did not end within the pipe-seconds limit of 1 second"
OPTIONS: Final = (("audit", "--baseline", 3), ("migrate", "--plan", 2))
"""Command, option that names a file, and the code where that cannot be read."""


def written_to(path: Path, text: str) -> threading.Thread:
    """Return a thread that writes a text to a FIFO once somebody reads it."""
    thread = threading.Thread(target=path.write_text, args=(text,), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(("command", "option", "code"), OPTIONS)
def test_fifo_without_a_writer_times_out(
    command: str, option: str, code: int, tmp_path: Path
) -> None:
    """The error names the option."""
    os.mkfifo(tmp_path / "given")
    ended = run_bounded(command, MIXED_H5, option, tmp_path / "given", *SOON)
    assert ended.code == code
    assert f"{option} {tmp_path / 'given'} cannot be read: {LATE}" in ended.err


def test_settings_from_a_fifo_time_out_at_the_outer_limit(tmp_path: Path, bounded: Bounded) -> None:
    """Settings are read before ``--limit``, so a limit of the command has no effect."""
    os.mkfifo(tmp_path / "given")
    bounded("pipe-seconds", 1)
    start = time.monotonic()
    ended = run(
        *("inspect", MIXED_H5, "--config", tmp_path / "given", "--limit", "pipe-seconds=20")
    )
    assert ended.code == 2
    assert f"cannot be read: {LATE}" in ended.err
    assert 1 <= time.monotonic() - start < 20


@pytest.mark.parametrize(("command", "option", "code"), OPTIONS)
def test_endless_devices_are_read_up_to_the_limit(command: str, option: str, code: int) -> None:
    """An endless pipe has the same limit."""
    ended = run_bounded(command, MIXED_H5, option, "/dev/zero", "--limit", "json-bytes=1MiB")
    assert ended.code == code
    assert (
        "has at least 1025 KiB, above the json-bytes limit of 1 MiB. Raise the limit with "
        "--limit json-bytes=2MiB"
    ) in ended.err


def test_settings_are_read_up_to_the_limit(tmp_path: Path) -> None:
    """A file of three gigabytes is not read, and a device is read no further."""
    large = tmp_path / "policytool.toml"
    with large.open("wb") as stream:
        stream.truncate(3 * 2**30)
    for path, amount in ((large, "3 GiB"), ("/dev/zero", "at least 1025 KiB")):
        ended = run_bounded("inspect", MIXED_H5, "--config", path)
        assert ended.code == 2
        assert (
            f"cannot be read: it has {amount}, above the settings-bytes limit of 1 MiB, "
            "which cannot be raised because it is checked before any option is read"
        ) in ended.err


@pytest.mark.parametrize(("command", "option", "code"), OPTIONS)
def test_sockets_and_directories_are_rejected(
    command: str, option: str, code: int, tmp_path: Path
) -> None:
    """They have no content to read."""
    make_socket(tmp_path / "given")
    ended = run_bounded(command, MIXED_H5, option, tmp_path / "given")
    assert (ended.code, "it is a socket" in ended.err) == (code, True)
    assert run(command, MIXED_H5, option, tmp_path).code == code


def test_baseline_is_read_from_a_fifo(tmp_path: Path) -> None:
    """The process substitution of a shell gives such a path."""
    baseline, pipe = tmp_path / "baseline.json", tmp_path / "pipe"
    assert run("audit", MIXED_H5, "--write-baseline", baseline).code == 0
    os.mkfifo(pipe)
    thread = written_to(pipe, baseline.read_text(encoding="utf-8"))
    ended = run_bounded("audit", MIXED_H5, "--baseline", pipe)
    thread.join(1)
    assert (ended.code, thread.is_alive()) == (0, False)


def test_plan_is_read_from_a_descriptor(tmp_path: Path) -> None:
    """In a shell, ``<(...)`` gives such a path of an unnamed pipe."""
    plan = run(
        "migrate", MIXED_H5, "--to", "mixed_bfloat16", "--preview", "--format", "json"
    ).out.encode()
    reading, writing = os.pipe()

    def write() -> None:
        os.write(writing, plan)
        os.close(writing)

    threading.Thread(target=write, daemon=True).start()
    ended = run_bounded(
        "migrate",
        MIXED_H5,
        "--plan",
        f"/dev/fd/{reading}",
        "-o",
        tmp_path / "new.h5",
        pass_fds=[reading],
    )
    os.close(reading)
    assert (ended.code, (tmp_path / "new.h5").is_file()) == (0, True), ended.err


def test_null_device_is_an_empty_settings_file() -> None:
    """This path disables settings files."""
    assert run_bounded("inspect", MIXED_H5, "--config", "/dev/null").code == 0


def test_a_list_without_an_end_is_read_up_to_the_limit() -> None:
    with open("/dev/zero", "rb") as endless:  # noqa: PTH123  # a descriptor
        ended = run_bounded("inspect", "-", "--limit", "list-bytes=1MiB", stdin=endless)
    assert ended.code == 2
    sentence = (
        "Cannot read the list of paths from stdin: it has at least 1025 KiB, above the "
        "list-bytes limit of 1 MiB. Raise the limit with --limit list-bytes=2MiB"
    )
    assert sentence in ended.err
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as source:
        assert source.stdout is not None
        ended = run_bounded("inspect", "-", "--limit", "list-bytes=1MiB", stdin=source.stdout)
        source.stdout.close()
    assert (ended.code, sentence in ended.err) == (2, True)


def test_list_of_paths_that_does_not_end_times_out() -> None:
    """Another process keeps the pipe open."""
    reading, writing = os.pipe()
    ended = run_bounded("inspect", "-", *SOON, stdin=reading)
    os.close(reading)
    os.close(writing)
    assert ended.code == 2
    assert f"Cannot read the list of paths from stdin: {LATE}" in ended.err


def test_list_of_paths_is_read_from_a_slow_pipe() -> None:
    reading, writing = os.pipe()

    def write() -> None:
        time.sleep(0.5)
        os.write(writing, os.fsencode(MIXED_H5))
        os.close(writing)

    threading.Thread(target=write, daemon=True).start()
    ended = run_bounded("inspect", "-", "--format", "json", stdin=reading)
    os.close(reading)
    assert (ended.code, len(ended.json["models"])) == (0, 1)


def test_report_to_a_fifo_without_a_reader_is_an_error(tmp_path: Path) -> None:
    """Stdout is still written."""
    os.mkfifo(tmp_path / "pipe")
    ended = run_bounded("inspect", MIXED_H5, "--format", f"json={tmp_path / 'pipe'}")
    assert ended.code == 3
    assert "could not be written: it has no reader. Start the reader first" in ended.err
    assert ended.out


def test_report_to_a_fifo_whose_reader_never_reads_times_out(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):  # until it is full
        while os.write(writing, bytes(2**16)):
            pass
    ended = run_bounded("inspect", MIXED_H5, "--format", f"json={pipe}", *SOON)
    os.close(reading)
    os.close(writing)
    assert ended.code == 3
    assert (
        "could not be written: its reader read nothing within the pipe-seconds limit of 1 second"
    ) in ended.err


def test_report_is_written_to_a_descriptor() -> None:
    """In a shell, ``>(...)`` gives such a path."""
    reading, writing = os.pipe()
    ended = run_bounded(
        "inspect", MIXED_H5, "--format", f"json=/dev/fd/{writing}", pass_fds=[writing]
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        report = json.load(stream)
    assert (ended.code, len(report["models"])) == (0, 1), ended.err


def test_reports_can_be_written_to_the_null_device() -> None:
    assert run_bounded("inspect", MIXED_H5, "--format", "json=/dev/null").code == 0


def test_file_that_grows_during_the_read_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit applies regardless of the size from the system: files in ``/proc`` have no size."""
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    limit = limits.Limit("tried", 10, limits.BYTES, "")
    with pytest.raises(
        opening.TooLargeError, match="it has 100 bytes, above the tried limit of 10 bytes"
    ):
        opening.read_bounded(path, limit)
    status = path.stat()
    lying = os.stat_result((*status[:6], 0, *status[7:]))
    monkeypatch.setattr(os, "fstat", lambda _descriptor: lying)
    with pytest.raises(
        opening.TooLargeError, match="it has at least 11 bytes, above the tried limit of 10 bytes"
    ):
        opening.read_bounded(path, limit)


def test_file_replaced_by_a_fifo_before_opening_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check uses the open descriptor."""
    regular, pipe = tmp_path / "file", tmp_path / "pipe"
    regular.write_bytes(b"")
    os.mkfifo(pipe)
    status = regular.stat()
    monkeypatch.setattr(type(pipe), "stat", lambda _path: status)
    before = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(opening.NotRegularError, match="it is a FIFO"):
        opening.open_regular(pipe)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_hdf5_file_replaced_during_opening_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The HDF5 library opens a path, so policytool compares the opened file with the checked file.
    """
    path = tmp_path / "model.h5"
    path.write_bytes(MIXED_H5.read_bytes())
    opened = h5py.File

    def replaced(name: Path, *arguments: object, **how: object) -> h5py.File:
        other = path.with_suffix(".other")
        other.write_bytes(MIXED_H5.read_bytes())
        other.replace(path)
        return opened(name, *arguments, **how)

    monkeypatch.setattr(h5py, "File", replaced)
    ended = run("inspect", path)
    assert ended.code == 3
    assert "it was replaced while policytool opened it" in ended.err
