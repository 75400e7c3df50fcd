"""
Compare the sets of layers that ``tune`` keeps in float32 with simpler choices: ``python
tune_table.py --python PYTHON [--model NAME] [--library NAME] [--results FILE] [--write FILE]``.

``tune_models.py`` writes the models. Each is tuned twice: for mixed_float16, where a few layers
overflow, and for mixed_bfloat16 with a tolerance of 60% of the error that the model has with all
layers converted, so that many small errors count. The baselines use the same trials: the smallest
number of first or last layers that passes, by bisection, and the layers that ``migrate`` keeps by
rule. Each written model is then checked on inputs that no search used, and converted to the other
library.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))
from policytool.commands.destinations import Destination
from policytool.commands.tune import tune_and_write
from policytool.commands.tune_run import TrialRuns, TuneOptions, readable_source
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.tuning.candidate_layers import candidates
from policytool.numerics.tuning.results import objective
from policytool.numerics.tuning.search import Budget
from policytool.numerics.verdicts.tolerances import ToleranceOption
from policytool.numerics.workers import Interpreter, Worker
from tests.bench.sections import write_section

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policytool.numerics.tuning.results import Trial

HERE: Final = Path(__file__).parent
MODELS: Final = {
    "efficientnetv2b0": "EfficientNetV2-B0",
    "resnet50": "ResNet50",
    "mobilenetv3small": "MobileNetV3-Small",
    "transformer": "transformer encoder",
    "tagger": "LSTM tagger",
}
SUFFIXES: Final = {"keras": ".keras", "tf_keras": ".h5"}
LIBRARIES: Final = {"keras": "Keras 3", "tf_keras": "tf_keras"}
TARGETS: Final = {"keras": "tf_keras", "tf_keras": "keras3"}

TOLERANCE: Final = 0.02
SHARE: Final = 0.6
"""What the tolerance for bfloat16 is of the error with all layers converted."""

POLICIES: Final = ("mixed_float16", "mixed_bfloat16")
HEADING: Final = "## Layers kept by tune"

ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if not name.startswith("POLICYTOOL_")},
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
}

NOT_MEASURED: Final = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One search, and what it is compared with."""

    model: str
    library: str
    policy: str
    tolerance: float
    candidates: int
    kept: tuple[str, ...] | None
    """None if no set was found."""

    trials: int
    seconds: float
    error: float | None
    ending: str
    first: int
    last: int
    baseline_trials: int
    rules: int
    rules_pass: bool
    rules_error: float | None
    unseen: float | None
    """The error on inputs that the search did not use; None if it is not finite."""

    check: int
    """The exit code on these inputs."""

    migrate: int
    """The exit code of a conversion to the other library, which compares predictions."""

    message: str

    @property
    def is_never_larger(self) -> bool:
        """Whether no baseline keeps fewer layers."""
        others = [self.first, self.last, *([self.rules] if self.rules_pass else [])]
        return self.kept is not None and len(self.kept) <= min(others)


class Baselines:
    """The choices without a search, for one model."""

    def __init__(self, runs: TrialRuns) -> None:
        self.runs = runs
        self.paths = runs.candidates.paths
        self.made: dict[frozenset[str], Trial] = {}

    def trial(self, kept: Sequence[str]) -> Trial:
        """Return the trial of a set, which is made once."""
        wanted = frozenset(kept)
        if wanted not in self.made:
            self.made[wanted] = self.runs.run(wanted)
        return self.made[wanted]

    def passes(self, kept: Sequence[str]) -> bool:
        """Return whether a set meets the objective on both halves of the inputs."""
        trial = self.trial(kept)
        return trial.excess <= 1 and (trial.validation is None or trial.validation <= 1)

    def first(self) -> int:
        """Return how many first layers have to be kept."""
        return self._smallest(lambda count: self.paths[:count])

    def last(self) -> int:
        """Return how many last layers have to be kept."""
        return self._smallest(lambda count: self.paths[len(self.paths) - count :])

    def _smallest(self, kept: Callable[[int], Sequence[str]]) -> int:
        failing, passing = -1, len(self.paths)
        while passing - failing > 1:
            middle = (failing + passing) // 2
            if self.passes(kept(middle)):
                passing = middle
            else:
                failing = middle
        return passing


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run policytool."""
    return subprocess.run(
        [sys.executable, "-m", "policytool", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )


def tuned(path: Path, library: str, policy: str, python: str) -> Row:
    """Return the row of a model and a policy."""
    tune_options = TuneOptions(
        candidate=Options(to=policy),
        objective=objective((ToleranceOption(pattern=None, value=TOLERANCE),)),
        inputs=path.with_suffix(".npz"),
        device="cpu",
        budget=Budget(),
    )
    written = path.with_name(f"{path.stem}.{policy}{path.suffix}")
    tools = TensorFlowTools(worker=Worker(Interpreter(python=python)))
    with tools.worker, tools.hand_over() as hand_over:
        source = readable_source(discovery.named_input(str(path)), tune_options, hand_over)
        result = candidates(source.loaded, tune_options.candidate)  # type: ignore[arg-type]  # it has layers
        if policy == "mixed_bfloat16":
            with TrialRuns(source, result, tune_options, tools, hand_over) as runs:
                error = runs.run(frozenset()).error or 0.0
            value = float(f"{SHARE * error:.2g}")
            tune_options = replace(
                tune_options, objective=objective((ToleranceOption(pattern=None, value=value),))
            )
        with TrialRuns(source, result, tune_options, tools, hand_over) as runs:
            plain = Baselines(runs)
            first, last = plain.first(), plain.last()
            rules_pass = plain.passes(tuple(result.rules))
            rules = plain.trial(tuple(result.rules))
        destination = Destination(output=written, overwrite=True)
        tuning, _ = tune_and_write(source.input, tune_options, destination, tools, report)
    tolerance = tune_options.objective.tolerances.given[0].value  # type: ignore[union-attr]  # set above
    best = tuning.best if tuning.passed else None
    done = checked = unseen_error = None
    if best is not None:
        unseen = str(path.with_suffix(".unseen.npz"))
        report_file = written.with_name("check.json")
        checked = command(
            *("check", str(written), "--accept-undecided", "--inputs", unseen),
            *("--python", python, "--device", "cpu", "--format", f"json={report_file}"),
        )
        other = SUFFIXES[{"keras": "tf_keras", "tf_keras": "keras"}[library]]
        converted = str(written.with_name(f"{written.stem}.converted{other}"))
        unseen_error = worst_error(json.loads(report_file.read_text(encoding="utf-8")))
        done = command(
            *("migrate", str(written), "--target", TARGETS[library], "-o", converted),
            *("--existing=replace", "--python", python),
        )
    return Row(
        model=path.stem,
        library=library,
        policy=policy,
        tolerance=tolerance,
        candidates=len(result.paths),
        kept=best.kept if best is not None else None,
        trials=len(tuning.trials),
        seconds=round(tuning.seconds, 1),
        error=best.error if best is not None else None,
        ending=tuning.ending.value,
        first=first,
        last=last,
        baseline_trials=len(plain.made),
        rules=len(result.rules),
        rules_pass=rules_pass,
        rules_error=rules.error,
        unseen=unseen_error,
        check=checked.returncode if checked is not None else NOT_MEASURED,
        migrate=done.returncode if done is not None else NOT_MEASURED,
        message="\n".join(
            f"{item.stdout}\n{item.stderr}" for item in (checked, done) if item is not None
        ),
    )


def worst_error(found: Mapping[str, Any]) -> float | None:
    """Return the largest error of an output in a report of ``check``; None if it is not finite."""
    (run,) = found["check"]["runs"]
    errors = [output["verdict"]["error"] for output in run["outputs"]]
    return max(errors) if all(isinstance(error, float) for error in errors) else None


def report(text: str) -> None:
    """Show the progress of a search."""
    sys.stderr.write(f"\r{text:60}")


def table(rows: Sequence[Row]) -> list[str]:
    """Return the rows as a Markdown table."""
    cells = [
        (
            *("model", "library", "policy", "tolerance", "candidates", "kept", "trials", "time"),
            *("error", "first N", "last N", "by rule", "unseen inputs", "other library"),
        ),
        *(_cells(row) for row in rows),
    ]
    lines = [f"| {' | '.join(line)} |" for line in cells]
    return [lines[0], "|" + " --- |" * len(cells[0]), *lines[1:]]


def _cells(row: Row) -> tuple[str, ...]:
    rules = f"{row.rules}, error {_number(row.rules_error)}" if row.rules_pass else "fails"
    return (
        MODELS[row.model],
        LIBRARIES[row.library],
        row.policy,
        f"{row.tolerance:g}",
        str(row.candidates),
        str(len(row.kept)) if row.kept is not None else "none found",
        str(row.trials) if row.ending == "minimal" else f"{row.trials} ({row.ending})",
        f"{row.seconds:.0f} s",
        _number(row.error),
        str(row.first),
        str(row.last),
        rules,
        _number(row.unseen) if row.check == 0 else f"**{_number(row.unseen)}**",
        {0: "loads", 1: "predictions differ", 3: "not converted"}.get(row.migrate, "**fail**"),
    )


def _number(value: float | None) -> str:
    return f"{value:.3g}" if value is not None else "not finite"


def read(path: Path) -> list[Row]:
    """Return the rows of a file of results; nothing if the file does not exist."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    actual = [json.loads(line) for line in lines]
    return [
        Row(**{**item, "kept": tuple(item["kept"]) if item["kept"] else None}) for item in actual
    ]


ABOUT: Final = f"""\
`tests/bench/tune_table.py` writes this section. `policytool tune` keeps *kept* of the candidates in
float32 and converts all others. *First N* and *last N* are the smallest numbers of first and of
last candidates that pass if they are kept; a bisection finds them with the same trials. *By rule*
are the candidates that `migrate` keeps in float32 without a search. Outputs stay in float32.

- The models have random weights, adjusted so that BatchNormalization has the statistics of the
  inputs and the scores differ from input to input (`tests/bench/tune_models.py`). Images have 96
  by 96 pixels. Some layers have values that float16 cannot represent.
- The tolerance for mixed_bfloat16 is {SHARE:.0%} of the error with all candidates converted.
- *Unseen inputs* is the error that `policytool check` finds in the written model, with inputs that
  the search did not use; bold numbers exceed the tolerance.
- *Other library* is the result of `policytool migrate --target` on the written model, which
  compares the predictions of both libraries. If they differ, nothing is written. The libraries
  differ in float16: tf_keras sums `GlobalAveragePooling2D` in float16, so the MobileNetV3-Small
  that was tuned for Keras 3 returns NaN. EfficientNetV2-B0 has scores of 0 and 1 for the random
  inputs of this comparison, and rounding changes the class."""


def section(rows: Sequence[Row], facts: Sequence[str]) -> str:
    """Return the section of the page."""
    lines = [HEADING, "", *table(rows), "", *(f"- {fact}" for fact in facts), "", ABOUT, ""]
    return "\n".join(lines)


def machine(python: str) -> list[str]:
    """Return what the numbers depend on."""
    script = (
        "import keras, tf_keras, tensorflow; "
        "print(keras.__version__, tf_keras.__version__, tensorflow.__version__)"
    )
    done = subprocess.run(
        [python, "-c", script], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    keras, tf_keras, tensorflow = done.stdout.split()[-3:]
    return [
        f"{os.cpu_count()} cores, {processor()}, {platform.system()}, no GPU",
        f"Keras {keras}, tf_keras {tf_keras}, TensorFlow {tensorflow}",
    ]


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


def main() -> None:
    """Run the command line; status 1 if a set is larger than a baseline or a model fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True, help="an interpreter with both libraries")
    parser.add_argument("--model", choices=MODELS, action="append", help="default: all")
    parser.add_argument("--library", choices=SUFFIXES, action="append", help="default: both")
    parser.add_argument("--policy", choices=POLICIES, action="append", help="default: both")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="add rows to this file, and keep those in it"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the section of this page")
    arguments = parser.parse_args()
    rows = read(arguments.results) if arguments.results else []
    known = {(row.model, row.library, row.policy) for row in rows}
    with tempfile.TemporaryDirectory(prefix="policytool-bench-") as name:
        for model in arguments.model or MODELS:
            for library in arguments.library or SUFFIXES:
                expected = [
                    policy
                    for policy in arguments.policy or POLICIES
                    if (model, library, policy) not in known
                ]
                if not expected:
                    continue
                folder = Path(name) / library
                make = str(HERE / "tune_models.py"), str(folder), "--library", library
                subprocess.run(
                    [arguments.python, *make, "--model", model],
                    check=True,
                    env=ENVIRONMENT,
                    capture_output=True,
                )
                for policy in expected:
                    path = folder / f"{model}{SUFFIXES[library]}"
                    row = tuned(path, library, policy, arguments.python)
                    rows.append(row)
                    sys.stdout.write(f"{table([row])[-1]}\n")
                    sys.stdout.flush()
                    if arguments.results:
                        with arguments.results.open("a", encoding="utf-8") as stream:
                            stream.write(f"{json.dumps(asdict(row))}\n")
    sys.stdout.write("\n".join([*table(rows), ""]))
    if arguments.write:
        text = section(rows, machine(arguments.python))
        write_section(arguments.write, HEADING, text)
    sys.exit(not all(row.is_never_larger and row.check == 0 for row in rows))


if __name__ == "__main__":
    main()
