"""
The page of what faults in the middle of writing leave, made from the record of ``make crash``.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD: Final = Path(__file__).parent.parent / "tests/crash/record.json"
_LEFT: Final = (
    "original",
    "new",
    "each file original or new",
    "original as NAME.bak",
    "new, the original as NAME.bak",
    "with what others wrote",
    "lost or mixed",
)
"""What can be left, in the order of the columns."""

_INTRODUCTION: Final = """# What faults in the middle of writing leave

Written by `make docs` from `tests/crash/record.json`, which `make crash` writes. Each run is the
real command under strace, which puts one fault into one call of the system that concerns the
model's directory, also into those that libhdf5 makes. An undisturbed run tells the calls; one that
is in no list of calls that write, or that do not, ends it. After each run the directory is held
against what was there and against what the undisturbed run leaves, byte for byte and with modes
(of a report, which says what happened in its run, any whole one is right); the exit code and the
sentence have to be true of it; and where the command was not done it is run again, and has to be
done then.

- SIGKILL, ENOSPC and EIO are put into every call that writes, gives or takes a name, sets
  attributes, or brings something to the disk.
- SIGINT, and EIO at a call and every later one, those that take back what was begun among them, are
  put into each kind of call on each file: of the many that write to one draft, the first, the last
  and every tenth. So are the other errors and SIGTERM, in turn, and EIO in calls that read.
- *Short writes* are runs with a limit to the size of files: the system writes what fits, and
  refuses the rest.
- *Meanwhile* and *at once*: the run is stopped after a call, someone else works on the same files,
  and it goes on. A report replaces an older one, and never the model that someone saves under its
  name.
- *In a new interpreter*: the process begins with its first instruction under strace; the other runs
  are forks of one that has loaded its modules.
- File systems with less: drafts that have hidden names, as where there is no `O_TMPFILE`, and links
  that are refused (EPERM), as on FAT.

*Each file original or new*: a backup that has its name already, or one of several files that is
written. *Original as NAME.bak*: a directory between its two renames; [migrate.md](migrate.md) says
what to do. What a process that is killed leaves under hidden names, the next run that writes there
removes.

The last table says how many runs each path had. Two processes that share several files were killed
alone, because which of them does what is not the same in every run. A kill is not a power cut: what
the disk does with what it was told to keep, and in which order names reach it, is not tried here.
"""


def crashes_page() -> str:
    """Return the page as Markdown."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    versions = (
        f"strace {record['strace']}, Linux {record['linux']}, Python {record['python']}, h5py "
        f"{record['h5py']} with HDF5 {record['hdf5']}"
    )
    lines = [
        _INTRODUCTION,
        f"{record['runs']} runs; {len(record['wrong'])} of them wrong. Measured with {versions}.",
        "",
        "## By what is written",
        "",
    ]
    lines += _header("what is written", "calls that write", "calls that read", "runs")
    for name, ways in record["paths"].items():
        first = next(iter(ways.values()))
        lines.append(
            _row(
                (name, first["writing"], first["reading"]),
                [tally for way in ways.values() for tally in way["faults"].values()],
            )
        )
    lines += ["", "## By fault", "", *_header("fault", "runs", after=("exit codes",))]
    kinds = sorted(
        {
            kind
            for ways in record["paths"].values()
            for way in ways.values()
            for kind in way["faults"]
        }
    )
    for kind in kinds:
        tallies = [
            way["faults"][kind]
            for ways in record["paths"].values()
            for way in ways.values()
            if kind in way["faults"]
        ]
        lines.append(_row((kind,), tallies, _codes(tallies)))
    lines += ["", "## By file system", "", *_header("the file system has", "runs")]
    for way in dict.fromkeys(way for ways in record["paths"].values() for way in ways):
        lines.append(
            _row(
                (way,),
                [
                    tally
                    for ways in record["paths"].values()
                    for tally in ways.get(way, {"faults": {}})["faults"].values()
                ],
            )
        )
    return "\n".join([*lines, *_each(record, kinds)]) + "\n"


def _each(record: dict[str, Any], kinds: list[str]) -> Iterator[str]:
    """Yield the table of how many runs each path had with each fault."""
    yield from (
        "",
        "## Runs by what is written and fault",
        "",
        f"| what is written | {' | '.join(kinds)} |",
        "| --- |" + " --- |" * len(kinds),
    )
    for name, ways in record["paths"].items():
        counts = [
            sum(way["faults"][kind]["runs"] for way in ways.values() if kind in way["faults"])
            for kind in kinds
        ]
        yield f"| {name} | {' | '.join(str(count) if count else '' for count in counts)} |"


def _header(*columns: str, after: tuple[str, ...] = ()) -> list[str]:
    every = (*columns, *_LEFT, *after)
    return [f"| {' | '.join(every)} |", "| --- |" + " ---: |" * (len(every) - 1)]


def _row(first: tuple[object, ...], tallies: list[dict[str, Any]], *after: str) -> str:
    left = sum((Counter(tally["left"]) for tally in tallies), Counter[str]())
    cells = (
        *first,
        sum(tally["runs"] for tally in tallies),
        *(left[state] for state in _LEFT),
        *after,
    )
    return f"| {' | '.join(map(str, cells))} |"


def _codes(tallies: list[dict[str, Any]]) -> str:
    codes = sum((Counter(tally["codes"]) for tally in tallies), Counter[str]())
    return ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
