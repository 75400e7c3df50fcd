"""Environments of releases, which uv makes for ``--python RELEASE``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.numerics import environments
from policytool.numerics.environments import best_release, cache_directory
from policytool.releases import data
from policytool.releases.releases import LOADERS, is_since, release_name
from tests.conftest import run
from tests.helpers.convertible_models import load
from tests.helpers.fake_uv import FakeUv, fake_uv
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from tests.conftest import Ended

SOURCE: Final = FIXTURES / "tf2.15/default_float32.h5"

pytestmark = THOROUGH


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory with a model, with a cache of environments beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.chdir(folder)
    shutil.copy(SOURCE, folder / "model.h5")
    return folder


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    """Put a fake uv on PATH, and hide that of the tests' environment."""
    made = fake_uv(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(made.folder))
    return made


def convert(*options: str) -> Ended:
    """Convert the model for Keras 3."""
    return run("migrate", "model.h5", "--target=keras3", "--existing=replace", *options)


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("tf2.15", ["tf2.15", "keras3.15"]),
        ("keras3.6", ["tf2.15", "keras3.6"]),
        ("auto", ["tf2.15", "keras3.15"]),
        ("source=tf2.12,target=keras3", ["tf2.12", "keras3.15"]),
    ],
)
def test_each_side_runs_in_a_release(python: str, expected: list[str], uv: FakeUv) -> None:
    """A release without a side runs the sides that it can load; the next run makes nothing."""
    options = [f"--python={side}" for side in python.split(",")]
    ended = convert("--verify", *options)
    assert ended.code == 0, ended.err
    assert "verified: tf_keras 2.21.0 and Keras 3.15.1" in " ".join(ended.out.split())
    assert uv.environments == expected
    for release in expected:
        assert f"Installing {release_name(release)} with uv in {cache_directory()}" in ended.err
    assert ended.err.count("MiB of downloads, and") == len(expected)
    assert (again := convert("--verify", *options)).code == 0
    assert (uv.environments, again.err) == (expected, "")


def test_a_recorded_run_uses_the_release_of_the_file(uv: FakeUv) -> None:
    """``--record`` and ``--against`` run the same job, which the fake interpreter fails."""
    run("check", "model.h5", "--record=run.h5", "--python=auto")
    assert uv.environments == ["tf2.15"]


def test_packages_are_pinned_wheels(uv: FakeUv) -> None:
    """The packages have hashes, no index, and names from the table only."""
    assert convert("--verify", "--python", "source=tf2.15", "--python", "target=tf2.15").code == 0
    (install,) = uv.calls("pip")
    assert {"--require-hashes", "--no-deps", "--only-binary", ":all:"} <= {*install}
    lines = Path(install[-1]).read_text(encoding="utf-8").splitlines()
    assert "tensorflow-cpu==2.15.1" in {line.partition(" ")[0] for line in lines}
    assert all(" --hash=sha256:" in line and "://" not in line for line in lines)


@pytest.mark.parametrize(
    ("fails", "sentence"),
    [
        ("venv", "no environment with TF 2.15 can be made: uv reports: No interpreter found"),
        ("pip", "no environment with TF 2.15 can be made: uv reports: No interpreter found"),
        ("", "TF 2.15 needs uv; install it with pip install 'policytool[releases]'"),
    ],
)
def test_a_failure_is_one_sentence(
    fails: str, sentence: str, uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing incomplete is left; without --verify, the sentence is the reason in the report."""
    if fails:
        fake_uv(uv.folder, fails=fails, message="error: No interpreter found\n  more\n  and more")
    else:
        (uv.folder / "uv").unlink()
        monkeypatch.setenv("PATH", str(uv.folder))
    ended = convert("--verify", "--python=auto")
    assert (ended.code, ended.out) == (3, "")
    assert sentence.partition(";")[0] in ended.err
    assert [path for path in cache_directory().iterdir() if path.is_dir()] == []
    ended = convert("--python=auto")
    assert ended.code == 0
    assert f"not verified: {sentence}" in " ".join(ended.out.split())


def test_a_release_without_an_environment_is_a_wrong_option(uv: FakeUv) -> None:
    """The message lists those that have one."""
    ended = convert("--python=tf2.0")
    assert ended.code == 2
    assert "no environment with TF 2.0 is available" in ended.err
    assert "tf2.15" in ended.err
    assert not uv.calls("venv")


def test_a_found_settings_file_cannot_request_a_release(place: Path, uv: FakeUv) -> None:
    """It may not start a download."""
    (place / "policytool.toml").write_text('python = "auto"\n', encoding="utf-8")
    ended = convert()
    assert ended.code == 2
    assert "which only a settings file specified with --config may set" in ended.err
    assert not uv.calls("venv")


def test_the_least_recently_used_environment_is_removed(uv: FakeUv) -> None:
    """The bound is that of the sizes in the markers; `explain releases` lists the others."""
    for release in ("tf2.12", "tf2.9", "tf2.12"):
        convert("--verify", f"--python=source={release}", f"--python=target={release}")
    size = environments.environments()["tf2.12"].size or 0
    bound = environments.environments()["tf2.5"].installed + size + 1
    convert("--limit", f"environment-bytes={bound}", "--verify", "--python=source=tf2.5")
    kept = {path.name.partition("-")[0] for path in cache_directory().iterdir() if path.is_dir()}
    assert "tf2.9" not in kept
    assert {"tf2.12", "tf2.5"} <= kept, uv.environments
    lines = run("explain", "releases").out.splitlines()
    assert any("tf2.12" in line and str(cache_directory()) in line for line in lines)
    listed = run("explain", "releases", "--format", "json").json["releases"]
    rows = [row for row in listed if row["environment"] is not None]
    assert {row["name"] for row in rows if row["environment"]["exists"]} == kept


def start_conversion() -> subprocess.Popen[str]:
    """Start a conversion whose environments have yet to be made."""
    command = [sys.executable, "-m", "policytool", "migrate", "model.h5", "--target=keras3"]
    return subprocess.Popen(
        [*command, "--existing=replace", "--verify", "--python=auto"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_installations(uv: FakeUv, count: int) -> None:
    """Wait until this number of installations began."""
    deadline = time.monotonic() + 30
    while len(uv.calls("pip")) < count and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_installation_is_not_complete(number: signal.Signals, uv: FakeUv) -> None:
    """The next run waits for the uv that is left after SIGKILL, and begins again."""
    (uv.folder / "wait").touch()
    process = start_conversion()
    wait_for_installations(uv, 1)
    os.killpg(process.pid, number)  # without uv, which has a session of its own
    process.communicate()
    again = start_conversion()
    if number is signal.SIGTERM:
        wait_for_installations(uv, 2)
    else:
        time.sleep(1)
        assert len(uv.calls("venv")) == 1  # the lock of the uv that still runs
    (uv.folder / "wait").unlink()
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert " verified: " in " ".join(out.split())
    assert uv.environments == ["tf2.15", "tf2.15", "keras3.15"]


def test_two_processes_make_one_environment(uv: FakeUv) -> None:
    """The second one waits for the first."""
    (uv.folder / "wait").touch()
    processes = [start_conversion(), start_conversion()]
    wait_for_installations(uv, 1)
    time.sleep(1)
    (uv.folder / "wait").unlink()
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err
    assert sorted(uv.environments) == ["keras3.15", "tf2.15"]


@SLOW
def test_uv_installs_two_releases() -> None:
    """A conversion is verified in an environment without TensorFlow; this downloads 500 MB."""
    if shutil.which("uv") is None:
        pytest.skip("uv is not on PATH; `make test-slow` installs it")
    options = ("--target=keras3.0", "--verify", "--python=auto")
    ended = run("migrate", "model.h5", *options)
    assert ended.code == 0, ended.err
    assert "verified: TensorFlow 2.15.1 and Keras 3.0.5 make" in " ".join(ended.out.split())


@pytest.mark.parametrize(
    ("path", "release"),
    [
        ("tf2.3/global_mixed_float16.h5", "tf2.4"),
        ("tf2.1/global_mixed_float16.h5", "tf2.2"),
        ("keras3.6/global_mixed_float16.keras", "keras3.6"),
        ("keras3.0/keras_ops.keras", "keras3.3"),
    ],
)
def test_auto_is_the_release_of_the_file(path: str, release: str) -> None:
    """The newest that can have written it; the nearest if that has none or cannot load it."""
    assert best_release(load(FIXTURES / path)) == release


def test_table_pins_the_measured_releases() -> None:
    """Every package has hashes, and the table no address. TF 2.2 is the first with wheels only."""
    table = data.read("environments")
    names = {name for row in table["environments"].values() for name in row["packages"]}
    assert names == table["hashes"].keys()
    assert "://" not in json.dumps(table)
    since = {name for name in LOADERS if is_since(name, "tf2.2")}
    assert since <= environments.environments().keys()
