"""
Signals at random moments of whole runs: ``make signals``.

``python -m tests.crash.signals [--count N] [--only TEXT] [--jobs N] [--add]``

Each run is a process of its own, as a user or a script starts it, with a random set of signals
ignored. One signal is sent at a random moment. Afterwards, the run must have ended in time, without
a process or a temporary file left; each output is complete or absent, and a report is valid as far
as it goes. The record is the source of a part of ``docs/evidence/crashes.md``.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECORD: Final = Path(__file__).with_name("signals.json")
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECONDS: Final = 2.0
"""In which a run has to end after a signal, on a machine with nothing else to do."""

INTERRUPTED: Final = 130
_H5: Final = FIXTURES / "tf2.3/global_mixed_float16.h5"
_OTHERS: Final = (
    FIXTURES / "keras3.15/global_mixed_float16.keras",
    FIXTURES / "tf2.3/exp_mf16_fixed128.h5",
    FIXTURES / "tf2.3/global_mixed_float16.json",
)
_NAMES: Final = tuple(f"m{number}" for number in range(8))
_PATIENCE: Final = 60.0
_LEAVING: Final = 1.0
"""Seconds in which the system removes a process that was killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command, in a directory with models ``m0`` to ``m7``."""

    name: str
    words: tuple[str, ...]
    stdout: str = "json"
    """``json`` for a report that is whole or absent, ``jsonl`` for one that grows, or ``text``."""

    with_tensorflow: bool = False
    keeps_result: bool = False
    """Whether a signal ends only a search, whose result is then written."""


COMMANDS: Final = (
    Command(name="inspect", words=("inspect", "m0.h5", "--format", "json")),
    Command(
        name="inspect --jobs 2",
        words=("inspect", ".", "--jobs", "2", "--format", "jsonl", "--cache", "cache"),
        stdout="jsonl",
    ),
    Command(
        name="audit",
        words=(
            "audit",
            "m0.h5",
            "--target",
            "keras3",
            "--format",
            "json",
            "--format",
            "html=r.html",
        ),
    ),
    Command(
        name="audit --jobs 1",
        words=("audit", ".", "--target", "keras3", "--jobs", "1", "--format", "jsonl"),
        stdout="jsonl",
    ),
    Command(
        name="migrate",
        words=("migrate", "m0.h5", "--to", "float32", "--format", "json", "-o", "out.h5"),
    ),
    Command(
        name="migrate --jobs 2",
        words=("migrate", ".", "--to", "float32", "--jobs", "2", "--format", "jsonl", "-o", "out/"),
        stdout="jsonl",
    ),
    Command(name="diff", words=("diff", "m0.h5", "m1.keras", "--format", "json")),
    Command(name="explain", words=("explain", "Unknown layer: Dense"), stdout="text"),
    Command(
        name="check",
        words=("check", "m1.keras", "--to", "mixed_bfloat16", "--format", "json"),
        with_tensorflow=True,
    ),
    Command(
        name="migrate --target",
        words=("migrate", "m0.h5", "--target", "keras3", "--verify", "--format", "json"),
        with_tensorflow=True,
    ),
    Command(
        name="tune",
        words=("tune", "m1.keras", "--to", "mixed_bfloat16", "--format", "json", "-o", "out.keras"),
        with_tensorflow=True,
        keeps_result=True,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What is done to one run."""

    number: signal.Signals
    ignored: tuple[signal.Signals, ...]
    to_group: bool
    """Whether all processes of the group get the signal, as from a terminal."""

    after: float
    """Seconds from the start of the run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a run ended, and what it left."""

    code: int
    seconds: float
    """From the signal to the end; 0 if the run had ended before."""

    out: bytes
    err: bytes
    files: Mapping[str, bytes]
    temporary: tuple[str, ...]
    processes: tuple[str, ...]


@dataclass(kw_only=True, slots=True)
class Tally:
    """What became of the runs of one command."""

    runs: int = 0
    before: int = 0
    """Runs that had ended before the signal."""

    load: float = 0.0
    """The largest load of the machine per processor."""

    codes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def cases(seed: str, count: int, duration: float) -> list[Case]:
    """Return random cases for a command that takes so many seconds."""
    draw = random.Random(seed)  # noqa: S311  # no secret
    actual = []
    for _ in range(count):
        number = draw.choice(SIGNALS)
        others = [item for item in (*SIGNALS, signal.SIGQUIT) if item != number]
        actual.append(
            Case(
                number=number,
                ignored=tuple(item for item in others if draw.random() < 0.4),
                to_group=draw.random() < 0.3,
                after=draw.uniform(0.0, duration),
            )
        )
    return actual


def prepare(place: Path) -> Path:
    """Make the directory of one run, and return that of the models."""
    models = place / "models"
    models.mkdir(parents=True)
    (place / "tmp").mkdir()
    sources = (_H5, *_OTHERS)
    for number, name in enumerate(_NAMES):
        source = sources[number % len(sources)]
        shutil.copyfile(source, models / f"{name}{source.suffix}")
    for path in models.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return models


def run(
    command: Command,
    place: Path,
    case: Case | None,
    *,
    python: str | None = None,
    site: Path | None = None,
) -> Ended:
    """
    Run a command, and disturb it.

    :param python: the interpreter that has TensorFlow
    :param site: a directory with a ``sitecustomize.py``
    """
    models = prepare(place)
    words = [*command.words, *(("--python", python) if command.with_tensorflow and python else ())]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("POLICYTOOL")},
        "PYTHONPATH": os.pathsep.join(str(path) for path in (site, ROOT) if path is not None),
        "TMPDIR": str(place / "tmp"),
        "PLACE": str(place),
    }

    def ignore() -> None:
        ignored = case.ignored if case is not None else ()
        for number in (*SIGNALS, signal.SIGQUIT):  # whatever this process was started with
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    with (place / "out").open("wb") as out, (place / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "policytool", *words],
            cwd=models,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=ignore,  # noqa: PLW1509  # this process has threads, and the function is safe
        )
        start = time.monotonic()
        try:
            if case is not None:
                _wait(process, start + case.after, place if site is not None else None)
                sent = time.monotonic()
                if process.poll() is None:
                    (os.killpg if case.to_group else os.kill)(process.pid, case.number)
            else:
                sent = start
            was_over = process.returncode is not None
            process.wait(_PATIENCE * 2)
            seconds = 0.0 if was_over else time.monotonic() - sent
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return Ended(
        code=process.returncode,
        seconds=seconds,
        out=(place / "out").read_bytes(),
        err=(place / "err").read_bytes(),
        files={
            str(path.relative_to(models)): path.read_bytes()
            for path in sorted(models.rglob("*"))
            if path.is_file()
        },
        temporary=tuple(sorted(path.name for path in (place / "tmp").iterdir())),
        processes=_remaining(place),
    )


def _wait(process: subprocess.Popen[bytes], until: float, slow: Path | None) -> None:
    """Wait for a moment, or until a slow step has begun."""
    if slow is not None:
        until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and process.poll() is None:
        if slow is not None and (slow / "begun").exists():
            return
        time.sleep(min(0.005, max(until - time.monotonic(), 0.0)))


def _remaining(place: Path) -> tuple[str, ...]:
    """Return the processes that know the directory of a run, and outlive it."""
    until = time.monotonic() + _LEAVING
    while True:
        actual = tuple(_processes_of(place))
        if not actual or time.monotonic() > until:
            return actual
        time.sleep(0.02)


def _processes_of(place: Path) -> list[str]:
    actual = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.fsencode(place / "tmp") in (entry / "environ").read_bytes():
                actual.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has ended, or is another user's
    return actual


def problems(command: Command, case: Case, ended: Ended, whole: Ended, load: float) -> list[str]:
    """
    Return what is wrong with a disturbed run.

    :param whole: the undisturbed run
    :param load: how much more than its processors a machine has to do
    """
    found = []
    allowed = {whole.code, INTERRUPTED, -case.number}
    # Python ends so if a signal arrives before it has begun to run policytool
    is_early = case.number == signal.SIGINT and b"policytool" not in ended.err
    if ended.code not in allowed and not (ended.code == 1 and is_early):
        found.append(f"ended with {ended.code}: {ended.err[-300:].decode(errors='replace')}")
    if ended.seconds > SECONDS * max(load, 1.0) and not command.keeps_result:
        found.append(f"took {ended.seconds:.1f} seconds to end")
    if ended.temporary:
        found.append(f"left {', '.join(ended.temporary)} in TMPDIR")
    found += [f"left the process {item[:200]}" for item in ended.processes]
    for name, data in ended.files.items():
        if "cache" in Path(name).parts[:1]:
            if not Path(name).name.startswith(".") or len(Path(name).name) <= 64:
                continue
            found.append(f"left the draft {name}")
        elif name not in whole.files:
            found.append(f"left {name}")
        elif data != whole.files[name] and not _is_whole(command, name, data):
            found.append(f"left a part of {name}")
    found += _report_problems(command, ended)
    return found


def _is_whole(command: Command, name: str, data: bytes) -> bool:
    """
    Return whether a file that differs from that of the undisturbed run is whole: a report has the
    directory in it, and a search that ended early has another result.
    """
    if command.keeps_result and name.endswith(".keras"):
        return zipfile.is_zipfile(io.BytesIO(data))
    return name.endswith(".html") and data.rstrip().endswith(b"</html>")


def _report_problems(command: Command, ended: Ended) -> list[str]:
    """Return what is wrong with the report on stdout."""
    if command.stdout == "text" or not ended.out:
        return []
    try:
        lines = [json.loads(line) for line in ended.out.splitlines()]
    except ValueError:
        return [f"printed a part of a report: {ended.out[-200:]!r}"]
    if not ended.out.endswith(b"\n"):
        return ["printed a report without an end"]
    if command.stdout == "json":
        return [] if len(lines) == 1 else ["printed two reports"]
    ends = [line["end"] for line in lines if "end" in line]
    if len(ends) != 1 or "end" not in lines[-1]:
        return [f"printed a report with {len(ends)} last lines"] if ended.code >= 0 else []
    if ends[0]["exit_code"] != ended.code and ended.code >= 0:
        return [f"printed exit code {ends[0]['exit_code']} and ended with {ended.code}"]
    return []


def campaign(
    command: Command, count: int, place: Path, *, jobs: int, python: str | None, seed: str
) -> Tally:
    """Disturb a command at random moments, and judge what is left."""
    tally = Tally()
    start = time.monotonic()
    whole = run(command, place / "whole", None, python=python)
    duration = time.monotonic() - start
    if whole.code not in {0, 1} and not (command.with_tensorflow and whole.code == 5):
        tally.wrong.append(
            f"{command.name}: undisturbed, it ended with {whole.code}: {whole.err!r}"
        )
        return tally

    def one(numbered: tuple[int, Case]) -> tuple[Case, Ended, float]:
        number, case = numbered
        folder = place / str(number)
        ended = run(command, folder, case, python=python)
        shutil.rmtree(folder)
        return case, ended, os.getloadavg()[0] / (os.cpu_count() or 1)

    with ThreadPoolExecutor(jobs) as pool:
        for case, ended, load in pool.map(one, enumerate(cases(seed, count, duration * 1.05))):
            tally.runs += 1
            tally.load = max(tally.load, round(load, 1))
            if not ended.seconds:
                tally.before += 1
            else:
                tally.seconds.append(round(ended.seconds, 3))
                tally.codes[str(ended.code)] += 1
            for problem in problems(command, case, ended, whole, load):
                tally.wrong.append(
                    f"{command.name}, {case.number.name} after {case.after:.3f} s"
                    f"{' to the group' if case.to_group else ''}, "
                    f"{'+'.join(item.name for item in case.ignored) or 'nothing'} ignored: "
                    f"{problem}"
                )
    return tally


def as_json(tally: Tally) -> dict[str, Any]:
    """Return a tally as the record has it."""
    return {
        "runs": tally.runs,
        "before": tally.before,
        "load": tally.load,
        "codes": dict(sorted(tally.codes.items())),
        "seconds": sorted(tally.seconds),
        "wrong": tally.wrong,
    }


def merged(old: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Return two entries of the record as one."""
    if old is None:
        return new
    return {
        "runs": old["runs"] + new["runs"],
        "before": old["before"] + new["before"],
        "load": max(old["load"], new["load"]),
        "codes": dict(sorted((Counter(old["codes"]) + Counter(new["codes"])).items())),
        "seconds": sorted([*old["seconds"], *new["seconds"]]),
        "wrong": [*old["wrong"], *new["wrong"]],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for, and return 1 where anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="runs of each command in the record")
    parser.add_argument("--only", default="", help="part of the names of commands")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--add", action="store_true", help="complete the record that there is")
    asked = parser.parse_args(arguments)
    python = os.environ.get("POLICYTOOL_COMPAT")
    record: dict[str, Any] = (
        json.loads(asked.record.read_text(encoding="utf-8"))
        if asked.add and asked.record.exists()
        else {"commands": {}}
    )
    record |= {
        "command": "make signals",
        "cpus": os.cpu_count() or 1,
        "linux": platform.release(),
        "python": platform.python_version(),
    }
    for command in COMMANDS:
        if asked.only not in command.name or (command.with_tensorflow and python is None):
            continue
        old = record["commands"].get(command.name)
        missing = asked.count - (old["runs"] if old else 0)
        while missing > 0:
            part = min(missing, 50)
            with tempfile.TemporaryDirectory(prefix="signals-") as place:
                done = asked.count - missing
                seed = f"{command.name} {done}"
                tally = campaign(
                    command, part, Path(place), jobs=asked.jobs, python=python, seed=seed
                )
            old = merged(old, as_json(tally))
            record["commands"][command.name] = old
            asked.record.write_text(json.dumps(record) + "\n", encoding="utf-8")
            sys.stderr.write(f"{command.name}: {old['runs']} runs, {len(old['wrong'])} wrong\n")
            missing = missing - part if tally.runs else 0
    wrong = [sentence for entry in record["commands"].values() for sentence in entry["wrong"]]
    sys.stdout.write("\n".join([*wrong, ""]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
