"""The reports of tune: golden files, the schema, and texts that no golden file shows."""

from __future__ import annotations

import json
import math
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policytool.commands.inspect import Failure
from policytool.commands.migrate import Migration, Status
from policytool.commands.saved_plans import read_plans
from policytool.migration.plan import Refusal
from policytool.migration.planning.options import Options, Outputs
from policytool.numerics.tuning.results import Ending, Objective, Split
from policytool.numerics.verdicts.task_metric import MetricOptions
from policytool.numerics.verdicts.tolerances import ToleranceOption, Tolerances
from policytool.reports import View, html
from policytool.reports.page import Point, Profile
from policytool.reports.tuning import TUNE_REPORTERS, Tunings
from tests.contracts.report_contract import ReportContract, VariationsContract, strict_json
from tests.contracts.reporter_contract import rendered_by
from tests.helpers.example_tunings import (
    CASES,
    KEPT,
    MODEL,
    layer,
    migration,
    options,
    trial,
    tuning,
)
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("in_the_root")


class TestTunings(ReportContract):
    name = "tune"
    reporters = TUNE_REPORTERS
    cases: ClassVar = {name: partial(CASES.__getitem__, name) for name in CASES}
    widths = (80, 120, 200)
    page = "objectives"
    without_golden = frozenset({"tune-not-found.json", "tune-everything.json"})

    def is_too_wide(self, line: str, width: int) -> bool:
        """Words that are quoted for a shell are not broken."""
        return "$'" not in line and super().is_too_wide(line, width)


rendered = partial(rendered_by, TUNE_REPORTERS)


def report(found: Tunings) -> Any:
    """Return the values of the JSON report."""
    return strict_json("tune", rendered("json", found))


def schema(name: str) -> Any:
    """Return a shipped schema."""
    return json.loads(
        resources.files("policytool.reports.schemas")
        .joinpath(f"{name}.schema.json")
        .read_text(encoding="utf-8")
    )


def _tuned(**changes: Any) -> Tunings:
    return Tunings(tuning=tuning(**changes))


def _unsuccessful(ending: Ending, *, is_close: bool = True, **changes: Any) -> Tunings:
    """Return a search that ended without a set of layers."""
    closest = trial(*KEPT, excess=13.0) if is_close else None
    return _tuned(
        **{"best": None, "closest": closest, "ending": ending, "options": None, **changes}
    )


def _two_layers(*excesses: float | None, **trial_values: Any) -> dict[str, Any]:
    """Return a search with a kept layer, which was tried without it, and a converted one."""
    layers = (layer("net/a", *excesses, kept=True, excess_if_converted=math.inf), layer("net/b"))
    without = trial(**{"excess": math.inf, **trial_values})
    return {"layers": layers, "trials": (trial("net/a", excess=0.5), without)}


def _objective(**values: Any) -> Tunings:
    """Return a search whose trials have no metric."""
    trials = (trial(excess=math.inf), trial(*KEPT, excess=0.5), trial(KEPT[0], excess=math.inf))
    return _tuned(
        objective=Objective(**{"tolerances": None, **values}),
        trials=tuple(replace(item, metric=0.9) for item in trials),
    )


def _blocked() -> Tunings:
    refusals = (Refusal(code="no-room", message="values overflow"),)
    plan = replace(migration().plan, refusals=refusals)
    return Tunings(
        tuning=tuning(), migration=replace(migration(), status=Status.BLOCKED, plan=plan)
    )


_NAMED: Final = Tolerances(given=(ToleranceOption(pattern="a", value=0.1),))
VARIATIONS: Final = {
    **{
        f"no set of layers, {ending}": _unsuccessful(ending)
        for ending in (Ending.TRIALS, Ending.TIME, Ending.INTERRUPTED)
    },
    "no set of layers, none is close": _unsuccessful(Ending.TRIALS, is_close=False),
    **{
        f"a set of layers, {ending}": _tuned(ending=ending)
        for ending in (Ending.MINIMAL, Ending.TRIALS, Ending.TIME, Ending.INTERRUPTED)
    },
    "one layer stays": _tuned(
        layers=(layer("net/a", kept=True, excess_if_converted=3.0), layer("net/b")),
        trials=(trial("net/a", excess=0.5),),
        is_minimum=False,
    ),
    "fails to run": _tuned(
        **_two_layers(None, failure="no kernel for Foo in float16 " + "x" * 150)
    ),
    **{f"validation: {split}": _tuned(split=split) for split in Split},
    "blocked migration": _blocked(),
    "a row exceeds its limit": _unsuccessful(
        Ending.TRIALS, closest=trial("net/stem", excess=2.0, error=0.004)
    ),
    "default tolerances": _objective(tolerances=Tolerances()),
    "a tolerance by name": _objective(tolerances=_NAMED),
    "agreement": _objective(agreement=0.99),
    "metric": _objective(metric=MetricOptions(labels=None, metric="auc")),
    "metric with a drop": _objective(metric=MetricOptions(labels=None, metric="auc", max_drop=0)),
    "multiples of the limit": _tuned(objective=Objective(tolerances=_NAMED)),
    "gradients overflow": _unsuccessful(
        Ending.IMPOSSIBLE,
        objective=Objective(tolerances=None, gradients=True),
        closest=trial(excess=math.inf, error=0.1),
    ),
    "no finite value": _tuned(**_two_layers(error=0.002)),
    "no finite value in the closest set": _unsuccessful(
        Ending.TRIALS, closest=trial(excess=math.inf, error=0.002)
    ),
    "converted layer that is not finite": _tuned(
        layers=(layer("net/a", 0.009), layer("net/b", None, 20.0, is_finite=False)),
        trials=(trial(excess=0.5),),
    ),
    "headroom of a kept layer": _tuned(
        layers=(layer("net/a", 0.1, 2.5, kept=True), layer("net/b", None, None)),
        trials=(trial("net/a", excess=0.5),),
    ),
    "options of migrate": _tuned(
        options=Options(
            to="mixed_bfloat16", include_exceptions=True, outputs=Outputs.FOLLOW, retrace=True
        )
    ),
    "run by TensorFlow": _tuned(
        reference=replace(tuning().reference, library="tensorflow 2.21.0", policy=None)
    ),
    "full disk": replace(
        CASES["planned"],
        migration=None,
        failures=(Failure(path="out.keras", code="unwritable", message="cannot be written"),),
    ),
}


class TestVariations(VariationsContract):
    name = "tune"
    reporters = TUNE_REPORTERS
    plain: ClassVar = {
        "plain": _tuned(),
        "two layers": _tuned(**_two_layers()),
        "impossible": CASES["impossible"],
    }
    variations = VARIATIONS


@pytest.mark.parametrize("name", ["side", "device", "inputs", "metric"])
def test_definitions_are_those_of_check(name: str) -> None:
    """One value has one form in all reports."""
    assert schema("tune")["$defs"][name] == schema("check")["$defs"][name]


def test_the_definitions_of_plans_are_those_of_migrate() -> None:
    """The plan is one for ``migrate --plan``."""
    ours, theirs = schema("tune")["$defs"], schema("migrate")["$defs"]
    assert {name: ours[name] for name in theirs} == theirs


def test_keras_map_is_python_that_sets_the_policies_of_the_set() -> None:
    """Whatever the names of layers are; without a set, it only says so."""
    for case in CASES.values():
        compile(rendered("keras-map", case), "map.py", "exec")
    assert rendered("keras-map", CASES["passing"]).splitlines()[1:] == [
        "import keras",
        "",
        'policies = keras.dtype_policies.DTypePolicyMap("mixed_float16")',
        'policies["^block_1/energy$"] = keras.DTypePolicy("float32")',
        'policies["^block_2/difference$"] = keras.DTypePolicy("float32")',
        'policies["^probabilities$"] = keras.DTypePolicy("float32")',
        "keras.config.set_dtype_policy(policies)",
    ]
    (comment,) = rendered("keras-map", CASES["not-found"]).splitlines()
    assert comment.startswith("# ")


@pytest.mark.parametrize("name", ["passing", "planned"])
def test_plan_of_the_report_can_be_applied(name: str, tmp_path: Path) -> None:
    """``migrate --plan`` reads the report of tune."""
    file = tmp_path / "tune.json"
    file.write_text(rendered("json", CASES[name]), encoding="utf-8")
    (plan,) = read_plans(file)
    result = CASES[name].migration
    assert result is not None
    assert plan.edits == result.plan.edits
    assert (plan.path, plan.format, plan.suffix) == (MODEL, "keras", "mixed_float16")


def test_a_report_without_a_plan_has_none(tmp_path: Path) -> None:
    """If no set of layers was found, there is nothing to apply."""
    file = tmp_path / "tune.json"
    file.write_text(rendered("json", CASES["impossible"]), encoding="utf-8")
    assert read_plans(file) == ()


def test_curve_has_ten_rows_and_the_chosen_set() -> None:
    """The number of tried sets has no effect on the number of rows."""
    layers = tuple(layer(f"net/d_{number}", kept=number < 3) for number in range(40))
    paths = tuple(item.path for item in layers)
    trials = tuple(trial(*paths[:count], excess=1.5 - 0.2 * count) for count in range(40))
    result = Tunings(tuning=tuning(layers=layers, trials=trials))
    text = rendered("table", result)
    lines = text[text.index("error by share") :].splitlines()[3:]
    rows = lines[: lines.index("")]
    assert len(rows) == 10
    assert [row.split()[:3] for row in rows if "chosen" in row] == [["37", "of", "40"]]
    assert ["38", "of", "40"] in [row.removeprefix("  ! ").split()[:3] for row in rows]
    assert rendered("html", result).count(" of 40</th>") == 40


def test_all_layers_include_the_commands_for_other_sets() -> None:
    """Without them, a note says where they are; there is none for the chosen set."""
    searched = tuning()
    sets = {point.converted: point.kept for point in searched.curve}
    searched = replace(
        searched,
        options_by_count={
            count: options(tuple(layer(path, kept=path in kept) for path in kept))
            for count, kept in sets.items()
        },
    )
    brief, verbose = (
        rendered("table", Tunings(tuning=searched, everything=everything))
        for everything in (False, True)
    )
    assert "-v and the JSON report have the commands" in " ".join(brief.split())
    commands = verbose.partition("commands for other sets")[2]
    chosen = len(searched.layers) - len(KEPT)
    assert commands.count("policytool migrate") == len(sets.keys() - {0, chosen})
    assert f"to convert {chosen} of" not in commands
    last = next(iter(sets[chosen - 1]))
    assert f"--set {last}=float32" in " ".join(commands.split())


def test_points_are_at_the_position_of_their_values() -> None:
    """Infinity is at the top, zero is at the bottom, and the limit is on the same axis."""
    points = tuple(
        Point(share=share, value=value, text="")
        for share, value in ((1.0, math.inf), (0.0, 0.0), (0.5, 0.1))
    )
    drawn = html.profile(Profile(title="", points=points, limit=0.01, limit_text=""))
    assert [point.x for point in drawn.points] == [6.0, 50.0, 94.0]
    assert [point.y for point in drawn.points] == [drawn.height, drawn.height / 2, 0.0]
    assert drawn.limit == drawn.height * 3 / 4
    labels = {tick.y: tick.text for tick in drawn.ticks}
    assert labels[drawn.height] == "0"
    assert labels[0] == "NaN or infinity"
    assert labels[drawn.limit] == "1e-2"
    assert drawn.path == f"60.0 {drawn.height}L500.0 120.0L940.0 0.0"


@pytest.mark.parametrize("written", [("--format", "json=t.json"), ("--format=json=t.json",)])
def test_a_saved_report_is_the_shorter_command(written: tuple[str, ...]) -> None:
    """The JSON report contains the plan."""
    arguments = ("tune", MODEL, "--preview", "--format", "html=t.html", *written)
    result = Tunings(tuning=tuning(), migration=migration(), arguments=arguments)
    assert report(result)["tuning"]["command"] == ["policytool", "migrate", "--plan", "t.json"]


NAMES: Final = st.text(st.characters(exclude_categories=()), min_size=1, max_size=120)
ERRORS: Final = st.one_of(st.floats(0, 1e30), st.just(math.inf))


@given(name=NAMES, class_name=NAMES, error=ERRORS, width=st.integers(80, 240))
def test_no_line_is_wider_than_the_view(
    name: str, class_name: str, error: float, width: int
) -> None:
    from rich.cells import cell_len

    layers = (
        layer(name, error, kept=True, class_name=class_name, excess_if_converted=error),
        layer(f"{name}/b", error, class_name=class_name, rule=name, excess_by_itself=error),
    )
    result = Tunings(
        tuning=tuning(
            layers=layers,
            fixed={name: class_name},
            trials=(trial(name, excess=error), trial(excess=math.inf)),
            options=None,
        )
    )
    for line in rendered("table", result, View(width=width)).splitlines():
        assert cell_len(line) <= width
        assert line.isprintable()
    report(result)


def test_migration_of_the_examples_is_from_a_real_plan() -> None:
    """The plan is that of a file in the repository."""
    assert isinstance(migration(), Migration)
    assert (ROOT / MODEL).is_file()
