"""The reports of check: golden files, the schema, and what has to be in them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.migration.planning.options import Assignment, Options, Outputs
from policytool.numerics.check_results.checks import OverflowProbe
from policytool.numerics.check_results.verdicts import Advice, JudgementSubject, OutputKind, Ruling
from policytool.numerics.verdicts.regressions import compare, earlier_check
from policytool.numerics.verdicts.safety import SafetyRule, answer_outputs
from policytool.numerics.verdicts.task_metric import metric_from_json
from policytool.releases.policy import Dynamic
from policytool.reports import View
from policytool.reports.checks import CHECK_REPORTERS, Checks
from policytool.reports.words import decibels, figure, share, upward
from tests.contracts.reporter_contract import compared
from tests.helpers.cases import for_each
from tests.helpers.example_checks import (
    CASES,
    CPU,
    GPU,
    HOSTILE,
    OWN,
    SIDES,
    call,
    changes,
    check,
    output,
    run,
    whole,
)
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.gradients import Gradients
    from policytool.numerics.check_results.metrics import LayerCall

SHOWN: Final = sorted(set(CASES) - {"failure"})


def rendered(reporter: str, found: Checks, view: View | None = None) -> str:
    """Return a check as a reporter shows it."""
    return next(one for one in CHECK_REPORTERS if one.name == reporter).render(
        found, view or View()
    )


def report(found: Checks) -> Any:
    """Return the report for programs, which has to be strict JSON of the schema."""
    values = json.loads(
        rendered("json", found),
        parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"),
    )
    validator().validate(values)
    return values


@cache
def validator() -> jsonschema.Draft202012Validator:
    """Return the validator of the shipped schema."""
    schema = json.loads(
        resources.files("policytool.reports.schemas")
        .joinpath("check.schema.json")
        .read_text(encoding="utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@for_each("width", [80, 160])
@for_each("name", CASES)
def test_tables_are_the_golden_ones_and_fit(name: str, width: int) -> None:
    """The table at 80 and 160 columns, within them."""
    text = rendered("table", CASES[name], View(width=width))
    compared(text, f"check-{name}.{width}.txt")
    assert max((len(line) for line in text.splitlines()), default=0) <= width
    assert not text or (text.endswith("\n") and not text.endswith("\n\n"))


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("colour", View(colour=True)),
        ("ascii", View(unicode=False)),
        ("ascii-colour", View(colour=True, unicode=False)),
    ],
)
def test_tables_in_colour_and_in_ascii_are_the_golden_ones(name: str, view: View) -> None:
    """Of the check that has the most of both: arrows, rules, dots and marks."""
    compared(rendered("table", CASES["failing"], view), f"check-failing-{name}.80.txt")


@pytest.mark.parametrize("name", CASES)
def test_json_is_the_golden_one_and_of_the_schema(name: str) -> None:
    """The report for programs; those of many layers are long and say nothing more."""
    if name not in {"failing", "all-layers", "devices"}:
        compared(rendered("json", CASES[name]), f"check-{name}.json")
    report(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_markdown_is_the_golden_one(name: str) -> None:
    """The report for pull requests says what the table says."""
    text = rendered("markdown", CASES[name])
    compared(text, f"check-{name}.md")
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert all(len({line.count("|") for line in table.splitlines()}) == 1 for table in tables)
    assert not text or (text.endswith("\n") and not text.endswith("\n\n"))


def lines(name: str, width: int = 80) -> list[str]:
    """Return the lines of a case's table."""
    return rendered("table", CASES[name], View(width=width)).splitlines()


def sentence(name: str) -> str:
    """Return the verdict of a case with one run."""
    (one,) = report(CASES[name])["check"]["runs"]
    return str(one["verdict"]["sentence"])


def test_the_verdict_comes_first_with_its_numbers() -> None:
    """Whether predictions change, how many at least or at most, and what causes it."""
    said = sentence("failing")
    text = " ".join(rendered("table", CASES["failing"]).split())
    assert text.startswith(said)
    assert said.startswith(
        "Not safe in mixed_float16: 58.6% of 1,000 predictions change class (at least 56%, 95% "
        "confidence); the error originates in layer net/encoder/global_average_pooling2d"
    )
    assert sentence("passing").startswith(
        "Safe in mixed_float16 on these 1,000 rows: 0.3% of predictions change class (at "
        "most 0.774%)"
    )
    assert sentence("training").startswith("Undecided in mixed_float16: not tested on your data; ")


@THOROUGH
def test_caveats_say_what_the_verdict_leaves_open() -> None:
    """
    Inputs that nobody ever had, weights that nobody trained, a device that adds up otherwise; and
    nothing of it where none of it holds.
    """
    assert "inputs are synthetic (seed 1)" in caveats("training")
    assert "GPU kernels accumulate differently" in caveats("passing")
    assert "weights are random" in caveats("kernels")
    assert "GPU" not in caveats("training")
    assert "synthetic" not in caveats("given")
    assert "\n\ncaveats\n  ! inputs are synthetic" in rendered("table", CASES["training"])


def caveats(name: str) -> str:
    """Return what the runs of a case leave open."""
    return "; ".join(
        text for run in report(CASES[name])["check"]["runs"] for text in run["verdict"]["caveats"]
    )


def verdict(found: Checks) -> str:
    """Return the sentence of the one run of a check, with its caveats."""
    said = report(found)["check"]["runs"][0]["verdict"]
    return "; ".join([said["sentence"], *said["caveats"]])


def test_the_verdict_says_what_its_numbers_cannot_tell() -> None:
    """Random numbers, policies that are the same, and a reference that is none itself."""
    lost = output("scores", 1e-4, nan_reference=100, infinite_reference=20)
    said = verdict(
        check(run(call("net/dense", 1e-4), outputs=(lost,), random=("net/noisy",), inputs=OWN))
    )
    assert said.startswith("Safe")
    assert "net/noisy generates random numbers" in said
    assert "120 of 1,000 values of output scores are NaN or infinite in the reference" in said
    every = output("scores", 0.0, changed=changes(range=None, varies=False))
    assert "output scores of the reference is not finite" in verdict(
        check(run(call("net/dense", 1e-4), outputs=(every,), inputs=OWN))
    )
    same = check(run(call("net/dense", 0.0), outputs=(output("scores", 0.0),)))
    assert same.check is not None
    assert "both models have the same policies" in verdict(
        replace(same, check=replace(same.check, is_same_model=True))
    )
    assert "same policies" not in verdict(same)


def test_the_pair_of_a_bad_element_is_told() -> None:
    """Ten where the candidate made two."""
    assert "\n      origin; 10 → 2\n" in rendered("table", CASES["failing"])
    assert rendered("table", CASES["failing"], View(width=200)).count("10 → 2") == 1


def test_the_first_layer_that_is_not_finite_is_named_and_stands_first() -> None:
    """In the verdict, and at the top of the layers."""
    assert "NaN or infinity originates in the code of net/exponential" in sentence("not-finite")
    shown = lines("not-finite")
    assert shown[shown.index("layers, worst first") + 3].startswith("  ! net/exponential ")


@THOROUGH
def test_ten_layers_are_shown_and_the_others_counted() -> None:
    """
    ``-v`` shows every call, the model's own too; the report for programs has them either
    way.
    """
    text = " ".join(rendered("table", CASES["failing"]).split())
    assert (
        "26 more calls not shown, 5 of which have larger errors than rounding explains; use -v "
        "to show all" in text
    )
    everything = lines("all-layers", 200)
    layers = everything[everything.index("layers, worst first") + 3 :]
    layers = layers[: layers.index("")] if "" in layers else layers
    calls = report(CASES["failing"])["check"]["runs"][0]["calls"]
    assert len(layers) == len(calls) == 37
    assert report(CASES["failing"]) == report(CASES["all-layers"])


def test_calls_are_in_the_order_in_which_they_were_made() -> None:
    """A later page draws them so; each with what it was judged by."""
    (one,) = report(CASES["passing"])["check"]["runs"]
    assert [made["path"] for made in one["calls"]] == [made.path for made in only("passing").calls]
    assert [made["verdict"] is None for made in one["calls"]] == [
        made.is_model for made in only("passing").calls
    ]


def test_several_runs_stand_one_after_the_other_with_a_line_each() -> None:
    """What all of them leave open is said once."""
    text = rendered("table", CASES["devices"], View(width=160))
    assert text.splitlines()[0] == "Not safe: 1 of 2 runs safe, 1 of 2 runs not safe"
    assert [line[:17] for line in text.splitlines() if line.startswith("  gpu:")] == [
        "  gpu:0: Safe in ",
        "  gpu:1: Not safe",
    ]
    assert [line for line in text.splitlines() if line in {"gpu:0", "gpu:1"}] == ["gpu:0", "gpu:1"]


def test_a_rewrite_that_changed_nothing_proves_nothing() -> None:
    """The verdict says so."""
    first, second = report(CASES["graph"])["check"]["runs"]
    assert "does not test the policy" not in "".join(first["verdict"]["caveats"])
    assert second["verdict"]["caveats"][0] == (
        "the rewrite changed nothing, so this run does not test the policy"
    )
    assert all(
        output_["isolated"] is None for made in first["calls"] for output_ in made["outputs"]
    )


def test_layers_of_a_graph_that_stay_in_float32_are_listed() -> None:
    """By scopes, with the list that keeps them; those that only pass values on are not listed."""
    first, second = report(CASES["graph"])["check"]["runs"]
    assert [(one["scope"], one["whole"], one["reason"]) for one in first["rewrite"]["kept"]] == [
        ("scale", True, "Exp is on TensorFlow's deny list"),
        ("dense_1", False, "Igamma is on none of TensorFlow's lists"),
    ]
    assert not second["rewrite"]["kept"]
    assert (first["aliases"], second["aliases"]) == (["serve"], [])


@pytest.mark.parametrize(
    ("modes", "is_alike", "told"),
    [
        (("int8",), False, ["uses the dequantized weights of the int8 layers"]),
        (("float8",), False, ["stores the weights of float8 layers unquantized"]),
        (
            ("int8", "float8"),
            False,
            ["weights of the int8 layers", "weights of float8 layers unquantized"],
        ),
        (("int4",), True, ["quantize only their weights", "weights of the int4 layers"]),
    ],
)
def test_a_quantized_model_says_what_the_reference_is(
    modes: tuple[str, ...],
    is_alike: bool,  # noqa: FBT001
    told: list[str],
) -> None:
    """Whether it includes the error of the weights, and whether anything was tested."""
    found = check(
        run(call("net/dense", 1e-4)), reference=replace(SIDES["reference"], dequantized=modes)
    )
    assert found.check is not None
    found = replace(found, check=replace(found.check, is_same_model=is_alike))
    values = report(found)["check"]
    said = values["runs"][0]["verdict"]["caveats"][: len(told)]
    assert all(text in sentence for text, sentence in zip(told, said, strict=True))
    assert values["reference"]["dequantized"] == list(modes)
    assert f"{' and '.join(modes)} layers dequantized" in rendered("table", found, View(width=300))


def test_another_backend_is_a_caveat() -> None:
    """Once for one file, whichever side it is."""
    sides = {name: replace(side, written_with="torch") for name, side in SIDES.items()}
    found = check(
        run(call("net/dense", 1e-4)), reference=sides["reference"], candidate=sides["candidate"]
    )
    (said,) = [
        text
        for text in report(found)["check"]["runs"][0]["verdict"]["caveats"]
        if "backend" in text
    ]
    assert said == (
        "models/mlp.h5 was written with the torch backend and ran with the tensorflow backend, "
        "whose kernels may round differently"
    )
    assert report(found)["check"]["candidate"]["backend"] == "tensorflow"
    assert "tensorflow backend" in rendered("table", found, View(width=300))


def test_missing_kernels_are_no_pass() -> None:
    """Nothing was run, so nothing was judged."""
    found = report(CASES["kernels"])["check"]
    assert found["answer"] == found["runs"][0]["verdict"]["answer"] == "undecided"
    assert sentence("kernels").startswith(
        "Undecided: 13 ops have no kernel on cpu:0: MaxPool3D in float16, Svd"
    )


def test_nothing_to_compare_is_said() -> None:
    """A check without runs, and a run without outputs."""
    assert "there is nothing to compare" in rendered("table", check(), View(width=200))
    assert "the model has no output" in rendered("table", check(run(inputs=OWN)), View(width=200))


def test_several_outputs_are_named() -> None:
    """The one that decides."""
    assert sentence("given").startswith(
        "Undecided: in output ends, 1.56% of 128 predictions change class (at most 4.84%, 95% "
        "confidence); use 299 rows or more"
    )
    assert "Undecided: in output ends, " in rendered("markdown", CASES["given"])


def advised(migration: Options | None, advice: Advice | None = None) -> Checks:
    """Return a check with the options that write its candidate."""
    found = CASES["passing"].check
    assert found is not None
    return Checks(check=replace(found, migration=migration, advice=advice))


def test_the_second_line_is_the_command_that_applies_the_candidate() -> None:
    """With the options of the check; it is a field of the report for programs."""
    found = advised(Options(to="mixed_float16", outputs=Outputs.FOLLOW, include_exceptions=True))
    first, second, *_ = rendered("table", found, View(width=200)).splitlines()
    assert first == report(found)["check"]["runs"][0]["verdict"]["sentence"]
    expected = "policytool migrate models/mlp.h5 --to mixed_float16 --include exceptions"
    expected += " --include outputs"
    assert second == f"  to apply: {expected}"
    assert report(found)["check"]["command"] == expected.split()


def test_layers_to_keep_are_in_the_command_as_patterns() -> None:
    """As the options have them, quoted for a shell."""
    kept = (Assignment(pattern=r"net/blk_\d+", policy="float32"),)
    found = advised(
        Options(to="mixed_float16", target="tf2.4", retrace=True, assignments=kept),
        Advice(layers=("net/blk_1", "net/blk_2"), trials=3, choices=9),
    )
    assert r"--to mixed_float16 --target tf2.4 --retrace --set 'net/blk_\d+=float32'" in rendered(
        "table", found, View(width=200)
    )
    assert "with 2 more layers in float32, the check no longer fails" in rendered("markdown", found)
    assert report(found)["check"]["advice"] == {
        "layers": ["net/blk_1", "net/blk_2"],
        "trials": 3,
        "verified": True,
        "unfit": False,
        "policy": None,
    }


def test_no_command_is_printed_if_there_is_nothing_to_write() -> None:
    """Such as for two files."""
    found = advised(None)
    assert report(found)["check"]["command"] is None
    assert "to apply" not in rendered("table", found)


@pytest.mark.parametrize(
    ("layers", "policy", "told"),
    [
        (5, None, "(in the smallest set found, 5 of 8 layers stay in float32)"),
        (
            5,
            "mixed_bfloat16",
            "(in the smallest set found, 5 of 8 layers stay in float32); mixed_bfloat16 does",
        ),
        (0, "mixed_bfloat16", "(no set of float32 layers was found); mixed_bfloat16 does"),
        (4, None, None),
        (0, None, None),
    ],
)
def test_a_policy_that_does_not_suit_the_model_is_told(
    layers: int, policy: str | None, told: str | None
) -> None:
    """If most layers would have to stay in float32, with the policy that does."""
    names = tuple(f"net/l{number}" for number in range(layers))
    found = advised(
        Options(to=policy) if policy is not None else None,
        Advice(layers=names, trials=9, choices=8, policy=policy, exhausted=not names),
    )
    assert report(found)["check"]["advice"]["unfit"] is (told is not None)
    first = rendered("table", found, View(width=400)).splitlines()[0]
    if told is None:
        assert "does not suit" not in first
    else:
        assert first.endswith(f"; mixed_float16 does not suit this model {told}")
    if policy is not None:
        assert report(found)["check"]["command"][-2:] == ["--to", policy]
        assert "with mixed_bfloat16 instead, the check does not fail" in rendered(
            "table", found, View(width=400)
        )


def test_failures_are_in_files_and_on_stderr() -> None:
    """A table is printed beside stderr; other reports are read without it."""
    assert rendered("table", CASES["failure"]) == ""
    assert rendered("markdown", CASES["failure"]) == "**errors**\n\n- `gone.h5` is not there\n"
    assert report(CASES["failure"])["check"] is None
    assert report(CASES["failure"])["failures"] == [
        {"path": "gone.h5", "code": "not-found", "message": "is not there"}
    ]


@pytest.mark.parametrize("reporter", ["table", "markdown"])
def test_no_name_moves_the_cursor_or_makes_markup(reporter: str) -> None:
    """Names of layers, classes, inputs, devices, signatures and files are a stranger's."""
    text = rendered(reporter, CASES["hostile"], View(width=100))
    assert all(line.isprintable() for line in text.splitlines())
    assert text.encode("utf-8")
    if reporter == "markdown":
        bare = re.sub(r"`[^`]*`|<code>[^<]*</code>", "", text)
        assert not re.search(r"[<>@]|::|\]\(", bare)


def test_a_hostile_name_is_whole_in_the_json() -> None:
    """As the file has it."""
    (one, _) = report(CASES["hostile"])["check"]["runs"]
    assert one["calls"][0]["path"] == HOSTILE


def test_colour_changes_nothing_but_colour() -> None:
    """Without its escapes the text is the plain one."""
    for name in SHOWN:
        coloured = rendered("table", CASES[name], View(width=100, colour=True))
        assert re.sub(r"\x1b\[\d*m", "", coloured) == rendered(
            "table", CASES[name], View(width=100)
        )
    assert rendered("table", CASES["failing"], View(colour=True)).startswith("\x1b[31mNot safe")
    assert rendered("table", CASES["passing"], View(colour=True)).startswith("\x1b[32mSafe")


@pytest.mark.parametrize("name", SHOWN)
def test_a_terminal_without_boxes_gets_ascii(name: str) -> None:
    """What this report adds of its own needs no more."""
    assert rendered("table", CASES[name], View(width=100, unicode=False)).isascii()


def test_a_device_that_says_little_is_named() -> None:
    """What it does not say has no place."""
    silent = replace(CPU, model=None, memory=None)
    assert "  device     cpu:0\n" in rendered(
        "table", check(run(call("net/dense", 1e-4), device=silent))
    )


def test_a_call_that_gives_nothing_has_a_row_with_all_layers() -> None:
    """There is nothing to compare, and it was called."""
    nothing = replace(call("net/print", 1e-4), outputs=())
    assert "\n  net/print" in rendered("table", check(run(nothing), everything=True))
    assert "net/print" not in rendered("table", check(run(nothing)))


def test_integers_that_differ_are_counted() -> None:
    """And a layer of integers that are equal is nothing to tell."""
    equal, other = (
        replace(call(f"net/{name}", None), outputs=(whole(differing),))
        for name, differing in (("equal", 0), ("other", 3))
    )
    text = rendered("table", check(run(equal, other)))
    assert "3 of 80 values differ" in text
    assert "net/equal" not in text


def only(name: str) -> CheckRun:
    """Return the run of a case that has one."""
    found = CASES[name].check
    assert found is not None
    (one,) = found.runs
    return one


def gradients() -> Gradients:
    """Return those of the check that has some."""
    found = only("training").gradients
    assert found is not None
    return found


def trained(**changes: Any) -> Checks:
    """Return the check with gradients, with other ones."""
    return check(replace(only("training"), gradients=replace(gradients(), **changes)))


def timed(**changes: Any) -> str:
    """Return the table of the check with timings, with other ones."""
    timings = {
        name: replace(timing, **changes) for name, timing in only("training").timings.items()
    }
    return rendered("table", check(replace(only("training"), timings=timings)), View(width=200))


def test_a_model_without_variables_has_no_gradients_to_show() -> None:
    """One sentence says it."""
    nothing = trained(trials=(), variables=(), workable=None, recorded=None)
    for reporter in ("table", "markdown"):
        text = rendered(reporter, nothing)
        assert "the model has no trainable variables" in text
        assert "loss scaling" not in text
    report(nothing)


def test_a_recorded_scale_that_is_dynamic_stands_in_one_row() -> None:
    """It is the same scale."""
    found = trained(recorded=Dynamic(), unconnected=("net/spare/kernel",))
    assert "  recorded, dynamic  32,768 " in rendered("table", found)
    assert report(found)["check"]["runs"][0]["gradients"]["recorded"] == {
        "kind": "dynamic",
        "initial": 32768.0,
        "growth_steps": 2000,
        "multiplier": 2.0,
    }


def test_scales_below_one_are_fractions() -> None:
    """As people write them."""
    dynamic = gradients().dynamic
    trial = replace(gradients().trials[0], scale=0.125)
    assert " 1/8 " in rendered(
        "table", trained(dynamic=replace(dynamic, scale=0.125), trials=(trial, *gradients().trials))
    )


def test_gradients_of_which_nothing_is_lost_need_no_list() -> None:
    """Only what all of them come to."""
    whole_ = tuple(
        replace(
            trial, variables=tuple(replace(one, underflow=0, overflow=0) for one in trial.variables)
        )
        for trial in gradients().trials
    )
    assert "lost elements" in rendered("table", trained())
    assert "lost elements" not in rendered("table", trained(trials=whole_))


def test_memory_that_nothing_counts_is_said_so() -> None:
    """Without a ratio."""
    text = timed(peak_memory=None, how=None)
    assert "memory is not measured on this device" in text
    assert "0.454x" in text


def test_seconds_are_seconds() -> None:
    """Where a batch takes long."""
    assert " 2.5 s " in timed(latency=2.5)


def test_sides_that_two_libraries_loaded_say_which() -> None:
    """Each with its own."""
    other = replace(SIDES["candidate"], library="keras 3.15.1")
    text = rendered("table", check(run(call("net/dense", 1e-4)), candidate=other), View(width=160))
    assert "21 layers in float32 · tf_keras 2.21.0" in text
    assert "3 in float32 · keras 3.15.1" in text


NAMES: Final = st.text(st.characters(exclude_categories=()), min_size=1, max_size=120)
ERRORS: Final = st.one_of(st.floats(0, 1e30), st.just(float("inf")))


@THOROUGH
@given(
    name=NAMES,
    class_name=NAMES,
    error=ERRORS,
    width=st.integers(80, 240),
    everything=st.booleans(),
    coarse=st.booleans(),
)
def test_no_line_is_wider_than_the_view(
    name: str, class_name: str, error: float, width: int, *, everything: bool, coarse: bool
) -> None:
    """Whatever names a file has, and however far off a layer is."""
    from rich.cells import cell_len

    tf32 = error if coarse else None
    wild = call(
        name,
        error,
        error,
        class_name=class_name,
        compute="bfloat16",
        tf32=tf32,
        number=1,
        along={"overflowed": 3, "subnormal": 500, "flushed": 2},
    )
    found = check(
        run(
            wild,
            outputs=(output(name, error, changed=changes(1), tf32=tf32),),
            device=replace(CPU, model=name),
        ),
        everything=everything,
    )
    for line in rendered("table", found, View(width=width)).splitlines():
        assert cell_len(line) <= width
        assert line.isprintable()
    report(found)


@given(value=st.floats(1e-300, 1e300))
def test_the_tolerance_that_is_told_would_pass(value: float) -> None:
    """It is rounded up, by less than a hundredth, and read back by the option."""
    assert value <= float(upward(value)) <= value * 1.01


@given(fraction=st.floats(0, 1))
def test_only_nothing_is_none_and_only_all_is_all(fraction: float) -> None:
    """A share that is neither is never rounded to either."""
    assert (share(fraction) == "0%") == (fraction == 0)
    assert (share(fraction) == "100%") == (fraction == 1)
    assert share(None) == ""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, ""),
        (0.0, "0"),
        (0.000412345, "0.000412"),
        (0.00001234, "1.23e-5"),
        (10.0, "10"),
        (65504.0, "65,500"),
        (999_500.0, "1e6"),
        (-2.5, "-2.5"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_have_three_digits(value: float | None, words: str) -> None:
    """And no exponent where people need none."""
    assert figure(value) == words


def test_decibels() -> None:
    """No noise is said so."""
    assert [
        decibels(value) for value in (None, 53.84, float("inf"), float("-inf"), float("nan"))
    ] == ["", "53.8 dB", "exact", "-inf dB", ""]


@pytest.mark.parametrize("ruling", set(Ruling) - {Ruling.PASSED})
@pytest.mark.parametrize("about", JudgementSubject)
def test_every_ruling_has_words(about: JudgementSubject, ruling: Ruling) -> None:
    """On synthetic inputs, an error of an output is what was seen."""
    found = run(call("net/dense", 1e-4), outputs=(output("y", 1e-4),))
    judged = tuple(
        replace(one, ruling=ruling if one.about is about else one.ruling)
        for one in found.verdict.judgements
    )
    said = rendered(
        "table", check(replace(found, verdict=replace(found.verdict, judgements=judged)))
    )
    said = " ".join(said.split())
    assert said.startswith("Undecided in mixed_float16: not tested on your data; ")
    assert ("synthetic inputs show only rounding" in said) is (about is JudgementSubject.LAYER)


@pytest.mark.parametrize(
    ("dtype", "told"),
    [("float16", "up to 143,000 in the reference; float16 maximum 65,504"), ("bfloat16", "")],
)
def test_what_overflows_is_told_with_its_reason(dtype: str, told: str) -> None:
    """
    Where the reference has numbers that the dtype has not; the pair that is farthest apart, and the
    headroom of what is left, say nothing then.
    """
    ends = {
        "largest_reference": 143000.0,
        "largest_candidate": 65000.0,
        "candidate_at_largest": 2.0,
    }
    spoiled = call(
        "net/dense", 0.1, compute=dtype, along={**ends, "overflowed": 3}, alone={"overflowed": 3}
    )
    said = rendered("table", check(run(spoiled, outputs=(output("y", 1e-4),))), View(width=500))
    assert "net/dense" in said
    assert told in said
    assert ("float16 maximum" in said) is bool(told)
    assert "headroom" not in said
    assert "1 → 2" not in said


def test_largest_value_is_the_largest_of_all_layers() -> None:
    """
    One layer overflows, and the layers behind it have NaN from end to end; measured by itself, one
    of them has the largest value.
    """
    lost = {"overflowed": 1000, "nan_candidate": 1000, "largest_candidate": 0.0}
    near, query, behind, far = (
        call("net/near", 1e-4, along={"largest_candidate": 7656.0}, alone={}),
        call(
            "net/query",
            1e-4,
            along={**lost, "largest_reference": 71146.0},
            alone={"overflowed": 1, "largest_candidate": 52608.0, "largest_reference": 71146.0},
        ),
        call(
            "net/behind",
            1e-4,
            along={**lost, "largest_reference": 59456.0},
            alone={"largest_candidate": 59456.0},
        ),
        call("net/far", 1e-4, compute="float32", along={"largest_candidate": 1e9}),
    )
    outputs = (output("y", 1e-4),)

    def said(*calls: LayerCall) -> str:
        found = check(run(*calls, outputs=outputs))
        return " ".join(rendered("table", found, View(width=500)).split())

    assert "; largest value 11.7% of float16's limit, in net/near " in said(near, far)
    assert "; largest value 90.8% of float16's limit, in net/behind " in said(near, behind, far)
    assert "; largest value 1.09 times float16's limit, in net/query " in said(
        near, query, behind, far
    )


def test_probe_names_the_layer_and_the_factor() -> None:
    """On synthetic inputs; a probe that finds nothing is in JSON alone, with how far it went."""
    told = "float16 overflows in net/wide (Dense) at inputs 12 times larger than these"
    outputs = (output("y", 1e-4),)
    hit = OverflowProbe(factor=12.0, finite_to=11.0, path="net/wide", class_name="Dense")
    missed = OverflowProbe(factor=None, finite_to=2.0**15, path=None, class_name=None)
    for probe in (hit, missed, None):
        found = check(run(call("net/wide", 1e-4), outputs=outputs, overflow_probe=probe))
        said = " ".join(rendered("table", found, View(width=500)).split())
        assert said.startswith("Undecided in mixed_float16: not tested on your data; synthetic ")
        assert (told in said) is (probe is hit)
        values = report(found)["check"]["runs"][0]
        assert values["overflow_probe"] == (probe and asdict(probe))
        assert values["verdict"]["answer"] == "undecided"


def _with_metric(candidate: float, without: float, *, higher: bool = True) -> CheckRun:
    """Return a run with the metric of both models, and of all blocks of rows but one."""
    one = {
        "output": "probabilities",
        "rows": 1000,
        "reference": 0.9,
        "candidate": candidate,
        "without": [{"reference": 0.9, "candidate": without}] * 10,
    }
    values = {"name": "accuracy", "higher_is_better": higher, "outputs": [one]}
    metric = metric_from_json(values, None)
    outputs = (output("probabilities", 1e-3),)
    found = run(call("net/a", 1e-4), outputs=outputs, inputs=OWN)
    return replace(
        found,
        verdict=replace(found.verdict, metric=metric),
        answers=answer_outputs(
            outputs, SafetyRule(kinds={"probabilities": OutputKind.BINARY}), metric
        ),
    )


def _compared(now: Checks, before: Checks) -> Check:
    assert now.check is not None
    earlier = earlier_check("before.json", rendered("json", before).encode())
    return replace(now.check, comparison=compare(now.check, earlier))


@pytest.mark.parametrize(
    ("candidate", "higher", "told"),
    [
        (0.9, True, "Safe in mixed_float16 on these 1,000 rows: accuracy is 0.9 in both models"),
        (0.95, True, "Safe in mixed_float16 on these 1,000 rows: accuracy gets better"),
        (0.7, True, "Not safe in mixed_float16: accuracy gets worse by 0.2, from 0.9 to 0.7"),
        (0.95, False, "Not safe in mixed_float16: accuracy gets worse by 0.05, from 0.9 to 0.95"),
        (math.nan, True, "Undecided in mixed_float16: accuracy cannot be compared"),
    ],
)
def test_labels_decide(candidate: float, told: str, *, higher: bool) -> None:
    """Over what the values say."""
    found = check(_with_metric(candidate, candidate, higher=higher))
    values = report(found)["check"]
    assert values["runs"][0]["verdict"]["sentence"].startswith(told)
    assert values["runs"][0]["metric"]["candidate"] == (
        "NaN" if math.isnan(candidate) else candidate
    )


def test_a_regression_is_told_although_everything_is_within_its_tolerance() -> None:
    """The first word is that of the exit code."""
    before, now = (
        check(run(call("net/a", error), outputs=(output("o", 1e-3),), inputs=OWN))
        for error in (1e-4, 4e-3)
    )
    found = replace(now, check=_compared(now, before))
    values = report(found)["check"]
    assert values["answer"] == "safe"
    assert not values["comparison"]["passed"]
    assert values["comparison"]["changes"] == [
        {
            "device": "cpu:0",
            "signature": None,
            "about": "layer",
            "path": "net/a",
            "before": pytest.approx(1e-4),
            "now": pytest.approx(4e-3),
            "allowed": 0.008,
            "change": "grew",
            "regression": True,
        }
    ]
    text = rendered("table", found)
    assert text.startswith("Safe in mixed_float16")
    assert "1 regression compared with before.json: layer net/a (0.0001 before, 0.004 now)" in (
        " ".join(text.split())
    )
    assert re.search(r"^compared with before\.json$", text, re.MULTILINE)
    for reporter in ("markdown", "html"):
        assert "compared with before.json" in rendered(reporter, found)


def test_no_regression_is_told_too() -> None:
    """With what else is different."""
    before, now = (
        check(run(call("net/a", 1e-4), outputs=(output("o", 1e-3),), device=device))
        for device in (GPU, CPU)
    )
    text = rendered("table", replace(now, check=_compared(now, before)))
    assert text.startswith("Undecided in mixed_float16: ")
    assert "no regression compared with before.json" in " ".join(text.split())
    assert "the earlier check ran on gpu:0, and this check ran on cpu:0" in " ".join(text.split())


def test_names_of_an_earlier_report_do_not_move_the_cursor() -> None:
    """They are a stranger's, and may be long."""
    before = check(
        run(call("net/a", 1e-4), call(f"net/\x1b[31m{'x' * 500}", 1e-4), outputs=(output("o", 0),))
    )
    now = check(run(call("net/a", 1e-4), outputs=(output("o", 0),)))
    text = rendered("table", replace(now, check=_compared(now, before)))
    assert "only in the earlier check: net/" in " ".join(text.split())
    assert "\x1b" not in text
    assert "x" * 200 not in "".join(text.split())
