"""
Reads changed inputs as fast as it goes, in processes of their own: ``python -m tests.fuzz.volume
TARGET SECONDS [SEED]``.

A process has a batch of inputs, an address space that is bounded, and 30 seconds for each input;
the one that watches it ends it where it does not return. What broke the contract is written to
``build/fuzz/TARGET``, one input for each place in the code, with what was seen beside it.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz import oracle
from tests.fuzz.targets import TARGETS, Target, is_bound
from tests.helpers.paths import ROOT

BATCH: Final = 2000
FORKED_BATCH: Final = 400
LIBRARY_SECONDS: Final = 5
"""
Of the processor's time, after which the system ends a process that is in the HDF5 library and hears
no signal of Python's; a small file takes hundredths.
"""

_SILENCE: Final = 300
"""Seconds without a word from a process, after which it waits for something that never comes."""

FOUND: Final = ROOT / "build" / "fuzz"
_ADDRESSES: Final = 2**30 + 2**29
"""
Of a process: a GiB for the input, and what the interpreter and its libraries map to begin with.
"""


@dataclass
class Tally:
    """What became of inputs."""

    executions: int = 0
    seconds: float = 0.0
    crashes: int = 0
    """Contracts broken, processes ended by a signal."""

    hangs: int = 0
    slowest: float = 0.0
    memory: int = 0
    """The most bytes that a process had in memory."""

    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def limits(self) -> int:
        """How many were refused because they are beyond a bound."""
        return sum(count for outcome, count in self.outcomes.items() if is_bound(outcome))

    def add(self, other: Tally) -> None:
        """Include another."""
        self.executions += other.executions
        self.crashes += other.crashes
        self.hangs += other.hangs
        self.slowest = max(self.slowest, other.slowest)
        self.memory = max(self.memory, other.memory)
        for outcome, count in other.outcomes.items():
            self.saw(outcome, count)

    def write(self, file: Path) -> None:
        """Leave it in a file."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Tally:
        """Return what another process left in a file."""
        return cls(**json.loads(file.read_text(encoding="utf-8")))

    def saw(self, outcome: str, count: int = 1) -> None:
        """Count an outcome."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count


class _TooLongError(BaseException):
    """An input that took longer than it may."""


def _late(_number: int, _frame: object) -> None:
    raise _TooLongError


def generated(target: Target, seed: int, count: int) -> list[bytes]:
    """Return that many inputs, the same ones for the same seed."""
    rng = Random(seed)
    seeds = target.seeds()
    return [target.mutate(rng, rng.choice(seeds)) for _ in range(count)]


def keep(target: str, data: bytes, error: BaseException | str, found: Path = FOUND) -> bool:
    """
    Write an input that broke the contract, unless one that did so at the same place is there
    already; return whether it is new.
    """
    result = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    folder = found / target
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(_place(error).encode()).hexdigest()[:12]
    if (folder / name).exists():
        return False
    (folder / name).write_bytes(data)
    (folder / f"{name}.txt").write_text(result, encoding="utf-8", errors="backslashreplace")
    return True


_ODD: Final = re.compile(r"/\S*|'[^']*'|[^a-z ]+")
"""What differs from one sentence to the next of the same kind."""


def _place(error: BaseException | str) -> str:
    """Return where an error is from: its kind and the innermost lines of the tool's own."""
    if isinstance(error, str):
        return error.partition(":")[0]
    cause = error.__cause__ or error
    frames = traceback.extract_tb(cause.__traceback__)
    own = [
        frame
        for frame in frames
        if "policytool" in frame.filename and "/tests/" not in frame.filename
    ] or frames
    words = _ODD.sub("", " ".join(str(error).splitlines()[::2]))[:120] if cause is error else ""
    return " ".join(
        [type(cause).__name__, words, *(f"{frame.name}:{frame.line}" for frame in own[-2:])]
    )


def one(target: Target, data: bytes, directory: Path, tally: Tally) -> None:
    """Read one input and count what became of it."""
    before = signal.signal(signal.SIGPROF, _late)
    signal.setitimer(
        signal.ITIMER_PROF, oracle.SECONDS
    )  # of the processor's time: other processes may have the rest
    signal.setitimer(
        signal.ITIMER_VIRTUAL, LIBRARY_SECONDS if target.forked else oracle.SECONDS + 5
    )
    began = time.process_time()
    try:
        tally.saw(target.run(data, directory))
    except _TooLongError as error:
        tally.hangs += 1
        keep(target.name, data, error)
    except Exception as error:  # noqa: BLE001  # all of them are what is looked for
        tally.crashes += 1
        keep(target.name, data, error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGPROF, before)
    tally.executions += 1
    tally.slowest = max(tally.slowest, time.process_time() - began)


def _batch(target: Target, seed: int, count: int, progress: int, until: float) -> None:
    """Read a batch in this process, and tell how far it is, then what came of it."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    rng, seeds, tally = Random(seed), target.seeds(), Tally()
    gc.set_threshold(100_000)
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        for _ in range(count):
            os.write(progress, b".")
            one(target, target.mutate(rng, rng.choice(seeds)), Path(directory), tally)
            if time.time() > until:
                break
        os.chdir("/")
    tally.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    os.write(progress, b"\n" + json.dumps(asdict(tally)).encode())


def memory() -> str | None:
    """Return a directory whose files stay in memory; None where there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


def batch(target: Target, seed: int, count: int, until: float) -> Tally:
    """Read a batch in a process of its own, and end it where it does not return."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _batch(target, seed, count, writer, until)
        except BaseException:  # noqa: BLE001  # told below, and nothing of the parent's is to run here
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writer)
    result, hung = _listened(reader, child)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    done, _, answer = result.partition(b"\n")
    if answer:
        return Tally(**json.loads(answer))
    hung = hung or os.waitstatus_to_exitcode(status) == -signal.SIGVTALRM
    data = generated(target, seed, len(done))[-1] if done else b""
    how = "hang in a library" if hung else f"process ended by {status}"
    keep(target.name, data, f"{how}: input {len(done)} of seed {seed}")
    return Tally(executions=len(done), crashes=0 if hung else 1, hangs=1 if hung else 0)


def _listened(reader: int, child: int) -> tuple[bytes, bool]:
    """
    Return what a process told, and whether it had to be ended because it told nothing for too long.
    """
    told = b""
    while True:
        ready, _, _ = select.select([reader], [], [], _SILENCE)
        if not ready:
            os.kill(child, signal.SIGKILL)
            return told, True
        chunk = os.read(reader, 65536)
        if not chunk:
            return told, False
        told += chunk


def loop(name: str, seconds: float, seed: int, most: int | None = None) -> Tally:
    """Read inputs of a target for so many seconds, or until there were so many."""
    target, total, began = TARGETS[name], Tally(), time.time()
    target.seeds()
    size = FORKED_BATCH if target.forked else BATCH
    while time.time() - began < seconds and (most is None or total.executions < most):
        count = size if most is None else min(size, most - total.executions)
        total.add(batch(target, seed, count, began + seconds))
        seed += 1
    total.seconds = time.time() - began
    return total


def main() -> None:
    """Fuzz one target and print what came of it."""
    name, seconds = sys.argv[1], float(sys.argv[2])
    total = loop(name, seconds, int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time()))
    print(json.dumps({"target": name, "limits": total.limits, **asdict(total)}))


if __name__ == "__main__":
    main()
