"""
Write the lock files: ``make lock``.

Versions that still satisfy the requirements are kept, so that a new dependency changes only its own
lines. ``make lock UPGRADE=yes`` replaces all versions by the newest ones. The index and the other
settings of uv are those of the user; none of them is written to a lock file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.requirements.locks import LOCKS, ROOT, Lock

OPTIONS: Final = (
    *("--universal", "--generate-hashes", "--no-emit-index-url"),
    *("--only-binary", ":all:", "--no-python-downloads", "--quiet"),
    *("--custom-compile-command", "make lock"),
)


def project(lock: Lock, pyproject: str) -> str:
    """Return a pyproject.toml with the requirements of a lock file, and the systems to support."""
    first, last = lock.pythons
    environments = [
        f"sys_platform == '{system}' and python_full_version < '3.{last + 1}'"
        for system in lock.systems
    ]
    return "\n".join(
        (
            "[project]",
            'name = "policytool"',
            'version = "0"',
            f'requires-python = ">=3.{first}"',
            f"dependencies = {json.dumps([*lock.requirements(pyproject)])}",
            "[tool.uv]",
            f"environments = {json.dumps(environments)}",
            "",
        )
    )


def write_lock(lock: Lock, uv: Path, *, upgrade: bool) -> None:
    """
    Write a lock file, from a directory without anything else, so that no path gets into it.

    :raises subprocess.CalledProcessError: if no set of versions has wheels for all systems.
    """
    with tempfile.TemporaryDirectory(prefix="policytool-lock-") as name:
        work = Path(name)
        pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        (work / "pyproject.toml").write_text(project(lock, pyproject), encoding="utf-8")
        (work / "excluded.txt").write_text("\n".join(lock.excluded), encoding="utf-8")
        command: list[str | Path] = [uv, "pip", "compile", "pyproject.toml", *OPTIONS]
        command += ["--python-version", f"3.{lock.pythons[0]}", "--excludes", "excluded.txt"]
        if lock.like is not None:
            shutil.copy(lock.path.with_name(f"{lock.like}.txt"), work)
            command += ["--constraints", f"{lock.like}.txt"]
        if upgrade:
            command.append("--upgrade")
        elif lock.path.exists():
            shutil.copy(lock.path, work)
        subprocess.run([*command, "--output-file", lock.path.name], cwd=work, check=True)
        shutil.copy(work / lock.path.name, lock.path)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("uv", type=Path, metavar="UV", help="the uv program")
    parser.add_argument("--upgrade", action="store_true", help="replace all versions")
    options = parser.parse_args()
    for lock in LOCKS:
        try:
            write_lock(lock, options.uv.resolve(), upgrade=options.upgrade)
        except subprocess.CalledProcessError:
            sys.exit(f"error: {lock.path.name} is unchanged; the message of uv is above")


if __name__ == "__main__":
    main()
