"""The fields of ``check``, of which its JSON consists: everything that was measured."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.numerics.check_results.checks import ExtraBatch, InputKind
from policytool.numerics.check_results.verdicts import (
    Answer,
    JudgementSubject,
    NotComparable,
    Open,
    OutputKind,
    Ruling,
)
from policytool.numerics.verdicts import loss_scales
from policytool.numerics.verdicts.loss_scales import ScaleNeed
from policytool.reports.checks._page import computing_scopes, kept_reason, run_caveats
from policytool.reports.checks._verdict import command, origin, verdict
from policytool.reports.fields import (
    AMOUNT,
    COUNT,
    FINITE,
    FLAG,
    NUMBER,
    OPTIONAL_COUNT,
    OPTIONAL_NUMBER,
    OPTIONAL_SHARE,
    OPTIONAL_TEXT,
    SENTENCE,
    SHARE,
    TEXT,
    TEXTS,
    Field,
    Record,
    Report,
    Type,
    choice,
    choice_of,
    fields_of,
    items,
    mapping,
    nullable,
    pair,
)
from policytool.reports.shared_fields import (
    NOTE,
    RECORDED_LOSS_SCALE,
    StoredLossScale,
    failures_field,
)
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.numerics.check_results.checks import (
        Check,
        CheckInput,
        CheckInputs,
        CheckRun,
        CheckSide,
        GraphRewrite,
        KeptScope,
        MissingKernel,
        OverflowProbe,
        RecordedFile,
        TensorFlowDevice,
        Timing,
    )
    from policytool.numerics.check_results.gradients import (
        DynamicScale,
        GradientReductions,
        Gradients,
        OutputLoss,
        TrainedVariable,
        Trial,
    )
    from policytool.numerics.check_results.metrics import (
        ChannelErrors,
        CheckedOutput,
        LayerCall,
        Metrics,
        OutputChanges,
        OutputMetric,
        ProbabilityErrors,
        Shares,
        TaskMetric,
    )
    from policytool.numerics.check_results.verdicts import (
        Advice,
        Bounds,
        Judgement,
        KindAnswer,
        Origin,
        OutputAnswer,
    )
    from policytool.numerics.verdicts.loss_scales import LossScaleDecision
    from policytool.reports.checks._verdict import Checks


class RunOfCheck(NamedTuple):
    """One run of a check."""

    check: Check
    run: CheckRun

    @property
    def outputs(self) -> list[JudgedOutput]:
        """The outputs, each with its answer and its verdict."""
        answers = {answer.name: answer for answer in self.run.answers}
        judgements = self.run.verdict.by_path(JudgementSubject.OUTPUT)
        return [
            JudgedOutput(output, answers.get(output.name or ""), judgements.get(output.name or ""))
            for output in self.run.outputs
        ]

    @property
    def calls(self) -> list[JudgedCall]:
        """The layer calls, each with its verdict."""
        judgements = self.run.verdict.by_path(JudgementSubject.LAYER)
        return [JudgedCall(call, judgements.get(call.place)) for call in self.run.calls]


class OriginOfRun(NamedTuple):
    """The cause of the error of a run."""

    run: CheckRun
    origin: Origin


class JudgedOutput(NamedTuple):
    """An output of the model or signature."""

    output: CheckedOutput
    answer: OutputAnswer | None
    judgement: Judgement | None


class JudgedCall(NamedTuple):
    """A call of a layer."""

    call: LayerCall
    judgement: Judgement | None


class KeptScopeOfRewrite(NamedTuple):
    """A scope of a graph with ops that stay in float32."""

    rewrite: GraphRewrite
    kept: KeptScope


ANSWER: Final = choice_of(
    Answer, name="answer", text="Whether predictions stay those of the reference."
)
WHY: Final = nullable(
    choice_of(Open, name="why", text="Why an output is undecided; null otherwise.")
)
_SHAPE: Final = Type(
    {
        "description": "Null for an unknown dimension.",
        **items(OPTIONAL_COUNT).schema(),
    },
    name="shape",
)
_SHARES: Final[Record[Shares]] = Record(
    "shares",
    (
        Field("samples", COUNT),
        Field("changed", COUNT, "Samples with any change."),
        Field("total", AMOUNT),
        Field("squares", AMOUNT),
        Field("worst", SHARE),
    ),
    "The shares of rows that changed, summed up over samples.",
)

_SIDES: Final[Record[tuple[float, float]]] = Record(
    "",
    (
        Field("reference", NUMBER, value=itemgetter(0)),
        Field("candidate", NUMBER, value=itemgetter(1)),
    ),
)
LAYER_REASON: Final[Record[tuple[str, str]]] = Record(
    "",
    (
        Field("path", TEXT, value=itemgetter(0)),
        Field("reason", TEXT, value=itemgetter(1)),
    ),
)

SIDE: Final[Record[CheckSide]] = Record(
    "side",
    (
        Field("path", TEXT),
        Field(
            "policy",
            OPTIONAL_TEXT,
            "The policy set for its layers; null for the policies in the file.",
        ),
        Field(
            "policies",
            mapping(COUNT),
            "Number of layers that compute, without input layers and models, with each policy.",
        ),
        Field(
            "float32_layers",
            TEXTS,
            "Of these, the layers in float32 if the policy set for the model computes in 16 bits.",
        ),
        Field(
            "kept",
            items(LAYER_REASON),
            "Layers that keep another policy.",
            value=lambda side: side.kept.items(),
        ),
        Field("library", TEXT, "The library that loaded the model."),
        Field("backend", TEXT, "The Keras backend that ran the model."),
        Field("weights", choice("file", "random"), "The source of the weights."),
        Field(
            "dequantized",
            items(choice("int8", "int4", "float8")),
            "Quantization modes of layers that ran in floating point with dequantized weights; "
            "only in the reference.",
        ),
    ),
)

DEVICE: Final[Record[TensorFlowDevice]] = Record(
    "device",
    (
        Field("name", TEXT, "The device name, as accepted by --device."),
        Field("kind", choice("cpu", "gpu")),
        Field("model", OPTIONAL_TEXT),
        Field("compute_capability", OPTIONAL_TEXT),
        Field("memory", OPTIONAL_COUNT, "Memory in bytes."),
        Field("driver", OPTIONAL_TEXT),
        Field("cuda", OPTIONAL_TEXT, "The CUDA version that TensorFlow was built for."),
        Field("cudnn", OPTIONAL_TEXT),
        Field(
            "matrix_precision",
            OPTIONAL_TEXT,
            "The setting of the backend for products of float32 matrices, which are computed in "
            "float32, with its name.",
        ),
    ),
)

_INPUT: Final[Record[CheckInput]] = Record(
    "",
    (
        Field("name", TEXT),
        Field("shape", nullable(_SHAPE)),
        Field("dtype", TEXT),
        Field("how", TEXT, "How the values were generated, or where they come from."),
        Field(
            "range",
            nullable(pair(FINITE)),
            "The lowest and the highest synthetic value; null for text and for given inputs.",
        ),
    ),
)

INPUTS: Final[Record[CheckInputs]] = Record(
    "inputs",
    (
        Field("kind", choice_of(InputKind)),
        Field("seed", OPTIONAL_COUNT, "Null if the inputs are not synthetic."),
        Field("batches", COUNT),
        Field("batch_size", COUNT),
        Field("inputs", items(_INPUT)),
        Field(
            "extra",
            items(choice_of(ExtraBatch)),
            "Batches that contain a constant or the edges of the ranges, in addition to the "
            "random batches.",
        ),
        Field("notes", TEXTS),
        Field(
            "layer_rows",
            OPTIONAL_COUNT,
            "The number of rows in which layers were compared; null for all rows. Outputs are "
            "compared in all rows.",
        ),
    ),
)

_ORIGIN: Final[Record[OriginOfRun]] = Record(
    "origin",
    (
        *fields_of(
            "origin",
            (
                Field("path", TEXT, "The layer or op."),
                Field("class_name", TEXT),
                Field(
                    "seen_in",
                    OPTIONAL_TEXT,
                    "If the layer rounds its output too much: the layer that shows the error.",
                ),
                Field(
                    "nonfinite",
                    FLAG,
                    "Whether the layer returns NaN or infinity for finite inputs.",
                ),
                Field(
                    "in_reference",
                    FLAG,
                    "Whether the reference already contains the NaN or infinity.",
                ),
                Field(
                    "code_of",
                    FLAG,
                    "Whether the error is in the code of the layer itself and not in a layer that "
                    "it calls.",
                    value=attrgetter("in_code"),
                ),
            ),
        ),
        Field(
            "reason",
            SENTENCE,
            "The reason, as a sentence.",
            value=lambda cause: origin(cause.run, cause.origin),
        ),
    ),
)

_METRIC_FIELDS: Final[tuple[Field[OutputMetric], ...]] = (
    Field("reference", NUMBER, "The metric of the reference."),
    Field("candidate", NUMBER, "The metric of the candidate."),
    Field(
        "drop",
        OPTIONAL_NUMBER,
        "How much worse the candidate is; below 0 if it is better, null if the metric is NaN.",
    ),
    Field("max_drop", NUMBER, "How much worse the candidate may be."),
    Field("passed", FLAG),
)
_OUTPUT_METRIC: Final[Record[OutputMetric]] = Record(
    "", (Field("output", OPTIONAL_TEXT), *_METRIC_FIELDS)
)

METRIC: Final[Record[TaskMetric]] = Record(
    "metric",
    (
        Field("name", SENTENCE),
        Field("higher_is_better", FLAG, "False for errors and losses."),
        *fields_of("worst", _METRIC_FIELDS),
        Field(
            "outputs",
            items(_OUTPUT_METRIC, minItems=1),
            "The same for each output with labels. The output is null if one function gets all "
            "outputs.",
        ),
    ),
    "The metric for the output whose metric gets worse by most, and that of each output.",
)

_METRICS: Final[Record[Metrics]] = Record(
    "metrics",
    (
        Field("elements", COUNT),
        Field(
            "max_abs", OPTIONAL_NUMBER, "The largest absolute difference between two finite values."
        ),
        Field(
            "relative",
            OPTIONAL_NUMBER,
            "The L2 norm of the difference divided by that of the reference.",
        ),
        Field(
            "snr_db", OPTIONAL_NUMBER, "The ratio of the reference to the difference, in decibels."
        ),
        Field("cosine", OPTIONAL_NUMBER, "The cosine of the angle between the two tensors."),
        Field(
            "overflow",
            OPTIONAL_SHARE,
            "The share of values that are finite in the reference but not in the candidate.",
        ),
        Field("nan", nullable(_SIDES), "Number of NaN values."),
        Field("infinite", nullable(_SIDES), "Number of infinite values."),
        Field(
            "subnormal",
            OPTIONAL_SHARE,
            "The share of values that are subnormal in the dtype of the candidate.",
        ),
        Field(
            "flushed",
            OPTIONAL_SHARE,
            "The share of values that underflow: they are zero in the candidate, because its dtype "
            "cannot represent numbers as small as those of the reference.",
        ),
        Field(
            "largest_reference", OPTIONAL_NUMBER, "The largest finite magnitude in the reference."
        ),
        Field("largest", OPTIONAL_NUMBER, "The largest finite magnitude in the candidate."),
        Field(
            "headroom",
            OPTIONAL_NUMBER,
            "The factor by which the candidate's largest value can grow before it overflows; if "
            "the candidate overflows, that of the reference's largest value, which is below 1 if "
            "the dtype cannot represent it.",
        ),
        Field("pair", nullable(_SIDES), "The two values with the largest difference."),
        Field(
            "differing",
            OPTIONAL_COUNT,
            "Number of elements that differ, for tensors other than floats.",
        ),
    ),
    "A value is null if it was not measured or does not apply.",
)

_BOUNDS: Final[Record[Bounds]] = Record(
    "",
    (
        Field("value", NUMBER),
        Field("lower", NUMBER),
        Field("upper", NUMBER),
    ),
)

_KIND_ANSWER: Final[Record[KindAnswer]] = Record(
    "kind-answer",
    (
        Field("kind", choice_of(OutputKind)),
        Field("answer", ANSWER),
        Field(
            "change",
            _BOUNDS,
            "The share of samples that changed, or the error relative to the spread or the mean "
            "probability, with its bounds at 95% confidence.",
        ),
        Field("samples", COUNT),
        Field("predictions", COUNT, "The predictions in the samples, such as one for each token."),
        Field("why", WHY),
        Field(
            "needed",
            OPTIONAL_COUNT,
            "About how many samples would show that the candidate is safe, if the others are like "
            "these; null if more samples would not.",
        ),
        Field("channel", OPTIONAL_COUNT),
        Field(
            "limit",
            OPTIONAL_NUMBER,
            "The largest change that is safe, if the answer is undecided because the change is "
            "above it, but too small to be not safe; otherwise null.",
        ),
    ),
)

_VERDICT: Final[Record[Judgement]] = Record(
    "verdict",
    (
        Field(
            "error",
            OPTIONAL_NUMBER,
            "The L2 norm of the difference divided by that of the reference, or the largest such "
            "error of several outputs. For integers under --tolerance, the share of values that "
            "differ.",
        ),
        Field("tolerance", AMOUNT),
        Field("given", FLAG, "Whether --tolerance set the tolerance."),
        Field(
            "not_comparable",
            nullable(choice_of(NotComparable)),
            "Why an output cannot be compared: the reference has no finite values, or only zeros, "
            "or only one value.",
        ),
        Field("outcome", choice_of(Ruling), value=attrgetter("ruling")),
    ),
)

_PROBABILITY: Final[Record[ProbabilityErrors]] = Record(
    "",
    (
        Field("error", AMOUNT),
        Field("worst", AMOUNT),
        Field("sum", AMOUNT),
        Field("squares", NUMBER, "The sum of the squares of each sample's sum."),
    ),
)

_CHANNEL: Final[Record[ChannelErrors]] = Record(
    "",
    (
        Field("error", AMOUNT),
        Field("worst", AMOUNT),
        Field("squares", AMOUNT),
        Field("spread", AMOUNT),
        Field("mean", AMOUNT),
        Field("values", COUNT),
    ),
)

_CHANGES: Final[Record[OutputChanges]] = Record(
    "",
    (
        Field("samples", COUNT),
        Field("compared", COUNT, "Samples that are finite in both models."),
        Field("spoiled", COUNT, "Samples with NaN or infinity in the candidate only."),
        Field("rows", COUNT),
        Field("width", COUNT, "Values of the last axis."),
        Field("range", nullable(pair(FINITE))),
        Field("varies", FLAG),
        Field("is_probability", FLAG),
        Field("sums_to_one", FLAG),
        Field("has_unit_norm", FLAG),
        Field("open_share", OPTIONAL_SHARE),
        Field("class_changes", nullable(_SHARES)),
        Field(
            "has_one_class",
            nullable(FLAG),
            "Whether the largest value has the same index in all rows of the reference.",
        ),
        Field("side_changes", nullable(_SHARES)),
        Field("value_changes", nullable(_SHARES)),
        Field("neighbor_changes", nullable(_SHARES)),
        Field("unmatched_masks", nullable(_SHARES)),
        Field("probability", nullable(_PROBABILITY)),
        Field("class_error", OPTIONAL_NUMBER),
        Field("channels", items(_CHANNEL)),
    ),
)

_OUTPUT_ANSWER: Final[Record[OutputAnswer]] = Record(
    "",
    (
        Field("answer", ANSWER),
        Field("kinds", items(_KIND_ANSWER)),
        Field("samples", COUNT),
        Field("spoiled", COUNT),
        Field("why", WHY),
        Field(
            "by_labels",
            FLAG,
            "Whether the metric with labels decides.",
            value=lambda answer: answer.labels is not None,
        ),
    ),
)

_OUTPUT: Final[Record[JudgedOutput]] = Record(
    "output",
    (
        *fields_of(
            "output",
            (
                Field("name", OPTIONAL_TEXT),
                Field("shape", _SHAPE),
                Field("dtype_reference", TEXT),
                Field("dtype_candidate", TEXT),
                Field(
                    "accumulated",
                    nullable(_METRICS),
                    "Errors when both models run end to end; null if they cannot be compared.",
                ),
                Field(
                    "tf32",
                    nullable(_METRICS),
                    "With --measure tf32: the reference with TF32 compared with the reference "
                    "without it.",
                ),
                Field(
                    "activation",
                    OPTIONAL_TEXT,
                    "The last activation of the output; null if the graph of the model does not "
                    "tell.",
                ),
                Field("changes", nullable(_CHANGES)),
            ),
        ),
        Field("answer", nullable(_OUTPUT_ANSWER), "Null if the output was not compared."),
        Field(
            "verdict",
            nullable(_VERDICT),
            "The verdict on the accumulated error.",
            value=attrgetter("judgement"),
        ),
    ),
)

_CALL_OUTPUT: Final[Record[CheckedOutput]] = Record(
    "",
    (
        Field("shape", _SHAPE),
        Field("dtype_reference", TEXT),
        Field("dtype_candidate", TEXT),
        Field("accumulated", nullable(_METRICS), "Errors when both models run end to end."),
        Field("tf32", nullable(_METRICS)),
        Field(
            "isolated",
            nullable(_METRICS),
            "Errors of the candidate's layer when it receives the reference's activations; null "
            "if not measured.",
        ),
    ),
)

_CALL: Final[Record[JudgedCall]] = Record(
    "call",
    (
        *fields_of(
            "call",
            (
                Field("path", TEXT, "Names from the root to the layer, joined by /."),
                Field(
                    "number",
                    COUNT,
                    "Number of earlier calls of the layer: a shared layer has several calls.",
                ),
                Field("class_name", TEXT),
                Field("compute_reference", OPTIONAL_TEXT),
                Field("compute_candidate", OPTIONAL_TEXT),
                Field(
                    "inputs", TEXTS, "The float dtypes of the inputs to the layer in the candidate."
                ),
                Field("depth", AMOUNT, "Number of terms in the reductions of the layer."),
                Field("children", COUNT, "Number of calls of other layers inside this call."),
                Field("is_model", FLAG),
            ),
        ),
        Field(
            "verdict",
            nullable(_VERDICT),
            "The verdict on the isolated error, or on the accumulated error if only that one "
            "shows the first NaN or infinity.",
            value=attrgetter("judgement"),
        ),
        Field("outputs", items(_CALL_OUTPUT), value=attrgetter("call.outputs")),
    ),
)

_KEPT_SCOPE: Final[Record[KeptScopeOfRewrite]] = Record(
    "",
    (
        *fields_of(
            "kept",
            (
                Field("scope", TEXT),
                Field("ops", mapping(COUNT), "Number of these ops by type."),
                Field(
                    "whole",
                    FLAG,
                    "Whether the pass changed no op of the scope.",
                    value=attrgetter("is_whole"),
                ),
            ),
        ),
        Field(
            "reason",
            SENTENCE,
            "The reason, by TensorFlow's op lists.",
            value=lambda scope: kept_reason(scope.rewrite, scope.kept),
        ),
    ),
)

_REWRITE: Final[Record[GraphRewrite]] = Record(
    "rewrite",
    (
        Field("option", TEXT, "The option of RewriterConfig that enables the pass."),
        Field("ops", COUNT, "Number of ops that the pass changed to 16 bits."),
        Field("total", COUNT, "Number of ops that had a float32 type before."),
        Field("casts", COUNT, "Number of casts that the pass added."),
        Field("narrow_before", COUNT, "Number of ops that had a 16-bit type before."),
        Field("by_type", mapping(COUNT)),
        Field(
            "unchanged",
            OPTIONAL_TEXT,
            "Why the pass changed nothing; null if it changed something.",
        ),
        Field("description", TEXT, value=attrgetter("said")),
        Field(
            "kept",
            items(_KEPT_SCOPE),
            "Scopes of the graph, such as layers, with ops that stay in float32, without those in "
            "functions.",
            value=lambda rewrite: [
                KeptScopeOfRewrite(rewrite, kept) for kept in computing_scopes(rewrite)
            ],
        ),
    ),
)

_KERNEL: Final[Record[MissingKernel]] = Record(
    "kernel",
    (
        Field("op", TEXT),
        Field("type", TEXT),
        Field("dtype", OPTIONAL_TEXT, "The dtype for which there is no kernel."),
        Field("layer", OPTIONAL_TEXT),
        Field("elsewhere", FLAG, "Whether the CPU has a kernel."),
        Field("in_float32", FLAG, "Whether the device has a kernel in float32."),
    ),
)

_REDUCTIONS: Final[Record[GradientReductions]] = Record(
    "reductions",
    (
        Field("elements", COUNT),
        Field(
            "undefined",
            COUNT,
            "Elements that are not finite in the reference; the other counts exclude them.",
        ),
        Field("nonzero", COUNT, "Elements that are not zero in the reference."),
        Field("underflow", COUNT, "Of the nonzero elements, those that are zero in the candidate."),
        Field("overflow", COUNT, "Elements that are not finite while scaled."),
        Field("subnormal", COUNT, "Elements that are subnormal while scaled."),
        Field("squared_error", NUMBER),
        Field("squared_reference", NUMBER),
        Field(
            "squared_lost",
            NUMBER,
            "The sum of squares in the reference of the elements that underflow.",
        ),
        Field("largest", NUMBER, "The largest finite magnitude while scaled."),
        Field("largest_reference", NUMBER),
        Field("relative_error", NUMBER),
    ),
    "Gradient elements of the candidate compared with the reference, after unscaling unless "
    "stated otherwise.",
)

_OUTPUT_LOSS: Final[Record[OutputLoss]] = Record(
    "",
    (
        Field("output", TEXT),
        Field("loss", OPTIONAL_TEXT),
        Field("source", choice("recorded", "substitute", "none")),
        Field("targets", OPTIONAL_TEXT),
        Field("weight", nullable(FINITE)),
        Field(
            "reason",
            OPTIONAL_TEXT,
            "Why the recorded loss was not used; null if it was.",
            value=attrgetter("why"),
        ),
    ),
)

_TRAINED_VARIABLE: Final[Record[TrainedVariable]] = Record(
    "",
    (
        Field("layer", TEXT),
        Field("name", TEXT),
        Field("shape", _SHAPE),
        Field("dtype", TEXT),
        Field(
            "gradient_dtype",
            TEXT,
            "The dtype in which the gradient was computed.",
            value=attrgetter("flow"),
        ),
    ),
)

_TRIAL: Final[Record[Trial]] = Record(
    "",
    (
        Field("scale", FINITE, "The loss scale; 1 means no scaling."),
        Field("loss", NUMBER),
        Field("total", _REDUCTIONS),
        Field("variables", items(_REDUCTIONS), "Results in the order of the variables."),
    ),
)

_DYNAMIC_SCALE: Final[Record[DynamicScale]] = Record(
    "",
    (
        Field("initial", FINITE),
        Field("multiplier", FINITE),
        Field("floor", FINITE),
        Field("scale", nullable(FINITE), "The first scale with finite gradients."),
        Field("skipped", COUNT, "Number of steps skipped before that scale is reached."),
    ),
)

_WORKABLE: Final[Record[tuple[float, float]]] = Record(
    "",
    (
        Field("lowest", FINITE, value=itemgetter(0)),
        Field("highest", FINITE, value=itemgetter(1)),
    ),
)

_DECISION: Final[Record[LossScaleDecision]] = Record(
    "",
    (
        Field("need", choice_of(ScaleNeed)),
        Field("matters", FLAG, "Whether dropping the recorded loss scale makes training worse."),
        Field(
            "suggested",
            nullable(FINITE),
            "A scale that works; null if none is needed or none works.",
        ),
        Field(
            "losing",
            TEXTS,
            "Variables that benefit from a scale, starting with the one that loses most without "
            "it.",
        ),
        Field("sentences", TEXTS),
    ),
)

_GRADIENTS: Final[Record[Gradients]] = Record(
    "gradients",
    (
        Field(
            "recorded",
            RECORDED_LOSS_SCALE,
            "The loss scale in the file.",
            value=lambda gradients: (
                None if gradients.recorded is None else StoredLossScale(gradients.recorded)
            ),
        ),
        Field("outputs", items(_OUTPUT_LOSS), "The loss of each output."),
        Field("reference_loss", OPTIONAL_NUMBER),
        Field("variables", items(_TRAINED_VARIABLE)),
        Field("trials", items(_TRIAL), "The results for each tested scale, in ascending order."),
        Field("dynamic", _DYNAMIC_SCALE),
        Field(
            "workable",
            nullable(_WORKABLE),
            "The lowest and the highest power of two that work as a loss scale; null if none does.",
        ),
        Field("random", TEXTS, "Ops that used random numbers despite inference mode."),
        Field("unconnected", TEXTS, "Variables that do not affect the loss."),
        Field(
            "inference_mode",
            TEXTS,
            "Random layers that ran in inference mode.",
            value=attrgetter("quiet"),
        ),
        Field(
            "custom_methods",
            TEXTS,
            "Training methods that the class of the model overrides; they were not used.",
            value=attrgetter("own"),
        ),
        Field("decision", _DECISION, value=loss_scales.loss_scale_decision),
    ),
)

_TIMING: Final[Record[Timing]] = Record(
    "timing",
    (
        Field("latency", AMOUNT, "The median latency of one batch, in seconds."),
        Field("spread", pair(FINITE), "The shortest and the longest latency, in seconds."),
        Field("throughput", AMOUNT, "Examples per second."),
        Field("peak_memory", OPTIONAL_COUNT, "The additional memory used by one call, in bytes."),
        Field(
            "how",
            nullable(choice("device")),
            "device if the device's allocator measured the memory, or if its compiler planned it; "
            "null if it was not measured.",
        ),
    ),
)

_RUN_VERDICT: Final[Record[RunOfCheck]] = Record(
    "",
    (
        Field("answer", ANSWER, value=attrgetter("run.answer")),
        Field(
            "sentence",
            SENTENCE,
            "The first sentence of the other reports.",
            value=lambda part: verdict(part.check, part.run),
        ),
        Field(
            "caveats",
            items(SENTENCE),
            "Limits of the verdict, such as synthetic inputs.",
            value=lambda part: list(run_caveats(part.check, part.run)),
        ),
        Field(
            "first_not_finite",
            OPTIONAL_TEXT,
            "The first call that returns NaN or infinity in the candidate but not in the "
            "reference.",
            value=attrgetter("run.verdict.first_not_finite"),
        ),
        Field(
            "nonfinite_reference",
            OPTIONAL_TEXT,
            "The first call that returns NaN in the reference, or infinity if no call returns NaN.",
            value=attrgetter("run.verdict.nonfinite_reference"),
        ),
    ),
)

_OVERFLOW_PROBE: Final[Record[OverflowProbe]] = Record(
    "",
    (
        Field(
            "factor",
            OPTIONAL_NUMBER,
            "The smallest factor that was tried and causes an overflow of float16 in the "
            "candidate but not in the reference; null if none does.",
        ),
        Field(
            "finite_to",
            Type({"type": "number", "minimum": 1}),
            "The largest factor that was tried and causes no overflow.",
        ),
        Field("path", OPTIONAL_TEXT, "The first layer that overflows."),
        Field("class_name", OPTIONAL_TEXT),
    ),
)

_TIMINGS: Final[Record[Mapping[str, Timing]]] = Record(
    "",
    (
        Field(
            "reference",
            _TIMING,
            value=lambda timings: timings.get("reference", ABSENT),
            is_optional=True,
        ),
        Field(
            "candidate",
            _TIMING,
            value=lambda timings: timings.get("candidate", ABSENT),
            is_optional=True,
        ),
    ),
)

_RUN: Final[Record[RunOfCheck]] = Record(
    "run",
    (
        *fields_of(
            "run",
            (
                Field("device", DEVICE),
                Field("signature", OPTIONAL_TEXT, "Null for a call of the model itself."),
                Field("inputs", INPUTS),
            ),
        ),
        Field("verdict", _RUN_VERDICT, value=lambda part: part),
        Field(
            "origin",
            nullable(_ORIGIN),
            "The cause of the error; null if the run passes or no layer causes it.",
            value=lambda part: (
                None if part.run.origin is None else OriginOfRun(part.run, part.run.origin)
            ),
        ),
        Field(
            "metric",
            nullable(METRIC),
            "The metric of the task, in both models; null without --metric.",
            value=attrgetter("run.verdict.metric"),
        ),
        Field("outputs", items(_OUTPUT), "Outputs of the model or signature."),
        Field(
            "calls",
            items(_CALL),
            "Every layer call, in the order in which the calls ended: inner calls before outer "
            "ones, and the model last. Empty if a kernel is missing.",
        ),
        *fields_of(
            "run",
            (
                Field(
                    "aliases",
                    TEXTS,
                    "Other signatures with the same graph, which are not run again.",
                ),
                Field(
                    "overflow_probe",
                    nullable(_OVERFLOW_PROBE),
                    "What larger inputs show: synthetic float inputs multiplied by one factor. "
                    "Null if they were not tried: with given inputs, without float inputs or "
                    "without float16 in the candidate, or if the inputs overflow as they are.",
                ),
                Field(
                    "rewrite",
                    nullable(_REWRITE),
                    "For a model that runs as a graph: the changes made by TensorFlow's automatic "
                    "mixed precision.",
                ),
                Field(
                    "missing",
                    items(_KERNEL),
                    "Ops without a kernel. If there are any, nothing was run.",
                ),
                Field("fallbacks", items(_KERNEL), "Ops that ran on the CPU instead."),
                Field("gradients", nullable(_GRADIENTS), "Null without --measure gradients."),
                Field("timings", _TIMINGS, "Null without --measure timing."),
                Field("unmatched", TEXTS, "Layers that only one of the two models calls."),
                Field(
                    "changed_weights",
                    nullable(TEXTS),
                    "Layers whose stored weights differ from those of the recorded run, empty for "
                    "a graph with other weights; null if none differ or it is unknown.",
                ),
            ),
        ),
    ),
)

_ADVICE: Final[Record[Advice]] = Record(
    "advice",
    (
        Field("layers", TEXTS, "The layers to keep in float32, by their paths in the file."),
        Field("trials", COUNT, "Number of times that the check ran again."),
        Field(
            "verified",
            FLAG,
            "Whether the check passed with these layers in float32.",
            value=lambda advice: bool(advice.layers),
        ),
        Field(
            "unfit",
            FLAG,
            "Whether the policy does not suit the model: more than half of the layers that follow "
            "it have to stay in float32, or no set of layers was found and the check does not "
            "fail with the other mixed policy.",
            value=attrgetter("is_unfit"),
        ),
        Field(
            "policy",
            OPTIONAL_TEXT,
            "The other mixed policy if the check does not fail with it; null if it was not tried "
            "or fails as well.",
        ),
        Field(
            "replaced",
            TEXTS,
            "The --set options, as PATTERN=POLICY, that have to be removed because they set one of "
            "these layers.",
            value=lambda advice: [f"{item.pattern}={item.policy}" for item in advice.replaced],
        ),
    ),
)

_RECORDING: Final[Record[RecordedFile]] = Record(
    "recording",
    (
        Field("file", TEXT),
        Field("bytes", COUNT),
        Field("rows", COUNT, "Number of rows of the inputs."),
        Field("calls", COUNT, "Number of recorded layer calls."),
    ),
)

_CHECK: Final[Record[Check]] = Record(
    "check",
    (
        Field("answer", ANSWER),
        Field("reference", SIDE),
        Field("candidate", SIDE),
        Field("versions", mapping(TEXT), "Versions of TensorFlow and Keras that ran."),
        Field(
            "runs",
            items(_RUN),
            "One run per device, and per signature of a model that runs as a graph.",
            value=lambda check: [RunOfCheck(check, run) for run in check.runs],
        ),
        Field("notes", items(NOTE)),
        Field(
            "command",
            nullable(TEXTS),
            "The arguments of the command that writes the candidate, with the layers to keep in "
            "float32 if it is not safe without; null for two files, and if there is none.",
            value=lambda check: list(command(check)) or None,
        ),
        Field(
            "advice",
            nullable(_ADVICE),
            "The layers that have to stay in float32; null if the check passed or nothing was "
            "tried.",
        ),
        Field(
            "recording",
            nullable(_RECORDING),
            "The file that --record wrote; null without it.",
        ),
        Field(
            "against",
            OPTIONAL_TEXT,
            "The recorded run of --against, which is the reference; null without it.",
        ),
    ),
)

REPORT: Final[Report[Checks]] = Report(
    "check",
    1,
    "A layer-by-layer comparison of a model under a policy with a reference. It contains every "
    "call to every layer, with or without -v. Additions keep the version number; any "
    "other change increases it.",
    (
        Field("check", nullable(_CHECK), "Null if nothing could run; the reasons are in failures."),
        failures_field("Files that could not be read or run"),
    ),
)
