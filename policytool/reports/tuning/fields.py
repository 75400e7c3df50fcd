"""The fields of the JSON report of ``tune``: all trials, and the plan for ``migrate --plan``."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policytool.formats.discovery import display_path
from policytool.numerics.check_results.verdicts import OutputKind
from policytool.numerics.tuning.results import Ending, Split
from policytool.reports.checks.fields import ANSWER, DEVICE, INPUTS, LAYER_REASON, METRIC, SIDE, WHY
from policytool.reports.fields import (
    AMOUNT,
    COUNT,
    FLAG,
    NUMBER,
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
    choice_of,
    fields_of,
    items,
    mapping,
    nullable,
)
from policytool.reports.plans.fields import PLAN
from policytool.reports.shared_fields import NOTE, failures_field
from policytool.reports.tuning._page import caveats, is_chosen
from policytool.reports.tuning._verdict import command, headline, point_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.migrate import Migration
    from policytool.numerics.tuning.results import (
        CurvePoint,
        Objective,
        Promise,
        Trial,
        TunedLayer,
        Tuning,
    )
    from policytool.numerics.verdicts.task_metric import MetricOptions
    from policytool.reports.tuning._verdict import Tunings

_EXCESS_TEXT: Final = (
    "The multiple of the limit that the objective allows: at most 1 meets the objective; infinite "
    "for NaN, and if the model fails to run."
)

_LAYER: Final[Record[TunedLayer]] = Record(
    "tuned-layer",
    (
        Field("path", TEXT),
        Field("class_name", TEXT),
        Field("kept", FLAG, "Whether the layer stays in float32."),
        Field(
            "rule",
            OPTIONAL_TEXT,
            "Why migrate keeps the layer in float32 by default; null if it converts it.",
        ),
        Field(
            "error",
            OPTIONAL_NUMBER,
            "The relative error of the layer itself; null if it is not finite.",
        ),
        Field(
            "largest",
            OPTIONAL_NUMBER,
            "The largest finite magnitude of its outputs in the reference.",
        ),
        Field(
            "headroom",
            OPTIONAL_NUMBER,
            "The factor by which its values can grow before they overflow.",
        ),
        Field(
            "flushed",
            OPTIONAL_SHARE,
            "The share of values that are too small for the dtype and underflow to zero.",
        ),
        Field(
            "excess_if_converted",
            OPTIONAL_NUMBER,
            "For a layer in float32: the excess if it is converted too, or if it is converted with "
            "fewer other layers and this shows that the set without it fails, on the half of the "
            "inputs on which it is larger. At most 1 if only the changes of predictions on the "
            "validation inputs show that the layer is needed.",
        ),
        Field(
            "excess_by_itself",
            OPTIONAL_NUMBER,
            "The excess if only this candidate is converted, on the half of the inputs on which it "
            "is larger.",
        ),
        Field(
            "decides",
            TEXTS,
            "Calls of ops and inner layers that compute in the dtype of this layer, and that the "
            "diagnosis blames.",
        ),
        Field(
            "finite",
            FLAG,
            "Whether all values are finite that are finite in the reference.",
            value=attrgetter("is_finite"),
        ),
    ),
    "A candidate, with measurements of the model in which all candidates are converted. A value "
    "is null if it was not measured.",
)
_PROMISE: Final[Record[Promise]] = Record(
    "promise",
    (
        Field("answer", ANSWER),
        Field("rows", COUNT),
        Field(
            "kind",
            nullable(choice_of(OutputKind)),
            "The kind of the predictions that change; null if nothing was compared.",
        ),
        Field(
            "most",
            OPTIONAL_NUMBER,
            "The upper bound at 95% confidence: the share of changed predictions, the error "
            "relative to the spread or the mean probability, or the drop of the metric; null if "
            "there is none.",
        ),
        Field("metric", OPTIONAL_TEXT, "The metric with labels, if it decides."),
        Field("spoiled", COUNT, "Rows with NaN or infinity in the candidate only."),
        Field("why", WHY),
        Field(
            "needed",
            nullable(COUNT),
            "The number of rows, with those of the search, that would show that the model is safe.",
        ),
    ),
    "The largest change of predictions in rows that the search did not use.",
)
_TRIAL: Final[Record[Trial]] = Record(
    "tune-trial",
    (
        Field("kept", TEXTS, "The candidates in float32, in model order."),
        Field("excess", NUMBER, f"The excess on the inputs of the search. {_EXCESS_TEXT}"),
        Field(
            "validation",
            OPTIONAL_NUMBER,
            "The excess on the validation inputs; null if there are none.",
        ),
        Field(
            "error",
            OPTIONAL_NUMBER,
            "The largest relative error of an output on all inputs; null if an output is not "
            "finite.",
        ),
        Field(
            "agreement",
            OPTIONAL_SHARE,
            "The share of rows with the same top-1 class; null without --metric agreement.",
        ),
        Field(
            "gradient_error",
            OPTIONAL_NUMBER,
            "The relative error of all gradients at the best loss scale; null without "
            "--gradients, or if no scale gives finite gradients.",
        ),
        Field("metric", OPTIONAL_NUMBER, "The metric of the model; null without --metric."),
        Field(
            "failure", OPTIONAL_TEXT, "Why the model fails to run with this set; null if it runs."
        ),
        Field("promise", nullable(_PROMISE), "Null if no rows were left for it."),
    ),
    "One set of layers in float32, and the results of the model with it.",
)
_TOLERANCE: Final[Record[Any]] = Record(
    "", (Field("pattern", OPTIONAL_TEXT), Field("value", AMOUNT))
)
_METRIC: Final[Record[MetricOptions]] = Record(
    "",
    (
        Field("name", SENTENCE, "The value of --metric.", value=lambda metric: str(metric.metric)),
        Field(
            "labels",
            OPTIONAL_TEXT,
            "The file of --labels; null if the metric compares predictions.",
            value=lambda metric: None if metric.labels is None else display_path(metric.labels),
        ),
        Field("max_drop", nullable(AMOUNT), "The drop of --metric; null for the default."),
    ),
)
_OBJECTIVE: Final[Record[Objective]] = Record(
    "objective",
    (
        Field(
            "tolerances",
            nullable(items(_TOLERANCE)),
            "The values of --tolerance; a pattern is null if the value applies to all outputs. "
            "Null if outputs only have to be finite.",
            value=lambda objective: objective.tolerances and objective.tolerances.given,
        ),
        Field(
            "agreement",
            OPTIONAL_SHARE,
            "The smallest allowed share of rows with the same top-1 class.",
        ),
        Field("metric", nullable(_METRIC)),
        Field(
            "gradients",
            FLAG,
            "Whether gradients have to be finite and close to those of the reference.",
        ),
    ),
    "Every part that is not null or false has to be met.",
)


class _Point(NamedTuple):
    """A point of the curve of a search."""

    tuning: Tuning
    point: CurvePoint


_CURVE_POINT: Final[Record[_Point]] = Record(
    "",
    (
        *fields_of(
            "point",
            (
                Field("converted", COUNT),
                Field("share", SHARE, "The share of all candidates."),
                Field(
                    "excess",
                    NUMBER,
                    f"The excess on the half of the inputs on which it is larger. {_EXCESS_TEXT}",
                ),
                Field(
                    "error",
                    OPTIONAL_NUMBER,
                    "The largest relative error of an output; null if an output is not finite.",
                ),
                Field("kept", TEXTS, "The candidates in float32."),
                Field("promise", nullable(_PROMISE), "Null if no rows were left for it."),
                Field(
                    "bytes",
                    nullable(COUNT),
                    "The size of the variables in this set; null if the file has none.",
                ),
            ),
        ),
        Field(
            "chosen",
            FLAG,
            "Whether this is the best set.",
            value=lambda item: is_chosen(item.tuning, item.point),
        ),
        Field(
            "command",
            nullable(TEXTS),
            "The arguments of a command that writes the model with this set.",
            value=lambda item: list(point_command(item.tuning, item.point)) or None,
        ),
    ),
)
_TUNING: Final[Record[Tunings]] = Record(
    "tuning",
    (
        *fields_of(
            "tuning",
            (
                Field(
                    "passed",
                    FLAG,
                    "Whether a set was found that converts a layer and does not fail on the "
                    "validation inputs. The exit code is 1 if not.",
                ),
                Field("answer", ANSWER),
                Field(
                    "policy",
                    SENTENCE,
                    "The policy of the converted layers; int8 or int4 if Keras quantizes them.",
                ),
                Field("reference", SIDE),
                Field("device", DEVICE),
                Field("inputs", INPUTS),
                Field("versions", mapping(TEXT), "Versions of TensorFlow and Keras that ran."),
                Field(
                    "split",
                    choice_of(Split),
                    "The inputs that validated the set: every second batch or row (batches), which "
                    "the search used too if its rows were too few (shared), or none because the "
                    "inputs cannot be split.",
                ),
                Field("layers", items(_LAYER), "The candidates, in model order."),
                Field(
                    "policies",
                    mapping(COUNT),
                    "Number of layers that compute, without input layers and models, with each "
                    "policy in the model with the best set, or with the closest one if no set was "
                    "found; empty for int8 and int4.",
                ),
                Field(
                    "float32_layers",
                    TEXTS,
                    "Of these, the layers in float32: those of the set, and those that are not "
                    "candidates.",
                ),
                Field(
                    "trials",
                    items(_TRIAL),
                    "Every trial in its order, starting with those of an earlier search.",
                ),
                Field("resumed", COUNT, "Number of trials from an earlier search."),
                Field(
                    "best",
                    nullable(_TRIAL),
                    "The trial of the smallest set that meets the objective; null if no set was "
                    "found.",
                ),
                Field(
                    "closest",
                    nullable(_TRIAL),
                    "The trial with the smallest excess; null without trials.",
                ),
                Field(
                    "ending",
                    choice_of(Ending),
                    "Why the search ended. Minimal: trials show that each removal of one layer "
                    "fails. Impossible: the objective is not met even with every candidate in "
                    "float32.",
                ),
                Field(
                    "margin",
                    COUNT,
                    "Layers that stay in float32 only because the set without them did not hold "
                    "on the validation inputs.",
                ),
                Field("seconds", AMOUNT, "Duration of the search in seconds."),
                Field("seed", COUNT),
                Field(
                    "curve",
                    items(_CURVE_POINT),
                    "The best trial for each number of converted layers.",
                    value=lambda tuning: [_Point(tuning, point) for point in tuning.curve],
                ),
                Field("notes", items(NOTE)),
                Field(
                    "minimum",
                    FLAG,
                    "Whether no smaller set exists, if additional layers in float32 never "
                    "increase the error.",
                    value=attrgetter("is_minimum"),
                ),
                Field(
                    "sentence", SENTENCE, "The first sentence of the other reports.", value=headline
                ),
                Field(
                    "caveats",
                    items(SENTENCE),
                    "Limits of the result, such as synthetic inputs.",
                    value=lambda tuning: list(caveats(tuning)),
                ),
                Field("objective", _OBJECTIVE),
                Field(
                    "kept",
                    TEXTS,
                    "The layers that stay in float32.",
                    value=lambda tuning: [layer.path for layer in tuning.kept],
                ),
                Field(
                    "fixed",
                    items(LAYER_REASON),
                    "Layers that compute in float32 and are not candidates.",
                    value=lambda tuning: tuning.fixed.items(),
                ),
                Field(
                    "metric",
                    nullable(METRIC),
                    "The metric of the reference and of the model with the best set, or with the "
                    "closest set if none was found; null without --metric.",
                ),
            ),
        ),
        Field(
            "command",
            nullable(TEXTS),
            "The arguments of a command that writes the model; null if it is written, or if no "
            "set was found.",
            value=lambda tunings: list(command(tunings)) or None,
        ),
    ),
)


def _plans(tunings: Tunings) -> Iterator[Migration]:
    """Yield the plan that ``migrate --plan`` applies, if there is one."""
    tuning, migration = tunings.tuning, tunings.migration
    if migration is not None and not (tuning is not None and tuning.is_quantization):
        yield migration


REPORT: Final[Report[Tunings]] = Report(
    "tune",
    1,
    "The layers that have to stay in float32 for a model to meet an objective, with every trial "
    "of the search. migrate --plan applies the plan. Additions keep the version number; any other "
    "change increases it.",
    (
        Field(
            "tuning",
            nullable(_TUNING),
            "Null if nothing could run; the reasons are in failures.",
            value=lambda tunings: None if tunings.tuning is None else tunings,
        ),
        Field(
            "plans",
            items(PLAN, maxItems=1),
            "The plan of the written or planned model, as in the report of migrate; empty if no "
            "set of layers was found, and for a quantization, which migrate cannot apply.",
            value=lambda tunings: list(_plans(tunings)),
        ),
        failures_field("Files that could not be read, run or written"),
    ),
)
