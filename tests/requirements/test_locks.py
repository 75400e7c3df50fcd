"""Lock files satisfy pyproject.toml, and the targets of CI install nothing else."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
import venv
from itertools import product
from typing import TYPE_CHECKING, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.compat import environment
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.scripts import run_captured
from tests.packaging import interpreters
from tests.packaging import run as packaging_run
from tests.requirements.compile import project
from tests.requirements.locks import DIRECTORY, HASHED, LOCAL, LOCKS, Lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PYPROJECT: Final = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
BY_NAME: Final = {lock.name: lock for lock in LOCKS}
each_lock: Final = pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)

GPU: Final = re.compile(r"nvidia|cuda|cudnn|-cu\d\d|triton|rocm|^(torch|tensorflow)$")
INSTALLER: Final = re.compile(
    r"\b(pip3?|uv|npm)\b.*\b(install|i|ci|sync|add|exec|tool|run|download|wheel)\b"
    r"|\b(npx|pipx|uvx|easy_install|conda|curl|wget|git clone)\b"
)


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a lock file without comments, each with its continuation lines."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    yield from filter(None, map(str.strip, code.replace("\\\n", " ").split("\n")))


def pins(text: str) -> Iterator[Requirement]:
    """Yield the packages of a lock file."""
    for line in lines(text):
        yield Requirement(line.partition(" --hash=")[0].strip())


def environments(lock: Lock) -> Iterator[Mapping[str, str]]:
    """Yield the values of environment markers for each Python and system of a lock file."""
    first, last = lock.pythons
    for minor, system in product(range(first, last + 1), lock.systems):
        yield {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_machine": "x86_64" if system == "linux" else "arm64",
            "platform_python_implementation": "CPython",
            "platform_system": "Linux" if system == "linux" else "Darwin",
            "python_full_version": f"3.{minor}.7",
            "python_version": f"3.{minor}",
            "sys_platform": system,
        }


def versions(text: str, markers: Mapping[str, str]) -> dict[str, str]:
    """Return the version of each package in an environment."""
    actual = [
        (canonicalize_name(pin.name), str(pin.specifier).removeprefix("=="))
        for pin in pins(text)
        if pin.marker is None or pin.marker.evaluate({**markers})
    ]
    assert len(actual) == len(dict(actual))
    return {str(name): version for name, version in actual}


def problems(lock: Lock, pyproject: str, text: str) -> Iterator[str]:
    """Yield the requirements that a lock file does not satisfy in one of its environments."""
    required = [Requirement(line) for line in lock.requirements(pyproject)]
    for markers in environments(lock):
        locked = versions(text, markers)
        for item in required:
            if item.marker is not None and not item.marker.evaluate({**markers}):
                continue
            version = locked.get(canonicalize_name(item.name))
            if version is None or version not in item.specifier:
                system = f"{markers['sys_platform']}, Python {markers['python_version']}"
                yield f"{lock.path.name} has {item.name} {version}, not {item} ({system})"


def direct(text: str) -> set[str]:
    """Return the packages that a lock file has because pyproject.toml requires them."""
    result = re.findall(
        r"^([\w.-]+)==[^\n]*\\\n(?: +--hash=[^\n]*\n)+((?: +#[^\n]*\n)*)", f"{text}\n", re.MULTILINE
    )
    assert len(result) == len([*pins(text)])
    return {name for name, reasons in result if "policytool (pyproject.toml)" in reasons}


@each_lock
def test_lock_files_contain_only_pins_with_hashes(lock: Lock) -> None:
    """No URL, path or option gets into them, whatever the settings of the machine are."""
    text = lock.path.read_text(encoding="utf-8")
    for line in lines(text):
        assert re.fullmatch(
            r"[a-z0-9][a-z0-9.-]*(\[[a-z0-9,-]+\])?==[\w.+!]+( ; [^\\#]+?)?"
            r"(\s+--hash=sha256:[0-9a-f]{64})+",
            line,
        )
    for comment in re.findall(r"#.*", text):
        assert "/" not in comment
    assert "://" not in text
    assert " @ " not in text


@each_lock
def test_lock_files_satisfy_the_requirements(lock: Lock) -> None:
    """After a change of the requirements, `make lock` updates the files."""
    text = lock.path.read_text(encoding="utf-8")
    assert not [*problems(lock, PYPROJECT, text)]
    names = {canonicalize_name(Requirement(item).name) for item in lock.requirements(PYPROJECT)}
    assert direct(text) == names


def test_a_requirement_without_a_pin_is_a_problem() -> None:
    """A new requirement, and a range that excludes the pin, for one Python or for all."""
    lock = BY_NAME["user"]
    text = lock.path.read_text(encoding="utf-8")
    for old, new in (
        ('"click>=8.1"', '"click>=8.1", "no-such-package"'),
        ('"click>=8.1"', '"click>=99"'),
        ('"hatchling>=1.27"', '"hatchling>=999"'),
        ('"click>=8.1"', "\"click>=99; sys_platform == 'darwin' and python_version == '3.12'\""),
    ):
        changed = PYPROJECT.replace(old, new, 1)
        assert changed != PYPROJECT
        actual = [*problems(lock, changed, text)]
        assert len(actual) == (1 if "darwin" in new else len([*environments(lock)]))
    without = re.sub(r"^pyyaml==.*\n(?: .*\n)+", "", text, flags=re.MULTILINE)
    assert len([*problems(lock, PYPROJECT, without)]) == len([*environments(lock)])


def test_every_requirement_has_a_lock_file() -> None:
    """Extras and dependency groups are complete, and each file of the directory is a lock file."""
    stated = tomllib.loads(PYPROJECT)
    extras = set(stated["project"]["optional-dependencies"])
    assert {extra for lock in LOCKS for extra in lock.extras} == extras - {
        *("check", "torch"),
        "hub",  # with tensorflow-cpu, as below
    }
    groups = set(stated["dependency-groups"])
    assert {group for lock in LOCKS for group in lock.groups} == groups
    assert {path.name for path in DIRECTORY.glob("*.txt")} == {lock.path.name for lock in LOCKS}
    assert set(stated["build-system"]["requires"]) <= set(stated["dependency-groups"]["package"])


@pytest.mark.parametrize(("name", "extra"), [("tensorflow", "check"), ("hub", "hub")])
def test_the_releases_of_the_tests_satisfy_their_extra(name: str, extra: str) -> None:
    """The releases satisfy the extra, with tensorflow-cpu in place of tensorflow."""
    lock = BY_NAME[name]
    text = lock.path.read_text(encoding="utf-8")
    required = tomllib.loads(PYPROJECT)["project"]["optional-dependencies"][extra]
    for markers in environments(lock):
        locked = versions(text, markers)
        for item in map(Requirement, required):
            package = "tensorflow-cpu" if item.name == "tensorflow" else item.name
            assert locked[package] in item.specifier


@each_lock
def test_lock_files_contain_no_gpu_packages(lock: Lock) -> None:
    """The tests run on CPUs, and these packages are large."""
    names = [pin.name for pin in pins(lock.path.read_text(encoding="utf-8"))]
    assert names
    assert not [name for name in names if GPU.search(name)]


@pytest.mark.parametrize("name", ["nvidia-cublas", "nvidia-cudnn-cu13", "triton", "tensorflow"])
def test_gpu_packages_are_recognized(name: str) -> None:
    assert GPU.search(name)


@pytest.mark.parametrize("lock", [lock for lock in LOCKS if lock.like], ids=lambda lock: lock.name)
def test_lock_files_of_one_environment_have_the_same_versions(lock: Lock) -> None:
    """Otherwise, the second file would replace packages of the first."""
    other = (DIRECTORY / f"{lock.like}.txt").read_text(encoding="utf-8")
    text = lock.path.read_text(encoding="utf-8")
    for markers in environments(lock):
        locked, shared = versions(text, markers), versions(other, markers)
        assert all(shared.get(name, version) == version for name, version in locked.items())
        assert {"click", "hatchling"} <= set(locked) & set(shared)


def test_lock_files_support_the_pythons_of_the_package() -> None:
    """Lock files support Linux and macOS, except for the environments with TensorFlow."""
    supported = [int(item.partition(".")[2]) for item in interpreters.supported_versions(PYPROJECT)]
    for lock in LOCKS:
        first, last = lock.pythons
        assert first <= min(supported)
        assert max(supported) <= last
        assert lock.systems == ("linux", "darwin") or lock.name in {"tensorflow", "hub"}
        assert f"python_full_version < '3.{last + 1}'" in project(lock, PYPROJECT)


def is_locked(words: Sequence[str]) -> bool:
    """Return whether a command installs a lock file, or the project after one."""
    command = [str(word) for word in words]
    if "npm" in command:
        return "ci" in command
    if "install" not in command:
        return False
    text = " ".join(command)
    if " ".join(HASHED) in text:
        (file,) = command[command.index(HASHED[-1]) + 1 :]
        return (ROOT / file) in {lock.path for lock in LOCKS}
    return set(LOCAL) <= set(command)


@pytest.mark.parametrize(
    "command",
    [
        "pip install click",
        "python -m pip install --quiet --editable '.[dev]'",
        "python -m pip install --requirement tests/requirements/user.txt",
        "pip install --no-deps --only-binary :all: --require-hashes --requirement other.txt",
        "pip install --no-index --editable .",
        "uv pip install --upgrade --editable .",
        "uv run pytest",
        "npm install axe-core",
        "curl -O file",
    ],
)
def test_other_installations_are_recognized(command: str) -> None:
    """Each command that installs packages without hashes is recognized."""
    assert INSTALLER.search(command)
    assert not is_locked(shlex.split(command))


def ci_targets() -> list[str]:
    """Return the targets that CI runs."""
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    return re.findall(r"^part \S+ make (\S+)", script, re.MULTILINE)


@THOROUGH
def test_targets_of_ci_install_only_lock_files(tmp_path: Path) -> None:
    """A run of CI does not depend on the day: a dry run shows every command, for a new checkout."""
    targets = [*ci_targets(), "check"]
    done = run_captured(
        ["make", "--dry-run", "--always-make", f"VENV={tmp_path}/venv", *targets], cwd=ROOT
    )
    commands = [line for line in done.stdout.splitlines() if INSTALLER.search(line)]
    assert not [line for line in commands if not is_locked(shlex.split(line))]
    installed = {word for line in commands for word in shlex.split(line) if word.endswith(".txt")}
    names = ("user", "dev", "docs", "uv")
    assert installed == {f"tests/requirements/{name}.txt" for name in names}
    assert {"npm", "--editable"} <= {word for line in commands for word in line.split()}
    # The other lock files are installed by these modules.
    modules = {"tests.compat.environment", "tests.packaging.run"}
    assert modules <= {word for line in done.stdout.splitlines() for word in line.split()}


def test_only_two_modules_install_packages() -> None:
    """The next tests run both."""
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (*ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/**/*.py"))
        if '"install"' in path.read_text(encoding="utf-8")
    }
    this = "tests/requirements/test_locks.py"
    assert files == {this, "tests/compat/environment.py", "tests/packaging/run.py"}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the commands of both modules instead of running them."""
    commands: list[list[str]] = []

    def record(command: Sequence[str | Path], **_: object) -> str:
        commands.append([str(word) for word in command])
        return ""

    monkeypatch.setattr(subprocess, "run", record)
    monkeypatch.setattr(packaging_run, "checked", record)
    monkeypatch.setattr(venv, "create", lambda directory, **_: directory.mkdir(exist_ok=True))
    return commands


@pytest.mark.parametrize("kind", sorted(environment.ENVIRONMENTS))
def test_environments_contain_a_lock_file(
    kind: str, tmp_path: Path, recorded: list[list[str]]
) -> None:
    """The environment is made again if the lock file changes."""
    lock = environment.ENVIRONMENTS[kind]
    environment.make(tmp_path, lock)
    (command,) = recorded
    assert is_locked(command)
    assert command[-1] == str(lock.path)
    assert environment.is_ready(tmp_path, lock)
    others = [item for item in environment.ENVIRONMENTS.values() if item != lock]
    assert others
    assert not any(environment.is_ready(tmp_path, other) for other in others)


def test_distributions_are_built_and_installed_from_lock_files(
    tmp_path: Path, recorded: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build is not isolated, because it would install the newest build requirements."""
    tools = packaging_run.tools_in(tmp_path)
    with pytest.raises(ValueError, match="not enough values"):  # nothing was built
        packaging_run.built(tools, tmp_path, tmp_path / "out")
    monkeypatch.setattr(packaging_run, "commands", lambda _: ())
    with pytest.raises(packaging_run.PackagingError, match="man page"):
        packaging_run.try_distribution(tools, tmp_path / "a.whl", "python3.11", "1.0")
    installations = [command for command in recorded if "install" in command]
    assert len(installations) == 3
    assert all(map(is_locked, installations))
    assert installations[-1][-1] == str(tmp_path / "a.whl")
    (build,) = (command for command in recorded if "pyproject-build" in command[0])
    assert "--no-isolation" in build


def test_release_workflow_installs_only_lock_files() -> None:
    """The installed packages are the same on each day."""
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert f"hashed=(--quiet {' '.join(HASHED)})" in text
    commands = [
        line.strip().replace('"${hashed[@]}"', " ".join(HASHED))
        for line in text.splitlines()
        if "pip install" in line
    ]
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)
        assert is_locked(words) or ("--no-index" in words and words[-1] == "dist/*.whl")
