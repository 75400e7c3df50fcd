"""Checks made by hand, for the tests of their reports: each shows another part."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from policytool.commands.inspect import Failure
from policytool.migration.planning.options import Assignment, Options
from policytool.numerics.check_results import gradients, metrics
from policytool.numerics.check_results.checks import (
    Check,
    CheckInput,
    CheckInputs,
    CheckNote,
    CheckRun,
    CheckSide,
    ExtraBatch,
    GraphRewrite,
    InputKind,
    KeptScope,
    MissingKernel,
    TensorFlowDevice,
    Timing,
)
from policytool.numerics.check_results.metrics import (
    CheckedOutput,
    LayerCall,
    OutputChanges,
    Shares,
)
from policytool.numerics.check_results.verdicts import (
    Advice,
    Judgement,
    JudgementSubject,
    Origin,
    Ruling,
)
from policytool.numerics.verdicts import safety
from policytool.numerics.verdicts.safety import SafetyRule
from policytool.numerics.verdicts.tolerances import ToleranceOption, Tolerances, judge_run
from policytool.reports.checks import Checks
from policytool.support.text import codec

CPU: Final = TensorFlowDevice(
    name="cpu:0",
    kind="cpu",
    model="AMD EPYC 7B13",
    compute_capability=None,
    memory=16 * 2**30,
    driver=None,
    cuda=None,
    cudnn=None,
)
GPU: Final = TensorFlowDevice(
    name="gpu:0",
    kind="gpu",
    model="NVIDIA H200",
    compute_capability="9.0",
    memory=150_122_496_000,
    driver="570.86.10",
    cuda="12.5.1",
    cudnn="9",
)
DRAWN: Final = CheckInputs(
    kind=InputKind.SYNTHETIC,
    seed=1,
    batches=1,
    batch_size=8,
    inputs=(
        CheckInput(
            name="image",
            shape=(8, 224, 224, 3),
            dtype="float32",
            how="pixel values from 0 to 255",
            range=(0.0, 255.0),
        ),
    ),
    extra=(ExtraBatch.CONSTANT, ExtraBatch.EDGES),
)
GIVEN: Final = CheckInputs(
    kind=InputKind.GIVEN,
    seed=None,
    batches=4,
    batch_size=32,
    inputs=(
        CheckInput(name="ids", shape=(32, 128), dtype="int32", how="ids of the file"),
        CheckInput(name="mask", shape=(32, 128), dtype="bool", how="mask of the file"),
    ),
    notes=("the inputs file contains NaN or infinity in ids",),
)


OWN: Final = replace(
    DRAWN,
    kind=InputKind.GIVEN,
    seed=None,
    batches=32,
    batch_size=32,
    inputs=(replace(DRAWN.inputs[0], how="image of the file", range=None),),
    extra=(),
)
"""The user's images."""


def changes(changed: int = 0, samples: int = 1000, **other: Any) -> OutputChanges:
    """Return what became of the scores of classes; ``other`` are attributes."""
    actual: dict[str, Any] = {
        "compared": samples,
        "spoiled": 0,
        "rows": samples,
        "width": 10,
        "range": (0.0, 1.0),
        "varies": True,
        "is_probability": True,
        "sums_to_one": True,
        "has_unit_norm": False,
        "open_share": 0.5,
        "class_changes": Shares(
            samples=samples,
            changed=changed,
            total=float(changed),
            squares=float(changed),
            worst=float(changed > 0),
        ),
        "side_changes": None,
        "value_changes": None,
        "neighbor_changes": None,
        "unmatched_masks": None,
        "probability": None,
        "class_error": 0.0,
        "channels": (),
        **other,
    }
    return OutputChanges(samples=samples, **actual)


def measured(relative: float, dtype: str = "float16", **other: Any) -> metrics.Metrics:
    """
    Return the metrics of a tensor of a thousand values whose norm is 10, as far off as is said;
    ``other`` are reductions.
    """
    actual: dict[str, Any] = {
        "elements": 1000,
        "squared_error": 100 * relative**2,
        "squared_reference": 100.0,
        "squared_candidate": 100.0,
        **dict.fromkeys(
            (
                "overflowed",
                "nan_reference",
                "nan_candidate",
                "infinite_reference",
                "infinite_candidate",
                "subnormal",
                "flushed",
            ),
            0,
        ),
        "largest_reference": 2.5,
        "largest_candidate": 2.5,
        "largest_error": relative,
        "reference_at_largest": 1.0,
        "candidate_at_largest": 1.0 + relative,
        "differing": None,
        **other,
    }
    return metrics.metrics(codec.read(metrics.TensorReductions, actual), dtype)


def call(
    path: str,
    isolated: float | None,
    accumulated: float = 2e-4,
    *,
    class_name: str = "Dense",
    compute: str = "float16",
    **other: Any,
) -> LayerCall:
    """
    Return a call of a layer that gives one tensor; ``alone`` and ``along`` are reductions,
    ``number``, ``depth`` and the like are the call's own.
    """
    alone, along, tf32 = (
        other.pop(name, default) for name, default in (("alone", {}), ("along", {}), ("tf32", None))
    )
    output = CheckedOutput(
        shape=(None, 10),
        dtype_reference="float32",
        dtype_candidate=compute,
        accumulated=measured(accumulated, compute, **along),
        isolated=None if isolated is None else measured(isolated, compute, **{**_COARSE, **alone}),
        tf32=None if tf32 is None else measured(tf32, "float32"),
    )
    own: dict[str, Any] = {
        "number": 0,
        "inputs": (compute,),
        "depth": 64,
        "children": 0,
        "is_model": False,
        **other,
    }
    return LayerCall(
        path=path,
        class_name=class_name,
        compute_reference="float32",
        compute_candidate=compute,
        outputs=(output,),
        **own,
    )


_COARSE: Final = dict.fromkeys(
    (
        "subnormal",
        "flushed",
        "largest_reference",
        "largest_candidate",
        "largest_error",
        "reference_at_largest",
        "candidate_at_largest",
    )
)
"""What is not measured of a layer alone."""


def output(
    name: str,
    accumulated: float,
    *,
    dtype: str = "float32",
    changed: OutputChanges | None = None,
    tf32: float | None = None,
    **along: Any,
) -> CheckedOutput:
    """Return an output of the model."""
    return CheckedOutput(
        shape=(None, 10),
        dtype_reference="float32",
        dtype_candidate=dtype,
        accumulated=measured(accumulated, dtype, **along),
        name=name,
        activation="softmax",
        changes=changed or changes(),
        tf32=None if tf32 is None else measured(tf32, "float32"),
    )


def run(
    *calls: LayerCall,
    outputs: tuple[CheckedOutput, ...] = (),
    tolerances: tuple[ToleranceOption, ...] = (),
    **other: Any,
) -> CheckRun:
    """Return a run, on the CPU with synthetic inputs unless it is said otherwise."""
    about: dict[str, Any] = {"device": CPU, "signature": None, "inputs": DRAWN, **other}
    verdict = judge_run(calls, outputs, Tolerances(given=tolerances))
    return CheckRun(
        calls=calls,
        outputs=outputs,
        verdict=replace(verdict, judgements=tuple(map(_judged, verdict.judgements))),
        answers=safety.answer_outputs(outputs, SafetyRule(), None),
        **about,
    )


def _judged(found: Judgement) -> Judgement:
    """Return a judgement by tolerances that are the same whatever the defaults are."""
    if found.given or found.error is None:
        return found
    tolerance = {JudgementSubject.LAYER: 0.008, JudgementSubject.OUTPUT: 0.05}[found.about]
    is_far = found.error > tolerance
    ruling = Ruling.MISSED if is_far else Ruling.PASSED
    return replace(
        found,
        tolerance=tolerance,
        ruling=found.ruling if found.ruling is Ruling.NOT_FINITE else ruling,
    )


SIDES: Final = {
    "reference": CheckSide(
        path="models/mlp.h5", policy="float32", policies={"float32": 21}, library="tf_keras 2.21.0"
    ),
    "candidate": CheckSide(
        path="models/mlp.h5",
        policy="mixed_float16",
        policies={"mixed_float16": 18, "float32": 3},
        float32_layers=("net/probabilities", "net/unit", "net/unit_1"),
        kept={
            "net/probabilities": "it computes the output of the model, which is kept in float32",
            "net/unit": "its squares leave float16's range",
            "net/unit_1": "its squares leave float16's range",
        },
        library="tf_keras 2.21.0",
    ),
}
VERSIONS: Final = {"tensorflow": "2.21.0", "keras": "2.21.0", "library": "tf_keras"}


def check(
    *runs: CheckRun, notes: tuple[CheckNote, ...] = (), everything: bool = False, **sides: CheckSide
) -> Checks:
    """Return a check of these runs."""
    both = {**SIDES, **sides}
    return Checks(
        check=Check(
            reference=both["reference"],
            candidate=both["candidate"],
            versions=VERSIONS,
            runs=runs,
            notes=notes,
        ),
        everything=everything,
    )


def _layers(count: int = 18) -> list[LayerCall]:
    actual = [
        call(f"net/block_{number // 4}/dense_{number}", 2e-4 + 1e-5 * number, 3e-4 + 2e-5 * number)
        for number in range(count)
    ]
    norms = [
        call("net/norm", 0.0, 4e-4, class_name="BatchNormalization"),
        call("net/probabilities", 1e-7, 5e-4, class_name="Activation", compute="float32"),
    ]
    return [
        *actual,
        *norms,
        call("net", None, 5e-4, class_name="Functional", children=20, is_model=True),
    ]


def _passing() -> Checks:
    outputs = (output("probabilities", 4.12e-4, changed=changes(3)),)
    return check(run(*_layers(), outputs=outputs, inputs=replace(OWN, layer_rows=16)))


def _failing() -> Checks:
    """
    Return a check in which tf_keras' mean in float16 stops at 2, and many more layers miss their
    tolerance.
    """
    stopped = {"reference_at_largest": 10.0, "candidate_at_largest": 2.0}
    pool = call(
        "net/encoder/global_average_pooling2d",
        0.8,
        0.801,
        class_name="GlobalAveragePooling2D",
        along=stopped,
    )
    shared = [
        call(
            "net/encoder/shared_projection_of_everything_with_a_long_name",
            0.02 + 0.001 * number,
            number=number,
        )
        for number in range(14)
    ]
    lost = call("net/small", 2e-4, along={"subnormal": 42, "flushed": 3}, class_name="Rescaling")
    given = output(
        "probabilities",
        0.0723,
        changed=changes(586),
        reference_at_largest=0.97,
        candidate_at_largest=0.08,
    )
    origin = Origin(
        path=pool.path,
        class_name=pool.class_name,
        in_code=False,
        seen_in=None,
        nonfinite=False,
    )
    failed_run = run(*_layers(), pool, *shared, lost, outputs=(given,), origin=origin, inputs=OWN)
    result = check(failed_run)
    assert result.check is not None  # for the type
    kept = (pool.path, "net/encoder/logits")
    migration = Options(
        to="mixed_float16",
        assignments=tuple(Assignment(pattern=path, policy="float32") for path in kept),
    )
    advice = Advice(layers=kept, trials=4, choices=22)
    return replace(result, check=replace(result.check, advice=advice, migration=migration))


def _blind() -> Checks:
    """
    Return a check whose outputs show nothing: one because the reference makes NaN, one because it
    is constant, and one because there are few rows.
    """
    nothing: dict[str, Any] = {"nan_reference": 1000, "nan_candidate": 1000}
    log = call("net/log", None, 0.0, class_name="Log", along=nothing)
    nan = changes(varies=False, range=None, compared=0)
    outputs = (
        replace(output("heat", 0.0, **nothing), changes=nan),
        output("mask", 0.0, changed=changes(varies=False, range=(0.0, 0.0))),
        output("scores", 2e-3, changed=changes(1, 60)),
    )
    result = check(run(log, call("net/dense", 0.5), outputs=outputs, inputs=OWN))
    assert result.check is not None  # for the type
    return replace(result, check=replace(result.check, advice=Advice(layers=(), trials=6)))


def _not_finite() -> Checks:
    spoilt = {
        "overflowed": 250,
        "nan_candidate": 200,
        "infinite_candidate": 50,
        "largest_reference": 1e5,
    }
    near = call("net/dense_near", 3e-4, along={"largest_candidate": 54000.0})
    calls = [
        near,
        call("net/exponential", None, 0.01, class_name="Activation", along=spoilt),
        call("net/head", 2e-4, 0.5, along=spoilt),
    ]
    nothing = {
        "squared_error": 0.0,
        "squared_reference": 0.0,
        "squared_candidate": 0.0,
        "largest_candidate": 0.0,
        "overflowed": 1000,
        "nan_candidate": 1000,
    }
    origin = Origin(
        path="net/exponential",
        class_name="Activation",
        in_code=True,
        seen_in=None,
        nonfinite=True,
    )
    logits = output(
        "logits", 0.0, dtype="float16", changed=changes(spoiled=250, compared=750), **nothing
    )
    return check(run(*calls, outputs=(logits,), origin=origin, inputs=OWN))


def _given() -> Checks:
    """
    Return a check of two files on a GPU, with inputs of the user's, TF32, ops that ran elsewhere,
    layers of one model alone.
    """
    fallbacks = tuple(
        MissingKernel(
            op=f"lookup/hash_table_Lookup_{number}",
            type="LookupTableFindV2",
            dtype="int64",
            layer="net/vocabulary",
            elsewhere=True,
            in_float32=False,
        )
        for number in range(3)
    )
    result = run(
        call("net/embed", 0.0, 0.0, class_name="Embedding", tf32=0.0),
        call("net/dense", 2e-3, 3e-3, compute="bfloat16", tf32=4.1e-4),
        outputs=(
            output("starts", 2.5e-3, tf32=3.9e-4, changed=changes(0, 128)),
            output("ends", 4.5e-3, tf32=4.4e-4, changed=changes(2, 128)),
        ),
        device=GPU,
        inputs=GIVEN,
        fallbacks=fallbacks,
        unmatched=("net/dropout",),
    )
    sides: dict[str, Any] = {
        "reference": CheckSide(
            path="before.keras", policy=None, policies={"float32": 7}, library="keras 3.15.1"
        ),
        "candidate": CheckSide(
            path="after.keras",
            policy=None,
            policies={"mixed_bfloat16": 6, "float32": 1},
            library="keras 3.15.1",
        ),
    }
    return check(
        result,
        notes=(
            CheckNote(
                code="tf32",
                message=(
                    "the TF32 column compares the reference with TF32 to the reference without it"
                ),
            ),
        ),
        **sides,
    )


def _training() -> Checks:
    fields = list(gradients.GradientReductions.__struct_fields__)
    none = {
        "elements": 4096,
        "nonzero": 4000,
        "squared_reference": 1e-12,
        "largest": 1e-7,
        "largest_reference": 1e-6,
    }
    lost = {
        **none,
        "underflow": 3100,
        "subnormal": 800,
        "squared_error": 4e-13,
        "squared_lost": 4e-13,
    }
    kept = {
        **none,
        "underflow": 2,
        "subnormal": 0,
        "squared_error": 1e-19,
        "squared_lost": 1e-20,
        "largest": 1e-2,
    }
    over = {**kept, "overflow": 17, "largest": 65504.0}
    actual = {
        "fields": fields,
        "recorded": {"kind": "fixed", "value": 128.0},
        "outputs": [
            {
                "output": "probabilities",
                "loss": "SparseCategoricalCrossentropy",
                "source": "recorded",
                "targets": "classes",
                "weight": None,
                "why": None,
            }
        ],
        "reference_loss": 2.3026,
        "variables": [
            {
                "layer": f"net/dense_{number}",
                "variable": "kernel",
                "shape": [64, 64],
                "dtype": "float32",
                "flow": "float16",
            }
            for number in range(7)
        ],
        "trials": [
            {
                "scale": scale,
                "loss": 2.3031,
                "values": [[float({**dict.fromkeys(fields, 0), **row}[name]) for name in fields]]
                * 7,
            }
            for scale, row in (
                (1.0, lost),
                (128.0, {**kept, "underflow": 400, "squared_error": 1e-14}),
                (32768.0, kept),
                (65536.0, kept),
                (131072.0, over),
            )
        ],
        "dynamic": {
            "initial": 32768.0,
            "multiplier": 2.0,
            "floor": 1.0,
            "scale": 32768.0,
            "skipped": 0,
        },
        "search": {"lowest": 4096.0, "highest": 65536.0},
        "quiet": ["net/dropout"],
        "own": [],
        "random": [],
        "unconnected": [],
    }
    timings = {
        "reference": Timing(
            latency=0.0412,
            spread=(0.0401, 0.0523),
            throughput=194.2,
            peak_memory=812_000_000,
            how="device",
        ),
        "candidate": Timing(
            latency=0.0187,
            spread=(0.0184, 0.0201),
            throughput=427.8,
            peak_memory=431_000_000,
            how="device",
        ),
    }
    return check(
        run(
            *_layers(3),
            outputs=(output("probabilities", 4e-4),),
            gradients=gradients.gradients_from_json(actual),
            timings=timings,
            device=GPU,
        )
    )


def _graph() -> Checks:
    """
    Return a check of a file without Keras metadata: a run per signature, one of which the rewrite
    does nothing to.
    """
    scopes = [
        replace(
            call(
                f"StatefulPartitionedCall/dense_{number}",
                None,
                1e-3 * number,
                class_name="MatMul",
                compute="bfloat16",
            )
        )
        for number in range(3)
    ]
    changed = GraphRewrite(
        option="auto_mixed_precision_onednn_bfloat16",
        said="TensorFlow's rewrite for CPUs with oneDNN",
        ops=14,
        total=31,
        casts=6,
        narrow_before=2,
        by_type={"MatMul": 3, "BiasAdd": 3, "Relu": 2, "AddV2": 4, "Mul": 2},
        kept=(
            KeptScope(scope="scale", ops={"Exp": 1, "Mul": 2}, is_whole=True),
            KeptScope(scope="flat", ops={"Reshape": 1}, is_whole=True),
            KeptScope(scope="dense_1", ops={"Igamma": 1, "AddV2": 1}, is_whole=False),
        ),
        unchanged=None,
    )
    nothing = replace(
        changed,
        ops=0,
        casts=0,
        narrow_before=0,
        by_type={},
        kept=(),
        unchanged="the rewrite changes nothing: this graph has no matrix products",
    )
    numbers = CheckInput(name="x", shape=(32, 16), dtype="float32", how="normal values")
    inputs = replace(DRAWN, batch_size=32, inputs=(numbers,))
    ids = replace(whole(3), name="classes")
    runs = (
        run(
            *scopes,
            outputs=(output("scores", 0.004), ids),
            rewrite=changed,
            signature="serving_default",
            aliases=("serve",),
            inputs=inputs,
        ),
        run(
            outputs=(output("lowered", 0.0),), rewrite=nothing, signature="normalise", inputs=inputs
        ),
    )
    side = CheckSide(
        path="exported", policy="mixed_bfloat16", policies={}, library="tensorflow 2.21.0"
    )
    message = "the model runs as the graph in the file, because its classes are not available"
    return check(
        *runs,
        notes=(CheckNote(code="graph", message=message),),
        reference=replace(side, policy=None),
        candidate=side,
    )


def whole(differing: int) -> CheckedOutput:
    """Return an output of integers."""
    fields = dict.fromkeys(metrics.TensorReductions.__struct_fields__)
    result = metrics.metrics(
        codec.read(metrics.TensorReductions, {**fields, "elements": 80, "differing": differing}),
        "int64",
    )
    return CheckedOutput(
        shape=(None, 10), dtype_reference="int64", dtype_candidate="int64", accumulated=result
    )


def _kernels() -> Checks:
    """Return a check of an architecture that was not run, because kernels are missing."""
    missing = tuple(
        MissingKernel(
            op=f"net/pool_{number}/MaxPool3D",
            type="MaxPool3D",
            dtype="float16",
            layer=f"net/pool_{number}",
            elsewhere=False,
            in_float32=True,
        )
        for number in range(12)
    )
    alone = MissingKernel(
        op="svd", type="Svd", dtype=None, layer=None, elsewhere=False, in_float32=False
    )
    sides: dict[str, Any] = {
        name: replace(side, weights="random", path="net.json") for name, side in SIDES.items()
    }
    return check(run(missing=(*missing, alone)), **sides)


def _devices() -> Checks:
    good = run(*_layers(2), outputs=(output("probabilities", 4e-4),), device=GPU, inputs=OWN)
    bad = run(
        call("net/dense", 0.3, 0.3),
        *_layers(1),
        outputs=(output("probabilities", 0.21, changed=changes(500)),),
        inputs=OWN,
        device=replace(GPU, name="gpu:1", model="NVIDIA L4", driver=None),
    )
    return check(good, bad)


HOSTILE: Final = "a`b|c<b>d</b> @someone #1 \x1b[2J\n::warning::\u202e\udc80 /*"


def _hostile() -> Checks:
    """Return a check of which every name is a stranger's."""
    inputs = replace(
        DRAWN,
        inputs=(CheckInput(name=HOSTILE, shape=None, dtype="float32", how=HOSTILE),),
        notes=(HOSTILE,),
    )
    missing = MissingKernel(
        op=HOSTILE, type=HOSTILE, dtype="float16", layer=HOSTILE, elsewhere=True, in_float32=True
    )
    result = run(
        call(HOSTILE, 0.9, class_name=HOSTILE),
        outputs=(output(HOSTILE, 0.9),),
        inputs=inputs,
        fallbacks=(missing,),
        unmatched=(HOSTILE,),
        device=replace(CPU, model=HOSTILE),
    )
    side = CheckSide(
        path=HOSTILE,
        policy=HOSTILE,
        policies={HOSTILE: 1},
        kept={HOSTILE: HOSTILE},
        library=HOSTILE,
    )
    return check(
        result,
        replace(result, signature=HOSTILE),
        notes=(CheckNote(code="odd", message=HOSTILE),),
        reference=side,
        candidate=side,
    )


CASES: Final = {
    "passing": _passing(),
    "failing": _failing(),
    "all-layers": replace(_failing(), everything=True),
    "blind": _blind(),
    "not-finite": _not_finite(),
    "given": _given(),
    "training": _training(),
    "graph": _graph(),
    "kernels": _kernels(),
    "devices": _devices(),
    "hostile": _hostile(),
    "failure": Checks(
        failures=(Failure(path="gone.h5", code="not-found", message="is not there"),)
    ),
}
