"""The fixtures' place, and two ways to run the command line."""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import hypothesis
import pytest

from policytool.cli.main import run as run_main
from policytool.support import limits
from policytool.support.files import atomic
from tests.helpers.marks import examples
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import EVERY_CASE, RUN_SEED, describe_sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xdist.remote import Producer
    from xdist.scheduler import LoadGroupScheduling


MIXED_H5: Final = FIXTURES / "tf2.3/global_mixed_float16.h5"
MIXED_KERAS: Final = FIXTURES / "keras3.15/global_mixed_float16.keras"
MIXED_SAVEDMODEL: Final = FIXTURES / "tf2.5/global_mixed_float16"
MIXED_JSON: Final = FIXTURES / "tf2.3/global_mixed_float16.json"
FIXED_SCALE_H5: Final = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
MIXED_YAML: Final = FIXTURES / "tf2.1/exp_mf16_fixed128_uncompiled.yaml"
MIXED_TFJS: Final = FIXTURES / "tfjs4.22/global_mixed_float16/model.json"
UNPACKED: Final = FIXTURES / "keras3.15/unpacked.keras.d"
"""One model in each format, for tests that ask nothing more of them."""

hypothesis.settings.register_profile(
    "unhurried", deadline=None, max_examples=examples(100)
)  # a first call imports what later ones have
hypothesis.settings.load_profile("unhurried")

COMPAT: Final = os.environ.get("POLICYTOOL_COMPAT")
"""
The interpreter that has TensorFlow; read before the tests, whose own environment has no variable of
policytool's.
"""

START: Final = Path.cwd()
"""What a relative interpreter is relative to: a test may change the working directory."""

_SETTING_VARIABLES: Final = (
    *("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "PYTHONIOENCODING", "PYTHONPATH"),
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadGroupScheduling | None:
    """
    Give a worker whole modules, whose fixtures and caches it then makes once; a group of tests
    stays with one worker, whatever the module.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.helpers.scheduling import ModuleScheduling

    return ModuleScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let the commit decide what Hypothesis draws, and in which order tests run."""
    if EVERY_CASE:
        return
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(RUN_SEED)
    if config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = RUN_SEED


def pytest_report_header() -> str:
    """Say how to try the same cases again."""
    return describe_sample()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """
    Collect no garbage while tests are collected, and leave them out of it afterwards: they are some
    800,000 objects that stay, and every full collection would walk through them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _usual_signals() -> None:
    """Signals end a process, as usual, though `nohup` or a shell's `&` began the tests."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the developer's own shell changes what a test sees."""
    for name in [
        name
        for name in os.environ
        if name.startswith("POLICYTOOL_") and name != "POLICYTOOL_GOLDEN"
    ]:
        monkeypatch.delenv(name)
    for name in _SETTING_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(
        "POLICYTOOL_JOBS", "1"
    )  # what a test changes in this process would be unknown to another


Bounded = Callable[[str, int], None]


@pytest.fixture
def bounded() -> Iterator[Bounded]:
    """Return what sets a limit, by its name, for the rest of the test."""
    with ExitStack() as stack:
        yield lambda name, value: stack.enter_context(limits.override({name: value}))


@pytest.fixture
def impatient_dask() -> Iterator[None]:
    """
    Let no client of Dask wait for a scheduler that is not there; a variable would only count where
    Dask was not imported before.
    """
    import dask
    import distributed  # noqa: F401  # has the defaults that are set again afterwards

    with dask.config.set({"distributed.comm.timeouts.connect": "500ms"}):
        yield


DRAFT_KINDS: Final = ("unnamed", "named")


@pytest.fixture(params=DRAFT_KINDS)
def draft_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Drafts without a name, and with one, as on systems that have no others."""
    if request.param == "named":
        monkeypatch.setattr(atomic, "_DESCRIPTORS", Path("/nonexistent"))
    return str(request.param)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a run of the command line ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The report on stdout as JSON."""
        report: dict[str, Any] = json.loads(self.out)
        return report


def run(*arguments: str | Path, stdin: bytes = b"") -> Ended:
    """Run the command line in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with (
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = run_main([str(argument) for argument in arguments])
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return Ended(code=code, out=texts[0], err=texts[1])


def run_process(
    *arguments: str | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> Ended:
    """Run the command line as a process of its own, by ``python -m policytool``."""
    done = subprocess.run(
        [sys.executable, "-m", "policytool", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        timeout=timeout,
    )
    return Ended(
        code=done.returncode, out=done.stdout.decode("utf-8"), err=done.stderr.decode("utf-8")
    )


def tensorflow() -> str:
    """
    Return the interpreter that has TensorFlow, as `make test` makes one; without it the test is
    skipped.
    """
    if COMPAT is None:
        pytest.skip("POLICYTOOL_COMPAT names no interpreter with TensorFlow; `make test` makes one")
    # not resolved, because a virtual environment's is a link out of it
    return str(START / COMPAT)
