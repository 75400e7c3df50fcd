"""The parts of `make package`, without building or installing anything."""

from __future__ import annotations

import json
import tarfile
import zipfile
from typing import TYPE_CHECKING, Final

import pytest

from policytool.formats import FORMATS
from tests.helpers.paths import FIXTURES, ROOT
from tests.packaging import contents, interpreters
from tests.packaging.commands import MODELS, audit_problem, commands, inspect_problem
from tests.packaging.run import SCHEMAS, PackagingError, checked, models_in, version_of

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE: Final = frozenset({"policytool/__init__.py", "policytool/py.typed"})
PYPROJECT: Final = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def wheel_members() -> set[str]:
    """Return what a wheel of PACKAGE contains."""
    base = "policytool-1.0"
    return {
        *PACKAGE,
        f"{base}.data/data/share/man/man1/policytool.1",
        *(
            f"{base}.dist-info/{name}"
            for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
        ),
    }


def source_members() -> set[str]:
    """Return what a source distribution of PACKAGE contains."""
    return {
        *PACKAGE,
        *(".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "PKG-INFO"),
        *("pyproject.toml", "docs/reference/policytool.1"),
    }


def test_expected_files_have_no_problems() -> None:
    """The package, its metadata and the man page."""
    assert not list(contents.wheel_problems(wheel_members(), PACKAGE, "1.0"))
    assert not list(contents.source_problems(source_members(), PACKAGE))


@pytest.mark.parametrize("name", ["tests/test_api.py", "fixtures/model.h5", "build/a.py"])
def test_other_files_are_unexpected(name: str) -> None:
    """Tests need fixtures of 20 MB, which no distribution contains."""
    expected = [f"unexpected file: {name}"]
    assert list(contents.wheel_problems({*wheel_members(), name}, PACKAGE, "1.0")) == expected
    assert list(contents.source_problems({*source_members(), name}, PACKAGE)) == expected


@pytest.mark.parametrize("name", ["policytool/py.typed", "policytool/__init__.py"])
def test_missing_files_are_reported(name: str) -> None:
    """Data files too."""
    expected = [f"missing file: {name}"]
    assert list(contents.wheel_problems(wheel_members() - {name}, PACKAGE, "1.0")) == expected
    assert list(contents.source_problems(source_members() - {name}, PACKAGE)) == expected


def test_members_are_files_without_the_directory_of_the_source(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "policytool-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(file, "policytool/a.py")
    with tarfile.open(tmp_path / "policytool-1.0.tar.gz", "w:gz") as source:
        source.add(tmp_path, "policytool-1.0", recursive=False)
        source.add(file, "policytool-1.0/policytool/a.py")
    for archive in tmp_path.glob("policytool-*"):
        assert contents.members(archive) == {"policytool/a.py"}
    assert version_of(tmp_path / "policytool-1.0-py3-none-any.whl") == "1.0"


def test_package_files_are_those_of_the_tree() -> None:
    result = contents.package_files(ROOT)
    assert {"policytool/py.typed", "policytool/reports/html/templates/style.css"} <= result
    assert not [name for name in result if name.endswith(".pyc")]


def test_supported_versions_are_those_of_the_classifiers() -> None:
    """The first version is the lowest that pip accepts."""
    versions = interpreters.supported_versions(PYPROJECT)
    assert versions[0] == "3.11"
    assert f'requires-python = ">={versions[0]}"' in PYPROJECT
    assert list(versions) == sorted(versions, key=lambda text: int(text.partition(".")[2]))


def test_installed_versions_are_found(tmp_path: Path) -> None:
    """The running one, the newest patch release of pyenv, and one on PATH; others are left out."""
    for version in ("3.12.2", "3.12.10", "3.12-dev"):
        binaries = tmp_path / "versions" / version / "bin"
        binaries.mkdir(parents=True)
        (binaries / "python").touch()
    result = interpreters.installed(
        ("3.11", "3.12", "3.13", "3.14"),
        running=("3.11", "/running"),
        which=lambda name: "/on/path" if name == "python3.13" else None,
        pyenv=tmp_path,
    )
    newest = str(tmp_path / "versions/3.12.10/bin/python")
    assert result == {"3.11": "/running", "3.12": newest, "3.13": "/on/path"}


def test_running_python_must_be_supported() -> None:
    with pytest.raises(ValueError, match=r"Python 3\.10 is not supported"):
        interpreters.installed(("3.11",), running=("3.10", "/running"))


def test_commands_cover_every_format(tmp_path: Path) -> None:
    """One model per format is copied and inspected; presets are not among the fixtures."""
    formats = {found.package.rpartition(".")[2] for found in FORMATS}
    assert set(MODELS) == formats - {"keras_hub"}
    models_in(tmp_path)
    assert all((tmp_path / name).exists() for names in MODELS.values() for name in names)
    assert all((FIXTURES / name).exists() for names in MODELS.values() for name in names)
    words = [command.arguments[0] for command in commands("1.0")]
    assert {"--version", "inspect", "audit", "migrate"} <= set(words)


def test_outputs_are_checked() -> None:
    """A report that lacks a model, has a failure or is not JSON is a problem."""
    models = [{"path": name} for name, *_ in MODELS.values()]
    complete = {"models": models, "failures": []}
    assert inspect_problem(json.dumps(complete)) is None
    assert inspect_problem(json.dumps({**complete, "models": models[1:]}))
    assert inspect_problem(json.dumps({**complete, "failures": [{"path": "x"}]}))
    assert inspect_problem("Traceback")
    assert audit_problem(json.dumps({"runs": [{"results": [1]}]})) is None
    assert audit_problem(json.dumps({"runs": [{"results": []}]}))
    version = next(iter(commands("1.0"))).problem
    assert version("policytool 1.0\n") is None
    assert version("policytool 1.0.1\n")


def test_programs_run_without_variables_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPATH would import the source tree instead of the installed package."""
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("POLICYTOOL_FORMAT", "json")
    names = checked(["env"])
    assert "PYTHONPATH" not in names
    assert "POLICYTOOL_FORMAT" not in names
    with pytest.raises(PackagingError, match="exit code 1 of false"):
        checked(["false"])
    assert not checked(["false"], code=1)


def test_files_with_schemas_exist_and_are_complete() -> None:
    """Each workflow and each form has a schema."""
    listed = {name for names in SCHEMAS.values() for name in names}
    assert all((ROOT / name).is_file() for name in listed)
    github = ROOT / ".github"
    forms = [*github.glob("workflows/*.yml"), *github.glob("ISSUE_TEMPLATE/*.yml")]
    assert {path.relative_to(ROOT).as_posix() for path in forms} <= listed
