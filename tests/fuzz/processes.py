"""
Whole runs of the tool over changed files of every format: ``python -m tests.fuzz.processes SECONDS
[SEED [RUNS [copied]]]``.

Each run is a process of its own, of which the exit code, the time, and the most memory are taken
(wait4, getrusage(2)). Some run under strace, which tells every file, process and address that the
run asked the system for; Python's own hooks do not see the files that the HDF5 library opens.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from policytool.releases.releases import LOADERS
from tests.conftest import Ended, run
from tests.fuzz import oracle
from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.volume import Tally, keep
from tests.helpers import strace
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS: Final = ("h5", "keras", "savedmodel", "metadata", "architecture", "yaml", "tfjs", "index")
STRACE: Final = "strace"
_PATIENCE: Final = 900
"""
Seconds for a run, whatever else the machine does, after which it waits for something that never
comes.
"""

TRACED_OF: Final = 5
"""One run of so many is traced."""

_CALL: Final = re.compile(r"(?:\d+ +)?(\w+)\((.*)")
_WRITES: Final = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
_CHANGES: Final = frozenset(
    {
        "unlink",
        "unlinkat",
        "rename",
        "renameat",
        "renameat2",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "mkdir",
        "mkdirat",
        "rmdir",
    }
)
_STARTS: Final = frozenset({"fork", "vfork", "execve", "execveat"})
_QUIET: Final = frozenset({"socketpair"})
"""Calls of the class of networks that reach none."""


@dataclass
class Runs(Tally):
    """What became of whole runs."""

    traced: int = 0
    commands: dict[str, int] = field(default_factory=dict)


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
                    (
                        "migrate",
                        path,
                        "--to",
                        to,
                        "--include",
                        "exceptions",
                        "--preview",
                        "--format",
                        "json",
                    ),
                    (
                        "migrate",
                        path,
                        "--target",
                        target,
                        "-o",
                        path.with_name("out.keras" if target.startswith("keras3") else "out.h5"),
                    ),
                    ("migrate", path, "--target", target, "--preview"),
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
    names = {
        "h5": "model.h5",
        "keras": "model.keras",
        "metadata": "keras_metadata.pb",
        "yaml": "model.yaml",
        "index": "w.index",
    }
    if kind == "savedmodel":
        shutil.copytree(FIXTURES / "tf2.9/default_float32", directory / "model")
        (directory / "model" / "saved_model.pb").write_bytes(data)
        return directory / "model", data
    if kind == "index":
        shutil.copy(
            FIXTURES / "tf2.3/weights_only.ckpt.data-00000-of-00001",
            directory / "w.data-00000-of-00001",
        )
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


def started(command: Sequence[str], directory: Path, trace: Path | None) -> int:
    """
    Start the tool by the interpreter, in strace where a file for it is given; return the process.
    """
    before = (
        [
            shutil.which(STRACE) or STRACE,
            "-f",
            "-qq",
            "-s",
            "400",
            "-e",
            "trace=file,network,process",
            "-o",
            str(trace),
        ]
        if trace
        else []
    )
    words = [*before, sys.executable, "-m", "policytool", *command]
    environment = {
        **os.environ,
        "TMPDIR": str(directory),
        "PYTHONPATH": str(ROOT),
        "POLICYTOOL_JOBS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return _forked(directory, lambda: os.execve(words[0], words, environment))  # noqa: S606


def forked(command: Sequence[str], directory: Path) -> int:
    """
    Start the tool in a copy of this process, which has its modules already; return the process.
    """
    from policytool.cli import main

    def act() -> None:
        os.environ["POLICYTOOL_JOBS"] = "1"
        main(list(command))

    return _forked(directory, act)


def _forked(directory: Path, act: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    code = 120
    try:
        os.chdir(directory)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600), number)
        sys.stdout, sys.stderr = (
            open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            for number in (1, 2)
        )  # to the end of the process
        resource.setrlimit(resource.RLIMIT_CPU, (oracle.SECONDS + 5, oracle.SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        act()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001  # told as the interpreter tells it
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a run took."""

    seconds: float
    """Of the processor's time."""

    memory: int
    """The most bytes in memory, with what a copied process had to begin with."""


def finished(child: int, directory: Path) -> tuple[Ended, Cost]:
    """Wait for a process, and return how it ended and what it took."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    texts = [(directory / name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
    cost = Cost(seconds=usage.ru_utime + usage.ru_stime, memory=usage.ru_maxrss * 1024)
    return Ended(code=os.waitstatus_to_exitcode(status), out=texts[0], err=texts[1]), cost


def touched(trace: str, allowed: Sequence[Path]) -> list[str]:
    """
    Return what a traced run did that it must not.

    That is: processes, addresses, files that it changed outside its own directory, and files that
    it opened which are neither the input, nor the interpreter's and its packages', nor the
    system's.
    """
    found = []
    for line in trace.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        call, rest = match.groups()
        paths = [Path(path) for path in strace.PATH.findall(rest)]
        if call in _STARTS:
            found += (
                [line] if not (call == "execve" and paths and "python" in paths[0].name) else []
            )
        elif call in {"clone", "clone3"}:
            found += [line] if "CLONE_THREAD" not in rest and not strace.COPY.search(rest) else []
        elif (
            call
            in {"socket", "connect", "bind", "sendto", "sendmsg", "listen", "accept", "accept4"}
            and call not in _QUIET
        ):
            found.append(line)
        elif call in _CHANGES or (call in {"open", "openat", "creat"} and _WRITES.search(rest)):
            found += (
                [line] if not all(_below(path, (*allowed, _DESCRIPTORS)) for path in paths) else []
            )
        elif call in {"open", "openat"} and " = -1 " not in rest:
            found += [line] if not all(_below(path, (*allowed, *_SYSTEM)) for path in paths) else []
    return found


_DESCRIPTORS: Final = Path("/proc/self/fd")
"""What is open already: drafts without a name are opened again and linked by it."""

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
    return not path.is_absolute() or any(
        path.resolve().is_relative_to(item) or path.is_relative_to(item) for item in allowed
    )


def one(kind: str, seed: int, total: Runs, *, trace: bool = False, copied: bool = False) -> None:
    """
    Make one run, by the interpreter or in a copy of this process, and count what became of it.
    """
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        models = directory / "models"
        models.mkdir()
        path, data = written(kind, rng, models)
        command = arguments(rng, path, FIXTURES / "tf2.3/global_mixed_float16.json")
        file = directory / "trace" if trace else None
        ended, cost = finished(
            forked(command, directory) if copied else started(command, directory, file), directory
        )
        total.executions += 1
        total.commands[command[0]] = total.commands.get(command[0], 0) + 1
        total.memory = max(total.memory, cost.memory)
        if not trace:
            total.slowest = max(total.slowest, cost.seconds)
        try:
            outcome = _judged(ended, command, cost, file)
            total.saw(outcome)
        except oracle.BrokenError as error:
            hung = ended.code in {-signal.SIGXCPU, -signal.SIGKILL}
            total.hangs += hung
            total.crashes += not hung
            keep(f"process-{kind}", data, f"{_kind_of(ended, hung=hung)}: seed {seed}: {error}")
        total.traced += trace


def _kind_of(ended: Ended, *, hung: bool) -> str:
    return (
        "hang"
        if hung
        else (
            f"code {ended.code} "
            f"{re.sub(r'[^a-zA-Z]+', ' ', ended.err.splitlines()[-1])[:60] if ended.err else ''}"
        )
    )


def _judged(ended: Ended, command: Sequence[str], cost: Cost, trace: Path | None) -> str:
    """Return how a run ended, which kept the contract."""
    outcome = oracle.judged(ended, command, usage=False)
    if cost.memory > oracle.BYTES:
        raise oracle.BrokenError(f"{cost.memory} bytes in memory: {command}")
    if trace is None and cost.seconds > oracle.SECONDS:
        raise oracle.BrokenError(f"{cost.seconds:.0f} seconds: {command}")
    if trace is not None:
        own = trace.parent
        result = touched(
            trace.read_text(encoding="utf-8", errors="replace"),
            (own / "models", own / "stdout", own / "stderr", own),
        )
        if result:
            raise oracle.BrokenError("the run did what it must not: " + "; ".join(result[:5]))
    return outcome


def loop(seconds: float, seed: int, most: int | None = None, *, copied: bool = False) -> Runs:
    """Make runs for so many seconds, or so many of them."""
    total, began = Runs(), time.time()
    can_trace = shutil.which(STRACE) is not None and not copied
    if copied:
        _import_all()
    while time.time() - began < seconds and (most is None or total.executions < most):
        kind = KINDS[total.executions % len(KINDS)]
        one(kind, seed, total, trace=can_trace and total.executions % TRACED_OF == 0, copied=copied)
        seed += 1
    total.seconds = time.time() - began
    return total


def _import_all() -> None:
    """Import what commands import when they need it, so that copies of this process have it."""
    run("inspect", FIXTURES / "tf2.3/global_mixed_float16.h5")
    run("audit", FIXTURES / "tf2.5/global_mixed_float16", "--weights")
    run("migrate", FIXTURES / "tf2.3/global_mixed_float16.h5", "--target", "keras3", "--preview")
    run(
        "diff",
        FIXTURES / "tf2.3/global_mixed_float16.json",
        FIXTURES / "tf2.1/exp_mf16_fixed128_uncompiled.yaml",
    )


def main() -> None:
    """Fuzz whole runs and print what came of it."""
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    total = loop(
        float(sys.argv[1]),
        seed,
        int(sys.argv[3]) if len(sys.argv) > 3 else None,
        copied="copied" in sys.argv,
    )
    print(json.dumps({"limits": total.limits, **asdict(total)}))


if __name__ == "__main__":
    main()
