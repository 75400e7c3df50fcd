"""``migrate --verify/--no-verify``, with interpreters that only claim to have libraries."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest

import policytool
from policytool.commands import migrate_all
from policytool.commands.migrate import Status
from policytool.numerics import verification, workers
from policytool.support.errors import ModelFileError
from policytool.support.limits import TENSORFLOW_SECONDS
from tests.conftest import MIXED_JSON, Ended, run, run_process
from tests.helpers.fake_interpreters import (
    NEWEST,
    FakeInterpreter,
    failed,
    fake_interpreter,
    predicted,
)
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.separate_files import separate
from tests.helpers.small_models import h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE: Final = FIXTURES / "tf2.15/default_float32.h5"
OLD: Final = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
RESULT: Final = "model.keras3.keras"
VERIFIED: Final = "verified: tf_keras 2.21.0 and Keras 3.15.1 make the same predictions for 16 rows"
LIMIT: Final = " (memory limit 2.0 GiB)"
"""What follows by default, for a small model."""

LIMIT_BYTES: Final = 2 * 2**30 + 6 * 172
"""The model has 172 bytes of weights."""

Make = Callable[..., FakeInterpreter]

pytestmark = THOROUGH


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which holds a model of TF 2.15."""
    monkeypatch.setattr(workers, "machine_memory", lambda: 16 * 2**30)
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    shutil.copy(SOURCE, folder / "model.h5")
    return folder


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., FakeInterpreter]:
    """Return a function that makes an interpreter."""
    return lambda name="python", **told: fake_interpreter(tmp_path / name, **told)


def converted(*more: str | Path, path: str = "model.h5") -> Ended:
    """Return how a conversion for Keras 3 ends."""
    return run("migrate", path, "--target", "keras3", *more)


def last(ended: Ended) -> str:
    """Return the end of the first sentence, which may be wrapped: what was verified."""
    sentence = " ".join(re.split(r"\n(?:\n|  original )", ended.out)[0].split())
    result = re.search(r"(?:not )?verified: .*", sentence)
    return result[0] if result is not None else sentence


def verified(ended: Ended) -> dict[str, Any]:
    """Return what a JSON report says, having checked it against its schema."""
    schema = json.loads(
        (ROOT / "policytool/reports/schemas/migrate.schema.json").read_text(encoding="utf-8")
    )
    jsonschema.validate(ended.json, schema)
    result: dict[str, Any] = ended.json["plans"][0]["verified"]
    return result


# What is compared


def test_conversion_is_verified_if_the_libraries_are_installed(fake: Make, place: Path) -> None:
    """The last line and the JSON name the releases that ran and the rows."""
    python = fake()
    ended = converted("--python", python.path)
    assert (ended.code, last(ended)) == (0, VERIFIED + LIMIT)
    assert "classes measured before" not in ended.out  # about other models
    assert "classes measured before" in converted("--no-verify", "--existing=replace").out
    assert (place / RESULT).exists()
    result = converted("--python", python.path, "--format", "json", "--existing=replace")
    assert verified(result) == {
        "outcome": "verified",
        "reason": None,
        "releases": ["tf_keras 2.21.0", "Keras 3.15.1"],
        "samples": 16,
        "memory_limit": LIMIT_BYTES,
    }


def test_separate_weights_are_loaded_for_the_comparison(fake: Make, tmp_path: Path) -> None:
    """The source is the architecture with the weights."""
    architecture, weights = separate(SOURCE, tmp_path / "separate")
    ended = converted("--weights", weights, "--python", fake().path, path=str(architecture))
    assert (ended.code, last(ended)) == (0, VERIFIED + LIMIT)


def test_other_predictions_are_not_written(fake: Make, place: Path) -> None:
    """The exit code is 1, and the report says how far apart they are."""
    python = fake(result=predicted("keras", "3.15.1", [0.5, 2.01]))
    ended = converted("--python", python.path, "--format", "json")
    assert ended.code == 1
    assert ended.json["plans"][0]["status"] == "missed"
    result = verified(ended)
    assert result["outcome"] == "missed"
    assert result["reason"].startswith("a differs by up to 0.005 of its largest value")
    assert [path.name for path in place.iterdir()] == ["model.h5"]
    assert "Use --no-verify to write the result" in last(converted("--python", python.path))
    assert converted("--python", python.path, "--no-verify").code == 0


def test_an_edit_for_a_target_is_verified_too(fake: Make) -> None:
    """One library loads both files."""
    shutil.copy(OLD, "old.h5")
    python = fake(result=predicted("tf_keras", "2.21.0"))
    ended = run("migrate", "old.h5", "--target", "tf2.15", "--python", python.path)
    assert ended.code == 0, ended
    assert (
        last(ended)
        == "verified: tf_keras 2.21.0 makes the same predictions with both files for 16 rows"
        + LIMIT
    )
    assert python.processes() == 1


def test_change_of_policies_is_verified_only_with_the_option(fake: Make) -> None:
    """With --to the predictions change, and without a target nothing is compared by default."""
    python = fake(result=predicted("tf_keras", "2.21.0", [0.5, 2.0001]))
    plain = run("migrate", "model.h5", "--to", "mixed_float16", "--python", python.path)
    assert (plain.code, python.log("script")) == (0, [])
    assert "verified" not in plain.out
    ended = run(
        *("migrate", "model.h5", "--to", "mixed_float16", "--python", python.path),
        *("--verify", "--existing=replace"),
    )
    assert ended.code == 0, ended
    assert (
        last(ended)
        == "verified: predictions of tf_keras 2.21.0 agree within the tolerance for 16 rows"
    )


def test_preview_does_not_compare_predictions(fake: Make) -> None:
    """A preview does not run an interpreter."""
    python = fake()
    ended = converted("--preview", "--python", python.path)
    assert ended.code == 1
    assert python.log("script") == []
    assert "verified" not in ended.out


def test_one_process_per_side_serves_all_models(fake: Make) -> None:
    """Each interpreter is asked once what it has, and starts once."""
    for number in range(5):
        shutil.copy(SOURCE, f"a{number}.h5")
    one, two = fake("one"), fake("two")
    ended = run(
        *("migrate", "a*.h5", "--target", "keras3", "-v"),
        *("--python", f"source={one.path}", "--python", f"target={two.path}"),
    )
    assert ended.code == 0
    assert " ".join(ended.out.split()).count(VERIFIED) == 5
    for interpreter, side in ((one, "the source"), (two, "the result")):
        assert interpreter.log("script") == ["installed", "__main__.py"]
        assert interpreter.log("which") == [side] * 5
        assert interpreter.processes() == 1
    assert "policytool: verifying: the source" in ended.err


def test_the_processes_have_the_memory_that_the_system_gives(fake: Make) -> None:
    """The bound for HDF5 is on the process that reads, and none that starts then inherits it."""
    python = fake()
    ended = run_process(
        *("migrate", "model.h5", "--target", "keras3", "--python", str(python.path)),
        environment={"PYTHONPATH": str(ROOT)},
    )
    assert last(ended) == VERIFIED + LIMIT
    assert python.log("script") == ["installed", "__main__.py", "__main__.py"]
    assert set(python.log("memory")) == {resource.getrlimit(resource.RLIMIT_DATA)[0]}


# What keeps it from being compared


def test_environment_without_tensorflow_writes_the_file_without_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report says why predictions were not compared."""
    module = "policytool.numerics.verification"
    monkeypatch.setattr(f"{module}.subprocess.run", lambda *_, **__: pytest.fail("started"))
    monkeypatch.setattr(f"{module}.importlib.util.find_spec", lambda _: None)
    ended = converted("--format", "json")
    assert ended.code == 0
    assert verified(ended) == {
        "outcome": "not-verified",
        "reason": (
            "this environment has no TensorFlow; to verify, install policytool[releases] and "
            "add `--python auto`, or specify an interpreter with --python"
        ),
        "releases": [],
        "samples": 0,
        "memory_limit": None,
    }
    assert Path(RESULT).exists()
    assert last(converted("--existing=replace")).startswith("not verified: this environment has no")


@pytest.mark.parametrize(
    ("installed", "reason"),
    [
        ({}, "has no TensorFlow; to verify"),
        ({"tensorflow": "2.21.0", "tf_keras": "2.21.0"}, "has TensorFlow, but not Keras 3"),
        ({**NEWEST, "keras": "2.15.0"}, "has TensorFlow, but not Keras 3"),
        ({"tensorflow": "2.21.0", "keras": "3.15.1"}, "has TensorFlow, but not tf-keras"),
        (
            "Usage: no Python",
            ("does not report its installed packages; check that it is a Python interpreter"),
        ),
        ("[1]", ("does not report its installed packages; check that it is a Python interpreter")),
        (
            '{"keras": 3}',
            ("does not report its installed packages; check that it is a Python interpreter"),
        ),
    ],
)
def test_a_library_is_missing(
    installed: Mapping[str, str] | str, reason: str, fake: Make, place: Path
) -> None:
    """The sentence names the interpreter; no job was begun."""
    python = fake(installed=installed)
    ended = converted("--python", python.path)
    assert ended.code == 0
    assert last(ended).startswith(f"not verified: {python.path} {reason}")
    assert python.log("which") == []
    assert (place / RESULT).exists()


@pytest.mark.parametrize(
    "installed",
    [
        {"tensorflow": "2.15.1", "keras": "3.15.1"},
        {"tensorflow": None, "keras": None},
        {"tensorflow": "nightly", "keras": "nightly"},
    ],
)
def test_interpreter_with_an_unknown_library_version_is_tried(
    installed: Mapping[str, str | None], fake: Make
) -> None:
    """TF 2.15 contains Keras 2, and an unrecorded release may be any release."""
    assert last(converted("--python", fake(installed=installed).path)) == VERIFIED + LIMIT


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ("/nonexistent/python", "/nonexistent/python cannot be run (No such file or directory)"),
        (
            "/bin/false",
            (
                "/bin/false does not report its installed packages; check that it is a "
                "Python interpreter"
            ),
        ),
    ],
)
def test_interpreter_that_cannot_run_is_a_failure_only_with_verify(
    python: str, reason: str
) -> None:
    """Without the option ``--verify``, the file is written."""
    ended = converted("--python", python)
    assert (ended.code, last(ended)) == (0, f"not verified: {reason}")
    assert converted("--python", python, "--verify", "--existing=replace").code == 3


BROKEN: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "crash": ({"exit": 9}, "the TensorFlow process ({python}) exited with code 9"),
    "memory": (failed("memory", "OOM"), "TensorFlow ran out of memory (OOM)"),
    "inputs": (failed("inputs", "takes ragged inputs"), "takes ragged inputs"),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("side", ["source", "result"])
def test_a_comparison_that_ends_otherwise(how: str, side: str, fake: Make, place: Path) -> None:
    """
    If the comparison fails, the file is written by default; if the user requested the comparison,
    it is not, and the exit code is 3.
    """
    answer, reason = BROKEN[how]
    python = fake(**{side: answer})
    ended = converted("--python", python.path)
    assert ended.code == 0
    assert last(ended).startswith(f"not verified: {reason.format(python=python.path)}")
    assert (place / RESULT).exists()
    (place / RESULT).unlink()
    asked = converted("--python", python.path, "--verify")
    assert asked.code == 3
    assert reason.format(python=python.path) in asked.err
    assert not (place / RESULT).exists()


def test_comparison_stops_after_a_default_time_limit(
    fake: Make, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit ``tensorflow-seconds`` replaces the default."""
    seconds = replace(TENSORFLOW_SECONDS, default=1)
    monkeypatch.setattr(migrate_all, "TENSORFLOW_SECONDS", seconds)
    python = fake(source={**predicted("tf_keras", "2.21.0"), "sleep": 3})
    ended = converted("--python", python.path)
    assert ended.code == 0
    assert last(ended) == (
        "not verified: the TensorFlow process was stopped after 1 s; raise the limit with --limit "
        "tensorflow-seconds=2"
    )
    assert (place / RESULT).exists()
    assert last(
        converted("--python", python.path, "--existing=replace", "--limit", "tensorflow-seconds=30")
    ) == (VERIFIED + LIMIT)


@pytest.mark.parametrize("code", ["not-loadable", "not-callable"])
def test_result_that_its_own_release_cannot_use_is_not_written(
    code: str, fake: Make, place: Path
) -> None:
    """A failure of another release does not prevent the output."""
    python = fake(result=failed(code, "Keras 3.15.1 cannot load the result: no"))
    ended = converted("--python", python.path)
    assert ended.code == 3
    assert "Keras 3.15.1 cannot load the result" in ended.err
    assert [path.name for path in place.iterdir()] == ["model.h5"]
    other = fake(
        "other",
        installed={**NEWEST, "keras": "3.14.0"},
        result=failed(code, "Keras 3.14.0 cannot load the result: no"),
    )
    ended = converted("--python", other.path)
    assert (ended.code, last(ended)) == (
        0,
        "not verified: Keras 3.14.0 cannot load the result: no",
    )


def test_missing_code_of_a_class_does_not_reject_the_result(fake: Make) -> None:
    """TensorFlow revives a SavedModel without the code of its classes, but not an archive."""
    python = fake(result=failed("not-loadable", "Keras 3.15.1 cannot load the result: no Scale"))
    shutil.copytree(FIXTURES / "tf2.15/autocast_false", "own")
    ended = converted("--python", python.path, path="own")
    assert ended.code == 0
    assert last(ended).startswith("not verified: ")
    assert "--custom-objects MODULE" in last(ended)
    assert python.log("which") == [], "no library gets a result that it has no classes for"


def test_a_lack_of_memory_is_no_fault_of_the_conversion(fake: Make, place: Path) -> None:
    """A new process compares fewer rows; the report has the limit and the option."""
    python = fake(result=failed("memory", "OOM"))
    ended = converted("--python", python.path, "--format", "json")
    assert ended.code == 0
    result = verified(ended)
    assert (result["outcome"], result["memory_limit"]) == ("not-verified", LIMIT_BYTES)
    assert result["reason"] == (
        "TensorFlow ran out of memory (OOM) (memory limit 2.0 GiB; raise it with --limit "
        "tensorflow-bytes=4097MiB)"
    )
    assert (place / RESULT).exists()
    assert python.log("which") == ["the source", "the result"] * 3
    assert python.log("rows") == [None, None, 3, 3, 1, 1]
    assert {item["bytes"] for item in python.log("bound")} == {LIMIT_BYTES}
    assert {item["most"] for item in python.log("bound")} == {8 * 2**30}
    assert python.processes() == 6


@pytest.mark.parametrize("more", [("--limit", "tensorflow-bytes=4G"), ("--verify",)])
def test_limit_of_the_user_replaces_the_default_memory_limit(
    fake: Make, more: tuple[str, ...]
) -> None:
    """A comparison with ``--verify`` has no default limit."""
    python = fake()
    ended = converted("--python", python.path, "--format", "json", *more)
    assert verified(ended)["memory_limit"] is None
    assert python.log("bound") == [None, None]


def test_source_that_cannot_be_loaded_does_not_reject_the_result(fake: Make) -> None:
    """The newest tf_keras does not load every old file."""
    python = fake(source=failed("not-loadable", "tf_keras 2.21.0 cannot load the source: no"))
    ended = converted("--python", python.path)
    assert (ended.code, last(ended)) == (
        0,
        "not verified: tf_keras 2.21.0 cannot load the source: no",
    )


def test_code_in_the_file_is_not_run(fake: Make, place: Path) -> None:
    """A file that the guard does not accept is converted and not verified, unless --trust."""
    dtype = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    layer = {"class_name": "Mine", "config": {"name": "dense_a", "dtype": dtype}}
    h5_model(place / "own.h5", sequential(layer), weights=False)
    python = fake(result=predicted("tf_keras", "2.21.0"))
    call = ("migrate", "own.h5", "--target", "tf2.15", "--python", python.path)
    ended = run(*call)
    assert ended.code == 0, ended
    assert last(ended).startswith("not verified: mlp/dense_a ")
    assert "allow everything in the file with --trust" in last(ended)
    assert python.log("which") == []
    assert run(*call, "--verify", "--existing=replace").code == 3
    assert last(run(*call, "--trust", "--existing=replace")).startswith("verified: tf_keras 2.21.0")


def test_large_model_is_compared_only_with_verify(
    fake: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is 1 GiB of weights."""
    monkeypatch.setattr(verification, "_MOST", 1)
    python = fake()
    assert "for 1 GiB or more, predictions are compared only with --verify" in last(
        converted("--python", python.path)
    )
    assert python.log("which") == []
    assert last(converted("--python", python.path, "--verify", "--existing=replace")) == VERIFIED


def test_model_without_weights_is_not_verified(fake: Make) -> None:
    """The report names the reason."""
    shutil.copy(MIXED_JSON, "model.json")
    ended = converted("--python", fake().path, path="model.json")
    assert (ended.code, last(ended)) == (
        0,
        "not verified: the file contains no weights (json)",
    )


def test_further_processes_know_the_reason() -> None:
    """Without libraries many files are converted by as many processes as ever."""
    for number in range(3):
        shutil.copy(SOURCE, f"a{number}.h5")
    ended = run_process(
        *("migrate", "a*.h5", "--target", "keras3", "--jobs", "2"),
        environment={"PYTHONPATH": str(ROOT)},
    )
    assert ended.code == 0, ended.err
    assert ended.out.count("not verified: this environment has no TensorFlow") == 3


# The option, variables and settings


def test_no_verify_is_reported_and_runs_no_python(fake: Make) -> None:
    """The report names the option that turned the comparison off."""
    python = fake()
    ended = converted("--no-verify", "--python", python.path)
    assert (ended.code, last(ended)) == (0, "not verified: --no-verify")
    assert python.log("script") == []
    assert "verified" not in run("migrate", OLD, "-o", "new.h5", "--no-verify").out


@pytest.mark.parametrize(("value", "shown"), [("auto", '"auto"'), ("0", "false"), ("1", "true")])
def test_verify_is_set_by_a_variable_and_by_a_named_settings_file(
    value: str, shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``--show-settings`` shows the default, and the source of other values."""
    assert 'verify = "auto"  # default' in run("migrate", "--show-settings").out
    monkeypatch.setenv("POLICYTOOL_VERIFY", value)
    assert f"verify = {shown}  # $POLICYTOOL_VERIFY" in run("migrate", "--show-settings").out
    monkeypatch.delenv("POLICYTOOL_VERIFY")
    settings = tmp_path / "named.toml"
    settings.write_text(f"verify = {shown}\n", encoding="utf-8")
    ended = run("migrate", "--config", settings, "--show-settings")
    assert f"verify = {shown}  # {settings}" in ended.out


@pytest.mark.parametrize("value", ["maybe", "2", "Auto"])
def test_unknown_values_of_verify_are_wrong_usage(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown values in a variable, in a settings file and on the command line are errors."""
    Path("named.toml").write_text(f"verify = {json.dumps(value)}\n", encoding="utf-8")
    assert converted("--config", "named.toml").code == 2
    assert converted(f"--verify={value}").code == 2
    monkeypatch.setenv("POLICYTOOL_VERIFY", value)
    ended = converted()
    assert ended.code == 2
    assert repr(value) in ended.err


def test_found_settings_file_does_not_start_a_comparison(
    fake: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A settings file in the working directory may turn the comparison off, and then the report names
    it.
    """
    python = fake()
    monkeypatch.setenv("POLICYTOOL_PYTHON", str(python.path))
    settings = Path("policytool.toml")
    settings.write_text("verify = false\n", encoding="utf-8")
    assert last(converted()) == "not verified: verify = false in policytool.toml"
    settings.write_text('target = "keras3"\nverify = "auto"\n', encoding="utf-8")
    ended = run("migrate", "model.h5", "--existing=replace")
    assert last(ended).startswith(
        "not verified: policytool.toml sets the target, but was not specified"
    )
    for value in ("true", "1", '"yes"', "[true]"):
        settings.write_text(f"verify = {value}\n", encoding="utf-8")
        ended = converted("--existing=replace")
        assert (ended.code, ended.out) == (2, "")
        assert "which only a settings file specified with --config may set" in ended.err
    assert python.log("script") == []
    settings.write_text('target = "keras3"\n', encoding="utf-8")
    assert last(run("migrate", "model.h5", "--existing=replace", "--verify")) == VERIFIED
    assert last(converted("--existing=replace")) == VERIFIED + LIMIT


# The API


def test_python_verifies_as_the_command_does(fake: Make, place: Path) -> None:
    """Python compares by default if it is possible; False starts no process."""
    python = fake()
    plain = policytool.migrate("model.h5", target="keras3", verify=False, python=str(python.path))
    assert (plain.status, plain.is_verified, plain.not_verified) == (Status.WRITTEN, False, None)
    assert python.log("script") == []
    done = policytool.migrate(
        "model.h5", target="keras3", python=str(python.path), existing="replace"
    )
    assert done.is_verified
    without = policytool.migrate("model.h5", target="keras3", output=place / "b.keras")
    assert without.not_verified is not None
    assert "has no TensorFlow" in without.not_verified
    with pytest.raises(ModelFileError, match="cannot be run"):
        policytool.migrate(
            "model.h5", target="keras3", verify=True, python=f"{os.sep}none", existing="replace"
        )
