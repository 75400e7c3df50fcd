"""``policytool explain``."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.cli.exit_codes import Exit
from policytool.formats.discovery import display_path
from policytool.support import project
from tests.conftest import MIXED_H5, run, run_process
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE: Final = "AttributeError: 'str' object has no attribute 'quantization_mode'"
PAGE: Final = project.page("how-to/troubleshooting.md")


def test_a_message_is_explained() -> None:
    """``explain`` prints cause, check, fix and the address of the entry for a message."""
    ended = run("explain", MESSAGE)
    assert (ended.code, ended.err) == (Exit.CLEAN, "")
    assert ended.out.startswith("The model stores the `Policy`")
    assert ended.out.index("migrate") < ended.out.index("audit")
    assert "%" not in ended.out
    assert "policytool audit model.h5 --target keras3" in ended.out
    assert "policytool migrate model.h5 --target keras3" in ended.out
    assert f"{PAGE}#policy-format" in "".join(ended.out.split("\n  "))


def test_words_without_quotes_are_one_message() -> None:
    """Several arguments are joined to one message, because a shell splits unquoted text."""
    ended = run("explain", "ValueError:", "Unknown", "layer:", "Functional", "--format", "json")
    assert ended.json["matches"][0]["id"] == "unknown-layer-functional"


def test_a_message_that_is_too_long_for_a_file_name_is_explained() -> None:
    """Nor can its parts between slashes be names of files."""
    ended = run("explain", f"{'a file / '.join(['x' * 300] * 20)}\n{MESSAGE}", "--format", "json")
    assert [match["id"] for match in ended.json["matches"]] == ["policy-format"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_hyphen_reads_stdin(encoding: str) -> None:
    text = f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n{MESSAGE}\n'
    ended = run("explain", "-", "--format", "json", stdin=text.encode(encoding))
    assert ended.code == Exit.CLEAN
    (match,) = ended.json["matches"]
    assert (match["id"], match["line"]) == ("policy-format", 3)
    assert match["url"] == f"{PAGE}#policy-format"


def test_an_argument_is_a_topic_or_a_file_before_it_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic has priority over a file of its name, and a model is not a message."""
    monkeypatch.chdir(tmp_path)
    trace = f"    load_model('runs/a b.h5')\n{MESSAGE}\n"
    for name in ("tb.txt", "PT104"):
        (tmp_path / name).write_text(trace, encoding="utf-8")
    (tmp_path / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n\0")
    (tmp_path / "exported").mkdir()
    assert "policytool migrate 'runs/a b.h5' --target keras3" in run("explain", "tb.txt").out
    assert run("explain", stdin=trace.encode()).out == run("explain", "tb.txt").out
    assert "PT104" in run("explain", "PT104").out
    for name in ("model.h5", "exported"):
        ended = run("explain", name)
        assert ended.code == Exit.USAGE
        assert f"policytool inspect {name}" in ended.err


def test_bytes_that_are_no_text_do_not_matter() -> None:
    ended = run("explain", "-", stdin=b"\xff\x00\x80\n" + MESSAGE.encode() + b"\n\xfe")
    assert ended.code == Exit.CLEAN


@pytest.mark.parametrize("format_", ["table", "markdown", "json"])
def test_no_match_exits_with_4_and_a_link(format_: str) -> None:
    """The message is one line with a link, and JSON has an empty list."""
    ended = run("explain", "ZeroDivisionError: division by zero", "--format", format_)
    assert ended.code == Exit.NO_MODEL
    assert ended.err == f"error: No known error message matches. See {PAGE} for the list.\n"
    assert json.loads(ended.out)["matches"] == [] if format_ == "json" else not ended.out


@pytest.mark.parametrize("words", [(), ("",), (" ", "\t"), ("-",), ("\x1b[0m",)])
def test_an_empty_message_is_invalid_usage(words: tuple[str, ...]) -> None:
    ended = run("explain", *words)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1


@THOROUGH
def test_message_above_the_size_limit_is_a_usage_error() -> None:
    text = MESSAGE.encode() + (b"\n" + b" " * 99) * 11_000
    ended = run("explain", "-", stdin=text)
    assert ended.code == Exit.USAGE
    assert "--limit message-bytes=" in ended.err
    raised = run("explain", "-", "--limit", "message-bytes=4MiB", stdin=text)
    assert raised.code == Exit.CLEAN


def test_settings_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``explain`` shows its settings like other commands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policytool.toml").write_text('format = "markdown"\n', encoding="utf-8")
    ended = run("explain", "x", "--show-settings")
    assert ended.code == Exit.CLEAN
    assert 'format = ["markdown"]' in ended.out


@THOROUGH
def test_a_process_explains_the_traceback_of_a_pipe() -> None:
    ended = run_process("explain", "-", stdin=MESSAGE.encode(), environment={"FORCE_COLOR": "1"})
    assert ended.code == Exit.CLEAN
    assert "\x1b[1m" in ended.out


def test_python_explains_the_same() -> None:
    """``policytool.explain`` returns the same entries and JSON report as the command."""
    result = policytool.explain(MESSAGE)
    assert [match.entry.id for match in result] == ["policy-format"]
    assert result == policytool.explain(MESSAGE)
    assert result.to_dict() == run("explain", MESSAGE, "--format", "json").json
    assert repr(result).startswith("<policytool.Explanation policy-format: The model")
    assert "quantization_mode" in result._repr_html_()
    with pytest.raises(policytool.UsageError, match="empty"):
        policytool.explain(" ")


def test_a_model_tests_the_answer(tmp_path: Path) -> None:
    """The verdict on the file comes first, and contradicts an entry about another file."""
    broken, sound = MIXED_H5, FIXTURES / "keras3.15/wrappers.keras"
    for path, loads in ((broken, False), (sound, True)):
        ended = run("explain", MESSAGE, "--model", path)
        answer = "loads in" if loads else "fails to load in"
        assert ended.out.partition("\n")[0].startswith(f"{display_path(path)} {answer} Keras 3.15")
        assert ("contradicts" in ended.out) is loads
        result = policytool.explain(MESSAGE, model=path).to_dict()
        assert result["model"]["loads"] is loads
        assert result["model"]["arguments"] == (None if loads else [])
        command = None if loads else f"policytool migrate {display_path(path)}"
        assert result["matches"][0]["fix"][0]["command"] == command
    assert run("explain", MESSAGE, "--model", tmp_path / "gone.h5").code == Exit.FAILURE


def test_the_model_that_a_traceback_names_is_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is there and readable, the command is that of ``audit``, or there is a reason."""
    monkeypatch.chdir(tmp_path)
    text = f"load_model('net.h5')\n{MESSAGE}"
    command = "policytool migrate net.h5 --target keras3"
    assert policytool.explain(text).model is None
    assert policytool.explain(text).matches[0].entry.fix[0].command == command
    (tmp_path / "net.h5").write_bytes(b"not a model")
    assert policytool.explain(text).model is None
    shutil.copyfile(FIXTURES / "tf2.4/wrappers.h5", tmp_path / "net.h5")
    tested = policytool.explain(text)
    assert tested.to_dict() == policytool.explain(text, model="net.h5").to_dict()
    assert tested.model is not None
    audit = run("audit", "net.h5", "--target", "keras3", "--format", "json").json
    (arguments,) = [fix["arguments"] for fix in audit["models"][0]["commands"]]
    fixed = shlex.join(("policytool", "migrate", "net.h5", *arguments))
    assert tested.matches[0].entry.fix[0].command == fixed


def test_an_entry_that_does_not_convert_reads_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that changes policies is not replaced by one that converts the model."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(MIXED_H5, tmp_path / "net.h5")
    message = "LossScaleOptimizer does not support wrapping optimizers with a clipnorm"
    text = f"load_model('net.h5')\n{message}"
    assert policytool.explain(text).model is None


@pytest.mark.parametrize(
    ("fixture", "release"), [("bidirectional_mixed.h5", "keras3.0"), ("wrappers.h5", "tf2.1")]
)
def test_the_release_of_a_traceback_is_the_one_that_is_tested(
    fixture: str, release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command in the answer is one that ``migrate`` accepts."""
    monkeypatch.chdir(tmp_path)
    source = FIXTURES / "tf2.15" / fixture
    shutil.copyfile(source if source.exists() else FIXTURES / "tf2.4" / fixture, "net.h5")
    library = "tensorflow/python/keras" if release.startswith("tf") else "keras/src/models"
    frame = f'  File "/v/{release}/lib/python3.8/site-packages/{library}/x.py", line 3, in f'
    answer = policytool.explain(f"{frame}\nload_model('net.h5')\nkeras: Unknown layer: 'GRU'")
    assert answer.model is not None
    assert answer.model.release.replace(" ", "").lower() == release
    commands = {step.command for match in answer for step in match.entry.fix if step.command}
    for number, command in enumerate(sorted(commands)):
        _, name, *words = shlex.split(command)
        if name == "migrate":
            assert run(name, *words, "-o", f"out{number}.h5").code == Exit.CLEAN


def test_each_target_of_an_entry_is_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command for another release than the one that fails is one that ``migrate`` accepts."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(FIXTURES / "tf2.12/default_float32.keras", "net.keras")
    module = "its parent module keras.engine.functional cannot be imported"
    text = f"keras/src/models/x.py\nload_model('net.keras')\nTypeError: {module}"
    fix = policytool.explain(text).matches[0].entry.fix
    assert [(step.text, step.command) for step in fix] == [
        ("Fix the model:", "policytool migrate net.keras --target keras3"),
        ("Convert the model for TF 2.15:", "policytool migrate net.keras --target tf2.15"),
    ]


def test_a_training_configuration_that_fails_is_not_called_a_model_that_fails() -> None:
    """``inspect`` says that this model loads with ``compile=False``."""
    path = FIXTURES / "tf2.15/default_float32_compiled.h5"
    ended = run("explain", "Could not interpret metric identifier: mse", "--model", path)
    assert "loads in Keras 3.15 with compile=False: the loss mse" in " ".join(ended.out.split())
    assert f"policytool migrate {display_path(path)} --target keras3" in ended.out


def test_an_entry_of_a_model_that_no_command_fixes_has_no_command() -> None:
    """``migrate`` would refuse the command of the entry."""
    path = FIXTURES / "tf2.15/subclassed"
    message = "keras: ValueError: Unknown layer: 'TFOpLambda'"
    [match] = policytool.explain(message, model=path).to_dict()["matches"]
    assert [step["command"] for step in match["fix"] if "migrate" in (step["command"] or "")] == []
    assert "No command fixes the model: " in match["fix"][0]["text"]


def test_class_that_runs_saved_models_in_keras_3_is_an_answer() -> None:
    """A word that is no topic may be a message."""
    ended = run("explain", "TFSMLayer")
    assert ended.code == 0
    assert "call_endpoint='serving_default'" in ended.out
