"""Usage errors of ``tune`` before TensorFlow starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.conftest import Ended, run
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH
from tests.helpers.small_models import dense, h5_model, sequential

TO: Final = ("--to", "mixed_float16")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a model in it and no TensorFlow at hand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none").mkdir()
    (tmp_path / "two").mkdir()
    for file in ("a.h5", "two/a.h5", "two/b.h5"):
        h5_model(tmp_path / file, sequential(*map(dense, "abc")))
    return tmp_path


def tune(*arguments: str) -> Ended:
    """Run ``tune`` without an interpreter: calls without a usage error end with ``no-python``."""
    return run("tune", *arguments, "--python", "no-such-python")


def test_the_model_in_the_working_directory_is_tuned() -> None:
    Path("two/a.h5").unlink()
    Path("two/b.h5").unlink()
    ended = tune(*TO)
    assert (ended.code, "[no-python]" in ended.err) == (3, True)


@THOROUGH
def test_directory_with_several_models_is_a_usage_error() -> None:
    """The error lists the models."""
    ended = tune("two", *TO)
    assert ended.code == 2
    assert "two/a.h5" in ended.err
    assert "two/b.h5" in ended.err


def test_directory_without_a_model_has_a_separate_exit_code() -> None:
    """The exit code is that of other commands."""
    ended = tune("none", *TO)
    assert (ended.code, ended.err) == (4, "error: No model found.\n")


@for_each(
    ("arguments", "told"),
    [
        ((), "The policy of the converted layers is missing"),
        (("--to", "float32"), "does not compute in 16 bits"),
        (("--to", "mixed_flaot16"), "mixed_float16"),
        ((*TO, "--tolerance", "-1"), "must be a non-negative number"),
        ((*TO, "--tolerance", "nan"), "must be a non-negative number"),
        ((*TO, "--metric", "agreement=1"), "must be at least 0 and below 1"),
        ((*TO, "--metric", "agreement=-0.5"), "must be at least 0 and below 1"),
        ((*TO, "--metric", "agreement=nan"), "must be at least 0 and below 1"),
        ((*TO, "--metric", "agreement=many"), "has no number after ="),
        ((*TO, "--metric", "accuracy"), "--metric requires labels"),
        ((*TO, "--labels", "y.npy"), "--labels needs a metric"),
        ((*TO, "--labels", "y.npy", "--metric", "accuracy"), "--labels requires --inputs"),
        ((*TO, "--metric", "os:path=-1"), "drop -1.0, which must be a non-negative number"),
        ((*TO, "--budget", "0"), "budget '0' is neither a number of trials"),
        ((*TO, "--budget", "0s"), "nor of seconds, such as 600s"),
        ((*TO, "--budget", "10m"), "budget '10m' is neither"),
        ((*TO, "--set", "no/layer=float32"), "matches no layer"),
        ((*TO, "--set", ".*=float32"), "No layer of a.h5 would compute in 16 bits"),
        ((*TO, "-o", "-"), "models cannot be written to stdout"),
        ((*TO, "-o", "a.keras"), "Use the file extension .h5"),
    ],
)
def test_options_that_cannot_be(arguments: tuple[str, ...], told: str) -> None:
    """Usage errors exit with 2 and name the option."""
    ended = tune("a.h5", *arguments)
    assert (ended.code, told in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    "option", ["--inputs", "--labels", "--weights"], ids=lambda option: option.strip("-")
)
def test_missing_file_error_names_the_option(option: str, place: Path) -> None:
    """TensorFlow is not started."""
    np.save(place / "x.npy", np.zeros(1))
    more = ("--inputs", "x.npy", "--metric", "accuracy") if option == "--labels" else ()
    ended = tune("a.h5", *TO, *more, option, "nowhere.npy")
    assert ended.code == 3
    assert f"Check the path in {option}" in ended.err


def test_existing_output_is_reported_before_the_search(place: Path) -> None:
    """A search may take hours, and its result could not be written."""
    (place / "a.mixed_float16.h5").write_bytes(b"someone's")
    ended = tune("a.h5", *TO)
    assert ended.code == 3
    assert "Use --existing replace, or -o" in ended.err
    assert (place / "a.mixed_float16.h5").read_bytes() == b"someone's"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a record of `policytool tune --resume`"),
        ("[]", "not a record of"),
        ("{}", "not a record of"),
        ('{"version": 2}', "not a record of"),
        ('{"version": 1, "search": [], "trials": []}', "not a record of"),
        ('{"version": 1, "search": {}, "trials": [{"kept": 1}]}', "not a record of"),
        ('{"version": 1, "search": {}, "trials": []}', "belongs to a search with other options"),
        ("[" * 10_000, "not a record of"),
    ],
)
def test_file_that_is_not_a_record_is_not_changed(text: str, told: str, place: Path) -> None:
    """The file may belong to another program."""
    (place / "trials.json").write_text(text)
    ended = tune("a.h5", *TO, "--resume", "trials.json")
    assert (ended.code, told in ended.err) == (3, True), ended.err
    assert (place / "trials.json").read_text() == text


def test_record_replaces_neither_the_model_nor_the_inputs(place: Path) -> None:
    """A record cannot replace a file that the search reads."""
    (place / "x.npz").write_bytes(b"inputs")
    for file in ("a.h5", "x.npz", "two/b.h5"):
        before = (place / file).read_bytes()
        ended = tune("a.h5", *TO, "--inputs", "x.npz", "--resume", file)
        assert ended.code == 2, ended.err
        assert (place / file).read_bytes() == before


def test_named_settings_file_sets_options_of_a_search(place: Path) -> None:
    """``--show-settings`` shows these options."""
    (place / "own.toml").write_text('budget = 7\nto = "mixed_bfloat16"\n')
    ended = tune("a.h5", "--config", "own.toml", "--show-settings")
    assert ended.code == 0, ended.err
    assert "7" in next(line for line in ended.out.splitlines() if "budget" in line)


def test_a_failure_is_in_the_json_report() -> None:
    ended = tune("a.h5", *TO, "--format", "json")
    result = json.loads(ended.out)
    assert ended.code == 3
    assert (result["tuning"], result["plans"]) == (None, [])
    assert [failure["code"] for failure in result["failures"]] == ["no-python"]
