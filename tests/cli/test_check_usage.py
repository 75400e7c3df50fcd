"""Usage errors of ``check`` before TensorFlow starts, each with a suggestion."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from policytool.cli import check_command
from policytool.numerics.check_results.checks import TensorFlowDevice
from policytool.numerics.check_sides import UserFunction, file_or_function, parse_batches
from tests.conftest import Ended, run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import h5_model, sequential

_LABELLED: Final = ("--inputs", "x.npy", "--labels", "y.npy")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory with models, without TensorFlow."""
    monkeypatch.chdir(tmp_path)
    for name in ("none", "one", "two"):
        (tmp_path / name).mkdir()
    for file in ("one/a.h5", "two/a.h5", "two/b.h5"):
        h5_model(tmp_path / file, sequential())
    return tmp_path


def check(*arguments: str) -> Ended:
    """Run ``check`` without an interpreter: calls without a usage error end with ``no-python``."""
    return run("check", *arguments, "--to", "mixed_float16", "--python", "no-such-python")


def test_directory_with_one_model_selects_the_model() -> None:
    result = check("one")
    assert result.code == 3
    assert "one/a.h5: no-such-python cannot be run" in result.err


@THOROUGH
def test_a_directory_with_several_models_needs_a_name() -> None:
    """The error lists the models, and suggests no glob, which ``check`` does not support."""
    result = check("two")
    assert (result.code, result.out) == (2, "")
    assert "Found 2 models (two/a.h5, two/b.h5). Specify one of them.\n" in result.err


def test_directory_without_a_model_has_a_separate_exit_code() -> None:
    """A directory without a model has its own exit code, unlike an unreadable model."""
    assert (check("none").code, check("none").err) == (4, "error: No model found.\n")


@pytest.mark.parametrize("option", ["--inputs", "--weights", "--against"])
def test_missing_file_error_names_the_option(option: str) -> None:
    result = check("one/a.h5", option, "missing.npz")
    assert result.code == 3
    assert f"missing.npz: does not exist. Check the path in {option}. [not-found]" in result.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--inputs", "rows.csv"), "inputs-file"),
        (("--inputs", "x.npy", "--labels", "rows.csv", "--metric", "auc"), "labels-file"),
    ],
)
def test_table_of_text_is_an_error_that_names_numpy(arguments: tuple[str, ...], code: str) -> None:
    """The error comes before the child process starts, which takes seconds."""
    Path("rows.csv").write_text("0.5,1.0\n", encoding="utf-8")
    np.save("x.npy", np.ones((1, 4)))
    result = check("one/a.h5", *arguments)
    assert result.code == 3
    assert "rows.csv: neither an .npz nor an .npy file" in result.err
    assert "numpy.savez('data.npz', NAME=rows)" in result.err
    assert f"[{code}]" in result.err


@pytest.mark.parametrize(
    ("file", "code", "told"),
    [
        ("nowhere/x.npz", 3, "Create nowhere first"),
        ("one/a.h5", 2, "would replace a file that this command reads"),
        ("two/b.h5", 2, "would replace a model"),
    ],
)
def test_a_run_is_not_recorded_over_a_model_or_in_a_missing_directory(
    file: str, code: int, told: str
) -> None:
    result = check("one/a.h5", "--record", file)
    assert result.code == code
    assert told in result.err


def test_recorded_run_is_not_replaced() -> None:
    """A golden file is lost otherwise."""
    Path("golden.h5").write_bytes(b"recorded")
    result = check("one/a.h5", "--record", "golden.h5")
    assert result.code == 2
    assert "golden.h5 already exists. Remove it" in result.err
    assert Path("golden.h5").read_bytes() == b"recorded"


@pytest.mark.parametrize(
    ("model", "release", "library"),
    [("one/a.h5", "keras3.15", "Keras 2"), ("new.keras", "tf2.15", "Keras 3")],
)
def test_release_of_the_other_library_is_refused_before_it_is_installed(
    model: str, release: str, library: str
) -> None:
    """The error names the conversion after which the release can run the model."""
    shutil.copy(FIXTURES / "keras3.15/default_float32.keras", "new.keras")
    result = run("check", model, "--python", release)
    assert result.code == 2
    assert f"{model} is a {library} file" in result.err
    assert f"policytool migrate {model} --target {release}" in result.err


@pytest.mark.parametrize("text", ["no-such:function", "data:", ":rows", "a b:c", "data:rows:x"])
def test_input_that_is_neither_a_file_nor_a_function_is_an_error(text: str) -> None:
    result = check("one/a.h5", "--inputs", text)
    assert result.code == 3
    assert f"{text}: does not exist. Check the path or MODULE:FUNCTION in --inputs." in result.err


@pytest.mark.parametrize(
    ("batches", "parsed"),
    [
        (None, (None, None)),
        (4, (4, None)),
        ("4", (4, None)),
        ("4x32", (4, 32)),
        ("x32", (None, 32)),
    ],
)
def test_batches_have_a_number_and_a_size(
    batches: int | str | None, parsed: tuple[int | None, int | None]
) -> None:
    assert parse_batches(batches) == parsed


@pytest.mark.parametrize("text", ["", "x", "0", "4x", "4x0", "-1", "4X32", "1x2x3", "9" * 10])
def test_other_batches_are_wrong_usage(text: str) -> None:
    """Other values for batches are a usage error with examples."""
    ended = check("one/a.h5", "--batches", text)
    assert ended.code == 2
    assert "are neither a number, such as 4, nor a number with the examples" in ended.err


def test_inputs_may_be_a_function(place: Path) -> None:
    """A function is not imported in this process; an existing file of this name is a file."""
    assert "no-such-python cannot be run" in check("one/a.h5", "--inputs", "data.own:rows").err
    assert file_or_function("data.own:rows") == UserFunction(module="data.own", name="rows")
    (place / "data.own:rows").mkdir()
    assert file_or_function("data.own:rows") == Path("data.own:rows")


@pytest.mark.parametrize(
    "setting",
    ['inputs = "data:rows"', 'output-kind = ["y=classes"]', 'metric = "mod:top_5=0.5"'],
)
def test_a_settings_file_that_the_user_names_may_set_each_option(setting: str, place: Path) -> None:
    (place / "own.toml").write_text(f"{setting}\n", encoding="utf-8")
    result = run("check", "--config", "own.toml", "--show-settings")
    assert result.code == 0, result.err
    assert re.search(rf"^{re.escape(setting)}  # .*own\.toml$", result.out, re.MULTILINE)
    assert re.search(r'^batches = ""  # default$', result.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--labels", "y.npy"), "--labels needs a metric. Add --metric NAME"),
        (("--metric", "auc"), "--metric requires labels. Add --labels FILE"),
        (
            ("--labels", "y.npy", "--metric", "auc"),
            "--labels requires --inputs, because synthetic inputs",
        ),
        ((*_LABELLED, "--metric", "auc=much"), "'auc=much' has no number after ="),
        ((*_LABELLED, "--metric", "auc="), "'auc=' has no number after ="),
        ((*_LABELLED, "--metric", "auc=-1"), "drop -1.0, which must be a non-negative number"),
        ((*_LABELLED, "--metric", "auc=nan"), "drop nan, which must be a non-negative number"),
        ((*_LABELLED, "--metric", "../x:f"), "must be the name of a metric"),
        ((*_LABELLED, "--metric", ""), "must be the name of a metric"),
    ],
)
def test_labels_need_a_metric_and_inputs(arguments: tuple[str, ...], told: str) -> None:
    result = check("one/a.h5", *arguments)
    assert (result.code, result.out) == (2, "")
    assert told in result.err


def test_missing_file_of_labels_is_an_error_before_tensorflow_starts(place: Path) -> None:
    np.save(place / "x.npy", np.ones((1, 4)))
    result = check("one/a.h5", *_LABELLED, "--metric", "auc")
    assert result.code == 3
    assert "y.npy: does not exist. Check the path in --labels. [not-found]" in result.err


@pytest.mark.parametrize("content", [b"", b"hello", b"PK", b"\x89HDF\r\n\x1a\n"])
def test_a_file_that_is_no_recording_gives_a_one_line_error(place: Path, content: bytes) -> None:
    """The error comes before TensorFlow starts."""
    (place / "run.h5").write_bytes(content)
    result = check("one/a.h5", "--against", "run.h5")
    assert result.code == 3
    assert result.err.startswith("error: run.h5: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two/a.h5", "--record", "run.h5"), "run one model. Remove B"),
        (("--measure", "values"), "--measure values needs --record FILE"),
        (("--record", "run.h5", "--device", "all"), "uses one device"),
        (("--record", "run.h5", "--measure", "timing"), "compare two models that run"),
        (("--against", "run.h5", "--batches", "2"), "Remove --inputs and --batches"),
    ],
)
def test_options_that_a_recording_does_not_support(
    arguments: tuple[str, ...], message: str
) -> None:
    """The usage error names the options to remove."""
    result = check("one/a.h5", *arguments)
    assert result.code == 2
    assert message in result.err


@pytest.mark.parametrize(
    "options",
    [
        ("--inputs", "x.npy", "--metric", "auc", "--labels", "file.json"),
        ("--against", "file.json"),
        ("--record", "file.json"),
    ],
)
def test_report_does_not_replace_an_input_file(place: Path, options: tuple[str, ...]) -> None:
    """A report cannot replace labels or a recorded run."""
    for name in ("x.npy", "file.json"):
        (place / name).write_bytes(b"")
    result = check("one/a.h5", *options, "--format", "json=file.json")
    assert result.code == 2
    assert "would replace a file that this command reads" in result.err


def test_devices_are_listed_instead_of_a_check(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--device list`` prints one line per device; a found settings file cannot enable it."""
    cpu = TensorFlowDevice(
        name="cpu:0",
        kind="cpu",
        model="A processor",
        compute_capability=None,
        memory=2**30,
        driver=None,
        cuda=None,
        cudnn=None,
    )
    monkeypatch.setattr(check_command, "devices", lambda _worker: (cpu,))
    ended = run("check", "--device", "list")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("cpu:0")
    (place / "policytool.toml").write_text('device = "list"\n', encoding="utf-8")
    assert check("one/a.h5").code == 3
