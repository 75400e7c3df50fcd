"""
A uv that makes environments from a fake interpreter, in which the installation of packages can
wait or fail.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.helpers.fake_interpreters import fake_interpreter

if TYPE_CHECKING:
    from pathlib import Path

_CODE: Final = """
import json, pathlib, shutil, sys, time
here = pathlib.Path(__file__)
plan = json.loads(here.with_suffix(".json").read_text())
command, target = sys.argv[1], pathlib.Path(sys.argv[-1])
with open(here.with_suffix(".log"), "a") as log:
    log.write(json.dumps(sys.argv[1:]) + chr(10))
if command == plan["fails"]:
    sys.exit(plan["message"])
if command == "venv":
    (target / "bin").mkdir(parents=True)
    shutil.copy(here.parent / "fake-python", target / "bin" / "python")
    shutil.copy(here.parent / "fake-python.json", target / "bin" / "python.json")
if command == "pip":
    while (here.parent / "wait").exists():
        time.sleep(0.05)
    (target.parent / "package.py").write_bytes(b"installed")
"""


@dataclass(frozen=True, kw_only=True)
class FakeUv:
    """An executable, and its calls."""

    folder: Path
    """The directory for PATH. The installation waits while a file ``wait`` is in it."""

    @property
    def environments(self) -> list[str]:
        """The name of each environment that it made, without the digest of its packages."""
        return [call[-1].rpartition("/")[2].rpartition("-")[0] for call in self.calls("venv")]

    def calls(self, command: str) -> list[list[str]]:
        """Return the arguments of each call of a command."""
        log = self.folder / "uv.log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [call for line in lines if (call := json.loads(line))[0] == command]


def fake_uv(folder: Path, *, fails: str = "", message: str = "") -> FakeUv:
    """Write a uv and its interpreter."""
    folder.mkdir(exist_ok=True)
    fake_interpreter(folder / "fake-python")
    uv = folder / "uv"
    uv.write_text(f"#!{sys.executable}\n{_CODE}", encoding="utf-8")
    uv.chmod(0o755)
    plan = {"fails": fails, "message": message}
    uv.with_suffix(".json").write_text(json.dumps(plan), encoding="utf-8")
    return FakeUv(folder=folder)
