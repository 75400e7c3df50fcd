"""``policytool inspect --summary``, and binary reports."""

from __future__ import annotations

import errno
import io
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from policytool.cli import inspect_command
from policytool.cli.arguments import InspectCommandLine
from policytool.cli.fleets import Fleet
from policytool.support.errors import UsageError
from tests.conftest import FIXED_SCALE_H5, MIXED_KERAS, run, run_process
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.discovery import Input
    from tests.conftest import Ended

pytestmark = THOROUGH


def _sentence(ended: Ended) -> str:
    return " ".join(ended.err.split())


def test_summary_counts_models_failures_and_skipped_files(tmp_path: Path) -> None:
    """An unreadable file costs itself only; the exit code is that of `inspect`."""
    (tmp_path / "a.h5").write_bytes(FIXED_SCALE_H5.read_bytes())
    (tmp_path / "b.keras").write_bytes(MIXED_KERAS.read_bytes())
    (tmp_path / "broken.keras").write_bytes(MIXED_KERAS.read_bytes()[:99])
    (tmp_path / "notes.txt").write_text("notes")
    ended = run("inspect", "--summary", "--format", "json", tmp_path)
    each = run("inspect", "--format", "json", tmp_path)
    assert (ended.code, each.code) == (3, 3)
    assert ended.err == each.err
    assert ended.json["models"] == 2
    assert ended.json["failures"] == each.json["failures"]
    assert len(ended.json["failures"]) == 1


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_processes_do_not_matter(jobs: str) -> None:
    """Workers return short records, which give the same bytes."""
    arguments = ("inspect", "--summary", FIXED_SCALE_H5, MIXED_KERAS, "--format", "csv")
    here = run(*arguments)
    assert here.out.count("\r\n") == 3
    assert run_process(*arguments, "--jobs", jobs).out == here.out


def test_all_releases_are_counted_on_request() -> None:
    """The option that prints all releases for one model also counts them in a summary."""
    few = run("inspect", "--summary", "--format", "json", FIXED_SCALE_H5).json
    all_ = run("inspect", "--summary", "--format", "json", "--releases", "all", FIXED_SCALE_H5).json
    assert len(few["releases"]) == 2 < len(all_["releases"])
    assert few["releases"][-1] == all_["releases"][-1]


def test_without_a_model_the_exit_code_is_that_of_inspect(tmp_path: Path) -> None:
    """Nothing to summarize."""
    ended = run("inspect", "--summary", tmp_path)
    assert (ended.code, ended.out) == (4, "")
    assert "No model found" in ended.err


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--layer", "dense"), "--layer"),
        (("--only", "mixed"), "--only"),
        (("--depth", "0"), "--depth"),
        (("--variables",), "--variables"),
        (("--layer", "a", "--variables"), "--layer or --variables"),
    ],
)
def test_a_part_of_the_layers_cannot_be_summarized(arguments: tuple[str, ...], names: str) -> None:
    """Nothing is read."""
    ended = run("inspect", "--summary", *arguments, "no such file")
    assert (ended.code, ended.out) == (2, "")
    assert _sentence(ended) == (
        f"error: --summary counts all layers and cannot be combined with {names}."
    )


def test_a_format_that_a_summary_lacks_is_a_usage_error() -> None:
    """Nothing is read for it."""
    terminal = InspectCommandLine(format=("jsonl",), jobs=1, verbose=False)
    fleet: Fleet[Input] = Fleet(command="inspect", terminal=terminal, every=[])
    with pytest.raises(UsageError, match="--summary has no format jsonl; use one of table, "):
        inspect_command.print_summary(fleet, terminal)


def test_a_directory_of_html_is_an_index_only(tmp_path: Path) -> None:
    """The summary has no page for each model."""
    ended = run("inspect", "--summary", FIXED_SCALE_H5, "--format", f"html={tmp_path}/site/")
    assert (ended.code, ended.err) == (0, "")
    assert [file.name for file in (tmp_path / "site").iterdir()] == ["index.html"]


# Parquet


@pytest.mark.parametrize(
    ("arguments", "column"),
    [
        (("inspect",), "compute_dtype"),
        (("inspect", "--summary"), "savings.float16"),
        (("audit", "--fail-on", "never"), "fingerprint"),
    ],
)
def test_parquet_goes_to_a_file_and_to_a_pipe(
    arguments: tuple[str, ...], column: str, tmp_path: Path
) -> None:
    """The same bytes."""
    file = tmp_path / "rows.parquet"
    ended = run_process(*arguments, FIXED_SCALE_H5, "--format", f"parquet={file}")
    assert (ended.code, ended.err) == (0, "")
    done = subprocess.run(
        [sys.executable, "-m", "policytool", *arguments, "--format", "parquet", FIXED_SCALE_H5],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == file.read_bytes()
    table = pyarrow.parquet.read_table(io.BytesIO(done.stdout))
    assert column in table.column_names
    assert table.num_rows


@pytest.mark.skipif(os.name != "posix", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("command", ["inspect", "audit"])
def test_parquet_never_goes_to_a_terminal(command: str) -> None:
    """A usage error says how to get it; nothing is read."""
    outer, inner = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "policytool", command, "no such file", "--format", "parquet"],
        stdout=inner,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(inner)
    try:
        shown = os.read(outer, 100)
    except OSError as error:  # Linux says that the other side is closed
        assert error.errno == errno.EIO
        shown = b""
    os.close(outer)
    assert (done.returncode, shown) == (2, b"")
    assert " ".join(done.stderr.decode().split()) == (
        "error: --format parquet is binary and cannot be printed to a terminal. Use --format "
        "parquet=FILE."
    )


@pytest.mark.parametrize("command", ["inspect", "audit"])
@pytest.mark.parametrize("is_file", [False, True])
def test_without_pyarrow_nothing_is_read(
    command: str,
    is_file: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sentence with the command to install it, and exit code 3."""
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    value = f"parquet={tmp_path / 'rows.parquet'}" if is_file else "parquet"
    ended = run(command, "no such file", "--format", value)
    assert (ended.code, ended.out) == (3, "")
    assert _sentence(ended) == (
        "error: Parquet reports need pyarrow, which is not installed. Run `pip install "
        "'policytool[fleet]'`."
    )
    assert not any(tmp_path.iterdir())


def test_parquet_replaces_no_model(tmp_path: Path) -> None:
    model = tmp_path / "a.h5"
    model.write_bytes(FIXED_SCALE_H5.read_bytes())
    ended = run("inspect", model, "--format", f"parquet={model}")
    assert (ended.code, model.read_bytes()) == (2, FIXED_SCALE_H5.read_bytes())
