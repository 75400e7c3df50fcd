"""The public functions, called from Python."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.support import errors
from policytool.support.project import VERSION
from tests.conftest import MIXED_H5, MIXED_SAVEDMODEL, run
from tests.helpers.paths import FIXTURES, PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: Final[dict[str, Callable[[], object]]] = {
    "inspect": lambda: policytool.inspect(MIXED_H5),
    "audit": lambda: policytool.audit(MIXED_H5),
    "migrate": lambda: policytool.migrate(MIXED_H5, preview=True),
    "diff": lambda: policytool.diff(MIXED_H5, MIXED_H5),
}
"""Each function that needs no TensorFlow; the tests of ``check`` call that one."""


@pytest.mark.parametrize("name", CALLS)
def test_a_function_can_be_called_twice(name: str) -> None:
    """The imports of the first call do not replace the function."""
    function = getattr(policytool, name)
    assert CALLS[name]() == CALLS[name]()
    assert getattr(policytool, name) is function


def test_public_names_are_found() -> None:
    """Users, completion and type checkers find the public names, and no others."""
    assert {*policytool.__all__} <= {*dir(policytool)}
    assert all(getattr(policytool, name) is not None for name in policytool.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Layer'"):
        _ = policytool.Layer  # type: ignore[attr-defined]  # that is what is tried
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    names = {
        alias.asname or alias.name
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert names == {*policytool.__all__}


def test_the_version_is_that_of_the_command() -> None:
    """``policytool --version`` prints the same."""
    assert policytool.__version__ == VERSION
    assert run("--version").out == f"policytool {policytool.__version__}\n"


def test_every_error_is_a_policytool_error() -> None:
    """One ``except`` clause catches all of them."""
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    kinds.discard(errors.CodedError)  # a base of errors that functions catch themselves, too
    assert all(issubclass(kind, policytool.Error) for kind in kinds)
    assert policytool.ModelFileError is errors.ModelFileError
    assert policytool.UsageError is errors.UsageError
    assert policytool.WorkerError is errors.WorkerError


def damaged(place: Path) -> Path:
    """Return a model that lacks its end."""
    path = place / "damaged.h5"
    path.write_bytes(MIXED_H5.read_bytes()[:3000])
    return path


ERRORS: Final[dict[str, Callable[[Path], object]]] = {
    "missing": lambda place: policytool.inspect(place / "missing.h5"),
    "damaged": lambda place: policytool.inspect(damaged(place)),
    "foreign": lambda place: policytool.audit(Path(__file__)),
    "second model": lambda place: policytool.diff(MIXED_H5, place / "missing.h5"),
    "directory": lambda place: policytool.diff(MIXED_H5, place),
    "existing output": lambda place: policytool.migrate(
        MIXED_H5, to="float64", output=damaged(place)
    ),
    "no policy": lambda place: policytool.migrate(FIXTURES / "keras3.15/loops.export"),
    "no layer": lambda place: policytool.migrate(MIXED_H5, set={"nope": "float32"}),
    "two patterns": lambda place: policytool.migrate(
        MIXED_H5, set={".*": "float32", ".*a": "float16"}
    ),
    "other format": lambda place: policytool.migrate(
        FIXTURES / "tf2.15/rnn.h5", target="keras3", allow=["weight-rewrite"], in_place=True
    ),
    "no such layer": lambda place: policytool.diff(MIXED_H5, MIXED_H5, layer="nope"),
    "no TensorFlow": lambda place: policytool.check(MIXED_H5, python=sys.executable),
    "no verification": lambda place: policytool.migrate(
        MIXED_H5, to="float64", verify=True, output=place / "new.h5"
    ),
}
"""Calls that fail because of a file."""


@pytest.mark.parametrize("name", ERRORS)
def test_error_names_the_file_once(name: str, tmp_path: Path) -> None:
    """The message without the file is complete."""
    with pytest.raises(policytool.Error) as caught:
        ERRORS[name](tmp_path)
    text = str(caught.value)
    files = [MIXED_H5, tmp_path, *tmp_path.iterdir(), *FIXTURES.glob("*/*"), Path(__file__)]
    known = {str(file) for file in files} | {str(tmp_path / "missing.h5")}
    known |= {file.removeprefix(f"{Path.cwd()}/") for file in known}
    named = [file for file in known if file in text]
    longest = max(named, key=len)
    assert text.count(longest) == 1
    error = caught.value
    if isinstance(error, policytool.ModelFileError):
        assert text == f"{error.path}: {error.message}"
        assert error.path not in error.message


def test_an_error_without_a_file_has_none() -> None:
    """Wrong options are about the call."""
    for options, word in (
        ({"keep": ["no"]}, "no"),
        ({"include": ["no"]}, "no"),
        ({"to": "half"}, "half"),
    ):
        with pytest.raises(policytool.UsageError, match=word):
            policytool.migrate(MIXED_H5, **options)
    with pytest.raises(policytool.UsageError, match="--in-place and -o conflict"):
        policytool.migrate(MIXED_H5, in_place=True, output="other.h5")


@pytest.mark.parametrize("target", ["keras3", ["keras3"], ("keras3", "tf2.4"), None])
def test_a_target_is_one_release_or_several(target: Any) -> None:
    """The argument is one release or a list, as ``--target`` can be repeated."""
    releases = policytool.audit(FIXTURES / "tf2.3/exp_mf16_fixed128.h5", target=target).releases
    expected = ("keras3.15",) if target is None else ("keras3",) if target == "keras3" else target
    assert releases == tuple(expected)


def test_migrations_have_the_path_of_their_result(tmp_path: Path) -> None:
    """``output`` is the new file, planned or written; None if there is no such file."""
    path = tmp_path / "model.h5"
    shutil.copy(FIXTURES / "tf2.15/rnn.h5", path)
    planned = policytool.migrate(path, to="mixed_bfloat16", preview=True)
    assert (planned.status, planned.output) == ("planned", tmp_path / "model.mixed_bfloat16.h5")
    assert not (tmp_path / "model.mixed_bfloat16.h5").exists()
    blocked = policytool.migrate(path, target="keras3", preview=True)
    assert (blocked.status, blocked.output) == ("blocked", None)
    assert blocked.blockers[0].message in re.sub("<[^>]*>", "", blocked._repr_html_())
    done = policytool.migrate(path, to="mixed_bfloat16", in_place=True)
    assert (done.status, done.output, done.backup) == ("written", path, tmp_path / "model.h5.bak")
    assert done.is_verified is False
    unchanged = policytool.migrate(path, preview=True)
    assert (unchanged.status, unchanged.output, unchanged.backup) == ("unchanged", None, None)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (
            {"to": "mixed_bfloat16", "include": ["outputs"]},
            ("--to", "mixed_bfloat16", "--include", "outputs"),
        ),
        ({"keep": ["loss-scale"]}, ("--keep", "loss-scale")),
        ({"to": "float32", "keep": ["optimizer"]}, ("--to", "float32", "--keep", "optimizer")),
        (
            {"to": "float32", "include": ["exceptions"]},
            ("--to", "float32", "--include", "exceptions"),
        ),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["tf2.3/exp_mf16_fixed128.h5", "tf2.5/global_mixed_float16.h5"])
def test_options_are_those_of_the_command(
    name: str, options: dict[str, Any], arguments: tuple[str, ...]
) -> None:
    """The same option gives the same plan."""
    result = policytool.migrate(FIXTURES / name, preview=True, **options).to_dict()
    ended = run("migrate", FIXTURES / name, "--preview", "--format", "json", *arguments)
    assert result["plans"]
    assert ended.out.strip()
    assert result == json.loads(ended.out)


def test_a_saved_model_can_be_planned_to_be_re_exported() -> None:
    """``retrace`` is in the plan."""
    assert policytool.migrate(MIXED_SAVEDMODEL, retrace=True, preview=True).plan.retrace


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"output_kind": {"y": "cat"}}, errors.UsageError, "must be NAME=KIND"),
        ({"metric": "accuracy"}, errors.UsageError, "requires labels"),
        ({"labels": "labels.npy", "metric": "accuracy"}, errors.UsageError, "requires --inputs"),
        ({"against": "gone.h5"}, errors.ModelFileError, "does not exist"),
    ],
)
def test_options_of_a_check_are_validated_before_tensorflow_starts(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The errors are those of the command."""
    with pytest.raises(error, match=message):
        policytool.check("gone.h5", **options)
