"""The models that paths on the command line select."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import h5py
import pytest

from policytool.commands import inspect as inspection
from policytool.formats import discovery
from policytool.support.errors import ModelFileError
from tests.conftest import Ended, run
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import (
    h5_model,
    keras_members,
    keras_zip,
    sequential,
    small_saved_model,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, a small tree with models of every kind and other files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    h5_model(tmp_path / "models" / "b.h5", sequential())
    keras_zip(tmp_path / "models" / "a.keras")
    small_saved_model(tmp_path / "models" / "saved", separate=True)
    for part in ("variables", "assets"):
        (tmp_path / "models" / "saved" / part).mkdir()
    (tmp_path / "models" / "saved" / "variables" / "variables.index").write_bytes(b"index")
    (tmp_path / "models" / "saved" / "assets" / "words.txt").write_text("one\n", encoding="utf-8")
    (tmp_path / "models" / "unpacked").mkdir()
    for name, data in keras_members().items():
        (tmp_path / "models" / "unpacked" / name).write_bytes(data)
    (tmp_path / "models" / "notes.txt").write_text("no model", encoding="utf-8")
    return tmp_path


ALL: Final = ["models/saved", "models/unpacked", "models/a.keras", "models/b.h5"]


def found(arguments: Iterable[str | Path], stdin: bytes = b"") -> list[str]:
    """Return the paths of the models in a report."""
    ended = run("inspect", "--format", "json", *arguments, stdin=stdin)
    assert ended.code == 0, ended.err
    return [model["path"] for model in ended.json["models"]]


def test_directory_selects_the_models_below() -> None:
    """Other files are skipped and counted."""
    ended = run("inspect", "--format", "json", "models")
    assert ended.code == 0
    assert sorted(model["path"] for model in ended.json["models"]) == sorted(ALL)
    assert ended.json["failures"] == []
    assert "Skipped 1 file that is not a model" in ended.err


def test_order_is_by_name_and_the_same_each_time() -> None:
    """Models in a directory are sorted by name, in the same order in each run."""
    assert found(["models"]) == found(["models"])


def test_default_path_is_the_working_directory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a PATH each model below the working directory is reported with its relative path."""
    assert sorted(found([])) == sorted(ALL)
    monkeypatch.chdir(tree / "models")
    assert sorted(found([])) == sorted(name.removeprefix("models/") for name in ALL)


def test_working_directory_that_is_a_model_is_that_model(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a PATH in a SavedModel, the SavedModel is reported."""
    monkeypatch.chdir(tree / "models" / "saved")
    assert found([]) == ["."]


def test_path_above_the_working_directory_is_absolute(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regardless of its form on the command line."""
    monkeypatch.chdir(tree / "models" / "saved")
    assert found(["../b.h5"]) == [(tree / "models" / "b.h5").as_posix()]
    monkeypatch.chdir(tree)
    assert found([tree / "models" / "b.h5", "./models/../models/a.keras"]) == [
        "models/b.h5",
        "models/a.keras",
    ]


@pytest.mark.parametrize(
    "part",
    [
        "",
        "/",
        "/saved_model.pb",
        "/keras_metadata.pb",
        "/variables/variables.index",
        "/assets/words.txt",
    ],
)
def test_part_of_a_savedmodel_selects_the_savedmodel(part: str) -> None:
    assert found([f"models/saved{part}"]) == ["models/saved"]


@pytest.mark.parametrize("part", ["config.json", "metadata.json", "model.weights.h5"])
def test_part_of_an_unpacked_model_selects_the_model(part: str) -> None:
    """
    A ``config.json`` next to its ``metadata.json`` selects the unpacked model with its weights.
    """
    assert found([f"models/unpacked/{part}"]) == ["models/unpacked"]


def test_config_without_metadata_is_an_architecture(tree: Path) -> None:
    """A ``config.json`` without ``metadata.json`` is architecture JSON."""
    (tree / "config.json").write_text(json.dumps(sequential()), encoding="utf-8")
    assert found(["config.json"]) == ["config.json"]


def test_the_same_model_named_twice_is_reported_once(tree: Path) -> None:
    """Repeated paths, parts of a directory, links, and directories."""
    (tree / "link.h5").symlink_to(tree / "models" / "b.h5")
    parts = [
        f"models/saved/{name}"
        for name in ("saved_model.pb", "keras_metadata.pb", "variables/variables.index")
    ]
    assert found(["models/b.h5", "./models/b.h5", tree / "models" / "b.h5", "link.h5", *parts]) == [
        "models/b.h5",
        "models/saved",
    ]
    assert sorted(found(["models/b.h5", "models"])) == sorted(ALL)
    assert found(["models/b.h5", "models"])[0] == "models/b.h5"


def test_link_in_a_circle_ends(tree: Path) -> None:
    """A link to a parent directory does not make the search endless."""
    (tree / "models" / "up").symlink_to(tree)
    assert sorted(found(["models"])) == sorted(ALL)


@pytest.mark.parametrize("hidden", [".cache", ".git", "old.bak"])
def test_hidden_directories_and_backups_are_skipped_when_found(hidden: str, tree: Path) -> None:
    shutil.copytree(tree / "models" / "saved", tree / "models" / hidden)
    (tree / "models" / ".hidden.h5").write_bytes((tree / "models" / "b.h5").read_bytes())
    (tree / "models" / "b.h5.bak").write_bytes((tree / "models" / "b.h5").read_bytes())
    assert sorted(found(["models"])) == sorted(ALL)
    assert sorted(found(["models/*"])) == sorted(ALL)
    assert found([f"models/{hidden}", "models/.hidden.h5", "models/b.h5.bak"]) == [
        f"models/{hidden}",
        "models/.hidden.h5",
        "models/b.h5.bak",
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("models/*.h5", ["models/b.h5"]),
        ("models/*", ALL),
        ("**/*.keras", ["models/a.keras"]),
        ("models/[ab].*", ["models/a.keras", "models/b.h5"]),
        ("models/?.h5", ["models/b.h5"]),
        ("model*", ALL),
        ("models/saved/*", ["models/saved"]),
    ],
)
def test_globs_find_models(pattern: str, expected: list[str]) -> None:
    """A glob is quoted; a matching directory selects the models below it."""
    assert sorted(found([pattern])) == sorted(expected)


def test_absolute_globs_find_models(tree: Path) -> None:
    """A glob can be an absolute path."""
    assert found([f"{tree.as_posix()}/models/*.h5"]) == ["models/b.h5"]


def test_existing_file_with_glob_characters_is_read_as_this_file(tree: Path) -> None:
    h5_model(tree / "model[1].h5", sequential())
    h5_model(tree / "model1.h5", sequential())
    assert found(["model[1].h5"]) == ["model[1].h5"]


def failed(ended: Ended) -> dict[str, str]:
    """Return the path and code of each failure in a JSON report."""
    return {failure["path"]: failure["code"] for failure in ended.json["failures"]}


def test_only_files_that_the_user_names_must_be_models() -> None:
    named = run("inspect", "--format", "json", "models/notes.txt")
    assert (named.code, failed(named)) == (3, {"models/notes.txt": "foreign"})
    globbed = run("inspect", "--format", "json", "models/*.txt")
    assert (globbed.code, failed(globbed)) == (4, {})
    assert "Skipped" in globbed.err


@pytest.mark.parametrize(
    "data",
    [b"", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"],
    ids=["empty", "lfs pointer"],
)
@pytest.mark.parametrize(
    ("name", "meant"),
    [("x.h5", True), ("x.keras", True), ("x.hdf5", True), ("x.bin", False), ("__init__.py", False)],
)
def test_found_file_that_was_meant_to_be_a_model_is_a_failure(
    data: bytes,
    name: str,
    meant: bool,  # noqa: FBT001
    tree: Path,
) -> None:
    """
    An empty file or git-lfs pointer in a directory is a failure if it has the suffix of a model,
    and is skipped otherwise.
    """
    (tree / "models" / name).write_bytes(data)
    ended = run("inspect", "--format", "json", "models")
    assert ended.code == (3 if meant else 0)
    assert set(failed(ended)) == ({f"models/{name}"} if meant else set())
    assert len(ended.json["models"]) == len(ALL)


@pytest.mark.parametrize("name", ["saved_model.pb", "keras_metadata.pb"])
@pytest.mark.parametrize("data", [b"", b"version https://git-lfs.github.com/spec/v1\nsize 1\n"])
def test_found_directory_with_a_placeholder_for_a_file_is_a_failure(
    data: bytes, name: str, tree: Path
) -> None:
    model = tree / "models/not_downloaded"
    model.mkdir()
    (model / name).write_bytes(data)
    ended = run("inspect", "--format", "json", "models")
    assert ended.code == 3
    assert len(failed(ended)) == 1


def test_found_models_with_damaged_json_are_failures(tree: Path) -> None:
    """Invalid JSON in a model's container is a failure and not an unrecognized file format."""
    (tree / "models/unpacked" / "config.json").write_text('{"module": "keras", ', encoding="utf-8")
    with h5py.File(tree / "models/b.h5", "r+") as file:
        file.attrs["model_config"] = '{"class_name": '
    ended = run("inspect", "--format", "json", "models")
    assert ended.code == 3
    assert failed(ended) == {"models/b.h5": "invalid-json", "models/unpacked": "invalid-json"}


def test_found_file_that_is_a_broken_model_is_a_failure(tree: Path) -> None:
    (tree / "models" / "broken.h5").write_bytes((tree / "models" / "b.h5").read_bytes()[:1000])
    ended = run("inspect", "--format", "json", "models")
    assert (ended.code, failed(ended)) == (3, {"models/broken.h5": "truncated"})
    assert len(ended.json["models"]) == len(ALL)


def test_savedmodel_without_its_graph_is_one_failure(tree: Path) -> None:
    """
    A SavedModel without its graph is one failure that names the missing file, and its other files
    are not a second model.
    """
    broken = tree / "models" / "graphless"
    shutil.copytree(FIXTURES / "tf2.15/global_mixed_float16", broken)
    (broken / "saved_model.pb").unlink()
    for arguments in (("models",), ("models/graphless",)):
        ended = run("inspect", "--format", "json", *arguments)
        assert ended.code == 3
        assert failed(ended) == {"models/graphless": "savedmodel-graphless"}
        assert "is a SavedModel without saved_model.pb" in ended.json["failures"][0]["message"]
    alone = run("inspect", "--format", "json", "models/graphless/keras_metadata.pb")
    assert (alone.code, len(alone.json["models"])) == (0, 1)


def test_directory_without_models_has_none(tree: Path) -> None:
    """A directory without models exits with code 4 and a message on stderr."""
    (tree / "empty").mkdir()
    ended = run("inspect", "empty")
    assert (ended.code, ended.out) == (4, "")
    assert "No model found" in ended.err


def test_quiet_does_not_report_skipped_files() -> None:
    """``-q`` prints only failures on stderr, and no skipped files."""
    assert run("inspect", "-q", "models").err == ""


@pytest.mark.parametrize(
    "stdin",
    [
        b"models/b.h5\nmodels/a.keras\n",
        b"models/b.h5\nmodels/a.keras",
        b"\nmodels/b.h5\n\nmodels/a.keras\n",
        b"models/b.h5\0models/a.keras\0",
        b"models/b.h5\0models/a.keras",
    ],
)
def test_list_on_stdin_names_models(stdin: bytes) -> None:
    """``-`` reads paths from stdin, separated by newlines or NUL, and ignores empty ones."""
    assert found(["-"], stdin) == ["models/b.h5", "models/a.keras"]


def test_list_on_stdin_replaces_the_dash_among_other_paths() -> None:
    """The paths from stdin replace ``-`` between other paths."""
    assert found(["models/saved", "-", "models/unpacked"], b"models/b.h5\n") == [
        "models/saved",
        "models/b.h5",
        "models/unpacked",
    ]


def test_names_with_newlines_and_foreign_bytes_come_through_stdin(tree: Path) -> None:
    """A list that is separated by NUL can contain names with newlines and bytes outside UTF-8."""
    names = ["new\nline.h5", os.fsdecode(b"latin-\xe4.h5")]
    for name in names:
        h5_model(tree / "plain.h5", sequential()).rename(tree / name)
    ended = run(
        "inspect",
        "--format",
        "json",
        "-",
        stdin=b"\0".join(os.fsencode(name) for name in names),
    )
    assert ended.code == 0, ended.err
    assert len(ended.json["models"]) == 2


def test_empty_list_on_stdin_is_no_call_for_everything() -> None:
    """An empty list on stdin selects no model, and not the whole working directory."""
    ended = run("inspect", "-", stdin=b"")
    assert (ended.code, ended.out) == (4, "")


def test_pattern_without_a_match_is_reported() -> None:
    """A glob without a match is reported, even if other paths select models."""
    ended = run("inspect", "models/b.h5", "nothing*.h5")
    assert "nothing*.h5" in ended.err


def test_inspect_function_rejects_a_directory_of_models(tree: Path) -> None:
    """
    ``policytool.inspect`` of a directory that is not a model is an error, regardless of the files
    below it.
    """
    assert inspection.inspect("models/saved/saved_model.pb").path == "models/saved"
    for directory in ("models", str(tree)):
        with pytest.raises(ModelFileError) as caught:
            inspection.inspect(directory)
        assert caught.value.code == "no-model"


def test_inputs_are_lazy_values() -> None:
    """Discovery yields frozen values lazily, with the path for reports."""
    first = next(iter(discovery.inputs(["models/b.h5"])))
    assert (first.path, first.exact, first.display_path) == (
        Path("models/b.h5"),
        True,
        "models/b.h5",
    )
    assert not next(iter(discovery.inputs(["models"]))).exact


@pytest.mark.parametrize(
    "url", ["s3://bucket/model.h5", "https://example.org/model.keras", "gs://b/*.h5"]
)
def test_url_has_a_separate_error_message(url: str) -> None:
    ended = run("check", url, "--to", "float16")
    assert ended.code == 2
    assert "is a URL" in ended.err


@pytest.mark.parametrize("command", ["inspect", "migrate"])
def test_items_of_a_list_that_ends_in_nul_are_paths(command: str) -> None:
    """A list that is separated by NUL, as ``find -print0`` prints it, contains paths."""
    ended = run(command, "-", stdin=b"one.h5\0two.h5\0")
    assert ended.code == 3
    assert all(f"error: {name}: " in ended.err for name in ("one.h5", "two.h5"))
