"""The reports of check: golden files, the schema, and texts that no golden file shows."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policytool.migration.planning.options import Assignment, Options, Outputs
from policytool.numerics.check_results.checks import OverflowProbe, RecordedFile
from policytool.numerics.check_results.verdicts import (
    Advice,
    Answer,
    JudgementSubject,
    OutputKind,
    Ruling,
)
from policytool.numerics.verdicts.safety import SafetyRule, answer_outputs
from policytool.numerics.verdicts.task_metric import metric_from_json
from policytool.releases.policy import Dynamic
from policytool.reports import View
from policytool.reports.checks import CHECK_REPORTERS, Checks
from policytool.reports.words import decibels, figure, share, upward
from tests.contracts.report_contract import ReportContract, VariationsContract, strict_json
from tests.contracts.reporter_contract import rendered_by
from tests.helpers.example_checks import (
    CASES,
    CPU,
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
    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.metrics import CheckedOutput


class TestChecks(ReportContract):
    name = "check"
    reporters = CHECK_REPORTERS
    cases: ClassVar = {name: partial(CASES.__getitem__, name) for name in CASES}
    page = "training"
    without_golden = frozenset(
        f"check-{name}.json" for name in ("failing", "all-layers", "devices")
    )


rendered = partial(rendered_by, CHECK_REPORTERS)


def only(name: str) -> CheckRun:
    """Return the run of a case that has one."""
    result = CASES[name].check
    assert result is not None
    (one,) = result.runs
    return one


PLAIN: Final = run(call("net/dense", 1e-4))
CLOSE: Final = (output("y", 1e-4),)
TRAINING: Final = only("training")


def _same_model(found: Checks) -> Checks:
    assert found.check is not None
    return replace(found, check=replace(found.check, is_same_model=True))


def _quantized(*modes: str) -> Checks:
    return check(PLAIN, reference=replace(SIDES["reference"], dequantized=modes))


def _advised(migration: Options | None, advice: Advice | None = None) -> Checks:
    """Return a check with the options that write its candidate."""
    result = CASES["passing"].check
    assert result is not None
    return Checks(check=replace(result, migration=migration, advice=advice))


def _unfit(layers: int, policy: str | None) -> Checks:
    """Return a check that found a set of layers to keep in float32, or another policy."""
    names = tuple(f"net/l{number}" for number in range(layers))
    return _advised(
        Options(to=policy) if policy is not None else None,
        Advice(layers=names, trials=9, choices=8, policy=policy, exhausted=not names),
    )


def _in_float32(*paths: str) -> Checks:
    """Return a check of a candidate with these layers in float32."""
    return check(
        run(call("net/hidden", 1e-4)), candidate=replace(SIDES["candidate"], float32_layers=paths)
    )


def _trained(**changes: Any) -> Checks:
    """Return a check with other gradients."""
    assert TRAINING.gradients is not None
    return check(replace(TRAINING, gradients=replace(TRAINING.gradients, **changes)))


def _small_scale() -> Checks:
    result = TRAINING.gradients
    assert result is not None
    trials = (replace(result.trials[0], scale=0.125), *result.trials)
    return _trained(dynamic=replace(result.dynamic, scale=0.125), trials=trials)


def _lossless() -> Checks:
    result = TRAINING.gradients
    assert result is not None
    return _trained(
        trials=tuple(
            replace(
                trial,
                variables=tuple(
                    replace(variable, underflow=0, overflow=0) for variable in trial.variables
                ),
            )
            for trial in result.trials
        )
    )


def _timed(**changes: Any) -> Checks:
    timings = {name: replace(timing, **changes) for name, timing in TRAINING.timings.items()}
    return check(replace(TRAINING, timings=timings))


def _ruled(about: JudgementSubject, ruling: Ruling) -> Checks:
    """Return a check in which all errors of one kind have another ruling."""
    result = run(call("net/dense", 1e-4), outputs=CLOSE)
    judged = tuple(
        replace(judgement, ruling=ruling if judgement.about is about else judgement.ruling)
        for judgement in result.verdict.judgements
    )
    return check(replace(result, verdict=replace(result.verdict, judgements=judged)))


def _overflowing(dtype: str) -> Checks:
    ends = {
        "largest_reference": 143000.0,
        "largest_candidate": 65000.0,
        "candidate_at_largest": 2.0,
    }
    spoiled = call(
        "net/dense", 0.1, compute=dtype, along={**ends, "overflowed": 3}, alone={"overflowed": 3}
    )
    return check(run(spoiled, outputs=CLOSE))


def _largest(*names: str) -> Checks:
    """Return a check in which one layer overflows and the layers after it have NaN."""
    lost = {"overflowed": 1000, "nan_candidate": 1000, "largest_candidate": 0.0}
    calls = {
        "near": call("net/near", 1e-4, along={"largest_candidate": 7656.0}, alone={}),
        "query": call(
            "net/query",
            1e-4,
            along={**lost, "largest_reference": 71146.0},
            alone={"overflowed": 1, "largest_candidate": 52608.0, "largest_reference": 71146.0},
        ),
        "behind": call(
            "net/behind",
            1e-4,
            along={**lost, "largest_reference": 59456.0},
            alone={"largest_candidate": 59456.0},
        ),
        "far": call("net/far", 1e-4, compute="float32", along={"largest_candidate": 1e9}),
    }
    return check(run(*(calls[name] for name in names), outputs=CLOSE))


def _probed(probe: OverflowProbe) -> Checks:
    return check(run(call("net/wide", 1e-4), outputs=CLOSE, overflow_probe=probe))


def _metric(
    candidate: float,
    *others: CheckedOutput,
    higher: bool = True,
    nonfinite: dict[str, Any] | None = None,
) -> Checks:
    """
    Return a check with the metric of both models, and of all blocks of rows but one.

    :param others: the outputs without labels
    """
    one = {
        "output": "probabilities",
        "rows": 1000,
        "reference": 0.9,
        "candidate": candidate,
        "without": [{"reference": 0.9, "candidate": candidate}] * 10,
    }
    values = {"name": "accuracy", "higher_is_better": higher, "outputs": [one]}
    metric = metric_from_json(values, None)
    outputs = (output("probabilities", 1e-3, **(nonfinite or {})), *others)
    result = run(call("net/a", 1e-4), outputs=outputs, inputs=OWN)
    answers = answer_outputs(
        outputs, SafetyRule(kinds={"probabilities": OutputKind.BINARY}), metric
    )
    return check(replace(result, verdict=replace(result.verdict, metric=metric), answers=answers))


def test_graph_that_the_rewrite_does_not_change_is_undecided() -> None:
    """The two runs are the same, and show nothing about the policy."""
    graph = CASES["graph"].check
    assert graph is not None
    assert graph.runs[-1].rewrite is not None
    unchanged = replace(
        graph.runs[-1].rewrite,
        unchanged="the rewrite changes nothing: 48 ops of this graph already compute in 16 bits",
    )
    same = run(
        call("net/hidden", 0.0), outputs=(output("scores", 0.0, changed=changes()),), inputs=OWN
    )
    assert same.answer is Answer.SAFE
    same = replace(same, rewrite=unchanged)
    assert same.answer is Answer.UNDECIDED
    words = "Undecided in mixed_float16: the rewrite changes nothing: 48 ops of this graph"
    assert words in rendered("table", check(same), View(width=200))


def test_the_output_without_labels_is_named() -> None:
    checks = _metric(0.9, output("other", 1e-3, changed=changes(13)))
    assert "in output other, " in rendered("table", checks, View(width=200))
    assert "to decide, add labels of output other, or" in rendered("table", checks, View(width=400))


_LOST: Final = output("scores", 1e-4, nan_reference=100, infinite_reference=20)
_CONSTANT: Final = output("scores", 0.0, changed=changes(range=None, varies=False))


def _recorded(result: CheckRun, **changes: Any) -> Checks:
    """Return a check of two models with the same policies, one of which was recorded."""
    sides = {
        name: replace(side, policies={"float32": 3}, policy=None, kept={}, float32_layers=())
        for name, side in SIDES.items()
    }
    checks = check(result, notes=(), everything=False, **sides)
    assert checks.check is not None
    return replace(checks, check=replace(checks.check, **changes))


def _changed() -> CheckRun:
    """Return a run in which rounding could explain the error, but not the changed predictions."""
    result = run(outputs=(output("o", 1e-2, changed=changes(300)),), inputs=OWN)
    judged = tuple(
        replace(judgement, ruling=Ruling.CHANGED) for judgement in result.verdict.judgements
    )
    return replace(result, verdict=replace(result.verdict, judgements=judged))


RECORDED: Final = RecordedFile(file="run.h5", bytes=2**20, rows=8, calls=37)
VARIATIONS: Final = {
    "random numbers, and a reference that is not finite": check(
        run(call("net/dense", 1e-4), outputs=(_LOST,), random=("net/noisy",), inputs=OWN)
    ),
    "no value of the reference is finite": check(
        run(call("net/dense", 1e-4), outputs=(_CONSTANT,), inputs=OWN)
    ),
    "one class in all rows": check(
        run(
            call("net/dense", 1e-4),
            outputs=(output("scores", 1e-4, changed=changes(has_one_class=True)),),
            inputs=OWN,
        )
    ),
    "equal outputs": check(run(call("net/dense", 0.0), outputs=(output("scores", 0.0),))),
    "equal policies": _same_model(
        check(run(call("net/dense", 0.0), outputs=(output("scores", 0.0),)))
    ),
    "many layers in float32": _in_float32(*(f"net/dense_{number}" for number in range(12))),
    "layers of one name in float32": _in_float32("net/a/dense", "net/b/dense"),
    "a layer in float32": _in_float32("net/dense"),
    "int8 layers": _quantized("int8"),
    "float8 layers": _quantized("float8"),
    "int8 and float8 layers": _quantized("int8", "float8"),
    "int4 layers, equal policies": _same_model(_quantized("int4")),
    "written with another backend": check(
        PLAIN,
        reference=replace(SIDES["reference"], written_with="torch"),
        candidate=replace(SIDES["candidate"], written_with="torch"),
    ),
    "no runs": check(),
    "no outputs": check(run(inputs=OWN)),
    "options of migrate": _advised(
        Options(to="mixed_float16", outputs=Outputs.FOLLOW, include_exceptions=True)
    ),
    "layers to keep": _advised(
        Options(
            to="mixed_float16",
            target="tf2.4",
            retrace=True,
            assignments=(Assignment(pattern=r"net/blk_\d+", policy="float32"),),
        ),
        Advice(layers=("net/blk_1", "net/blk_2"), trials=3, choices=9),
    ),
    "a --set to remove": _advised(
        Options(to="mixed_float16"),
        Advice(
            layers=("net/norm",),
            trials=3,
            choices=9,
            replaced=(Assignment(pattern="net/norm", policy="mixed_float16"),),
        ),
    ),
    "four --set to remove": _advised(
        None,
        Advice(
            layers=tuple(f"net/l{number}" for number in range(5)),
            trials=3,
            choices=9,
            replaced=tuple(
                Assignment(pattern=f"net/l{number}", policy="float16") for number in range(4)
            ),
        ),
    ),
    "nothing to write": _advised(None),
    "5 of 8 layers to keep": _unfit(5, None),
    "5 of 8 layers to keep, or bfloat16": _unfit(5, "mixed_bfloat16"),
    "no set of layers, but bfloat16": _unfit(0, "mixed_bfloat16"),
    "4 of 8 layers to keep": _unfit(4, None),
    "no set of layers": _unfit(0, None),
    "device without a name": check(
        run(call("net/dense", 1e-4), device=replace(CPU, model=None, memory=None))
    ),
    "call without outputs, all layers": check(
        run(replace(call("net/print", 1e-4), outputs=())), everything=True
    ),
    "call without outputs": check(run(replace(call("net/print", 1e-4), outputs=()))),
    "equal and different integers": check(
        run(
            replace(call("net/equal", None), outputs=(whole(0),)),
            replace(call("net/other", None), outputs=(whole(3),)),
        )
    ),
    "no trainable variables": _trained(trials=(), variables=(), workable=None, recorded=None),
    "dynamic loss scale": _trained(recorded=Dynamic(), unconnected=("net/spare/kernel",)),
    "loss scale of 1/8": _small_scale(),
    "no lost gradients": _lossless(),
    "memory is not measured": _timed(peak_memory=None, how=None),
    "seconds": _timed(latency=2.5),
    "two libraries": check(PLAIN, candidate=replace(SIDES["candidate"], library="keras 3.15.1")),
    **{
        f"{about}: {ruling}": _ruled(about, ruling)
        for about in JudgementSubject
        for ruling in Ruling
        if ruling is not Ruling.PASSED
    },
    "overflow in float16": _overflowing("float16"),
    "overflow in bfloat16": _overflowing("bfloat16"),
    "largest value of two layers": _largest("near", "far"),
    "largest value after an overflow": _largest("near", "behind", "far"),
    "largest value in an overflow": _largest("near", "query", "behind", "far"),
    "probe that overflows": _probed(
        OverflowProbe(factor=12.0, finite_to=11.0, path="net/wide", class_name="Dense")
    ),
    "probe that does not overflow": _probed(
        OverflowProbe(factor=None, finite_to=2.0**15, path=None, class_name=None)
    ),
    "equal metric": _metric(0.9),
    "better metric": _metric(0.95),
    "worse metric": _metric(0.7),
    "worse metric, lower is better": _metric(0.95, higher=False),
    "metric is NaN": _metric(math.nan),
    "metric of values that are not finite": _metric(
        0.3, nonfinite={"overflowed": 1000, "nan_candidate": 900, "infinite_candidate": 100}
    ),
    "metric of a reference that is not finite": _metric(
        0.3, nonfinite={"nan_reference": 1000, "nan_candidate": 1000}
    ),
    "recorded": _recorded(run(), recording=RECORDED),
    "equal to a recorded run": _recorded(run(outputs=(output("o", 0),)), against="run.h5"),
    "different from a recorded run": _recorded(
        run(call("net/a", 1e-2), outputs=(output("o", 1e-2),)), against="run.h5"
    ),
    "changed predictions, against a recorded run": _recorded(_changed(), against="run.h5"),
    "other weights than in a recorded run": _recorded(
        replace(run(outputs=(output("o", 0.2),)), changed_weights=("net/a", "net/b")),
        against="run.h5",
    ),
    "a graph with other weights than in a recorded run": _recorded(
        replace(run(outputs=(output("o", 0.2),)), changed_weights=()), against="run.h5"
    ),
}


class TestVariations(VariationsContract):
    name = "check"
    reporters = CHECK_REPORTERS
    plain: ClassVar = {
        "plain": check(PLAIN),
        "passing": CASES["passing"],
        "training": check(TRAINING),
    }
    variations = VARIATIONS


def test_json_has_every_layer() -> None:
    """The option ``--all-layers`` does not change it."""
    assert rendered("json", CASES["failing"]) == rendered("json", CASES["all-layers"])
    (result,) = strict_json("check", rendered("json", CASES["failing"]))["check"]["runs"]
    assert len(result["calls"]) == 37


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
    result = check(
        run(
            wild,
            outputs=(output(name, error, changed=changes(1), tf32=tf32),),
            device=replace(CPU, model=name),
        ),
        everything=everything,
    )
    for line in rendered("table", result, View(width=width)).splitlines():
        assert cell_len(line) <= width
        assert line.isprintable()
    strict_json("check", rendered("json", result))


@given(value=st.floats(1e-300, 1e300))
def test_printed_tolerance_would_pass(value: float) -> None:
    """The tolerance is rounded up by less than a hundredth."""
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
    """Exponents are used only for very large and very small numbers."""
    assert figure(value) == words


def test_decibels_have_one_digit() -> None:
    """A comparison without noise is described as exact."""
    assert [
        decibels(value) for value in (None, 53.84, float("inf"), float("-inf"), float("nan"))
    ] == ["", "53.8 dB", "exact", "-inf dB", ""]
