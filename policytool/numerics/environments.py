"""
Environments with a release of TensorFlow and Keras, which uv makes if the user requests the release
(``--python tf2.15``).

``releases/data/environments.json`` pins the packages of each release, with the hashes of their
wheels. All are wheels, so that an installation runs no code. An environment is a directory in the
user's cache directory. Its marker is written last, so that a directory without a marker is the rest
of an interrupted installation, which the next one removes.

Each environment has a lock file. It is locked exclusively while the environment is made or removed,
and shared while a process uses it. uv inherits the lock, so that no other process writes to the
directory as long as uv runs, even if this process is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.model.model import verdict_of
from policytool.releases import data, releases
from policytool.releases.releases import KERAS3, LOADERS, family_of, newest, release_name
from policytool.support import limits
from policytool.support.errors import UsageError, WorkerError
from policytool.support.files import atomic
from policytool.support.limits import ENVIRONMENT_BYTES
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from contextlib import AbstractContextManager

    from policytool.model.loaded_model import LoadedModel

AUTO: Final = "auto"
"""The interpreter that stands for the release that fits each file best."""

INSTALL: Final = "pip install 'policytool[releases]'"

_MARKER: Final = "policytool-environment.json"
_TICK: Final = 0.5
"""Seconds between two reports of the progress."""

_UV_LINES: Final = 2
"""The number of lines of uv's message in an error."""


class Environment(Struct, frozen=True, kw_only=True):
    """The environment of a release, whether it exists or not."""

    release: str
    python: str
    """The minor version of Python, such as ``3.11``."""

    download: int
    """The size of the packages in bytes."""

    installed: int
    """The size of the environment in bytes."""

    packages: tuple[str, ...]
    """Each as ``NAME==VERSION``."""

    @property
    def requirements(self) -> str:
        """The packages with their hashes, as pip and uv read them."""
        hashes = data.read("environments")["hashes"]
        return "".join(
            " ".join([package, *(f"--hash=sha256:{digest}" for digest in hashes[package])]) + "\n"
            for package in self.packages
        )

    @property
    def directory(self) -> Path:
        """Where the environment is or goes. Other packages have another directory."""
        digest = hashlib.sha256(self.requirements.encode()).hexdigest()
        return cache_directory() / f"{self.release}-{digest[:12]}"

    @property
    def interpreter(self) -> Path:
        """The path of its interpreter."""
        return self.directory / "bin" / "python"

    @property
    def size(self) -> int | None:
        """Its size on disk in bytes; None if it does not exist or is incomplete."""
        return _size_in_marker(self.directory) if self.interpreter.exists() else None

    @property
    def versions(self) -> Mapping[str, str]:
        """The version of each module of TensorFlow and Keras in it."""
        versions = dict(package.split("==") for package in self.packages)
        modules = {"tensorflow-cpu": "tensorflow", "tf-keras": "tf_keras", "keras": "keras"}
        return {modules[name]: versions[name] for name in modules if name in versions}


@cache
def environments() -> Mapping[str, Environment]:
    """Return the environments by release, in the order of the table of releases."""
    return {
        name: Environment(release=name, **{**row, "packages": tuple(row["packages"])})
        for name, row in data.read("environments")["environments"].items()
    }


def release_of(python: str) -> str | None:
    """
    Return the release that a value of ``--python`` names; None if it names an interpreter, or is
    :data:`AUTO`.

    :raises UsageError: for a release without an environment.
    """
    name = releases.without_alias(python)
    if not releases.is_known(name):
        return None
    if name not in environments():
        raise UsageError(
            f"--python {python}: no environment with {release_name(name)} is available; specify an "
            f"interpreter, or one of the releases {', '.join(environments())}"
        )
    return name


def nearest_release(
    release: str, fails: Callable[[str], bool] = lambda _: False, others: Collection[str] = ()
) -> str:
    """
    Return the release with an environment that is nearest to a release of the same family.

    :param fails: whether a release is known to be unsuitable, which is then the last choice
    :param others: releases that are equally suitable
    """
    order = [known.id for known in releases.RELEASES]

    def rank(name: str) -> tuple[bool, bool, bool, bool, int, bool]:
        distance = order.index(name) - order.index(release)
        is_other_family = family_of(name) != family_of(release)
        is_other = name != release and name not in others
        is_unmeasured = name not in LOADERS
        return fails(name), is_other_family, is_other, is_unmeasured, abs(distance), distance < 0

    return min(environments(), key=rank)


def best_release(*models: LoadedModel) -> str:
    """
    Return the release that fits models best: the one that wrote the first, or else the nearest one
    that is not known to fail to load any of them.
    """
    if not models:
        return nearest_release(newest(KERAS3).id)

    origins = [release.id for release in models[0].origins]

    def fails(name: str) -> bool:
        verdicts = [verdict_of(model.loaders, name) for model in models]
        return any(
            name not in origins if verdict is None else verdict.reason is not None
            for verdict in verdicts
        )

    return nearest_release(origins[-1], fails, origins)


def cache_directory() -> Path:
    """Return the directory of all environments."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    parent = Path(base) if os.path.isabs(base) else Path.home() / ".cache"  # noqa: PTH117  # the empty text is no path
    return parent / "policytool" / "environments"


@contextmanager
def open_environment(
    release: str, report: Callable[[str], None], note: Callable[[str], None]
) -> Iterator[Path]:
    """
    Return the interpreter of a release's environment, which is made if it does not exist, and is
    not removed within the block.

    :param report: called with each step, and with an empty text at the end
    :param note: called with a sentence about the use of network and disk, before it
    :raises WorkerError: if the environment cannot be made.
    """
    environment = environments()[release]
    directory = environment.directory
    try:
        directory.parent.mkdir(0o700, parents=True, exist_ok=True)
        with _open_lock(directory) as lock:
            while True:  # a lock may be lost between two kinds of it
                _wait_for(lock, is_exclusive=False, report=report)
                if environment.size is not None:
                    break
                _wait_for(lock, is_exclusive=True, report=report)
                if environment.size is None:
                    _make(environment, lock, report, note)
            os.utime(directory / _MARKER)  # the time of the last use
            yield environment.interpreter
    except OSError as error:
        raise _failure(environment, str(error.strerror or error)) from error


def _make(
    environment: Environment,
    lock: int,
    report: Callable[[str], None],
    note: Callable[[str], None],
) -> None:
    """
    Make an environment whose lock this process has.

    :raises WorkerError: if there is no uv, or if it fails.
    :raises OSError: if a directory cannot be written.
    """
    directory = environment.directory
    uv = _find_uv(environment)
    _remove_environments(directory.parent, limits.ENVIRONMENT_BYTES.value - environment.installed)
    shutil.rmtree(directory, ignore_errors=True)
    name = release_name(environment.release)
    finds = [uv, "python", "find", "--no-python-downloads", environment.python]
    has_python = _run(finds, lock) is None
    python_words = "" if has_python else f" and Python {environment.python}"
    report("")
    note(
        f"installing {name} with uv in {directory}: up to {_amount(environment.download)} of "
        f"downloads{python_words}, and {_amount(environment.installed)} on disk"
    )
    start = time.monotonic()

    def run(*command: str) -> None:
        message = _run(
            [uv, *command],
            lock,
            lambda: report(f"uv installs {name}: {time.monotonic() - start:.0f} s"),
        )
        if message is not None:
            raise _failure(environment, message)

    try:
        run("venv", "--quiet", "--no-project", "--python", environment.python, str(directory))
        requirements = directory / "requirements.txt"
        requirements.write_text(environment.requirements, encoding="utf-8")
        run(
            *("pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"),
            *("--python", str(environment.interpreter)),
            *("--require-hashes", "--requirement", str(requirements)),
        )
        marker = {"release": environment.release, "bytes": _directory_size(directory)}
        (directory / _MARKER).write_text(json.dumps(marker), encoding="utf-8")
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        report("")


def _find_uv(environment: Environment) -> str:
    """
    Return the path of uv, from this environment or on PATH.

    :raises WorkerError: if there is none, or if no wheels are pinned for this machine.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise _failure(environment, "environments are available for Linux on x86_64")
    folders = (sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath))
    uv = shutil.which("uv", path=os.pathsep.join(folders))
    if uv is None:
        raise WorkerError(
            "no-uv",
            f"{release_name(environment.release)} needs uv; install it with {INSTALL}, or specify "
            "an interpreter with --python",
            ended=True,
        )
    return os.path.abspath(uv)  # noqa: PTH100  # uv may be a link


def _failure(environment: Environment, reason: str) -> WorkerError:
    return WorkerError(
        "no-environment",
        f"no environment with {release_name(environment.release)} can be made: {reason}; specify "
        "an interpreter with --python",
        ended=True,
    )


def _run(command: list[str], lock: int, report: Callable[[], None] = lambda: None) -> str | None:
    """
    Run uv, and return the beginning of its message if it fails; None if it succeeds.

    uv runs in the directory of the environments, so that it reads no settings of a project. Its
    index and other settings are those of the user.
    """
    with interrupts.defer_interrupts():  # every started process must get an entry
        process = subprocess.Popen(  # noqa: S603  # uv, with arguments from the table of releases
            command,
            cwd=cache_directory(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(lock,),
            start_new_session=True,
        )
        entry = interrupts.add_group(process.pid)
    try:
        while True:
            try:
                messages = process.communicate(timeout=_TICK)[1]
                break
            except subprocess.TimeoutExpired:
                report()
    except BaseException:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        interrupts.remove(entry)
    if process.returncode == 0:
        return None
    lines = [line.strip() for line in messages.decode("utf-8", "replace").splitlines()]
    text = " ".join([line for line in lines if line][:_UV_LINES]).removeprefix("error: ")
    return f"uv reports: {text[:400].rstrip('.')}"


# Locks and removal


def _open_lock(directory: Path) -> AbstractContextManager[int]:
    """Return the descriptor of the lock file of an environment, for the length of a block."""
    return atomic.open_descriptor(
        directory.with_name(f"{directory.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    )


def _wait_for(lock: int, *, is_exclusive: bool, report: Callable[[str], None]) -> None:
    """Lock a file, and wait while another process has the lock."""
    import fcntl  # POSIX alone

    operation = fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        report("waiting for another process that makes the environment")
        fcntl.flock(lock, operation)
        report("")


def _remove_environments(root: Path, most: int) -> None:
    """
    Remove incomplete environments, and those that have not been used for the longest time until the
    others have at most this size in bytes. Environments in use stay.
    """
    sizes = {path: _size_in_marker(path) for path in root.iterdir() if path.is_dir()}
    complete = {path: size for path, size in sizes.items() if size is not None}
    total = sum(complete.values())
    by_use = sorted(complete, key=lambda path: (path / _MARKER).stat().st_mtime)
    for path in (*(sizes.keys() - complete.keys()), *by_use):
        if path in complete and total <= most:
            break
        if _remove(path):
            total -= complete.get(path, 0)


def _remove(directory: Path) -> bool:
    """Remove an environment, and return whether no process uses it."""
    import fcntl  # as above

    with _open_lock(directory) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        (directory / _MARKER).unlink(missing_ok=True)  # first, in case of an interruption
        shutil.rmtree(directory, ignore_errors=True)
        return True


def _size_in_marker(directory: Path) -> int | None:
    """Return the size that the marker of an environment records; None if it is incomplete."""
    try:
        size = json.loads((directory / _MARKER).read_text(encoding="utf-8"))["bytes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return size if isinstance(size, int) else None


def _directory_size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if not path.is_symlink())


def _amount(size: int) -> str:
    return ENVIRONMENT_BYTES.amount(size)
