"""
Read, audit and migrate some thousand models of which every fourth is broken, with two processes,
and interrupt and resume it: ``make load``.

Every file has to be reported, with the right exit code; the memory of all processes is sampled
while they run. Then a migration is interrupted as a terminal does it, and run again. Written as a
page to docs/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import h5py

from tests.load import models

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

JOBS: Final = 2
STEP: Final = 0.2
"""Seconds between samples."""

PARTS: Final = 8
"""Parts of a run's time that have a figure each."""

_HEADS: Final = (
    "| command | exit | seconds | "
    + " | ".join(f"{part}/{PARTS}" for part in range(1, PARTS + 1))
    + " |\n| --- | --- | --- |"
    + " --- |" * PARTS
)

ABOUT: Final = """\
# Load

`make load` generates this page.

Each command runs on {count} models in one directory, with `--jobs {jobs}`. A quarter of the models
are broken, and the others are fixtures from every release and format. Some of the broken models
crash the process that reads them (through a preloaded library, `tests/load/crash.c`), and some make
it hang (`tests/helpers/endless.py`). The report must contain every file, either as a model or as a
failure.

{made}

## Memory over time

This table shows the resident memory of the main process and of the largest worker, in MiB. Each
column shows the highest samples in one eighth of the run.

{table}

## Reported files

{reported}

## Interrupting and resuming a run

{resumed}

- {machine}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """How a command ended, and what memory it took."""

    code: int
    seconds: float
    out: str
    err: str
    samples: Sequence[tuple[float, int, int]] = field(default=())
    """Seconds since the start, MiB of the command's process, MiB of the largest of its children."""


def tree(pid: int) -> Iterator[int]:
    """Yield the processes below one."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return
    for child in map(int, below):
        yield child
        yield from tree(child)


def resident(pid: int) -> int:
    """Return the MiB that a process has; 0 for one that has gone."""
    try:
        return (
            int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            // 2**20
        )
    except (OSError, IndexError):
        return 0


def environment(shim: Path | None) -> dict[str, str]:
    """Return the variables of the command: this tree's package, and what crashes."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("POLICYTOOL_")}
    return {
        **own,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        **({"LD_PRELOAD": str(shim)} if shim is not None else {}),
    }


def ran(
    arguments: Sequence[str],
    names: Sequence[str],
    cwd: Path,
    shim: Path | None,
    interrupt: tuple[Path, int] | None = None,
) -> Ran:
    """
    Run the command over names on stdin; ``interrupt`` sends SIGINT to all its processes once a
    directory has so many entries.
    """
    start = time.monotonic()
    command = [sys.executable, "-m", "policytool", *arguments, "--jobs", str(JOBS), "-"]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(shim),
        start_new_session=True,
    )
    samples: list[tuple[float, int, int]] = []
    done = threading.Event()

    def sample() -> None:
        waiting = interrupt
        while not done.wait(STEP):
            samples.append(
                (
                    time.monotonic() - start,
                    resident(process.pid),
                    max(map(resident, tree(process.pid)), default=0),
                )
            )
            if waiting is not None and len(list(waiting[0].iterdir())) >= waiting[1]:
                waiting = None
                os.killpg(process.pid, signal.SIGINT)

    thread = threading.Thread(target=sample)
    thread.start()
    out, err = process.communicate("\n".join(names))
    done.set()
    thread.join()
    return Ran(
        code=process.returncode, seconds=time.monotonic() - start, out=out, err=err, samples=samples
    )


def shim_in(directory: Path) -> Path | None:
    """Return the library that crashes; None where there is no compiler."""
    library = directory / "crash.so"
    try:
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", library, Path(__file__).with_name("crash.c"), "-ldl"],
            check=True,
        )
    except FileNotFoundError:
        return None
    return library


def row(what: str, run: Ran) -> str:
    """Return a command's line of the table."""
    cells = []
    for part in range(PARTS):
        within = [
            one
            for one in run.samples
            if part * run.seconds / PARTS <= one[0] < (part + 1) * run.seconds / PARTS
        ]
        cells.append(
            f"{max(one[1] for one in within)}, {max(one[2] for one in within)}" if within else ""
        )
    return f"| `{what}` | {run.code} | {run.seconds:.0f} | {' | '.join(cells)} |"


def reported(what: str, run: Ran, names: Sequence[str]) -> str:
    """
    Return what a report holds.

    :raises SystemExit: where a file is missing in it, or stands in it twice.
    """
    report = json.loads(run.out)
    failures = report["failures"]
    ok = next(report[key] for key in ("models", "audited", "migrations", "plans") if key in report)
    counted = Counter(one["path"] for one in (*ok, *failures))
    if set(counted) != set(names) or set(counted.values()) != {1}:
        raise SystemExit(f"{what}: {set(names) ^ set(counted)} are not reported once")
    codes = Counter(one["code"] for one in failures)
    return (
        f"- `{what}`: {len(ok)} read, {len(failures)} failed "
        f"({', '.join(f'{count} `{code}`' for code, count in codes.most_common())})"
    )


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def resumed(work: Path, names: Sequence[str], shim: Path | None) -> str:
    """
    Interrupt a migration, resume it, and return what was seen.

    :raises SystemExit: where anything is half written, lost or done anew.
    """
    whole, parts = contents(work / "to"), work / "parts"
    parts.mkdir()
    total = len(list((work / "to").iterdir()))
    first = ran(
        ["migrate", "--to", "mixed_bfloat16", "-o", str(parts)],
        names,
        work / "in",
        shim,
        (parts, total * 2 // 5),
    )
    half = contents(parts)
    before = {path: path.stat().st_mtime_ns for path in parts.iterdir()}
    told = first.err.count("was already written")
    if (
        first.code != 130
        or any(whole.get(name) != data for name, data in half.items())
        or not len(before) - JOBS <= told <= len(before)
    ):
        raise SystemExit(f"interrupted: exit {first.code}, {len(before)} outputs, {told} told")
    second = ran(
        [
            "migrate",
            "--to",
            "mixed_bfloat16",
            "--existing=skip",
            "-o",
            str(parts),
            "--format",
            "json",
        ],
        names,
        work / "in",
        shim,
    )
    kept = sum(path.stat().st_mtime_ns == was for path, was in before.items())
    if contents(parts) != whole or kept != len(before):
        raise SystemExit(
            f"resumed: {kept} of {len(before)} kept, {len(contents(parts))} files instead of "
            f"{len(whole)}"
        )
    return (
        "`migrate --to mixed_bfloat16 -o DIR` received SIGINT (as sent by Ctrl-C) when "
        f"{total * 2 // 5} of {total} outputs existed. It exited with code {first.code} after "
        f"{first.seconds:.0f} s and left {len(before)} outputs, each byte-identical to the output "
        f"of an uninterrupted run, and no other files. It listed {told} of them on stderr: all "
        "except those that a worker may have finished but not yet reported. A second run with "
        f"`--existing skip` exited with code {second.code} after {second.seconds:.0f} s. It "
        f"created {total - kept} outputs and left {kept} unchanged. The directory then contained "
        "the same files as after an uninterrupted run. This test excludes files on which a "
        "library hangs."
    )


def page(count: int, work: Path) -> str:
    """Return the page, after running everything."""
    (work / "in").mkdir()
    made: Mapping[str, str] = models.make(work / "in", count)
    shim = shim_in(work)
    names = [name for name, kind in made.items() if kind != models.DIRECTORY]
    rows, told = [], []
    for what, output in (
        ("inspect", ""),
        ("audit", ""),
        ("migrate --to mixed_bfloat16", "to"),
        ("migrate --target keras3", "target"),
    ):
        if output:
            (work / output).mkdir()
        run = ran(
            [*what.split(), "--format", "json", *(("-o", str(work / output)) if output else ())],
            list(made),
            work / "in",
            shim,
        )
        rows.append(row(what, run))
        told.append(reported(what, run, names))
        sys.stderr.write(f"{rows[-1]}\n{told[-1]}\n")
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(Counter(made.values()).items()))
    machine = (
        f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, h5py "
        f"{version('h5py')} with HDF5 {h5py.version.hdf5_version}"
    )
    return ABOUT.format(
        count=count,
        jobs=JOBS,
        made=(f"Models by kind: {kinds}. The commands do not report directories without a model."),
        table="\n".join([_HEADS, *rows]),
        reported="\n".join(told),
        resumed=resumed(
            work,
            [name for name in names if not name.partition("-")[2].startswith(models.ENDLESS)],
            shim,
        ),
        machine=machine,
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count",
        type=int,
        default=2000,
        metavar="N",
        help="how many models (default: %(default)s)",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page to this file")
    arguments = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which a shell's background job, and what it starts, would not heed
    with tempfile.TemporaryDirectory(
        prefix="load-", dir=Path(__file__).parents[2] / "build"
    ) as name:
        text = page(arguments.count, Path(name))
    sys.stdout.write(text)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
