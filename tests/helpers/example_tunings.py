"""Searches made by hand, for the tests of their reports: each shows another part."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from policytool.commands.destinations import Destination
from policytool.commands.inspect import Failure
from policytool.commands.migrate import Migration, Status
from policytool.commands.migrate_all import migrate_all
from policytool.formats import discovery
from policytool.migration.planning.options import QUANTIZATIONS, Assignment, Options
from policytool.numerics.check_results.checks import (
    CheckInput,
    CheckInputs,
    CheckNote,
    CheckSide,
    InputKind,
)
from policytool.numerics.check_results.verdicts import Answer, Open, OutputKind
from policytool.numerics.tuning.results import (
    Ending,
    Objective,
    Promise,
    Split,
    Trial,
    TunedLayer,
    Tuning,
)
from policytool.numerics.verdicts.safety import share_bounds
from policytool.numerics.verdicts.task_metric import MetricOptions, metric_from_json
from policytool.numerics.verdicts.tolerances import ToleranceOption, Tolerances
from policytool.reports.tuning import Tunings
from tests.helpers.example_checks import CPU, GPU, HOSTILE
from tests.helpers.paths import FIXTURES, ROOT

MODEL: Final = "fixtures/keras3.15/default_float32.keras"
"""A real file, whose plan ``migrate --plan`` reads."""

POLICY: Final = "mixed_float16"
OUTPUT: Final = "it computes the output of the model, which is kept in float32"
SQUARES: Final = "its squares exceed the range of float16"
TOLERANCE: Final = Tolerances(given=(ToleranceOption(pattern=None, value=0.01),))
GIVEN: Final = CheckInputs(
    kind=InputKind.GIVEN,
    seed=None,
    batches=8,
    batch_size=32,
    inputs=(CheckInput(name="image", shape=(32, 64, 64, 3), dtype="float32", how="from the file"),),
)
DRAWN: Final = replace(GIVEN, kind=InputKind.SYNTHETIC, seed=1, batches=4, batch_size=8)


def promise(changed: int, rows: int = 512, **other: Any) -> Promise:
    """Return what that many of these rows show if their class changes."""
    values: dict[str, Any] = {
        "answer": Answer.SAFE,
        "kind": OutputKind.CLASSES,
        "most": share_bounds(changed, rows).upper,
        **other,
    }
    return Promise(rows=rows, **values)


def trial(
    *kept: str,
    excess: float,
    validation: float | None = None,
    **other: Any,
) -> Trial:
    """Return a trial, whose error is what a tolerance of 0.01 makes of its excess."""
    error = None if math.isinf(excess) else 0.01 * max(excess, validation or 0.0)
    values: dict[str, Any] = {"error": error, "agreement": None, "gradient_error": None, **other}
    if validation is not None:
        values.setdefault("promise", promise(0))
    return Trial(kept=kept, excess=excess, validation=validation, **values)


def layer(
    path: str, error: float | None = 2e-4, headroom: float | None = 900.0, **other: Any
) -> TunedLayer:
    """Return a layer that loses little, unless it is said otherwise."""
    values: dict[str, Any] = {
        "class_name": "Conv2D",
        "kept": False,
        "rule": None,
        "is_finite": True,
        "largest": 70.0,
        "flushed": 0.0,
        "excess_if_converted": None,
        "excess_by_itself": None,
        "decides": (),
        **other,
    }
    return TunedLayer(path=path, error=error, headroom=headroom, **values)


def _layers() -> tuple[TunedLayer, ...]:
    """Return twelve layers: one overflows, one rounds too much, one is safe against its rule."""
    return (
        layer("net/stem", 1.9e-4, 410.0),
        layer("net/block_1/conv", 2.4e-4, excess_by_itself=0.08),
        layer("net/block_1/normalize", 3.1e-4, 44.0, class_name="BatchNormalization"),
        layer(
            "net/block_1/energy",
            None,
            0.458,
            class_name="Lambda",
            kept=True,
            is_finite=False,
            largest=143_000.0,
            excess_if_converted=math.inf,
            decides=("net/block_1/tf.math.exp",),
        ),
        layer("net/block_2/conv", 2.2e-4, 310.0),
        layer("net/block_2/normalize", 3.3e-4, 12.5, class_name="BatchNormalization"),
        layer(
            "net/block_2/unit",
            4.1e-4,
            3.4,
            class_name="UnitNormalization",
            rule=SQUARES,
            excess_by_itself=0.11,
        ),
        layer(
            "net/block_2/difference",
            0.0311,
            5200.0,
            class_name="Subtract",
            kept=True,
            flushed=0.042,
            excess_if_converted=3.4,
        ),
        layer("net/block_3/conv", 2.9e-4, 120.0),
        layer("net/block_3/normalize", 2.8e-4, 80.0, class_name="BatchNormalization"),
        layer("net/pool", 1.1e-3, 700.0, class_name="GlobalAveragePooling2D", flushed=0.0031),
        layer("net/logits", 4.4e-4, 2000.0, class_name="Dense", excess_by_itself=0.21),
    )


KEPT: Final = ("net/block_1/energy", "net/block_2/difference")


def _trials(layers: tuple[TunedLayer, ...]) -> tuple[Trial, ...]:
    paths = tuple(item.path for item in layers)
    partial = [trial(*paths[:count], excess=excess) for count, excess in ((9, 0.18), (8, 0.22))]
    return (
        trial(excess=math.inf),
        trial(*paths, excess=0.0, validation=0.0),
        *partial,
        trial(*paths[3:8], excess=0.31, validation=0.35),
        trial(*KEPT, "net/block_2/unit", excess=0.39, validation=0.42),
        trial(*KEPT, excess=0.42, validation=0.40),
        trial(KEPT[0], excess=3.4, validation=3.3),
        trial(KEPT[1], excess=math.inf),
    )


def tuning(**changes: Any) -> Tuning:
    """Return the search that passes, with other values."""
    layers = changes.get("layers", _layers())
    trials = changes.pop("trials", None) or _trials(layers)
    kept = {item.path for item in layers if item.kept}
    result = next((item for item in trials if set(item.kept) == kept), None)
    values: dict[str, Any] = {
        "policy": POLICY,
        "objective": Objective(tolerances=TOLERANCE),
        "reference": CheckSide(path=MODEL, policy="float32", policies={}, library="keras 3.15.1"),
        "device": CPU,
        "inputs": GIVEN,
        "versions": {"tensorflow": "2.21.0", "keras": "3.15.1", "library": "keras"},
        "split": Split.BATCHES,
        "layers": layers,
        "fixed": {"net/probabilities": OUTPUT},
        "trials": trials,
        "resumed": 0,
        "best": result,
        "closest": min(trials, key=lambda one: one.excess, default=None),
        "metric": None,
        "options": options(layers),
        "ending": Ending.MINIMAL,
        "is_minimum": True,
        "margin": 0,
        "seconds": 41.26,
        "seed": 1,
    }
    values |= changes
    return Tuning(**_counts(**values), **values)


def _counts(**values: Any) -> dict[str, Any]:
    """Return the layers in float32, with output layers, and the number of layers by policy."""
    found = values["best"] or values["closest"]
    if found is None or values["policy"] in QUANTIZATIONS:
        return {}
    float32_layers = (*found.kept, *values["fixed"])
    counts = {
        values["policy"]: len(values["layers"]) - len(found.kept),
        "float32": len(float32_layers),
    }
    return {
        "policies": {name: count for name, count in counts.items() if count},
        "float32_layers": float32_layers,
    }


def options(layers: tuple[TunedLayer, ...]) -> Options:
    """Return the options of ``migrate`` for these layers."""
    return Options(
        to=POLICY,
        assignments=tuple(
            Assignment(pattern=item.path, policy="float32" if item.kept else POLICY)
            for item in layers
            if item.kept or item.rule is not None
        ),
    )


@cache
def migration() -> Migration:
    """Return the plan of a real file, which is not carried out."""
    (result,) = migrate_all(
        list(discovery.inputs([str(FIXTURES / "keras3.15/default_float32.keras")])),
        Options(to=POLICY),
        Destination(write=False),
    )
    assert isinstance(result, Migration)
    source = Path(MODEL)
    target = source.with_name("default_float32.mixed_float16.keras")
    return replace(
        result, plan=replace(result.plan, path=MODEL), source=source, target=target, parts={}
    )


def _passing() -> Tunings:
    return Tunings(tuning=tuning(), migration=replace(migration(), status=Status.WRITTEN))


def _planned() -> Tunings:
    """Return a search whose result is only planned, with an output of the user's."""
    target = Path("tuned models/small.keras")
    return Tunings(
        tuning=tuning(is_minimum=False),
        migration=replace(migration(), target=target),
        arguments=("tune", MODEL, "--to", POLICY, "--preview"),
    )


def _nothing_kept() -> Tunings:
    layers = tuple(layer(f"net/dense_{number}", 2e-4 + 1e-5 * number) for number in range(14))
    result = tuning(
        layers=layers,
        trials=(trial(excess=0.31, validation=0.30),),
        fixed={},
        inputs=DRAWN,
        seconds=2.5,
    )
    return Tunings(tuning=result, migration=replace(migration(), status=Status.WRITTEN))


def _not_found() -> Tunings:
    """Return a search of many layers that ends before it has a set."""
    layers = tuple(
        layer(f"encoder/block_{number // 6}/dense_{number}", 1e-3 + 1e-4 * number)
        for number in range(54)
    )
    paths = tuple(item.path for item in layers)
    trials = tuple(
        trial(*paths[: 53 - number % 53], excess=13.0 + 0.4 * (number % 53) + number // 53)
        for number in range(64)
    )
    closest = trials[0]
    result = tuning(
        layers=layers,
        trials=trials,
        best=None,
        closest=closest,
        options=None,
        ending=Ending.TRIALS,
        is_minimum=False,
        device=GPU,
    )
    return Tunings(tuning=result, arguments=("tune", MODEL, "--resume", "record.json"))


def _impossible() -> Tunings:
    layers = tuple(replace(item, kept=False, excess_if_converted=None) for item in _layers())
    paths = tuple(item.path for item in layers)
    trials = (trial(excess=math.inf), trial(*paths, excess=2.61))
    result = tuning(
        layers=layers,
        trials=trials,
        best=None,
        options=None,
        ending=Ending.IMPOSSIBLE,
        is_minimum=False,
        notes=(
            CheckNote(
                code="kept-in-16-bits",
                message="1 layer computes in float16 because of --set: net/head",
            ),
        ),
    )
    return Tunings(tuning=result)


def _interrupted() -> Tunings:
    """Return a search that ended before it tried each removal."""
    layers = tuple(replace(item, excess_if_converted=None) for item in _layers())
    trials = _trials(layers)[:7]
    result = tuning(
        layers=layers,
        trials=trials,
        ending=Ending.INTERRUPTED,
        is_minimum=False,
        split=Split.NONE,
    )
    return Tunings(tuning=result, migration=replace(migration(), status=Status.WRITTEN))


def _resumed() -> Tunings:
    """Return a search that went on from a record with all inputs, until its time was over."""
    result = tuning(
        resumed=5,
        margin=1,
        ending=Ending.TIME,
        is_minimum=False,
        seconds=600.4,
    )
    return Tunings(
        tuning=result,
        migration=replace(migration(), status=Status.WRITTEN),
        arguments=("tune", MODEL, "--resume=record.json"),
    )


def _objectives() -> Tunings:
    """Return a search for several objectives at once, with tolerances by name."""
    named = Tolerances(
        given=(
            ToleranceOption(pattern="boxes", value=0.002),
            ToleranceOption(pattern=None, value=0.01),
        )
    )
    measured = [
        replace(one, agreement=agreement, gradient_error=gradient, metric=metric)
        for one, agreement, gradient, metric in zip(
            _trials(_layers()),
            (None, 1.0, 0.999, 0.999, 0.9985, 0.998, 0.9981, 0.95, None),
            (None, 0.0, 0.01, 0.01, 0.02, 0.03, 0.031, 0.4, None),
            (None, 0.9153, 0.9153, 0.9152, 0.915, 0.915, 0.9149, 0.83, None),
            strict=True,
        )
    ]
    values = {
        "name": "accuracy",
        "higher_is_better": True,
        "outputs": [{"output": "classes", "reference": 0.9153, "candidate": 0.9149}],
    }
    result = tuning(
        trials=tuple(measured),
        objective=Objective(
            tolerances=named,
            agreement=0.995,
            metric=MetricOptions(labels=ROOT / "labels.npy", metric="accuracy", max_drop=0.002),
            gradients=True,
        ),
        metric=metric_from_json(values, 0.002),
    )
    return Tunings(tuning=result, migration=replace(migration(), status=Status.WRITTEN))


def _not_validated() -> Tunings:
    """Return a search whose set fails on the inputs that it did not use."""
    trials = (*_trials(_layers())[:6], trial(*KEPT, excess=0.97, validation=1.31))
    result = tuning(trials=trials, ending=Ending.TRIALS, is_minimum=False)
    return Tunings(tuning=result)


def _few_rows() -> Tunings:
    """Return a search that leaves too few rows for an answer."""
    few = promise(0, 16, answer=Answer.UNDECIDED, why=Open.FEW, needed=598)
    trials = tuple(
        replace(item, promise=few) if item.promise is not None else item
        for item in _trials(_layers())
    )
    return Tunings(tuning=tuning(trials=trials), migration=migration())


def _hostile() -> Tunings:
    """Return a search of which every name is a stranger's."""
    layers = (
        layer(HOSTILE, class_name=HOSTILE, kept=True, rule=HOSTILE, excess_if_converted=2.0),
        layer(f"net/{HOSTILE}", class_name=HOSTILE, rule=HOSTILE),
    )
    trials = (
        trial(excess=2.0, failure=HOSTILE),
        trial(HOSTILE, excess=0.5, validation=0.5),
    )
    result = tuning(
        layers=layers,
        trials=trials,
        fixed={HOSTILE: HOSTILE},
        reference=CheckSide(path=HOSTILE, policy="float32", policies={}, library=HOSTILE),
        device=replace(CPU, model=HOSTILE),
        inputs=replace(
            GIVEN,
            inputs=(CheckInput(name=HOSTILE, shape=None, dtype="float32", how=HOSTILE),),
            notes=(HOSTILE,),
        ),
        notes=(CheckNote(code="odd", message=HOSTILE),),
    )
    return Tunings(tuning=result)


CASES: Final = {
    "passing": _passing(),
    "planned": _planned(),
    "everything": replace(_passing(), everything=True),
    "nothing-kept": _nothing_kept(),
    "not-found": _not_found(),
    "impossible": _impossible(),
    "interrupted": _interrupted(),
    "resumed": _resumed(),
    "objectives": _objectives(),
    "not-validated": _not_validated(),
    "few-rows": _few_rows(),
    "hostile": _hostile(),
    "failure": Tunings(
        failures=(Failure(path="gone.h5", code="not-found", message="is not there"),)
    ),
}
