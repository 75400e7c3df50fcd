"""The reports of diff: golden files, the schema, and what has to be in them."""

from __future__ import annotations

import json
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from policytool.commands.diff import DiffOutcome, try_diff
from policytool.comparison.result import (
    Aspect,
    Comparison,
    ComparisonNote,
    ComparisonVerdict,
    LayerPair,
    Pairing,
    Presence,
    Section,
    Side,
    ValueChange,
    ValueComparison,
    VariablePair,
)
from policytool.model.model import Variable, Writer
from policytool.reports import View
from policytool.reports.differences import DIFFERENCE_REPORTERS, Differences
from policytool.support.text.jsontext import ABSENT
from tests.contracts.report_contract import ReportContract, strict_json
from tests.contracts.reporter_contract import rendered_by

if TYPE_CHECKING:
    from policytool.support.text.jsontext import Json

pytestmark = pytest.mark.usefixtures("in_the_root")

CASES: Final = {
    "same": ("tf2.15/default_float32.h5", "tf2.15/default_float32.keras"),
    "generations": ("tf2.15/global_mixed_float16.h5", "keras3.15/global_mixed_float16.keras"),
    "names": ("tf2.15/default_float32.h5", "keras3.15/default_float32.keras"),
    "values": ("tf2.15/wrappers.h5", "keras3.15/wrappers.keras"),
    "loss_scales": ("tf2.3/exp_mf16_fixed128.h5", "tf2.3/exp_mf16_dynamic_custom.h5"),
    "policies": ("tf2.15/rnn.h5", "tf2.15/rnn_mixed.h5"),
    "weights": ("tf2.15/weights_only.h5", "tf2.15/adam_autowrap_mf16.h5"),
    "formats": ("tf2.15/custom_layer", "tf2.15/custom_layer.keras"),
    "architecture": ("tf2.15/global_mixed_float16", "tf2.15/global_mixed_float16.json"),
    "optimizer": ("tf2.15/adam_autowrap_mf16.keras", "tf2.15/adam_autowrap_mf16.h5"),
    "unlike": ("tf2.3/tf_op_layers.h5", "tf2.15/tf_op_layers.h5"),
    "failure": ("tf2.15/default_float32.h5", "gone.keras"),
}


rendered = partial(rendered_by, DIFFERENCE_REPORTERS)


@cache
def case(name: str, *, everything: bool = False) -> Differences:
    """Return the comparison of a case."""
    a, b = CASES[name]
    return Differences(outcome=try_diff(f"fixtures/{a}", f"fixtures/{b}"), everything=everything)


class TestDifferences(ReportContract):
    name = "diff"
    reporters = DIFFERENCE_REPORTERS
    cases: ClassVar = {
        f"{name}{'-all' if everything else ''}": partial(case, name, everything=everything)
        for name in CASES
        for everything in (False, True)
    }
    page = "values"
    without_golden = frozenset(
        f"diff-{name}-all.{suffix}"
        for name in CASES
        for suffix in ("json", "md")
        if f"{name}.{suffix}" not in {"generations.json", "formats.json", "generations.md"}
    )


def test_variables_of_one_model_are_joined() -> None:
    """A long list of variables that one model lacks is one row; --all lists them."""
    not_compared = ValueComparison(verdict=ComparisonVerdict.DIFFERENT)
    slots = tuple(
        VariablePair(
            a=Variable(name=f"slot_{at}", shape=(4,), dtype="float32"), b=None, values=not_compared
        )
        for at in range(12)
    )
    side = Side(path="a.h5", format="h5", generation="keras3.15", writer=Writer())
    optimizer = Section(name="optimizer", presence=Presence.BOTH, variables=slots)
    outcome = DiffOutcome(comparison=Comparison(a=side, b=side, layers=(), optimizer=optimizer))
    text = rendered("table", Differences(outcome=outcome))
    assert "12 variables" in text
    assert "slot_3" not in text
    assert "slot_3" in rendered("html", Differences(outcome=outcome))
    assert "slot_3" in rendered("table", Differences(outcome=outcome, everything=True))


def test_objects_are_shown_by_class_and_arguments() -> None:
    """The values of an initializer are not cut off behind its module."""
    text = rendered("table", case("generations", everything=True), View(width=200))
    assert "GlorotUniform(seed=null)" in text
    assert '"module"' not in text


@pytest.mark.parametrize("name", sorted(set(CASES) - {"failure"}))
def test_all_option_shows_every_layer_and_change(name: str) -> None:
    report = json.loads(rendered("json", case(name, everything=True)))["comparison"]
    assert len(report["layers"]) == report["summary"]["layers"]
    shown = [
        change
        for item in (
            *report["layers"],
            *report["signatures"],
            *([report["optimizer"]] if report["optimizer"] else []),
        )
        for change in item["changes"]
    ]
    assert sum(change["format_only"] for change in shown) == report["summary"]["format_only"]
    short = json.loads(rendered("json", case(name)))["comparison"]
    assert [layer["a"] or layer["b"] for layer in short["layers"]] == [
        layer["a"] or layer["b"] for layer in report["layers"] if layer["differs"]
    ]


def made(
    *changes: ValueChange,
    path: str = "mlp/dense",
    notes: tuple[ComparisonNote, ...] = (),
    many: int = 1,
) -> Differences:
    """Return a comparison of models whose layers have these changes."""
    side = Side(path="model.h5", format="h5", generation=None, writer=Writer())
    layers = tuple(
        LayerPair(
            a=f"{path}{number}",
            b=f"{path}{number}",
            class_name="Dense",
            paired=Pairing.PATH,
            changes=changes,
        )
        for number in range(many)
    )
    return Differences(
        outcome=DiffOutcome(comparison=Comparison(a=side, b=side, layers=layers, notes=notes))
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2.5,
        float("nan"),
        float("-inf"),
        "text",
        "a | b `c` <script> [x](y) @someone",
        "tab\tand\x1b[31m",
        "\ud800",
        [1, [2]],
        {"class_name": "Zeros", "config": {}},
        {"deep": {"er": [float("inf")]}},
    ],
    ids=repr,
)
def test_any_value_of_a_strangers_config_is_shown(value: Json) -> None:
    """
    A value is printed on one line without control characters, and as strict JSON of the schema.
    """
    result = made(
        ValueChange(aspect=Aspect.CONFIG, key="k\n\x1b", a=value, b=ABSENT), path="mlp/\x1b[2J"
    )
    text = rendered("table", result, View(width=200))
    assert all(line.isprintable() for line in text.splitlines())
    marked = rendered("markdown", result).splitlines()
    assert all(line.isprintable() for line in marked)
    assert {line.count("|") for line in marked if line.startswith("|")} == {5}
    report = strict_json("diff", rendered("json", result))
    (change,) = report["comparison"]["layers"][0]["changes"]
    assert "b" not in change


@pytest.mark.parametrize("aspect", Aspect)
def test_every_aspect_has_a_text_and_is_in_the_schema(aspect: Aspect) -> None:
    """Every report accepts each aspect."""
    values: dict[Aspect, Any] = {
        Aspect.LOSS_SCALE: {
            "kind": "dynamic",
            "initial": 32768.0,
            "growth_steps": 2000,
            "multiplier": 2.0,
        },
        Aspect.WIRING: ["a", "b"],
        Aspect.TRACED: ["float16"],
        Aspect.SHARED: [],
        Aspect.ORDER: 3,
    }
    result = made(
        ValueChange(aspect=aspect, a=values.get(aspect, "one"), b=values.get(aspect, "other"))
    )
    assert "mlp/dense" in rendered("table", result)
    strict_json("diff", rendered("json", result))


def test_equal_differences_of_many_layers_take_two_lines() -> None:
    """The first layer is listed with the number of the others, and ``--all`` lists every layer."""
    result = made(ValueChange(aspect=Aspect.POLICY, a="float32", b="float16"), many=500)
    text = rendered("table", result)
    assert "and 499 more with the same differences" in text
    assert len(text.splitlines()) < 12
    assert (
        len(rendered("table", Differences(outcome=result.outcome, everything=True)).splitlines())
        > 500
    )


def test_sections_of_one_file_are_shown() -> None:
    """An optimizer and signatures that only one model has, and those that are equal."""
    side = Side(
        path="model", format="savedmodel", generation="tf2.3-2.4", writer=Writer(tensorflow="2.4.0")
    )
    sections = (
        Section(name="serve", presence=Presence.B),
        Section(name="same", presence=Presence.BOTH),
    )
    comparison = Comparison(
        a=side,
        b=side,
        layers=(),
        optimizer=Section(name="optimizer", presence=Presence.A),
        signatures=sections,
    )
    result = Differences(outcome=DiffOutcome(comparison=comparison), everything=True)
    lines = rendered("table", result, View(width=120)).splitlines()
    assert lines[0] == "0 of 0 layers differ; the optimizer differs; 1 signature differs"
    assert [line.split() for line in lines[-3:]] == [
        ["optimizer", "only", "in", "A", "yes"],
        ["signature", "serve", "only", "in", "B", "yes"],
        ["signature", "same", "equal"],
    ]
    strict_json("diff", rendered("json", result))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            ValueComparison(
                verdict=ComparisonVerdict.ROUNDED,
                rounded=Presence.A,
                elements=3,
                differing=1,
                largest=0.5,
            ),
            "A is B rounded",
        ),
        (
            ValueComparison(
                verdict=ComparisonVerdict.ROUNDED,
                rounded=Presence.B,
                elements=3,
                differing=1,
                largest=0.5,
            ),
            "B is A rounded",
        ),
        (
            ValueComparison(
                verdict=ComparisonVerdict.ROUNDED, rounded=Presence.BOTH, elements=3, differing=0
            ),
            "equal values",
        ),
        (
            ValueComparison(
                verdict=ComparisonVerdict.DIFFERENT,
                elements=3000,
                differing=2000,
                largest=float("inf"),
            ),
            "2,000/3,000 differ, up to inf",
        ),
        (
            ValueComparison(verdict=ComparisonVerdict.DIFFERENT, reason="shapes differ"),
            "shapes differ",
        ),
        (
            ValueComparison(verdict=ComparisonVerdict.NOT_COMPARED, reason="it lies elsewhere"),
            "not compared: it lies elsewhere",
        ),
    ],
)
def test_verdicts_on_variables_are_described(values: ValueComparison, words: str) -> None:
    """Both reports have the same text on two variables."""
    side = Side(path="model.h5", format="h5", generation=None, writer=Writer())
    a, b = (
        Variable(name="kernel", shape=None, dtype="float32"),
        Variable(name="kernel", shape=(3,), dtype="float16"),
    )
    pair = VariablePair(a=a, b=b, values=values, paired="name")
    layer = LayerPair(a="d", b="d", class_name="Dense", paired=Pairing.PATH, variables=(pair,))
    result = Differences(
        outcome=DiffOutcome(comparison=Comparison(a=side, b=side, layers=(layer,)))
    )
    assert f"float16 (3): {words}" in rendered("table", result, View(width=160))
    strict_json("diff", rendered("json", result))
