"""The reports of tune: golden files, the schema, and what has to be in them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.commands.inspect import Failure
from policytool.commands.migrate import Migration, Status
from policytool.commands.saved_plans import read_plans
from policytool.migration.plan import Refusal
from policytool.migration.planning.options import Options, Outputs
from policytool.numerics.tuning.objectives import Objective
from policytool.numerics.tuning.results import Ending, Split
from policytool.numerics.verdicts.task_metric import MetricOptions
from policytool.numerics.verdicts.tolerances import ToleranceOption, Tolerances
from policytool.reports import View
from policytool.reports.html import charts
from policytool.reports.page import Point, Profile
from policytool.reports.tuning import TUNE_REPORTERS, Tunings, headline
from tests.contracts.reporter_contract import compared
from tests.helpers.cases import for_each
from tests.helpers.example_checks import HOSTILE
from tests.helpers.example_tunings import (
    CASES,
    KEPT,
    MODEL,
    layer,
    migration,
    trial,
    tuning,
)
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.numerics.tuning.results import Trial

SHOWN: Final = sorted(set(CASES) - {"failure"})


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in reports are relative to the working directory."""
    monkeypatch.chdir(ROOT)


def rendered(reporter: str, found: Tunings, view: View | None = None) -> str:
    """Return a search as a reporter shows it."""
    return next(one for one in TUNE_REPORTERS if one.name == reporter).render(found, view or View())


def report(found: Tunings) -> Any:
    """Return the report for programs, which has to be strict JSON of the schema."""
    values = json.loads(
        rendered("json", found),
        parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"),
    )
    validator().validate(values)
    return values


def words(found: Tunings, width: int = 200) -> str:
    """Return the table on one line."""
    return " ".join(rendered("table", found, View(width=width)).split())


def schema(name: str) -> Any:
    """Return a shipped schema."""
    return json.loads(
        resources.files("policytool.reports.schemas")
        .joinpath(f"{name}.schema.json")
        .read_text(encoding="utf-8")
    )


@cache
def validator() -> jsonschema.Draft202012Validator:
    """Return the validator of the shipped schema."""
    found = schema("tune")
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


@for_each("width", [80, 120, 200])
@for_each("name", CASES)
def test_tables_are_the_golden_ones_and_fit(name: str, width: int) -> None:
    """The table at 80, 120 and 200 columns, within them."""
    text = rendered("table", CASES[name], View(width=width))
    compared(text, f"tune-{name}.{width}.txt")
    assert max((len(line) for line in text.splitlines() if "$'" not in line), default=0) <= width
    assert not text or (text.endswith("\n") and not text.endswith("\n\n"))


@pytest.mark.parametrize("name", CASES)
def test_json_is_the_golden_one_and_of_the_schema(name: str) -> None:
    """The report for programs; that of many layers is long and says nothing more."""
    if name not in {"not-found", "everything"}:
        compared(rendered("json", CASES[name]), f"tune-{name}.json")
    report(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_markdown_is_the_golden_one(name: str) -> None:
    """The report for pull requests, whose rows have as many cells as their header."""
    text = rendered("markdown", CASES[name])
    compared(text, f"tune-{name}.md")
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert all(len({line.count("|") for line in table.splitlines()}) == 1 for table in tables)
    assert not text or (text.endswith("\n") and not text.endswith("\n\n"))


@pytest.mark.parametrize("name", ["side", "device", "inputs", "metric"])
def test_definitions_are_those_of_check(name: str) -> None:
    """One value has one form in all reports."""
    assert schema("tune")["$defs"][name] == schema("check")["$defs"][name]


def test_the_definitions_of_plans_are_those_of_migrate() -> None:
    """The plan is one for ``migrate --plan``."""
    ours, theirs = schema("tune")["$defs"], schema("migrate")["$defs"]
    assert {name: ours[name] for name in theirs} == theirs


@pytest.mark.parametrize("name", ["passing", "planned"])
def test_plan_of_the_report_can_be_applied(name: str, tmp_path: Path) -> None:
    """``migrate --plan`` reads the report of tune."""
    file = tmp_path / "tune.json"
    file.write_text(rendered("json", CASES[name]), encoding="utf-8")
    (plan,) = read_plans(file)
    made = CASES[name].migration
    assert made is not None
    assert plan.edits == made.plan.edits
    assert (plan.path, plan.format, plan.suffix) == (MODEL, "keras", "mixed_float16")


def test_a_report_without_a_plan_has_none(tmp_path: Path) -> None:
    """If no set of layers was found, there is nothing to apply."""
    file = tmp_path / "tune.json"
    file.write_text(rendered("json", CASES["impossible"]), encoding="utf-8")
    assert read_plans(file) == ()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("passing", "2 of 12 layers stay in float32: largest error 0.0042, at most 0.01 allowed; "),
        ("nothing-kept", "no layer has to stay in float32: largest error 0.0031, at most 0.01 "),
        ("not-found", "no set of layers was found within 64 trials; the closest set: largest err"),
        ("impossible", "the outputs exceed the tolerance even with every layer in float32: large"),
        ("interrupted", "2 of 12 layers stay in float32: largest error 0.0042, at most 0.01 allow"),
        ("not-validated", "the set that was found, 2 of 12 layers in float32, does not meet the o"),
        ("objectives", "2 of 12 layers stay in float32: largest error 0.0042; top-1 agreement 99."),
    ],
)
def test_the_verdict_comes_first(name: str, sentence: str) -> None:
    """With its numbers, and in every report."""
    found = report(CASES[name])["tuning"]
    assert found["sentence"].startswith(sentence)
    assert words(CASES[name]).startswith(f"{MODEL}: {sentence}")
    assert found["passed"] is (name not in {"not-found", "impossible", "not-validated"})


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        (Ending.TRIALS, "no set of layers was found within 9 trials"),
        (Ending.TIME, "no set of layers was found within 41.3 s (9 trials)"),
        (
            Ending.INTERRUPTED,
            "the search was interrupted after 9 trials, before a set of layers was found",
        ),
    ],
)
def test_an_early_end_without_a_set_is_named(ending: Ending, sentence: str) -> None:
    """And what the closest set reaches."""
    near = trial(*KEPT, excess=13.0)
    found = tuning(best=None, closest=near, ending=ending, options=None)
    assert headline(found) == (
        f"{sentence}; the closest set: largest error 0.13, at most 0.01 allowed"
    )
    assert headline(replace(found, closest=None)) == sentence


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (Ending.MINIMAL, ""),
        (Ending.TRIALS, "the search reached its number of trials, so fewer layers may be enough"),
        (Ending.TIME, "the search reached its time limit, so fewer layers may be enough"),
        (Ending.INTERRUPTED, "the search was interrupted, so fewer layers may be enough"),
    ],
)
def test_a_set_of_an_incomplete_search_may_be_too_large(ending: Ending, said: str) -> None:
    """Unless each removal of a layer was tried."""
    text = headline(tuning(ending=ending))
    assert text.startswith("2 of 12 layers stay in float32")
    assert text.endswith(said or "9 trials")


def test_one_layer_stays() -> None:
    """The verb agrees with the number."""
    layers = (layer("net/a", kept=True, excess_if_converted=3.0), layer("net/b"))
    found = tuning(layers=layers, trials=(trial("net/a", excess=0.5),), is_minimum=False)
    assert headline(found).startswith("1 of 2 layers stays in float32")
    assert "the objective is not met if the layer in float32 is converted" in words(
        Tunings(tuning=found)
    )


def test_each_kept_layer_has_its_evidence() -> None:
    """What goes wrong in it, and what the trial without it came to."""
    text = words(CASES["passing"])
    assert (
        "net/block_1/energy Lambda NaN/Inf NaN/Inf NaN or infinity in float16; up to 143,000 in "
        "the reference; float16 maximum 65,504" in text
    )
    assert (
        "net/block_2/difference Subtract 3.4x 0.034 own error 0.0311; 4.2% of its values become "
        "zero" in text
    )


def test_a_kept_layer_without_a_trial_is_marked() -> None:
    """The search ended before it tried to convert this layer."""
    assert words(CASES["interrupted"]).count("not tried") == 3


def test_a_model_that_fails_to_run_without_a_layer_is_reported() -> None:
    """With the reason, which is never shortened."""
    why = "no kernel for Foo in float16 " + "x" * 150
    layers = (layer("net/a", None, kept=True, excess_if_converted=math.inf), layer("net/b"))
    found = tuning(
        layers=layers,
        trials=(trial("net/a", excess=0.5), trial(excess=math.inf, failure=why)),
    )
    text = rendered("table", Tunings(tuning=found))
    assert "fails to run" in text
    assert "x" * 150 in "".join(text.split())


def test_converted_layers_with_the_smallest_margin_come_first() -> None:
    """Ten in a terminal, all with ``-v``, in HTML and in JSON."""
    lines = rendered("table", CASES["nothing-kept"]).splitlines()
    start = lines.index("converted layers, smallest margin first") + 3
    assert lines[start].startswith("  net/dense_13 ")
    assert "4 more layers not shown; use -v to show all" in words(CASES["nothing-kept"])
    everything = replace(CASES["nothing-kept"], everything=True)
    assert "not shown" not in words(everything)
    assert "not shown" not in rendered("html", CASES["nothing-kept"])
    assert len(report(CASES["nothing-kept"])["tuning"]["layers"]) == 14


def test_layers_converted_against_their_rule_are_marked() -> None:
    """In the table, and in the facts with their number."""
    text = words(CASES["passing"])
    assert "converted although migrate keeps it in float32 by default: its squares" in text
    assert "10 of 12 layers, including 1 that migrate keeps in float32 by default" in text


def test_a_rule_of_a_kept_layer_is_evidence() -> None:
    """The search came to the same conclusion."""
    assert "migrate keeps it in float32 by default: a`b" in words(CASES["hostile"])


def test_the_curve_has_ten_rows_and_the_chosen_set() -> None:
    """Also if many numbers of layers were tried."""
    layers = tuple(layer(f"net/d_{number}", kept=number < 3) for number in range(40))
    paths = tuple(one.path for one in layers)
    trials = tuple(trial(*paths[:count], excess=1.5 - 0.2 * count) for count in range(40))
    found = Tunings(tuning=tuning(layers=layers, trials=trials))
    text = rendered("table", found)
    lines = text[text.index("error by share") :].splitlines()[3:]
    rows = lines[: lines.index("")]
    assert len(rows) == 10
    assert [row.split()[:3] for row in rows if "chosen" in row] == [["37", "of", "40"]]
    assert ["38", "of", "40"] in [row.removeprefix("  ! ").split()[:3] for row in rows]
    assert rendered("html", found).count(" of 40</th>") == 40


def test_one_point_is_no_curve() -> None:
    """Then there is neither a table nor a chart."""
    assert "error by share" not in words(CASES["nothing-kept"])
    assert "<svg" not in rendered("html", CASES["nothing-kept"])


def test_the_chart_shows_the_limit_and_the_chosen_set() -> None:
    """The error if it is the whole objective, and otherwise the multiple of the limit."""
    assert "Largest error of an output by share of converted layers" in rendered(
        "html", CASES["passing"]
    )
    assert "limit: 0.01" in rendered("html", CASES["passing"])
    several = rendered("html", CASES["objectives"])
    assert "Multiple of the limit by share of converted layers" in several
    assert "limit: 1x" in several
    assert several.count('class="dot chosen"') == 2  # with that of the legend
    assert rendered("html", CASES["impossible"]).count('class="dot chosen"') == 0


def test_points_are_where_their_values_are() -> None:
    """Infinity is at the top and zero at the bottom; the limit is on the same axis."""
    points = tuple(
        Point(share=share, value=value, text="")
        for share, value in ((1.0, math.inf), (0.0, 0.0), (0.5, 0.1))
    )
    drawn = charts.profile(Profile(title="", points=points, limit=0.01, limit_text=""))
    assert [one.x for one in drawn.points] == [6.0, 50.0, 94.0]
    assert [one.y for one in drawn.points] == [drawn.height, drawn.height / 2, 0.0]
    assert drawn.limit == drawn.height
    assert drawn.path == f"60.0 {drawn.height}L500.0 120.0L940.0 0.0"


def test_validation_is_described() -> None:
    """For each way to split the inputs."""
    for split, text in (
        (Split.BATCHES, "every second batch, which the search did not use: 0.4x the limit"),
        (Split.NONE, "none: the inputs cannot be split"),
        (Split.USED, "none: a set that met the objective failed on the other inputs"),
    ):
        said = words(Tunings(tuning=tuning(split=split)))
        assert f"validation {text}" in said
        is_same = split in {Split.NONE, Split.USED}
        assert ("the set was not validated on other inputs" in said) is is_same


def command(found: Tunings) -> list[str] | None:
    """Return the command that the report prints."""
    words_: list[str] | None = report(found)["tuning"]["command"]
    return words_


def test_a_planned_model_has_the_command_that_writes_it() -> None:
    """With every decision that differs from what migrate does by itself."""
    assert command(CASES["planned"]) == [
        *("policytool", "migrate", MODEL, "--to", "mixed_float16"),
        *("--set", "net/block_1/energy=float32", "--set", "net/block_2/unit=mixed_float16"),
        *("--set", "net/block_2/difference=float32", "-o", "tuned models/small.keras"),
    ]
    assert "-o 'tuned models/small.keras'" in words(CASES["planned"])


@pytest.mark.parametrize("written", [("--report", "json=t.json"), ("--report=json=t.json",)])
def test_a_saved_report_is_the_shorter_command(written: tuple[str, ...]) -> None:
    """The JSON report contains the plan."""
    arguments = ("tune", MODEL, "--preview", "--report", "html=t.html", *written)
    found = Tunings(tuning=tuning(), migration=migration(), arguments=arguments)
    assert command(found) == ["policytool", "migrate", "--plan", "t.json"]


@pytest.mark.parametrize("name", ["passing", "not-found", "impossible", "not-validated"])
def test_no_command_if_there_is_nothing_to_write(name: str) -> None:
    """The model is written, or no set was found."""
    assert command(CASES[name]) is None


def test_a_blocked_migration_is_reported() -> None:
    """With the problem; the command would fail, too."""
    blocked = replace(
        migration(),
        status=Status.BLOCKED,
        plan=replace(
            migration().plan, refusals=(Refusal(code="no-room", message="values overflow"),)
        ),
    )
    found = Tunings(tuning=tuning(), migration=blocked)
    assert "output nothing was written because of 1 problem" in words(found)
    assert "problem values overflow" in words(found)
    assert command(found) is None


def test_what_continues_a_search_depends_on_the_record() -> None:
    """Only a search with ``--resume`` has recorded its trials."""
    assert "the same command with a larger --budget continues" in words(CASES["not-found"])
    assert "the same command with a larger --budget continues" in words(CASES["resumed"])
    assert "add --resume FILE to record the trials" in words(CASES["interrupted"])
    assert "--resume" not in words(CASES["passing"])


def test_a_tolerance_is_suggested_only_if_it_would_be_met() -> None:
    """Not if a row or channel is what exceeds its limit."""
    assert "53 layers in float32, would meet --tolerance 0.13" in words(CASES["not-found"])
    closest = trial("net/stem", excess=2.0, error=0.004)
    found = Tunings(tuning=tuning(best=None, closest=closest, ending=Ending.TRIALS, options=None))
    assert "would meet" not in words(found)
    assert "a row or channel of an output is at 2x its limit" in words(found)


def test_several_objectives_are_listed_with_their_values() -> None:
    """Tolerances by name, agreement, the metric and gradients."""
    text = words(CASES["objectives"], 400)
    for said in (
        "relative error at most 0.002 for boxes, and 0.01 for the other outputs",
        "the same top-1 class in at least 99.5% of the rows",
        "accuracy 0.9149 (0.9153 in float32), at most 0.002 worse allowed",
        "gradient error 0.031, at most 0.1 allowed",
        "metric accuracy gets worse by 0.0004, from 0.9153 to 0.9149 (allowed 0.002)",
    ):
        assert said in text
    values = report(CASES["objectives"])["tuning"]
    assert values["objective"] == {
        "tolerances": [{"pattern": "boxes", "value": 0.002}, {"pattern": None, "value": 0.01}],
        "agreement": 0.995,
        "metric": {"name": "accuracy", "labels": "labels.npy", "max_drop": 0.002},
        "gradients": True,
    }
    assert values["metric"]["drop"] == pytest.approx(0.0004)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (Objective(tolerances=Tolerances()), "relative error of each output within the default"),
        (
            Objective(tolerances=Tolerances(given=(ToleranceOption(pattern="a", value=0.1),))),
            "relative error at most 0.1 for a, and the default tolerance for the other outputs",
        ),
        (
            Objective(tolerances=None, agreement=0.99),
            "no additional NaN or infinity in the outputs; the same top-1 class in at least 99%",
        ),
        (
            Objective(tolerances=None, metric=MetricOptions(labels=None, metric="auc")),
            "auc no worse than the default allows",
        ),
        (
            Objective(tolerances=None, metric=MetricOptions(labels=None, metric="auc", max_drop=0)),
            "auc no worse by 0",
        ),
    ],
)
def test_an_objective_is_described_before_it_is_measured(objective: Objective, said: str) -> None:
    """Also if no trial has a metric."""
    trials = tuple(replace(one, metric=0.9) for one in _without_metric())
    found = Tunings(tuning=tuning(objective=objective, trials=trials))
    assert f"objective {said}" in words(found) or f"; {said}" in words(found)
    assert rendered("html", found)
    report(found)


def _without_metric() -> tuple[Trial, ...]:
    return (trial(excess=math.inf), trial(*KEPT, excess=0.5), trial(KEPT[0], excess=math.inf))


def test_tolerances_by_name_are_shown_as_multiples_of_the_limit() -> None:
    """There is no single error that is allowed."""
    named = Tolerances(given=(ToleranceOption(pattern="a", value=0.1),))
    assert headline(tuning(objective=Objective(tolerances=named))) == (
        "2 of 12 layers stay in float32: largest error 0.0042, 0.42x the limit; 9 trials"
    )


def test_gradients_that_overflow_are_reported() -> None:
    """There is no error to show."""
    found = tuning(
        objective=Objective(tolerances=None, gradients=True),
        best=None,
        closest=trial(excess=math.inf, error=0.1),
        ending=Ending.IMPOSSIBLE,
        options=None,
    )
    assert headline(found) == (
        "the objective is not met even with every layer in float32: gradients overflow at every "
        "loss scale; 9 trials"
    )


def test_a_trial_without_a_number_is_not_met() -> None:
    """Such as one of a metric that is NaN: its outputs are finite."""
    layers = (layer("net/a", kept=True, excess_if_converted=math.inf), layer("net/b"))
    trials = (trial("net/a", excess=0.5), trial(excess=math.inf, error=0.002))
    text = words(Tunings(tuning=tuning(layers=layers, trials=trials)))
    assert "net/a Conv2D not met 0.002" in text
    assert "2 of 2 100% 0.002 not met" in text
    found = tuning(best=None, closest=trials[1], ending=Ending.TRIALS, options=None)
    assert "a part of the objective has no finite value" in headline(found)


def test_a_converted_layer_that_is_not_finite_comes_first() -> None:
    """The outputs are not affected; other inputs may differ."""
    layers = (layer("net/a", 0.009), layer("net/b", None, 20.0, is_finite=False))
    text = words(Tunings(tuning=tuning(layers=layers, trials=(trial(excess=0.5),))))
    assert text.index("net/b Conv2D NaN/Inf") < text.index("net/a Conv2D 0.009")
    assert "NaN or infinity in float16" in text


def test_headroom_of_a_kept_layer_is_evidence() -> None:
    """If it is small."""
    layers = (layer("net/a", 0.1, 2.5, kept=True), layer("net/b", None, None))
    found = tuning(layers=layers, trials=(trial("net/a", excess=0.5),))
    assert "own error 0.1; headroom 2.5x" in words(Tunings(tuning=found))


def test_the_command_has_every_option_of_the_search() -> None:
    """Those that decide what migrate converts."""
    asked = Options(
        to="mixed_bfloat16", include_exceptions=True, outputs=Outputs.FOLLOW, retrace=True
    )
    assert command(Tunings(tuning=tuning(options=asked))) == [
        *("policytool", "migrate", MODEL, "--to", "mixed_bfloat16", "--include", "exceptions"),
        *("--include", "outputs", "--retrace"),
    ]


def test_a_model_run_by_tensorflow_itself_names_no_library() -> None:
    """Its release is the only version."""
    side = replace(tuning().reference, library="tensorflow 2.21.0", policy=None)
    text = words(Tunings(tuning=tuning(reference=side)))
    assert "versions TensorFlow 2.21.0 · tensorflow backend" in text
    assert "reference the same model in its own policies" in text


def test_json_has_every_trial() -> None:
    """In their order; infinity is a string."""
    trials = report(CASES["passing"])["tuning"]["trials"]
    assert len(trials) == 9
    assert (trials[0]["kept"], trials[0]["excess"]) == ([], "Infinity")
    assert trials[6]["kept"] == list(KEPT)


def test_failures_are_in_files_and_on_stderr() -> None:
    """A table is printed beside stderr; other reports are read without it."""
    assert rendered("table", CASES["failure"]) == ""
    assert rendered("markdown", CASES["failure"]) == "**errors**\n\n- `gone.h5` is not there\n"
    assert report(CASES["failure"])["tuning"] is None


def test_a_result_that_cannot_be_written_is_shown_with_the_failure() -> None:
    """The search is not lost if the disk is full."""
    failure = Failure(path="out.keras", code="unwritable", message="cannot be written")
    found = replace(CASES["planned"], migration=None, failures=(failure,))
    assert "**errors**" in rendered("markdown", found)
    assert command(found) is not None


@pytest.mark.parametrize("reporter", ["table", "markdown"])
def test_no_name_moves_the_cursor_or_makes_markup(reporter: str) -> None:
    """Names of layers, classes, inputs, devices and files are a stranger's."""
    text = rendered(reporter, CASES["hostile"], View(width=100))
    assert all(line.isprintable() for line in text.splitlines())
    assert text.encode("utf-8")
    if reporter == "markdown":
        bare = re.sub(r"`[^`]*`|<code>[^<]*</code>", "", text)
        assert not re.search(r"[<>@]|::|\]\(", bare)


def test_a_hostile_name_is_whole_in_the_json() -> None:
    """As the file has it."""
    assert report(CASES["hostile"])["tuning"]["kept"] == [HOSTILE]


@pytest.mark.parametrize("name", SHOWN)
def test_colour_changes_nothing_but_colour(name: str) -> None:
    """Without its escapes the text is the plain one; without Unicode it is ASCII."""
    coloured = rendered("table", CASES[name], View(width=100, colour=True))
    assert re.sub(r"\x1b\[\d*m", "", coloured) == rendered("table", CASES[name], View(width=100))
    assert rendered("table", CASES[name], View(width=100, unicode=False)).isascii()


NAMES: Final = st.text(st.characters(exclude_categories=()), min_size=1, max_size=120)
ERRORS: Final = st.one_of(st.floats(0, 1e30), st.just(math.inf))


@given(name=NAMES, class_name=NAMES, error=ERRORS, width=st.integers(80, 240))
def test_no_line_is_wider_than_the_view(
    name: str, class_name: str, error: float, width: int
) -> None:
    """Whatever names a file has, and however large an error is."""
    from rich.cells import cell_len

    layers = (
        layer(name, error, kept=True, class_name=class_name, excess_if_converted=error),
        layer(f"{name}/b", error, class_name=class_name, rule=name, excess_by_itself=error),
    )
    found = Tunings(
        tuning=tuning(
            layers=layers,
            fixed={name: class_name},
            trials=(trial(name, excess=error), trial(excess=math.inf)),
            options=None,
        )
    )
    for line in rendered("table", found, View(width=width)).splitlines():
        assert cell_len(line) <= width
        assert line.isprintable()
    report(found)


def test_migration_of_the_examples_is_real() -> None:
    """Its plan is that of a file in the repository."""
    assert isinstance(migration(), Migration)
    assert (ROOT / MODEL).is_file()
