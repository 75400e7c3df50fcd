"""
Runs everything and writes the record that ``docs/evidence/crashes.md`` is made of: ``make crash``.

``python -m tests.crash.run [--jobs N] [--only TEXT] [--record FILE]``
"""

from __future__ import annotations

import argparse
import atexit
import json
import multiprocessing
import platform
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py

from tests.crash import campaign, faults, meddling, processes, runs
from tests.crash.campaign import WAYS, Outcome, Subject, Tally
from tests.crash.paths import PATHS

RECORD: Final = Path(__file__).with_name("record.json")
AT_EVERY_CALL: Final = ("KILL", "ENOSPC", "EIO")
_OFTEN: Final = ("INT", faults.LASTING[0])
_IN_TURN: Final = (
    "TERM",
    "EDQUOT",
    "EROFS",
    "ESTALE",
    "EINTR",
    "EPERM",
    "EOPNOTSUPP",
    *faults.LASTING[1:],
)
_OTHER_WAYS: Final = ("KILL", "EIO")
_PARTS: Final = ("writing", "more", "others", "meddling", "reading", "processes")
_LIMITS: Final = 16
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # where bringing a file to the disk takes no time


@dataclass(frozen=True, kw_only=True, slots=True)
class _Share:
    """What one process does at a time."""

    path: int
    part: str


class _Servers:
    """The servers of this process, which are started once."""

    one: runs.Server
    other: runs.Server
    directory: Path


def main() -> int:
    """Run what is asked for, and return 1 where anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--only", default="", help="part of the names of paths")
    parser.add_argument("--parts", default=",".join(_PARTS))
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--add", action="store_true", help="add to the record that there is")
    asked = parser.parse_args()
    reason = runs.permitted()
    if reason is not None:
        sys.stderr.write(f"nothing was run: {reason}\n")
        return 1
    shares = [
        _Share(path=number, part=part)
        for part in asked.parts.split(",")
        for number, path in enumerate(PATHS)
        if asked.only in path.name
    ]
    outcomes = _read(asked.record) if asked.add else {}
    record = _record(outcomes)
    with multiprocessing.get_context("spawn").Pool(asked.jobs, _start) as pool:
        for share, found in pool.imap_unordered(_done, shares):
            name = PATHS[share.path].name
            for way, outcome in found.items():
                _merge(outcomes.setdefault(name, {}).setdefault(way, Outcome()), outcome)
            record = _record(outcomes)
            asked.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            sys.stderr.write(
                f"{share.part:10} {name}: "
                f"{sum(campaign.total(outcome) for outcome in found.values())}\n"
            )
    sys.stdout.write(
        "\n".join(
            [*record["wrong"], f"{record['runs']} runs, {len(record['wrong'])} of them wrong", ""]
        )
    )
    return 1 if record["wrong"] else 0


def _start() -> None:
    stack = ExitStack()
    atexit.register(stack.close)
    _Servers.directory = Path(
        stack.enter_context(
            tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None)
        )
    )
    for name in ("one", "other"):
        (_Servers.directory / name).mkdir()
        setattr(_Servers, name, stack.enter_context(runs.Server(_Servers.directory / name)))


def _done(share: _Share) -> tuple[_Share, dict[str, Outcome]]:
    path, place = PATHS[share.path], _Servers.directory / "one"
    found: dict[str, Outcome] = {}
    if path.processes and share.part != "processes":
        return share, found
    for way in WAYS[1:] if share.part == "others" else WAYS[:1]:
        subject = Subject(path, way, place, _Servers.one)
        match share.part:
            case "writing":
                subject.check(faults.at_writing_calls(subject.own, subject.every, AT_EVERY_CALL))
            case "more":
                subject.check(
                    faults.at_writing_calls(
                        subject.own,
                        subject.every,
                        _OFTEN,
                        faults.thinned([call for call in subject.own if call.writes]),
                    )
                )
                subject.check(faults.in_turn(subject.own, subject.every, _IN_TURN, 2))
                subject.check(faults.short_writes(subject.largest, _LIMITS))
            case "others":
                subject.check(
                    faults.at_writing_calls(
                        subject.own,
                        subject.every,
                        _OTHER_WAYS,
                        faults.thinned([call for call in subject.own if call.writes]),
                    )
                )
            case "reading":
                subject.check(faults.at_reading_calls(subject.own, "EIO"))
            case "meddling":
                meddling.check(subject, _Servers.other)
            case _:
                processes.check(subject)
        found[way.name] = subject.outcome
    return share, found


def _merge(into: Outcome, outcome: Outcome) -> None:
    into.writing, into.reading = outcome.writing, outcome.reading
    into.wrong += [sentence for sentence in outcome.wrong if sentence not in into.wrong]
    for kind, tally in outcome.tallies.items():
        one = into.tallies.setdefault(kind, Tally())
        one.runs += tally.runs
        one.left += tally.left
        one.codes += tally.codes
        one.again += tally.again


def _record(outcomes: dict[str, dict[str, Outcome]]) -> dict[str, Any]:
    return {
        "command": "make crash",
        "strace": subprocess.run(
            [shutil.which("strace") or "strace", "-V"], capture_output=True, check=True, text=True
        ).stdout.split()[3],
        "linux": platform.release(),
        "python": platform.python_version(),
        "h5py": h5py.version.version,
        "hdf5": h5py.version.hdf5_version,
        "runs": sum(
            campaign.total(outcome) for ways in outcomes.values() for outcome in ways.values()
        ),
        "paths": {
            path.name: {
                way.name: _as_json(outcomes[path.name][way.name])
                for way in WAYS
                if way.name in outcomes[path.name]
            }
            for path in PATHS
            if path.name in outcomes
        },
        "wrong": [
            sentence
            for ways in outcomes.values()
            for outcome in ways.values()
            for sentence in outcome.wrong
        ],
    }


def _read(file: Path) -> dict[str, dict[str, Outcome]]:
    """Return what a record holds."""
    if not file.exists():
        return {}
    record = json.loads(file.read_text(encoding="utf-8"))
    outcomes: dict[str, dict[str, Outcome]] = {}
    for name, ways in record["paths"].items():
        for way, found in ways.items():
            outcome = Outcome(writing=found["writing"], reading=found["reading"])
            for kind, told in found["faults"].items():
                codes = Counter({int(code): count for code, count in told["codes"].items()})
                outcome.tallies[kind] = Tally(
                    runs=told["runs"], left=Counter(told["left"]), codes=codes
                )
            outcome.wrong = [
                sentence for sentence in record["wrong"] if sentence.startswith(f"{name}, {way}")
            ]
            outcomes.setdefault(name, {})[way] = outcome
    return outcomes


def _as_json(outcome: Outcome) -> dict[str, Any]:
    faults_met = {
        kind: {
            "runs": tally.runs,
            "left": _sorted(tally.left),
            "codes": _sorted(Counter({str(code): count for code, count in tally.codes.items()})),
        }
        for kind, tally in sorted(outcome.tallies.items())
    }
    return {"writing": outcome.writing, "reading": outcome.reading, "faults": faults_met}


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))


if __name__ == "__main__":
    sys.exit(main())
