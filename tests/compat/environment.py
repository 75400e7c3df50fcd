"""
Make the virtual environment that the compatibility tests and the benchmarks run real libraries in:
``python environment.py DIR``.

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
from typing import Final

PINS: Final = ("tensorflow-cpu==2.21.0", "keras==3.15.1", "h5py==3.14.0")
"""The newest releases. tensorflow-cpu is a third of tensorflow's size, and users get tensorflow."""

PINS_ALONE: Final = ("tf-keras==2.21.0",)
"""
Installed without their dependencies: tf-keras requires tensorflow, which would come on top of
tensorflow-cpu.
"""

PYTHONS: Final = ((3, 10), (3, 13))
"""The first and the last Python that the pinned TensorFlow has wheels for."""

MARKER: Final = "policytool-environment.json"


def expected() -> dict[str, object]:
    """Return what the marker of an environment made by this file and this Python says."""
    return {"pins": list(PINS), "pins_alone": list(PINS_ALONE), "python": sys.version.split()[0]}


def is_ready(directory: Path) -> bool:
    """Return whether the directory has the environment that this file makes."""
    try:
        found: object = json.loads((directory / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return found == expected()


def make(directory: Path) -> None:
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
    subprocess.run([*install, *PINS], check=True)
    subprocess.run([*install, "--no-deps", *PINS_ALONE], check=True)
    marker.write_text(json.dumps(expected()) + "\n", encoding="utf-8")


def main() -> None:
    """Run the command line; a sentence and status 1 when the environment cannot be made."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="where the environment is or goes"
    )
    directory: Path = parser.parse_args().directory
    if is_ready(directory):
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
        make(directory)
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"pip could not install the releases; its own message is above: {' '.join(error.cmd)}"
        )


if __name__ == "__main__":
    main()
