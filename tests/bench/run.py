"""
Measure ``policytool`` against Keras' own loader, against the shortest script, and against its own
start: ``make bench``.

Whole processes are compared with whole processes, in alternation (A B A B), and each ratio is the
median of the pairs' ratios: what else the machine does then falls on both. Every child's output
goes to /dev/null.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.sections import sections_after

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE: Final = Path(__file__).parent
MODELS: Final = Path.home() / ".cache" / "policytool" / "bench"
POLICYTOOL: Final = str(Path(sys.executable).with_name("policytool"))
ENVIRONMENT: Final = {
    **{
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "POLICYTOOL_"))
    },
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
}
"""
Without Python's own variables: under PYTHONDONTWRITEBYTECODE a source tree, unlike what pip
installs, is compiled again at each start, and under PYTHONUNBUFFERED each line is a system call.
"""

MIB: Final = 2**20
RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024
"""What ru_maxrss counts in."""

PAIRS_WITH_KERAS: Final = 3
"""load_model takes seconds and gigabytes; everything else is measured ``--runs`` times."""

FIXTURES: Final = HERE.parent.parent / "fixtures"
MANY: Final = 1000
LIBRARIES: Final = {"keras2": "tf_keras", "keras3": "Keras 3"}
SMALL: Final = (
    *(
        "tf2.3/exp_mf16_fixed128.h5",
        "keras3.15/global_mixed_float16.keras",
        "tf2.5/global_mixed_float16",
        "tf2.3/global_mixed_float16.json",
    ),
    *(
        "tf2.15/wrappers.h5",
        "keras3.15/rnn_mixed.keras",
        "tf2.15/global_mixed_float16",
        "tf2.1/global_mixed_float16.json",
    ),
)
"""A quarter of each: HDF5, `.keras`, SavedModel, architecture."""

Command = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What one process took."""

    seconds: float
    peak: int
    """The most memory it had, in bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Two commands, measured in alternation."""

    baseline: tuple[Run, ...]
    ours: tuple[Run, ...]

    @property
    def ratio(self) -> float:
        """Return the median over the pairs of our time divided by the baseline's."""
        return statistics.median(
            ours.seconds / baseline.seconds
            for baseline, ours in zip(self.baseline, self.ours, strict=True)
        )

    @property
    def excess(self) -> float:
        """
        Return the median over the pairs of the seconds that we take beyond one and a half times the
        baseline.
        """
        return statistics.median(
            ours.seconds - 1.5 * baseline.seconds
            for baseline, ours in zip(self.baseline, self.ours, strict=True)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    baseline: str
    ours: str
    ratio: str
    target: str
    met: bool


def run(command: Command) -> Run:
    """
    Return what a command takes as a process of its own.

    The peak is at least that of this process when it started the child, which stays small for that
    reason.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)  # it is waited for; Popen need not
    if process.returncode:
        sys.exit(f"status {process.returncode} from: {' '.join(command)}")
    return Run(seconds=seconds, peak=usage.ru_maxrss * RSS_UNIT)


def alternate(baseline: Command, ours: Command, pairs: int) -> Pairs:
    """Return two commands measured in alternation."""
    sys.stderr.write(f"{pairs} times: {' '.join(ours)}\n")
    runs = [(run(baseline), run(ours)) for _ in range(pairs)]
    return Pairs(baseline=tuple(one for one, _ in runs), ours=tuple(one for _, one in runs))


def seconds(runs: Sequence[Run]) -> str:
    """Return the median time in words."""
    median = statistics.median(item.seconds for item in runs)
    return f"{median:.2f} s" if median >= 1 else f"{median * 1000:.0f} ms"


def peak(runs: Sequence[Run]) -> float:
    """Return the median of the peaks in MiB."""
    return statistics.median(item.peak for item in runs) / MIB


def against_keras(found: Pairs, suffix: str, at_least: int) -> Row:
    """Return the row that compares with load_model."""
    return Row(
        what=f"`policytool inspect` on {suffix}, compared with the `load_model` script",
        baseline=f"{seconds(found.baseline)}, {peak(found.baseline):.0f} MiB",
        ours=f"{seconds(found.ours)}, {peak(found.ours):.0f} MiB",
        ratio=f"{1 / found.ratio:.1f} times faster",
        target=f"at least {at_least} times",
        met=1 / found.ratio >= at_least,
    )


def saved_model(keras: str, models: Path) -> list[Row]:
    """Return the rows on a SavedModel, whose graph is read too."""
    model = models / "efficientnetv2l.savedmodel"
    inspect = (POLICYTOOL, "inspect", str(model))
    run(inspect)  # a first run, not counted: byte code and page cache
    loaded = alternate((keras, str(HERE / "keras_load.py"), str(model)), inspect, PAIRS_WITH_KERAS)
    shown = alternate(
        (str(Path(keras).with_name("saved_model_cli")), "show", "--all", "--dir", str(model)),
        inspect,
        PAIRS_WITH_KERAS,
    )
    most = max(item.peak for item in (*loaded.ours, *shown.ours)) / MIB
    return [
        against_keras(loaded, "a SavedModel", 40),
        Row(
            what="`policytool inspect` on a SavedModel, compared with `saved_model_cli show --all`",
            baseline=f"{seconds(shown.baseline)}, {peak(shown.baseline):.0f} MiB",
            ours=f"{seconds(shown.ours)}, {peak(shown.ours):.0f} MiB",
            ratio=f"{1 / shown.ratio:.1f} times faster",
            target="",
            met=True,
        ),
        Row(
            what="peak memory of `policytool inspect` on a SavedModel",
            baseline=f"{(model / 'saved_model.pb').stat().st_size / MIB:.0f} MiB graph",
            ours=f"at most {most:.0f} MiB",
            ratio="",
            target="at most 200 MiB",
            met=most <= 200,
        ),
    ]


def against_shortest(found: Pairs, suffix: str) -> Row:
    """Return the row that compares with the shortest script."""
    return Row(
        what=f"`policytool inspect` on {suffix}, compared with `shortest.py`",
        baseline=seconds(found.baseline),
        ours=seconds(found.ours),
        ratio=f"{found.ratio:.2f}",
        target="at most 1.5 times plus 100 ms",
        met=found.excess <= 0.1,
    )


def peak_memory(large: Pairs, thin: Pairs, suffix: str) -> Row:
    """Return the row on peak memory; the baseline is the network with an eighth of the width."""
    most = max(item.peak for item in large.ours) / MIB
    return Row(
        what=f"peak memory of `policytool inspect` on {suffix}: EfficientNetV2-L, compared with "
        "the thin network",
        baseline=f"{peak(thin.ours):.1f} MiB",
        ours=f"{peak(large.ours):.1f} MiB (maximum {most:.1f} MiB)",
        ratio=f"{peak(large.ours) / peak(thin.ours):.2f}",
        target="at most 150 MiB, and a ratio of at most 1.1",
        met=most <= 150 and peak(large.ours) <= 1.1 * peak(thin.ours),
    )


def rewriting(model: Path, runs: int) -> list[Row]:
    """
    Return the rows on ``migrate --to mixed_bfloat16`` of every layer: its write against copying the
    file, its reading back, its memory.
    """
    copy, target, result = (
        model.with_name(f"{name}-{model.name}") for name in ("copied", "migrated", "took")
    )
    sys.stderr.write(f"{runs} times: migrate {model.name}\n")
    ratios, copies, writes, readings, peaks = [], [], [], [], []
    for _ in range(runs):
        copy.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        os.sync()  # what is still on its way to the disk belongs to neither
        baseline = run(
            ("sh", "-c", 'cp --reflink=never "$0" "$1" && sync "$1"', str(model), str(copy))
        )
        os.sync()
        ours = run(
            (sys.executable, str(HERE / "migrate_once.py"), str(model), str(target), str(result))
        )
        write, reading = json.loads(result.read_text(encoding="utf-8"))
        ratios.append(write / baseline.seconds)
        copies.append(baseline)
        writes.append(write)
        readings.append(reading)
        peaks.append(ours.peak / MIB)
    for path in (copy, target, result):
        path.unlink()
    ratio = statistics.median(ratios)
    return [
        Row(
            what=f"write time of `policytool migrate` on {model.suffix}, compared with `cp` and "
            "`sync`",
            baseline=seconds(copies),
            ours=f"{statistics.median(writes) * 1000:.0f} ms, and "
            f"{statistics.median(readings) * 1000:.0f} ms to read it back and compare it",
            ratio=f"{ratio:.2f}",
            target="at most 1.3",
            met=ratio <= 1.3,
        ),
        Row(
            what=f"peak memory of `policytool migrate` on {model.suffix}",
            baseline=f"{model.stat().st_size / MIB:.0f} MiB of weights",
            ours=f"at most {max(peaks):.0f} MiB",
            ratio="",
            target="at most 200 MiB",
            met=max(peaks) <= 200,
        ),
    ]


def checking(keras: str, models: Path, family: str, policy: str) -> list[Row]:
    """
    Return the rows on ``check`` of EfficientNetV2-B0: its comparisons against the two ``predict``
    calls, and its memory against the larger of them.
    """
    result = models / "checked"

    def measured_as(what: str) -> Any:
        sys.stderr.write(f"check: {family}, {policy}, {what}\n")
        run((keras, str(HERE / "check_once.py"), family, policy, what, str(result)))
        return json.loads(result.read_text(encoding="utf-8"))

    predicted = max(measured_as(what)["peak"] for what in ("float32", policy)) / MIB
    rows = []
    for what, most, most_memory in (("isolated", 3, 2.5), ("check", 1.6, 1.3)):
        outcome = measured_as(what)
        ratio = statistics.median(
            ours / baseline
            for baseline, ours in zip(outcome["predict"], outcome["check"], strict=True)
        )
        rows.append(
            Row(
                what="comparison time of `policytool "
                f"check{'' if what == 'check' else ' --measure isolated'}` ({LIBRARIES[family]}, "
                f"{policy}), compared with two `predict` calls",
                baseline=f"{statistics.median(outcome['predict']) * 1000:.0f} ms, {predicted:.0f} "
                "MiB",
                ours=f"{statistics.median(outcome['check']) * 1000:.0f} ms, "
                f"{outcome['peak'] / MIB:.0f} "
                "MiB",
                ratio=f"{ratio:.2f}, memory {outcome['peak'] / MIB / predicted:.2f}",
                target=f"at most {most}, memory at most {most_memory}",
                met=ratio <= most and outcome["peak"] / MIB <= most_memory * predicted,
            )
        )
    result.unlink()
    return rows


def start(found: Pairs) -> Row:
    """Return the row on the start of the command."""
    return Row(
        what='`policytool --version`, compared with `python -c "import click"`',
        baseline=seconds(found.baseline),
        ours=seconds(found.ours),
        ratio=f"{found.ratio:.2f}",
        target="at most 1.5",
        met=found.ratio <= 1.5,
    )


def auditing(models: Path, runs: int) -> Row:
    """Return the row on ``audit`` of a mixed SavedModel, whose every layer has findings."""
    model = str(models / "mixed.savedmodel")
    audit = (POLICYTOOL, "audit", "--fail-on", "never", model)
    run(audit)  # a first run, not counted: byte code and page cache
    result = alternate((POLICYTOOL, "inspect", model), audit, runs)
    return Row(
        what="`policytool audit` on a mixed EfficientNetB4 (SavedModel), compared with "
        "`policytool inspect`",
        baseline=seconds(result.baseline),
        ours=seconds(result.ours),
        ratio=f"{result.ratio:.2f}",
        target="at most 3",
        met=result.ratio <= 3,
    )


def make_models(folder: Path, count: int) -> Path:
    """Return a directory with so many small models, which is filled if it does not exist."""
    if not folder.exists():
        folder.mkdir(parents=True)
        for number in range(count):
            source = FIXTURES / SMALL[number % len(SMALL)]
            (shutil.copytree if source.is_dir() else shutil.copy)(
                source, folder / f"{number:05}{source.suffix}"
            )
    return folder


def many(models: Path, runs: int) -> Row:
    """Return the row on a thousand small models, read by two processes against one."""
    folder = make_models(models / "many", MANY)
    audit = (POLICYTOOL, "audit", "--fail-on", "never", str(folder), "--jobs")
    run((*audit, "2"))  # a first run, not counted: page cache
    result = alternate((*audit, "1"), (*audit, "2"), runs)
    return Row(
        what=f"`policytool audit` on {MANY} small models with `--jobs 2`, compared with `--jobs 1`",
        baseline=f"{seconds(result.baseline)}, {peak(result.baseline):.0f} MiB",
        ours=f"{seconds(result.ours)}, {peak(result.ours):.0f} MiB each",
        ratio=f"{result.ratio:.2f}",
        target="at most 0.6",
        met=result.ratio <= 0.6,
    )


def measured(keras: str, models: Path, runs: int) -> list[Row]:
    """Return all rows."""
    with_keras, with_shortest, memory, migrated = [], [], [], []
    for suffix, at_least in ((".keras", 30), (".h5", 35)):
        large, thin = str(models / f"efficientnetv2l{suffix}"), str(models / f"thin{suffix}")
        inspect, shortest = (
            (POLICYTOOL, "inspect", large),
            (sys.executable, str(HERE / "shortest.py"), large),
        )
        run(inspect)  # a first run, not counted: byte code and page cache
        read_through(Path(large))
        with_keras.append(
            against_keras(
                alternate((keras, str(HERE / "keras_load.py"), large), inspect, PAIRS_WITH_KERAS),
                suffix,
                at_least,
            )
        )
        result = alternate(shortest, inspect, runs)
        with_shortest.append(against_shortest(result, suffix))
        migrated += rewriting(Path(large), runs)
        memory.append(
            peak_memory(
                result, alternate((*shortest[:-1], thin), (*inspect[:-1], thin), runs), suffix
            )
        )
    with_keras += saved_model(keras, models)
    return [
        *with_keras,
        *with_shortest,
        *memory,
        *migrated,
        *checking(keras, models, "keras2", "mixed_float16"),
        *checking(keras, models, "keras3", "mixed_bfloat16"),
        auditing(models, runs),
        many(models, runs),
        start(
            alternate((sys.executable, "-c", "import click"), (POLICYTOOL, "--version"), 2 * runs)
        ),
    ]


def read_through(path: Path) -> None:
    """Read a file to its end, so that nobody is the first to fetch it from the disk."""
    with path.open("rb") as stream:
        while stream.read(MIB):
            pass


def machine(keras: str, models: Path) -> list[str]:
    """Return what the numbers depend on, a line each."""
    script = (
        "import platform, h5py, keras, tensorflow; print(platform.python_version(), "
        "keras.__version__, tensorflow.__version__, h5py.__version__)"
    )
    done = subprocess.run(
        [keras, "-c", script], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    python, of_keras, tensorflow, h5py = done.stdout.split()
    sizes = ", ".join(
        f"`{path.name}` {size(path) / MIB:.0f} MiB"
        for path in sorted(models.glob("*.*"))
        if path.stem in {"efficientnetv2l", "thin"}
    )
    has_affinity = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count()
    return [
        (f"{processors} cores, {processor()}, {platform.system()}"),
        f"policytool: Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in ("click", "h5py", "numpy")),
        f"Keras: Python {python}, keras {of_keras} on tensorflow {tensorflow}, h5py {h5py}",
        f"models: {sizes}",
    ]


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a directory."""
    return (
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        if path.is_dir()
        else path.stat().st_size
    )


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def table(rows: Sequence[Row]) -> list[str]:
    """Return the rows as a Markdown table."""
    cells = [
        ("measurement", "baseline", "policytool", "ratio", "target", "result"),
        *(
            (
                row.what,
                row.baseline,
                row.ours,
                row.ratio,
                row.target,
                ("met" if row.met else "**missed**") if row.target else "",
            )
            for row in rows
        ),
    ]
    lines = [f"| {' | '.join(line)} |" for line in cells]
    return [lines[0], "|" + " --- |" * len(cells[0]), *lines[1:]]


ABOUT: Final = """\
Except for `check`, all measurements compare complete processes. Time is the wall-clock time from
the start of the child process to its end, and memory is its peak resident set size (`wait4`). Runs
of the baseline and of policytool alternate. Times and memory are medians, and the ratio is the
median of the ratios of all pairs. The files are in the page cache, and the bytecode of all modules
is cached, as it is after an installation. Variables such as `PYTHONDONTWRITEBYTECODE` are unset.
`load_model` is measured {with_keras} times, `--version` {starts} times, and everything else {runs}
times. Output goes to `/dev/null`.

- The model is EfficientNetV2-L with random weights. The thin network has the same depth and an
  eighth of the width.
- The `load_model` script is `tests/bench/keras_load.py`. It loads the model without compiling it,
  and prints the policy of each layer. The SavedModel was saved by tf_keras with traces. `inspect`
  reads its graph and shows the compute dtypes of each layer and signature.
- `tests/bench/shortest.py` reads the same data with the same libraries: the JSON config, and the
  name, shape and dtype of every variable. It reads the weights in a `.keras` file without
  extracting them. `policytool inspect` may take at most 1.5 times as long as this script plus 100
  ms.
- `migrate` changes the policy of every layer. The write time includes flushing the new file to
  disk (`tests/bench/migrate_once.py`). The baseline is `cp` followed by `sync`. Pending writes from
  earlier runs are flushed first. Reading back compares every tensor.
- `check` is measured inside the child process (`tests/bench/check_once.py`), after loading and
  tracing. The model is EfficientNetV2-B0 with a batch size of 8. Five runs alternate with two
  `predict` calls in the same process. The memory ratio compares the peak memory of a process that
  runs only the comparison with that of a process that runs only `predict`.
- The small models are copies of eight fixtures, in equal numbers: HDF5 files, `.keras` files,
  SavedModels and architectures. Memory is the peak memory of the largest process.
- The peak memory of policytool must not depend on the size of the weights: it may be at most 10%
  higher than for the thin network."""


def document(rows: Sequence[Row], facts: Sequence[str], runs: int) -> str:
    """Return the page for docs/."""
    about = ABOUT.format(with_keras=PAIRS_WITH_KERAS, runs=runs, starts=2 * runs)
    lines = [
        "# Benchmarks",
        "",
        "`make bench` generates this page.",
        "",
        *table(rows),
        "",
        *(f"- {fact}" for fact in facts),
        "",
        "## Method",
        "",
        about,
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the command line; what is missed stands in the table and is no failure of the run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--keras",
        required=True,
        metavar="PYTHON",
        help="an interpreter with the newest Keras and TensorFlow",
    )
    parser.add_argument(
        "--models",
        type=Path,
        default=MODELS,
        metavar="DIR",
        help="where the models are or go (default: %(default)s)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=7,
        metavar="N",
        help="how often each cheap pair is measured (default: %(default)s)",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page to this file")
    arguments = parser.parse_args()
    models: Path = arguments.models.absolute()
    models.mkdir(parents=True, exist_ok=True)
    run((arguments.keras, str(HERE / "keras_make.py"), str(models)))
    rows = measured(arguments.keras, models, arguments.runs)
    facts = machine(arguments.keras, models)
    sys.stdout.write("\n".join([*table(rows), "", *facts, ""]))
    if arguments.write:
        page = document(rows, facts, arguments.runs) + sections_after(arguments.write, "## Method")
        arguments.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
