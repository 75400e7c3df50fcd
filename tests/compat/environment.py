"""
Make a virtual environment with real libraries: ``python environment.py DIR`` for the one of the
compatibility tests and the benchmarks, and ``python environment.py DIR mlflow`` for the one with an
MLflow server.

It is made once: an environment whose marker says the same as this file would is kept. Python 3.10
to 3.13, for which TensorFlow has wheels.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Final

PINS: Final = ("tensorflow-cpu==2.21.0", "keras==3.15.1", "h5py==3.14.0")
"""The newest releases. tensorflow-cpu is a third of tensorflow's size, and users get tensorflow."""

PINS_ALONE: Final = ("tf-keras==2.21.0",)
"""
Installed without their dependencies: tf-keras requires tensorflow, which would come on top of
tensorflow-cpu.
"""

MLFLOW_PINS: Final = ("mlflow==3.17.2", "boto3==1.44.5")
"""
A server with its database, and artifacts in buckets; apart from the tests' own environment, which
has only the client, as users have.
"""

PYTHONS: Final = ((3, 10), (3, 13))
"""The first and the last Python that the pinned TensorFlow has wheels for."""

MARKER: Final = "policytool-environment.json"


def expected(kind: str) -> dict[str, Any]:
    """Return what the marker of an environment made by this file and this Python says."""
    pins, alone = (MLFLOW_PINS, ()) if kind == "mlflow" else (PINS, PINS_ALONE)
    return {"pins": list(pins), "pins_alone": list(alone), "python": sys.version.split()[0]}


def is_ready(directory: Path, kind: str) -> bool:
    """Return whether the directory has the environment that this file makes."""
    try:
        found: object = json.loads((directory / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return found == expected(kind)


def make(directory: Path, kind: str) -> None:
    """
    Make the environment; until it is ready its marker is empty, so that one whose installation was
    interrupted is made again.
    """
    venv.create(directory, clear=True, with_pip=True)
    marker = directory / MARKER
    marker.touch()
    install = [
        str(directory / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    made = expected(kind)
    pins, alone = made["pins"], made["pins_alone"]
    subprocess.run([*install, *pins], check=True)
    if alone:
        subprocess.run([*install, "--no-deps", *alone], check=True)
    marker.write_text(json.dumps(made) + "\n", encoding="utf-8")


def main() -> None:
    """Run the command line; a sentence and status 1 when the environment cannot be made."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="where the environment is or goes"
    )
    parser.add_argument("kind", nargs="?", default="tensorflow", choices=["tensorflow", "mlflow"])
    options = parser.parse_args()
    directory: Path = options.directory
    if is_ready(directory, options.kind):
        return
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        first, last = (".".join(map(str, version)) for version in PYTHONS)
        sys.exit(
            f"{PINS[0]} has wheels for Python {first} to {last}; run this file with one of them, "
            f"not with {sys.version.split()[0]}"
        )
    if directory.exists() and any(directory.iterdir()) and not (directory / MARKER).exists():
        sys.exit(f"{directory} is not empty and was not made by this file; use another directory")
    try:
        make(directory, options.kind)
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"pip could not install the releases; its own message is above: {' '.join(error.cmd)}"
        )


if __name__ == "__main__":
    main()
