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

_INTRODUCTION: Final = """# Faults during writing

Written by `make docs` from `tests/crash/record.json`, which `make crash` writes. Each run is the
real command under strace, which injects one fault into one system call for the directory of the
model, including calls of libhdf5. A run without faults lists the calls; an unknown call is an
error. After each run, the directory is compared with its state before, and with the result of the
run without faults, byte for byte and including modes (any complete report is accepted, because its
content depends on the run). The exit code and the message must match the state. If the command did
not finish, it runs again and must finish then.

- SIGKILL, ENOSPC and EIO are injected into every call that writes, creates or removes a name, sets
  attributes, or flushes data to disk.
- SIGINT, and EIO at a call and every later one, including calls that undo earlier ones, are
  injected into each kind of call on each file: into the first, the last and every tenth of the many
  calls that write one draft. So are the other errors and SIGTERM, in turn, and EIO in calls that
  read.
- *Short writes* are runs with a limit on the size of files: the system writes only a part.
- *Meanwhile* and *at once*: the run is paused after a call, another process changes the same files,
  and the run continues. A report replaces an older report, but never a model saved under its name.
- *In a new interpreter*: the process starts under strace; the other runs are forks of a process
  that has loaded its modules.
- Limited file systems: drafts with hidden names, as without `O_TMPFILE`, and failing links (EPERM),
  as on FAT.

*Each file original or new*: a backup that already has its name, or one of several written files.
*Original as NAME.bak*: a directory between its two renames; [migrate.md](migrate.md) explains what
to do. The next run that writes to the directory removes hidden files of a killed process.

The last table shows the number of runs for each path. Runs with two processes that share several
files were only killed, because the order of their work differs between runs. A kill is not a power
failure: the behavior of the disk was not tested.
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
