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
import contextlib, io, json, os, resource, sys, time
from policytool.cli.main import main

def answer(arguments):
    out, err = io.StringIO(), io.StringIO()
    begin = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code
    seconds = time.monotonic() - begin
    return {"code": code, "out": out.getvalue(), "err": err.getvalue(), "seconds": seconds}

def answer_of_copy(arguments):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            json.dump(answer(arguments), stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    assert not status
    return json.loads(text)

found, seen = [], set()
for arguments in json.load(open(sys.argv[1])):
    kind = arguments[0], *(word for word in arguments if word.startswith("-"))
    found.append(answer_of_copy(arguments) if kind in seen else answer(arguments))
    seen.add(kind)
processes = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
memory = max(resource.getrusage(whose).ru_maxrss for whose in processes)
json.dump({"ended": found, "memory": memory * 1024}, open(sys.argv[2], "w"))
"""
"""
A call that reads goes on in a copy of its process, so that a call after it in the same process
would be a copy of a copy: with each, copying takes longer. The first call of a kind imports what it
needs, and the others are copies of the process that has it.
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

_OWN: Final = tuple(f"{ROOT / name}/" for name in ("policytool", "tests", ".venv"))


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
        "-y",
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
    result = json.loads(answer.read_text(encoding="utf-8"))
    ended = [
        Ended(arguments=tuple(map(str, call)), **one)
        for call, one in zip(calls, result["ended"], strict=True)
    ]
    text = log.read_text(encoding="utf-8", errors="replace")
    return _read(
        text.partition(BEGIN)[2] if BEGIN in driver else text,
        folder,
        tuple(ended),
        result["memory"],
    )


def _read(text: str, folder: Path, ended: tuple[Ended, ...], memory: int) -> Traced:
    actual: dict[str, list[str]] = {"opened": [], "changed": [], "started": [], "network": []}
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
        above = strace.DIRECTORY.match(rest)
        base = Path(above[1]) if above is not None else folder
        paths = [str(base / path) for path in strace.PATH.findall(rest.partition(" = ")[0])]
        if name in _OPENING:
            actual["opened"] += [
                path
                for path in paths[:1]
                if not path.startswith((*_SYSTEM, *_OWN)) and path not in own
            ]
        elif name in _WRITING:
            actual["changed"] += [
                path for path in paths if not path.startswith("/proc/self/fd/")
            ]  # a file without a name gets one
        elif name in _NETWORK:
            actual["network"].append(line)
        elif name in _STARTING and "CLONE_THREAD" not in rest and not strace.COPY.search(rest):
            actual["started"].append(line)
    return Traced(
        ended=ended,
        memory=memory,
        **{key: tuple(dict.fromkeys(values)) for key, values in actual.items()},
    )
