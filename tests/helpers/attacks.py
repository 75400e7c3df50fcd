"""
Runs the command line over many arguments in one process under strace, and tells what that process
touched.

Python's own hooks do not see files that the HDF5 library opens; the kernel does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.helpers import strace
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORD: Final = json.loads((FIXTURES / "attacks.json").read_text(encoding="utf-8"))
MODELS: Final = FIXTURES / "attacks" / "models"
BESIDE: Final = FIXTURES / "attacks" / "beside"
MARKER: Final = "policytool-marker"
CANARIES: Final = ("CANARYcanaryCANA", "67657082")

TEMPORARY: Final = "temporary"
"""Where the process has its temporary files, beside its working directory."""

BEGIN: Final = "/policytool-begin"
"""
A driver that tries to open this after its imports is not asked what its process did until then.
"""

MAX_MEMORY: Final = 2**30
MAX_SECONDS: Final = 30

_DRIVER: Final = """
import contextlib, io, json, resource, sys, time
from policytool.cli.main import main
found = []
for arguments in json.load(open(sys.argv[1])):
    out, err = io.StringIO(), io.StringIO()
    begin = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code
    seconds = time.process_time() - begin
    found.append({"code": code, "out": out.getvalue(), "err": err.getvalue(), "seconds": seconds})
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
json.dump({"ended": found, "memory": memory}, open(sys.argv[2], "w"))
"""

_CALL: Final = re.compile(r"^\d+ +(\w+)\((.*)$")
_OPENING: Final = frozenset({"open", "openat", "openat2", "creat"})
_WRITING: Final = frozenset(
    {
        "mkdir",
        "mkdirat",
        "rename",
        "renameat",
        "renameat2",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "unlink",
        "unlinkat",
        "rmdir",
    }
)
_STARTING: Final = frozenset({"fork", "vfork", "clone", "clone3", "execve", "execveat"})
_NETWORK: Final = frozenset({"socket", "socketpair", "connect", "bind", "sendto"})

_SYSTEM: Final = tuple(
    f"{path}/"
    for path in {
        "/proc",
        "/sys",
        "/dev",
        "/etc",
        "/usr",
        "/lib",
        "/lib64",
        sys.prefix,
        sys.base_prefix,
        *sysconfig.get_paths().values(),
    }
)
"""Where an interpreter and its libraries lie, and what they ask of the machine."""

_OWN: Final = tuple(
    f"{ROOT / name}/" for name in ("policytool", "policytool.egg-info", "tests", ".venv")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How one call of the command line ended."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """What a process did."""

    ended: tuple[Ended, ...]
    memory: int
    opened: tuple[str, ...]
    """
    Files outside the interpreter, its libraries and this package, absolute; those that are not
    there among them.
    """

    changed: tuple[str, ...]
    started: tuple[str, ...]
    """Calls that start a process; a thread is none."""

    network: tuple[str, ...]


def traced(
    calls: Sequence[Sequence[str | Path]],
    folder: Path,
    *,
    driver: str = _DRIVER,
    python: Path = Path(sys.executable),
) -> Traced:
    """
    Run the command line with each of these arguments, in one process whose working directory is
    ``folder``.
    """
    if shutil.which("strace") is None:
        pytest.skip("there is no strace here")
    (folder.parent / "calls.json").write_text(
        json.dumps([[str(word) for word in call] for call in calls]), encoding="utf-8"
    )
    log, answer = folder.parent / "strace.log", folder.parent / "answer.json"
    script = folder.parent / "driver.py"
    script.write_text(driver, encoding="utf-8")
    temporary = folder.parent / TEMPORARY
    temporary.mkdir(exist_ok=True)
    watched = ",".join(sorted(_OPENING | _WRITING | _NETWORK | _STARTING))
    command = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-s",
        "4096",
        "-e",
        f"trace=?{watched.replace(',', ',?')}",
        "-e",
        "signal=none",
        "-o",
        str(log),
    ]
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "POLICYTOOL_JOBS": "1",
        "TMPDIR": str(temporary),
    }
    arguments = [str(python), str(script), str(folder.parent / "calls.json"), str(answer)]
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if "PTRACE" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(answer.read_text(encoding="utf-8"))
    ended = [
        Ended(arguments=tuple(map(str, call)), **one)
        for call, one in zip(calls, said["ended"], strict=True)
    ]
    text = log.read_text(encoding="utf-8", errors="replace")
    return _read(
        text.partition(BEGIN)[2] if BEGIN in driver else text, folder, tuple(ended), said["memory"]
    )


def _read(text: str, folder: Path, ended: tuple[Ended, ...], memory: int) -> Traced:
    found: dict[str, list[str]] = {"opened": [], "changed": [], "started": [], "network": []}
    own = {str(folder.parent / name) for name in ("calls.json", "answer.json", "driver.py")}
    own |= {
        *sys.path,
        str(ROOT),
        str(ROOT / "policytool"),
    }  # directories in which modules are looked for
    for line in text.splitlines()[
        1:
    ]:  # the first starts the interpreter itself, or marks the begin
        if (match := _CALL.match(line)) is None:
            continue
        name, rest = match.groups()
        paths = [str(folder / path) for path in strace.PATH.findall(rest.partition(" = ")[0])]
        if name in _OPENING:
            found["opened"] += [
                path
                for path in paths[:1]
                if not path.startswith((*_SYSTEM, *_OWN)) and path not in own
            ]
        elif name in _WRITING:
            found["changed"] += [
                path for path in paths if not path.startswith("/proc/self/fd/")
            ]  # a file without a name gets one
        elif name in _NETWORK:
            found["network"].append(line)
        elif name in _STARTING and "CLONE_THREAD" not in rest and not strace.COPY.search(rest):
            found["started"].append(line)
    return Traced(
        ended=ended,
        memory=memory,
        **{key: tuple(dict.fromkeys(values)) for key, values in found.items()},
    )
