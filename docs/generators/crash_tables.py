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

RECORD: Final = Path(__file__).parent.parent.parent / "tests/crash/record.json"
SIGNALS: Final = RECORD.with_name("signals.json")
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

_TITLES: Final = {
    "each file original or new": "each file is original or new",
    "original as NAME.bak": "only NAME.bak (original)",
    "new, the original as NAME.bak": "new and NAME.bak (original)",
    "with what others wrote": "changed by the other process",
    "EIO from then on": "EIO in this and all later calls",
    "EIO while reading": "EIO in calls that read",
    "ENOSPC from then on": "ENOSPC in this and all later calls",
    "EROFS from then on": "EROFS in this and all later calls",
    "SIGKILL, in a new interpreter": "SIGKILL in a new interpreter",
    "SIGKILL, of processes that it started": "SIGKILL of child processes",
    "the input is saved anew meanwhile": "input saved during the run",
    "the output is made by someone meanwhile": "output created during the run",
    "the same command at once": "same command in parallel",
    "h5: over another": "h5: overwriting a file",
    "h5: in place, over an older backup": "h5: in place, replacing an older backup",
    "savedmodel: over another": "savedmodel: overwriting a directory",
    "savedmodel: in place, over an older backup": "savedmodel: in place, replacing an older backup",
    "tfjs: with its shards to a new directory": "tfjs: new directory, with shards",
    "target: h5 anew": "target: h5 to h5",
    "target: json anew": "target: json to json",
    "several in one process": "two files in one process",
    "several in two processes": "two files in two processes",
    "audit --write-baseline, over an older": "audit --write-baseline, replacing a baseline",
}
"""What the page calls a state, a fault or a path of the record, if not by its name."""

_INTRODUCTION: Final = """# Faults during writing

`make docs` generates this page from `tests/crash/record.json`, which `make crash` writes. Each run
executes the real command under strace, which injects one fault into one system call that affects
the directory of the model, including calls by libhdf5. A run without faults records these calls; an
unknown call is an error. After each run, the directory is compared byte for byte, including file
modes, with its state before the run and with the result of the run without faults. The content of a
report depends on the run, so any complete report is accepted. The exit code and the message must
match the state of the directory. If the command did not finish, it is run again and must then
succeed.

- SIGKILL, ENOSPC and EIO are injected into every call that writes data, creates or removes a name,
  sets attributes, or flushes data to disk.
- SIGINT, and EIO in one call and all later calls (including those that undo earlier calls), are
  injected into each kind of call on each file. Of the many calls that write a draft, the first,
  the last and every tenth are tested. The other errors, SIGTERM, and EIO in calls that read are
  distributed over the same calls, so each call is tested with only some of these faults.
- *Short writes*: a limit on the file size makes the system write only a part of the data.
- *During the run* and *in parallel*: the run is paused after a call, another process changes the
  same files, and the run continues. A report may replace an older report, but never a model that
  was saved under the same name.
- *In a new interpreter*: the process starts under strace. All other runs are forks of a process
  that has already loaded its modules.
- Limited file systems: drafts have hidden names, as on systems without `O_TMPFILE`, or creating
  links fails (EPERM), as on FAT.

Each column counts the runs that left the directory in the state named in its heading. *Each file
is original or new*: a backup already exists under its final name, or only some of several files
were written. *Only NAME.bak*: the run stopped between the two renames of a directory;
[migrate.md](../how-to/migrate.md) explains how to recover the directory. The next run that writes
to the directory removes the hidden files that a killed process left.

The last table shows the number of runs for each operation. If two processes write several files,
SIGKILL is the only injected fault, because the order of system calls varies. The tests do not
simulate power failures, so they do not cover the behavior of the disk.
"""


_SIGNALS: Final = """
## Signals

`make signals` starts each command as a separate process, with a random set of SIGINT, SIGTERM,
SIGHUP and SIGQUIT ignored, as `nohup` and the background jobs of shell scripts ignore them. It
sends one of the first three signals at a random moment, to the process or to its process group.
Then no process and no temporary file may be left, each output must be complete or absent, and a
report must be valid: whole, or in JSON Lines with the last line. The run must end within two
seconds, multiplied by the load of the machine per processor if that exceeds 1. A signal before
policytool handles signals, or after it printed its report, ends the process with that signal. All
others lead to exit code 130, or to a complete run. `tune` ends its search and then writes its
result, for which no time is set.
"""


def _signal_lines() -> Iterator[str]:
    """Yield the part about signals at random moments."""
    record = json.loads(SIGNALS.read_text(encoding="utf-8"))
    commands = record["commands"]
    runs = sum(entry["runs"] for entry in commands.values())
    wrong = sum(len(entry["wrong"]) for entry in commands.values())
    yield _SIGNALS
    yield (
        f"{runs} runs, {wrong} failures. Measured with Linux {record['linux']}, Python "
        f"{record['python']}, and {record['cpus']} CPUs that other programs used at the same time."
    )
    yield ""
    yield (
        "| command | runs | ended before the signal | exit code 130 | ended by the signal | "
        "completed | median (s) | maximum (s) | load per CPU |"
    )
    yield "| --- |" + " ---: |" * 8
    for name, entry in commands.items():
        codes = {int(code): count for code, count in entry["codes"].items()}
        killed = sum(count for code, count in codes.items() if code < 0)
        ended = (entry["runs"], entry["before"], codes.get(130, 0), killed)
        others = sum(codes.values()) - codes.get(130, 0) - killed
        times = entry["seconds"]
        figures = f"{times[len(times) // 2]:.1f} | {times[-1]:.1f} | {entry['load']:.1f}"
        yield f"| {name} | {' | '.join(map(str, (*ended, others)))} | {figures} |"


def crashes_page() -> str:
    """Return the page as Markdown."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    versions = (
        f"strace {record['strace']}, Linux {record['linux']}, Python {record['python']}, h5py "
        f"{record['h5py']} with HDF5 {record['hdf5']}"
    )
    lines = [
        _INTRODUCTION,
        f"{record['runs']} runs, {len(record['wrong'])} failures. Measured with {versions}.",
        "",
        "## By operation",
        "",
    ]
    lines += _header("operation", "calls that write", "calls that read", "runs")
    for name, ways in record["paths"].items():
        first = next(iter(ways.values()))
        lines.append(
            _row(
                (_title(name), first["writing"], first["reading"]),
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
        lines.append(_row((_title(kind),), tallies, _codes(tallies)))
    lines += ["", "## By file system", "", *_header("file system", "runs")]
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
    return "\n".join([*lines, *_each(record, kinds), *_signal_lines()]) + "\n"


def _each(record: dict[str, Any], kinds: list[str]) -> Iterator[str]:
    """Yield the table of how many runs each path had with each fault."""
    yield from (
        "",
        "## Runs by operation and fault",
        "",
        f"| operation | {' | '.join(map(_title, kinds))} |",
        "| --- |" + " --- |" * len(kinds),
    )
    for name, ways in record["paths"].items():
        counts = [
            sum(way["faults"][kind]["runs"] for way in ways.values() if kind in way["faults"])
            for kind in kinds
        ]
        yield f"| {_title(name)} | {' | '.join(str(count) if count else '' for count in counts)} |"


def _title(name: str) -> str:
    return _TITLES.get(name, name)


def _header(*columns: str, after: tuple[str, ...] = ()) -> list[str]:
    every = (*columns, *map(_title, _LEFT), *after)
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
