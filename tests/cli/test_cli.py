"""The command line: options, exit codes, streams, terminals."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.cli.exit_codes import Exit
from policytool.commands import inspect as inspection
from policytool.support.project import VERSION
from tests.conftest import FIXED_SCALE_H5, MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL, run, run_process
from tests.helpers.marks import ALONE, THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.scripts import run_captured
from tests.helpers.small_models import dense, h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Callable

NESTED: Final = FIXTURES / "tf2.3/nested_models.h5"
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")


def paths(*arguments: str | Path) -> list[str]:
    """Return the paths of the layers in a JSON report of one model."""
    ended = run("inspect", "--format", "json", *arguments)
    assert ended.code == 0, ended.err
    return [layer["path"] for layer in ended.json["models"][0]["layers"]]


# How it starts and ends


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(option: str) -> None:
    """The overview lists the commands, and each command has its own help."""
    ended = run(option)
    assert (ended.code, ended.err) == (0, "")
    assert "inspect" in ended.out
    assert run("inspect", option).code == 0
    command = run("inspect", "--help-all")
    assert (command.code, command.err) == (0, "")
    for name in (
        "--format",
        "--layer",
        "--only",
        "--variables",
        "--depth",
        "--config",
        "--show-settings",
        "--verbose / -q, --quiet",
    ):
        assert name in command.out


def test_version_is_the_package_version() -> None:
    """``--version`` prints only the name and the version."""
    ended = run("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"policytool {VERSION}\n", "")
    assert metadata.version("policytool") == VERSION


@THOROUGH
def test_module_and_script_are_the_same() -> None:
    """``python -m policytool`` and the installed script print the same."""
    script = Path(sys.executable).parent / "policytool"
    done = run_captured([script, "inspect", MIXED_H5], env={**os.environ, "COLUMNS": "80"})
    assert run_process("inspect", MIXED_H5, environment={"COLUMNS": "80"}).out == done.stdout
    assert done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        *((), ("bogus",), ("--bogus",), ("inspect", "--bogus"), ("inspect", "--format", "xml")),
        *(
            ("inspect", "--depth", "-1"),
            ("inspect", "--depth", "deep"),
            ("inspect", "--releases", "red"),
        ),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    """The message on stderr refers to the help, and there is no report."""
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ") or not arguments
    assert "help" in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--layer", "(", str(MIXED_H5)),
            "--layer '(' is not a layer path and is not a valid regular expression: ",
        ),
        (
            ("--only", "mixed_float8", str(MIXED_H5)),
            "--only must be deprecated, mixed or a policy, not 'mixed_float8'",
        ),
    ],
)
def test_invalid_value_gives_a_one_line_error_and_exit_code_2(
    arguments: tuple[str, ...], words: str
) -> None:
    """An unknown pattern or policy is a one-line error with exit code 2 and the valid values."""
    ended = run("inspect", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert words in ended.err
    assert ended.err.count("\n") == 1


def test_clean_run_is_exit_code_0_and_silent_on_stderr() -> None:
    """A run without failures exits with code 0 and prints nothing on stderr."""
    ended = run("inspect", MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count(" layers: ") == 3


@pytest.mark.parametrize("form", ["table", "json"])
def test_one_failure_among_several_does_not_end_the_run(form: str, tmp_path: Path) -> None:
    """Other models are reported; stderr and JSON have the failure, and the exit code is 3."""
    (tmp_path / "empty.h5").write_bytes(b"")
    ended = run(
        "inspect",
        "--format",
        form,
        MIXED_H5,
        tmp_path / "empty.h5",
        tmp_path / "gone.h5",
        MIXED_KERAS,
    )
    assert ended.code == 3
    assert re.findall(r"\[([a-z-]+)\]$", ended.err, re.MULTILINE) == ["empty", "not-found"]
    if form == "json":
        assert len(ended.json["models"]) == 2
        assert [failure["code"] for failure in ended.json["failures"]] == ["empty", "not-found"]
    else:
        assert ended.out.count(" layers: ") == 2


def test_no_model_is_exit_code_4(tmp_path: Path) -> None:
    """A directory without models exits with code 4, and the JSON is a complete report."""
    assert run("inspect", tmp_path).code == 4
    ended = run("inspect", "--format", "json", tmp_path)
    assert ended.code == 4
    assert ended.json["models"] == []


def test_failure_counts_more_than_no_model(tmp_path: Path) -> None:
    """If the only file cannot be read, the exit code is 3 and not 4."""
    assert run("inspect", tmp_path / "gone.h5", tmp_path).code == 3


def _raise(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_internal_error_gives_one_line_and_exit_code_70(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception is a one-line message that names ``-v``."""
    monkeypatch.setattr(inspection, "select", _raise(ZeroDivisionError("oops")))
    ended = run("inspect", MIXED_H5)
    assert (ended.code, ended.out) == (70, "")
    assert "This is a bug in policytool (ZeroDivisionError: oops)" in ended.err
    assert "Run with -v and report the output" in ended.err
    assert ended.err.count("\n") == 1
    with pytest.raises(ZeroDivisionError):
        run("inspect", "-v", MIXED_H5)


def test_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C exits with code 130 and one word on stderr."""
    monkeypatch.setattr(inspection, "select", _raise(KeyboardInterrupt()))
    ended = run("inspect", MIXED_H5)
    assert (ended.code, ended.out) == (130, "")
    assert "interrupted." in ended.err
    assert "Traceback" not in ended.err


@ALONE
@THOROUGH
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_interrupted_process_ends_with_130(tmp_path: Path, name: str) -> None:
    """A signal during reading of stdin ends the process without a message."""
    script = (
        # below nohup it is ignored, and stays so
        "import signal, threading; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "from policytool.cli.main import main; "
        "threading.Timer(0.5, signal.pthread_kill, (threading.main_thread().ident, "
        f"signal.{name})).start(); "
        "main(['inspect', '-'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    code = process.wait(timeout=30)
    out, err = process.communicate()
    assert (code, out) == (130, b"")
    assert b"Traceback" not in err


@THOROUGH
@pytest.mark.skipif(sys.platform == "win32", reason="pipes close differently")
@pytest.mark.parametrize("form", ["table", "json"])
def test_closed_pipe_ends_quietly(form: str, tmp_path: Path) -> None:
    """If the reader of stdout stops, such as ``head -1``, the exit code is 0 without a message."""
    config = sequential(*(dense(f"dense_{number}") for number in range(1500)))
    path = h5_model(tmp_path / "long.h5", config)
    process = subprocess.Popen(
        [sys.executable, "-m", "policytool", "inspect", "--format", form, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    assert process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert (process.stderr.read(), process.wait(timeout=60)) == (b"", 0)
    process.stderr.close()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_signal_does_not_truncate_a_report_without_a_buffer(tmp_path: Path) -> None:
    """With ``PYTHONUNBUFFERED``, Python drops the rest of a text that a signal interrupts."""
    config = sequential(*(dense(f"dense_{number}") for number in range(500)))
    path = h5_model(tmp_path / "long.h5", config)
    process = subprocess.Popen(
        [sys.executable, "-m", "policytool", "inspect", "--format", "json", path],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout
    start = process.stdout.read(1)
    time.sleep(0.2)  # the pipe is full
    process.terminate()
    report = start + process.stdout.read()
    process.wait(timeout=60)
    process.stdout.close()
    assert len(json.loads(report)["models"][0]["layers"]) > 500


def test_exit_codes_have_their_public_values() -> None:
    """The exit codes are 0, 1, 2, 3, 4, 5, 70 and 130, which are public."""
    assert {code.name: code.value for code in Exit} == {
        "CLEAN": 0, "FINDINGS": 1, "USAGE": 2, "FAILURE": 3, "NO_MODEL": 4, "UNDECIDED": 5, "BUG": 70, "INTERRUPTED": 130,  # noqa: E501  # a table
    }  # fmt: skip


# Which layers


def test_layer_option_with_an_exact_path_selects_one_layer() -> None:
    assert paths("--layer", "mlp/dense_a", MIXED_H5) == ["mlp/dense_a"]


def test_layer_by_a_pattern_that_matches_in_full() -> None:
    """A regular expression selects layers whose complete path matches."""
    everything = paths(MIXED_H5)
    assert paths("--layer", ".*/dense.*", MIXED_H5) == [
        path for path in everything if "/dense" in path
    ]
    assert paths("--layer", "dense", MIXED_H5) == []
    assert paths("--layer", ".*", MIXED_H5) == everything


def test_exact_path_is_no_pattern(tmp_path: Path) -> None:
    """A path with characters of regular expressions selects the layer with this path."""
    path = h5_model(tmp_path / "dots.h5", sequential(dense("a.b"), dense("axb"), dense("c+")))
    assert paths("--layer", "mlp/a.b", path) == ["mlp/a.b"]
    assert paths("--layer", "mlp/c+", path) == ["mlp/c+"]
    suggested = run("inspect", "--layer", "c+", path).out
    assert r"Paths are such as mlp/c+; .*c\+ matches it." in suggested
    assert paths("--layer", r".*c\+", path) == ["mlp/c+"]


def test_selection_without_layers_is_reported_with_totals() -> None:
    """A selection without layers prints no empty table, but the totals."""
    ended = run("inspect", "--layer", "nothing", MIXED_H5)
    assert ended.code == 0
    assert "No layer is selected. Paths are such as" in ended.out
    assert "6 layers" in ended.out


def test_only_deprecated_or_mixed_or_one_policy() -> None:
    """``--only`` selects the layers that are deprecated, mixed, or have a policy."""
    layers = run("inspect", "--format", "json", FIXED_SCALE_H5).json["models"][0]["layers"]
    assert (
        paths("--only", "deprecated", FIXED_SCALE_H5)
        == [layer["path"] for layer in layers if layer["deprecated"]]
        == ["mlp/dense_a"]
    )
    assert paths("--only", "mixed", FIXED_SCALE_H5) == ["mlp/dense_a"]
    assert paths("--only", "mixed_float16", FIXED_SCALE_H5) == ["mlp/dense_a"]
    assert paths("--only", "float32", FIXED_SCALE_H5) == ["mlp/features", "mlp/probabilities"]
    assert paths("--only", "bfloat16", FIXED_SCALE_H5) == []


def test_depth_counts_levels_below_the_model() -> None:
    """0 selects only the model, 1 its layers, and a large number all levels."""
    everything = paths(NESTED)
    assert max(path.count("/") for path in everything) >= 2
    for depth in range(4):
        assert paths("--depth", str(depth), NESTED) == [
            path for path in everything if path.count("/") <= depth
        ]
    assert len(paths("--depth", "0", NESTED)) == 1


def test_selections_combine_and_leave_the_totals() -> None:
    """Several selections apply together, and the totals still cover all layers."""
    whole = run("inspect", "--format", "json", NESTED).json["models"][0]
    part = run(
        "inspect",
        "--format",
        "json",
        "--depth",
        "1",
        "--only",
        "float32",
        "--layer",
        ".*dense.*",
        NESTED,
    ).json["models"][0]
    assert part["summary"] == whole["summary"]
    assert len(part["layers"]) < len(whole["layers"])
    assert all(
        "dense" in layer["path"] and layer["path"].count("/") <= 1 for layer in part["layers"]
    )


def test_variables_option_shows_a_row_for_each_variable() -> None:
    """``--variables`` shows name, shape and stored dtype of variables below each layer."""
    assert "kernel" not in run("inspect", MIXED_H5).out
    shown = run("inspect", "--variables", MIXED_H5).out
    row = next(line for line in shown.splitlines() if " kernel " in line)
    assert re.search(r"─ kernel \(\d+, \d+\) .*float32", row)


# What the terminal can


def test_wide_terminal_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 160 columns shows notes in a column, and one of 50 columns below the rows."""
    monkeypatch.setenv("COLUMNS", "160")
    wide = run("inspect", FIXED_SCALE_H5).out
    assert re.search(r"dense_a .*loss scale fixed 128\n", wide)
    monkeypatch.setenv("COLUMNS", "50")
    narrow = run("inspect", FIXED_SCALE_H5).out
    assert "\n      loss scale fixed 128\n" in narrow


@cache
def plain_report() -> str:
    """Return the report of a process without variables for colour."""
    return run_process("inspect", MIXED_H5).out


@THOROUGH
@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_output_to_a_pipe_has_colour_only_if_it_is_forced(
    variables: dict[str, str],
    coloured: bool,  # noqa: FBT001
) -> None:
    """Output to a pipe has colour only with FORCE_COLOR, and the text is the same."""
    ended = run_process("inspect", MIXED_H5, environment=variables)
    assert ("\x1b[" in ended.out) is coloured
    assert _ANSI.sub("", ended.out) == plain_report()


@THOROUGH
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
    ids=["plain", "NO_COLOR", "empty NO_COLOR", "dumb"],
)
def test_output_to_a_terminal_has_colour_unless_disabled(
    variables: dict[str, str],
    coloured: bool,  # noqa: FBT001
) -> None:
    """Output to a terminal has colour unless NO_COLOR is not empty or the terminal is ``dumb``."""
    import pty  # POSIX only

    master, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **variables}
    done = subprocess.run(
        [sys.executable, "-m", "policytool", "inspect", MIXED_H5],
        stdout=terminal,
        check=True,
        env=environment,
        timeout=60,
    )
    os.close(terminal)
    out = b""
    try:
        while block := os.read(master, 65536):
            out += block
    except OSError:  # Linux says EIO where the other end is closed
        pass
    os.close(master)
    assert done.returncode == 0
    assert (b"\x1b[" in out) is coloured
    assert b"mixed_float16" in out


@THOROUGH
@pytest.mark.parametrize("path", [MIXED_H5, MIXED_SAVEDMODEL, NESTED], ids=lambda path: path.name)
def test_terminal_without_box_characters_gets_ascii(path: Path) -> None:
    """A terminal with ASCII encoding gets the complete report in ASCII, without question marks."""
    ended = run_process("inspect", path, environment={"PYTHONIOENCODING": "ascii", "COLUMNS": "80"})
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.isascii()
    assert "-----" in ended.out
    assert "\\u" not in ended.out


@THOROUGH
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_names_outside_the_terminal_encoding_are_escaped(encoding: str, tmp_path: Path) -> None:
    path = h5_model(tmp_path / "names.h5", sequential(dense("層一")))
    done = subprocess.run(
        [sys.executable, "-m", "policytool", "inspect", path],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=60,
    )
    assert b"mlp" in done.stdout
    assert done.stderr == b""


@THOROUGH
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_valid_for_every_encoding_of_the_terminal(encoding: str, tmp_path: Path) -> None:
    """JSON is valid for each encoding of the terminal: other characters are escaped as in JSON."""
    names = ["層一", "naïve", "\U0001f600"]
    path = h5_model(tmp_path / "names.h5", sequential(*map(dense, names)))
    done = subprocess.run(
        [sys.executable, "-m", "policytool", "inspect", "--format", "json", path],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=60,
    )
    layers = json.loads(done.stdout.decode(encoding))["models"][0]["layers"]
    assert [layer["name"] for layer in layers[1:]] == names


@THOROUGH
def test_progress_is_printed_on_stderr() -> None:
    """A requested progress bar is printed on stderr and does not change stdout."""
    with_bar, without = (
        run_process("inspect", "-v", MIXED_H5),
        run_process("inspect", "-q", MIXED_H5),
    )
    assert with_bar.out == without.out
    assert without.err == ""


def test_verbose_counts() -> None:
    """``-v`` prints the number of models read."""
    assert "2 models, 0 failures" in run("inspect", "-v", MIXED_H5, MIXED_KERAS).err


def test_table_of_a_failing_model_shows_the_conversion_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of one failing model have the command; JSON and several models do not."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXED_SCALE_H5, "old.h5")
    shutil.copy(FIXED_SCALE_H5, "-old.h5")
    shutil.copy(MIXED_KERAS, "new.keras")
    fix = "fix: policytool migrate old.h5 --target keras3"
    assert fix in run("inspect", "old.h5").out
    assert "fix: policytool migrate ./-old.h5 --target" in run("inspect", "./-old.h5").out
    assert "migrate" not in run("inspect", "new.keras").out
    assert "fix:" not in run("inspect", "old.h5", "new.keras").out
    assert "fix" not in run("inspect", "old.h5", "--format", "json").json["models"][0]
    assert run("migrate", "old.h5", "--target", "keras3", "--no-verify").code == 0


@pytest.mark.parametrize("value", ["", "newest", "\x1b[2J", "all "])
def test_only_current_or_all_releases_are_shown(value: str) -> None:
    """Other values of ``--releases`` are usage errors without control characters."""
    ended = run("inspect", "--releases", value, MIXED_H5)
    assert ended.code == 2
    assert "\x1b" not in ended.err
    every = run("inspect", "--releases", "all", MIXED_H5)
    assert (every.code, "TF 1.15" in every.out) == (0, True)
    assert "TF 1.15" not in run("inspect", MIXED_H5).out
