"""
Make a virtual environment with real libraries: ``python -m tests.compat.environment DIR`` for the
compatibility tests and the benchmarks, and ``python -m tests.compat.environment DIR mlflow`` for
the tests with an MLflow server, ``jax`` for those without TensorFlow, and ``hub`` for those with
KerasHub.

An environment whose marker matches its lock file and this Python is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.requirements.locks import HASHED, LOCKS, RELEASES, Lock

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENTS: Final = {lock.name: lock for lock in LOCKS if lock.name in RELEASES}
"""Name of an environment to its lock file."""

MARKER: Final = "policytool-environment.json"


def expected(lock: Lock) -> Mapping[str, str]:
    """Return the marker of an environment with the packages of a lock file and this Python."""
    digest = hashlib.sha256(lock.path.read_bytes()).hexdigest()
    return {lock.path.name: digest, "python": sys.version.split()[0]}


def is_ready(directory: Path, lock: Lock) -> bool:
    """Return whether the directory has the environment."""
    try:
        result: object = json.loads((directory / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return result == expected(lock)


def make(directory: Path, lock: Lock) -> None:
    """
    Make the environment. Its marker is empty until then, so that an interrupted installation is
    repeated.
    """
    venv.create(directory, clear=True, with_pip=True)
    marker = directory / MARKER
    marker.touch()
    python = directory / "bin" / "python"
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([python, "-m", "pip", "install", *quiet, *HASHED, lock.path], check=True)
    marker.write_text(json.dumps(expected(lock)) + "\n", encoding="utf-8")


def main() -> None:
    """Run the command line; a sentence and status 1 when the environment cannot be made."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="where the environment is or goes"
    )
    parser.add_argument("kind", nargs="?", default="tensorflow", choices=ENVIRONMENTS)
    options = parser.parse_args()
    directory: Path = options.directory
    lock = ENVIRONMENTS[options.kind]
    if is_ready(directory, lock):
        return
    first, last = lock.pythons
    if sys.platform not in lock.systems or not (3, first) <= sys.version_info[:2] <= (3, last):
        sys.exit(
            f"{lock.path.name} supports {' and '.join(lock.systems)} with Python 3.{first} to "
            f"3.{last}, not {sys.platform} with {sys.version.split()[0]}"
        )
    if directory.exists() and any(directory.iterdir()) and not (directory / MARKER).exists():
        sys.exit(f"{directory} is not empty and was not made by this file; use another directory")
    try:
        make(directory, lock)
    except subprocess.CalledProcessError as error:
        sys.exit(
            "pip could not install the releases; its own message is above: "
            + " ".join(map(str, error.cmd))
        )


if __name__ == "__main__":
    main()
