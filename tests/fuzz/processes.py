"""
Whole runs of the tool over changed files of every format: ``python -m tests.fuzz.processes SECONDS [SEED [RUNS]]``.

Each run is a process of its own, of which the exit code, the time, and the most memory are taken (wait4, getrusage(2)). Some run under strace, which tells
every file, process and address that the run asked the system for; Python's own hooks do not see the files that the HDF5 library opens.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from policytool.loaders.refusals import LOADERS
from tests.conftest import FIXTURES, ROOT, Ended
from tests.fuzz import oracle
from tests.fuzz.targets import TARGETS, Target, is_bound
from tests.fuzz.volume import keep

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: Final = ("h5", "keras", "savedmodel", "metadata", "architecture", "yaml", "tfjs", "index")
STRACE: Final = "strace"
TRACED_OF: Final = 20
"""One run of so many is traced."""

_CALL: Final = re.compile(r"(?:\d+ +)?(\w+)\((.*)")
_PATH: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_WRITES: Final = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
_CHANGES: Final = frozenset({"unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "mkdir", "mkdirat", "rmdir"})
_STARTS: Final = frozenset({"fork", "vfork", "execve", "execveat"})
_QUIET: Final = frozenset({"socketpair"})
"""Calls of the class of networks that reach none."""


@dataclass(kw_only=True)
class Runs:
    """What became of whole runs."""

    executions: int = 0
    seconds: float = 0.0
    crashes: int = 0
    hangs: int = 0
    slowest: float = 0.0
    memory: int = 0
    traced: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    commands: dict[str, int] = field(default_factory=dict)

    @property
    def limits(self) -> int:
        """How many were refused because they are beyond a bound."""
        return sum(count for outcome, count in self.outcomes.items() if is_bound(outcome))


def arguments(rng: Random, path: Path, other: Path) -> tuple[str, ...]:
    """Return a command over a model, one that writes among them."""
    target = rng.choice(LOADERS)
    to = rng.choice(("float32", "mixed_float16", "mixed_bfloat16", "float16"))
    suffix = "" if path.is_dir() else path.suffix
    output = path.with_name(f"out{suffix}")
    return tuple(
        map(
            str,
            rng.choice(
                (
                    ("inspect", path),
                    ("inspect", path, "--format", "json"),
                    ("audit", path, "--fail-on", "never"),
                    ("audit", path, "--weights", "--format", "sarif", "--target", target),
                    ("migrate", path, "--to", to, "-o", output),
                    ("migrate", path, "--to", to, "--include-exceptions", "--dry-run", "--format", "json"),
                    ("migrate", path, "--target", target, "-o", path.with_name("out.keras" if target.startswith("keras3") else "out.h5")),
                    ("migrate", path, "--target", target, "--dry-run"),
                    ("diff", path, other),
                    ("diff", other, path, "--format", "json"),
                )
            ),
        )
    )


def _target(kind: str) -> Target:
    return TARGETS[{"h5": "hdf5", "yaml": "yaml-architecture"}.get(kind, kind)]


def written(kind: str, rng: Random, directory: Path) -> tuple[Path, bytes]:
    """Write a changed model of a kind; return its path, and the bytes that are changed in it."""
    if kind in {"h5", "keras"} and rng.random() < 0.5:
        return _with_config(kind, rng, directory)
    target = _target(kind)
    data = target.mutate(rng, rng.choice(target.seeds()))
    names = {"h5": "model.h5", "keras": "model.keras", "metadata": "keras_metadata.pb", "yaml": "model.yaml", "index": "w.index"}
    if kind == "savedmodel":
        shutil.copytree(FIXTURES / "tf2.9/default_float32", directory / "model")
        (directory / "model" / "saved_model.pb").write_bytes(data)
        return directory / "model", data
    if kind == "index":
        shutil.copy(FIXTURES / "tf2.3/weights_only.ckpt.data-00000-of-00001", directory / "w.data-00000-of-00001")
    path = directory / names.get(kind, "model.json")
    path.write_bytes(data)
    return path, data


def _with_config(kind: str, rng: Random, directory: Path) -> tuple[Path, bytes]:
    """Write a whole model with weights and with changed configs."""
    from tests.fuzz.targets import with_configs

    target = TARGETS["config"]
    suffix = {"h5": b".h5\n", "keras": b".keras\n"}[kind]
    data = target.mutate(rng, rng.choice([seed for seed in target.seeds() if suffix in seed]))
    return with_configs(data, directory), data


def run(command: Sequence[str], directory: Path, *, trace: Path | None) -> tuple[Ended, float, int]:
    """Run the tool, in strace where a file for it is given; return how it ended, the seconds, and the most bytes that it had in memory."""
    out, err = directory / "stdout", directory / "stderr"
    before = [shutil.which(STRACE) or STRACE, "-f", "-qq", "-s", "400", "-e", "trace=file,network,process", "-o", str(trace)] if trace else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLICYTOOL_JOBS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.monotonic()
    with out.open("wb") as stdout, err.open("wb") as stderr:
        child = subprocess.Popen([*before, sys.executable, "-m", "policytool", *command], stdout=stdout, stderr=stderr, env=environment, cwd=directory)
        deadline = began + oracle.SECONDS * (4 if trace else 1)
        while True:
            ended, status, usage = os.wait4(child.pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                child.kill()
                _, status, usage = os.wait4(child.pid, 0)
                break
            time.sleep(0.01)
        child.returncode = os.waitstatus_to_exitcode(status)
    code = child.returncode
    texts = [file.read_text(encoding="utf-8") for file in (out, err)]
    return Ended(code=code, out=texts[0], err=texts[1]), time.monotonic() - began, usage.ru_maxrss * 1024


def touched(trace: str, allowed: Sequence[Path]) -> list[str]:
    """
    Return what a traced run did that it must not.

    That is: processes, addresses, files that it changed outside its own directory, and files that it opened which are neither the input, nor the
    interpreter's and its packages', nor the system's.
    """
    found = []
    for line in trace.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        call, rest = match.groups()
        paths = [Path(path) for path in _PATH.findall(rest)]
        if call in _STARTS:
            found += [line] if not (call == "execve" and paths and "python" in paths[0].name) else []
        elif call in {"clone", "clone3"}:
            found += [line] if "CLONE_THREAD" not in rest else []
        elif call in {"socket", "connect", "bind", "sendto", "sendmsg", "listen", "accept", "accept4"} and call not in _QUIET:
            found.append(line)
        elif call in _CHANGES or (call in {"open", "openat", "creat"} and _WRITES.search(rest)):
            found += [line] if not all(_below(path, allowed) for path in paths) else []
        elif call in {"open", "openat"} and " = -1 " not in rest:
            found += [line] if not all(_below(path, (*allowed, *_SYSTEM)) for path in paths) else []
    return found


_SYSTEM: Final = tuple(
    Path(path).resolve()
    for path in {
        sys.prefix,
        sys.base_prefix,
        str(ROOT),
        "/usr",
        "/lib",
        "/lib64",
        "/etc/ld.so.cache",
        "/proc",
        "/sys",
        "/dev/null",
        "/dev/urandom",
        "/etc/localtime",
    }
)


def _below(path: Path, allowed: Sequence[Path]) -> bool:
    return not path.is_absolute() or any(path.resolve().is_relative_to(one) or path.is_relative_to(one) for one in allowed)


def one(kind: str, seed: int, total: Runs, *, trace: bool) -> None:
    """Make one run and count what became of it."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        models = directory / "models"
        models.mkdir()
        path, data = written(kind, rng, models)
        command = arguments(rng, path, FIXTURES / "tf2.3/global_mixed_float16.json")
        file = directory / "trace" if trace else None
        ended, seconds, memory = run(command, directory, trace=file)
        total.executions += 1
        total.commands[command[0]] = total.commands.get(command[0], 0) + 1
        total.memory = max(total.memory, memory)
        if not trace:
            total.slowest = max(total.slowest, seconds)
        try:
            outcome = _judged(ended, command, seconds, memory, file)
            total.outcomes[outcome] = total.outcomes.get(outcome, 0) + 1
        except oracle.BrokenError as error:
            hung = ended.code < 0 and seconds > oracle.SECONDS
            total.hangs += hung
            total.crashes += not hung
            keep(f"process-{kind}", data, f"{_kind_of(ended, hung=hung)}: seed {seed}: {error}")
        total.traced += trace


def _kind_of(ended: Ended, *, hung: bool) -> str:
    return "hang" if hung else f"code {ended.code} {re.sub(r'[^a-zA-Z]+', ' ', ended.err.splitlines()[-1])[:60] if ended.err else ''}"


def _judged(ended: Ended, command: Sequence[str], seconds: float, memory: int, trace: Path | None) -> str:
    """Return how a run ended, which kept the contract."""
    outcome = oracle.judged(ended, command, usage=False)
    if memory > oracle.BYTES:
        raise oracle.BrokenError(f"{memory} bytes in memory: {command}")
    if trace is None and seconds > oracle.SECONDS:
        raise oracle.BrokenError(f"{seconds:.0f} seconds: {command}")
    if trace is not None:
        own = trace.parent
        found = touched(trace.read_text(encoding="utf-8", errors="replace"), (own / "models", own / "stdout", own / "stderr", own))
        if found:
            raise oracle.BrokenError("the run did what it must not: " + "; ".join(found[:5]))
    return outcome


def loop(seconds: float, seed: int, most: int | None = None) -> Runs:
    """Make runs for so many seconds, or so many of them."""
    total, began = Runs(), time.time()
    can_trace = shutil.which(STRACE) is not None
    while time.time() - began < seconds and (most is None or total.executions < most):
        kind = KINDS[total.executions % len(KINDS)]
        one(kind, seed, total, trace=can_trace and total.executions % TRACED_OF == 0)
        seed += 1
    total.seconds = time.time() - began
    return total


def main() -> None:
    """Fuzz whole runs and print what came of it."""
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    total = loop(float(sys.argv[1]), seed, int(sys.argv[3]) if len(sys.argv) > 3 else None)
    print(json.dumps({"limits": total.limits, **asdict(total)}))


if __name__ == "__main__":
    main()
