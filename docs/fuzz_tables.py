"""The page about fuzzing, from the record of its runs and the list of what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
RECORD: Final = ROOT / "tests" / "fuzz" / "record.json"
FINDINGS: Final = ROOT / "tests" / "fuzz" / "findings.json"
_ADDED: Final = ("executions", "seconds", "crashes", "hangs", "limits", "traced")
_MOST: Final = ("slowest", "memory")

KINDS: Final = {
    "changed": "valid files changed by what they are made of, in process",
    "guided": "the same, and bytes, led by coverage (atheris), in process",
    "drawn": "models drawn and changed by Hypothesis, in process",
    "hostile": (
        "models with something hostile in them, and sound ones, before the guard and `audit`, in "
        "process"
    ),
    "loaded": (
        "models that the guard lets through, loaded by TensorFlow 2.21, tf_keras 2.21 and Keras "
        "3.15 under strace"
    ),
    "process": "whole runs, `python -m policytool` each",
    "copied": "whole runs, each in a process that is a copy of one with the modules loaded",
}

Row = dict[str, Any]


def fuzzing_page() -> str:
    """Return ``docs/fuzzing.md``."""
    rows: list[Row] = json.loads(RECORD.read_text(encoding="utf-8"))
    lines = [
        "# What was fuzzed",
        "",
        (
            "Written by `make docs` from `tests/fuzz/record.json` and `tests/fuzz/findings.json`; "
            "`make fuzz` adds its own run to the record."
        ),
        "",
        (
            "Valid files of every format are changed by what they are made of: keys, classes, "
            "names "
            "that lead elsewhere, policies, numbers, nesting in configs;"
        ),
        (
            "fields of protobuf messages, entries of a checkpoint's table, members of archives, "
            "with "
            "the lengths and checksums around them right again; and bytes."
        ),
        (
            "What is run is the command line in the fuzzer's own process (inspect in every format, "
            "audit with every target, migrate to every policy and target,"
        ),
        "shown and written, diff), or the reader alone, or the tool as a process of its own.",
        "",
        (
            "The contract: exit code 0, 1, 3 or 4, and 2 for settings, plans and baselines; "
            "sentences "
            "on stderr, no traceback, no character that a terminal obeys;"
        ),
        (
            "JSON reports that are JSON; below 30 seconds of the processor's time and 1 GiB; "
            "nothing "
            "changed beside the output. A part of the whole runs is traced"
        ),
        (
            "(`strace -f -e trace=file,network,process`): no process, no address, no file but the "
            "input, the output, the interpreter's and the system's."
        ),
        "",
        (
            "Models for the guard of `check`, `--verify` and `--retrace` are drawn from a grammar "
            "of "
            "their own: every class and argument that releases write, with"
        ),
        (
            "functions, classes, modules, paths and byte code that are on no list in every place "
            "where "
            "a loader looks something up, and SavedModels with every op"
        ),
        (
            "that leads out of a graph and every way to write a path. A model with something "
            "hostile "
            "in it has to be refused in one sentence and named by `audit`,"
        ),
        (
            "and a sound one allowed. Hostile and odd models that are allowed are loaded and "
            "called by "
            "the libraries under strace, beside a file that none may"
        ),
        (
            "open and a place where none may write: nothing may be opened, started or connected to "
            "but "
            "what the libraries open themselves."
        ),
        "",
        "## Totals",
        "",
        (
            "| kind | executions | hours | crashes | hangs | beyond a bound | slowest, s | memory, "
            "MB "
            "|"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            _summary(f"{kind}: {about}", [one for one in rows if one["kind"] == kind])
            for kind, about in KINDS.items()
        ),
        _summary("all", rows),
        "",
        *_about_processes(rows),
        (
            "Crashes and hangs are of runs, before what they found was mended; the same one counts "
            "as "
            "often as it was met. Each is among the findings,"
        ),
        "where what was found before the record was kept stands as well.",
        "",
        (
            "HDF5 that is read in the fuzzer's own process is bounded by 1.5 GiB of addresses "
            "alone: "
            "damaged heaps over which the library takes ever more"
        ),
        (
            "memory, or goes in circles, get there, and count as damage and as hangs. The command "
            "bounds both (`library-bytes` and `call-seconds` in"
        ),
        "[limits.md](limits.md)), so that whole runs stay within the contract.",
        "",
        "## By target",
        "",
        (
            "| target | executions | hours | crashes | hangs | beyond a bound | slowest, s | "
            "memory, "
            "MB |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            _summary(target, [one for one in rows if one["target"] == target])
            for target in sorted({one["target"] for one in rows})
        ),
        "",
        "## Findings",
        "",
        "| found by | what happened | since then | test |",
        "| --- | --- | --- | --- |",
        *(
            f"| {one['by']} | {one['was']} | {one['is']} | `{one['test']}` |"
            for one in json.loads(FINDINGS.read_text(encoding="utf-8"))
        ),
        "",
    ]
    return "\n".join(lines)


def _about_processes(rows: list[Row]) -> list[str]:
    traced = sum(one["traced"] for one in rows)
    return [f"Of the whole runs {traced} were traced.", ""] if traced else []


def _summary(title: str, rows: list[Row]) -> str:
    sums = {key: sum(one[key] for one in rows) for key in _ADDED}
    most = {key: max((one[key] for one in rows), default=0) for key in _MOST}
    cells = (
        title,
        f"{sums['executions']:,}",
        f"{sums['seconds'] / 3600:.1f}",
        sums["crashes"],
        sums["hangs"],
        f"{sums['limits']:,}",
    )
    return (
        "| "
        + " | ".join(map(str, (*cells, f"{most['slowest']:.1f}", round(most["memory"] / 2**20))))
        + " |"
    )
