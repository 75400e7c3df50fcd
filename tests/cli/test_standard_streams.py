"""Closed or full streams and a removed working directory have documented exit codes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from policytool.cli.exit_codes import Exit
from tests.conftest import MIXED_H5
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT

pytestmark = [
    THOROUGH,
    pytest.mark.skipif(
        not Path("/dev/full").exists() or shutil.which("sh") is None,
        reason="needs a POSIX shell and /dev/full",
    ),
]

CLOSED: Final = (
    "error: Stdout is closed, so the report cannot be written. Redirect stdout "
    "to a file or to /dev/null.\n"
)
GONE: Final = (
    "error: The working directory cannot be used (No such file or directory). "
    "Change to another directory.\n"
)
FULL: Final = (
    "error: Cannot read or write: No space left on device. The report on stdout may be "
    "incomplete.\n"
)


def run_shell(
    redirections: str, *arguments: str, before: str = "", cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run the command line from a shell that redirects its streams."""
    words = [
        "sh",
        "-c",
        f'{before} exec "$@" {redirections}',
        "sh",
        sys.executable,
        "-m",
        "policytool",
        *arguments,
    ]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, cwd=cwd)


@pytest.mark.parametrize(
    "arguments",
    [("inspect", str(MIXED_H5)), ("audit", str(MIXED_H5), "-v"), ("--help",), ("--version",)],
)
def test_closed_stdout_is_a_failure(arguments: tuple[str, ...]) -> None:
    """No report can be written, and no file gets the number of the closed stream."""
    done = run_shell(">&-", *arguments)
    assert (done.returncode, done.stderr) == (Exit.FAILURE, CLOSED)


def test_closed_stdout_migrates_nothing(tmp_path: Path) -> None:
    """The failure comes before the work."""
    done = run_shell(
        ">&-", "migrate", str(MIXED_H5), "--to", "float32", "-o", str(tmp_path / "out.h5")
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (Exit.FAILURE, [])


def test_closed_stderr_keeps_the_report() -> None:
    """The exit code is the usual one."""
    usual, closed = (
        run_shell("", "inspect", str(MIXED_H5)),
        run_shell("2>&-", "inspect", str(MIXED_H5)),
    )
    assert (closed.returncode, closed.stdout) == (Exit.CLEAN, usual.stdout)
    assert run_shell("2>&-", "inspect", "nosuch").returncode == Exit.FAILURE
    assert run_shell(">&- 2>&-", "inspect", "nosuch").returncode == Exit.FAILURE


@pytest.mark.parametrize(
    "arguments",
    [("inspect", "nosuch"), ("audit", "--nosuch"), (), ("inspect", "-v", str(MIXED_H5))],
)
def test_full_stderr_is_a_failure_and_no_finding(arguments: tuple[str, ...]) -> None:
    """Exit code 1 would mean findings."""
    assert run_shell("2>/dev/full", *arguments).returncode == Exit.FAILURE


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", str(MIXED_H5)),
        ("inspect", "--format", "json", str(MIXED_H5)),
        ("--help",),
        ("completion", "bash"),
    ],
)
def test_full_stdout_is_a_failure_with_a_sentence(arguments: tuple[str, ...]) -> None:
    """If stderr is full too, only the exit code remains."""
    done = run_shell(">/dev/full", *arguments)
    assert (done.returncode, done.stderr) == (Exit.FAILURE, FULL)
    assert run_shell(">/dev/full 2>/dev/full", *arguments).returncode == Exit.FAILURE


def test_full_stdout_ends_completions_without_a_traceback() -> None:
    """A shell runs the same command to complete its own words."""
    done = run_shell(
        ">/dev/full",
        before="export _POLICYTOOL_COMPLETE=bash_complete COMP_WORDS='policytool ins' "
        "COMP_CWORD=1;",
    )
    assert (done.returncode, done.stderr) == (Exit.FAILURE, FULL)


def test_stdout_open_only_for_reading_is_a_failure() -> None:
    """The error message contains the error of the system."""
    done = run_shell("1</dev/null", "inspect", str(MIXED_H5))
    assert (done.returncode, done.stderr) == (
        Exit.FAILURE,
        FULL.replace("No space left on device", "Bad file descriptor"),
    )


def test_closed_stdin_is_an_empty_list_of_paths() -> None:
    assert (
        run_shell("<&-", "inspect", "-").returncode
        == run_shell("</dev/null", "inspect", "-").returncode
        == Exit.NO_MODEL
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", str(MIXED_H5)),
        ("audit", "."),
        ("diff", str(MIXED_H5), str(MIXED_H5)),
        ("explain", "PT104"),
    ],
)
def test_deleted_working_directory_is_a_failure(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Relative paths and settings files have no meaning in it."""
    place = tmp_path / "gone"
    place.mkdir()
    before = f'export PYTHONPATH="{ROOT}"; rmdir "$PWD";'
    done = run_shell("", *arguments, before=before, cwd=place)
    assert (done.returncode, done.stdout, done.stderr) == (Exit.FAILURE, "", GONE)


def test_help_is_printed_in_a_deleted_working_directory(tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    done = run_shell("", "--help", before=f'export PYTHONPATH="{ROOT}"; rmdir "$PWD";', cwd=place)
    assert (done.returncode, done.stderr) == (Exit.CLEAN, "")
