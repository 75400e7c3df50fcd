"""
The result of ``tune``: the layers to keep in float32, the reasons, and all trials.

The objective is what the tuned model must meet. The excess of a run is its error as a multiple of
what the objective allows: a run meets the objective if its excess is at most 1.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.migration.planning.options import QUANTIZATIONS
from policytool.numerics.check_results.checks import InputKind
from policytool.numerics.check_results.verdicts import (
    Answer,
    JudgementSubject,
    NotComparable,
    Open,
    OutputKind,
    Ruling,
    excess,
    ratio,
    severity,
)
from policytool.numerics.check_sides import function_named
from policytool.numerics.verdicts.safety import MAX_CHANGE
from policytool.numerics.verdicts.task_metric import MetricOptions, check_max_drop, metric_options
from policytool.numerics.verdicts.tolerances import ToleranceOption, Tolerances
from policytool.releases.dtypes import is_float, itemsize
from policytool.releases.policy import policy_from_name
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from pathlib import Path

    from policytool.migration.planning.options import Options
    from policytool.model.model import Layer
    from policytool.numerics.check_results.checks import (
        CheckInputs,
        CheckNote,
        CheckRun,
        CheckSide,
        TensorFlowDevice,
    )
    from policytool.numerics.check_results.gradients import Gradients
    from policytool.numerics.check_results.metrics import TaskMetric
    from policytool.numerics.check_results.verdicts import Judgement

TOLERANCE: Final = 0.01
"""The allowed relative error of outputs, if the options set no objective."""

AGREEMENT_DROP: Final = 0.01
"""The share of rows whose class may change, unless ``--metric agreement=DROP`` sets it."""

GRADIENT_ERROR: Final = 0.1
"""The allowed relative error of all gradients together, at the best loss scale."""


class Objective(Struct, frozen=True, kw_only=True):
    """The requirements for the tuned model, which must meet all of them."""

    tolerances: Tolerances | None
    """The allowed relative error of each output; None if there are only other requirements."""

    agreement: float | None = None
    """The share of rows whose largest output must be the same class."""

    metric: MetricOptions | None = None
    gradients: bool = False
    """Whether gradients must be finite, and near the gradients of the reference."""

    @property
    def max_change(self) -> float:
        """The share of predictions that may change in rows that the search does not use."""
        return (1 - self.agreement if self.agreement is not None else 0) or MAX_CHANGE


def objective(
    tolerances: tuple[ToleranceOption, ...] = (),
    *,
    labels: Path | None = None,
    metric: str | None = None,
    max_drop: float | None = None,
    gradients: bool = False,
    has_inputs: bool = True,
) -> Objective:
    """
    Return the objective of the options; by default, outputs must stay within :data:`TOLERANCE`.

    A user-defined metric needs no labels: it uses the outputs of the reference instead.

    :raises UsageError: if an option lacks another option that it needs, or has an invalid value.
    """
    agreement = None
    if metric == "agreement":
        agreement, metric, max_drop = agreement_share(max_drop), None, None
    function = function_named(metric) if metric is not None else None
    if labels is None and function is not None:
        check_max_drop(max_drop)
        task: MetricOptions | None = MetricOptions(labels=None, metric=function, max_drop=max_drop)
    else:
        task = metric_options(labels, metric, max_drop, has_inputs=has_inputs)
    if not tolerances and agreement is None and task is None:
        tolerances = (ToleranceOption(pattern=None, value=TOLERANCE),)
    elif tolerances and all(tolerance.pattern is not None for tolerance in tolerances):
        tolerances = (*tolerances, ToleranceOption(pattern=None, value=TOLERANCE))
    return Objective(
        tolerances=Tolerances(given=tolerances) if tolerances else None,
        agreement=agreement,
        metric=task,
        gradients=gradients,
    )


def agreement_share(max_drop: float | None) -> float:
    """
    Return the share of rows whose largest output must stay the same.

    :raises UsageError: if the allowed share of changed rows is negative, or not below 1.
    """
    drop = AGREEMENT_DROP if max_drop is None else max_drop
    if not 0 <= drop < 1:
        raise UsageError(f"--metric agreement={drop:g}: the drop must be at least 0 and below 1")
    return 1 - drop


def objective_excess(run: CheckRun, objective: Objective) -> float:
    """
    Return the error of a run as a multiple of what the objective allows; infinity if the candidate,
    but not the reference, computes NaN or infinity.

    :raises UsageError: if the objective is an agreement, but no output contains class scores.
    """
    excesses = [_outputs_excess(run, only_finite=objective.tolerances is None)]
    if objective.agreement is not None:
        excesses.append(_agreement_excess(run, objective.agreement))
    if run.verdict.metric is not None:
        excesses.append(_metric_excess(run.verdict.metric))
    if objective.gradients and run.gradients is not None:
        excesses.append(_gradients_excess(run.gradients))
    return max(excesses)


def largest_error(run: CheckRun) -> float | None:
    """Return the largest relative error of an output; None if an output is not finite."""
    judgements = _output_judgements(run)
    errors = [
        judgement.error
        for judgement in judgements
        if judgement.ruling is not Ruling.NOT_FINITE and judgement.error is not None
    ]
    return max(errors, default=0.0) if len(errors) == len(judgements) else None


def _output_judgements(run: CheckRun) -> list[Judgement]:
    """Return the judgements of outputs that have comparable values."""
    return [
        judgement
        for judgement in run.verdict.judgements
        if judgement.about is JudgementSubject.OUTPUT and judgement.ruling is not Ruling.NOTHING
    ]


def not_comparable(runs: Sequence[CheckRun]) -> NotComparable | None:
    """Return why no output of any run is comparable; None if some output is."""
    reasons = [
        judgement.not_comparable
        for run in runs
        for judgement in run.verdict.judgements
        if judgement.about is JudgementSubject.OUTPUT
    ]
    return reasons[0] if reasons and all(reason is not None for reason in reasons) else None


def smallest_agreement(run: CheckRun) -> float | None:
    """Return the smallest share of rows with the same class, over all outputs with classes."""
    return min(
        (
            1 - output.changes.class_changes.mean
            for output in run.outputs
            if output.changes is not None and output.changes.class_changes is not None
        ),
        default=None,
    )


def gradient_error(gradients: Gradients) -> float | None:
    """
    Return the relative error of all gradients at the best loss scale that was tried; None if every
    scale causes an overflow.
    """
    return min(
        (total.relative_error for trial in gradients.trials if not (total := trial.total).overflow),
        default=None,
    )


def _outputs_excess(run: CheckRun, *, only_finite: bool) -> float:
    return max(
        (
            excess(judgement)
            for judgement in _output_judgements(run)
            if not only_finite or judgement.ruling is Ruling.NOT_FINITE
        ),
        default=0.0,
    )


def _agreement_excess(run: CheckRun, agreement: float) -> float:
    share = smallest_agreement(run)
    if share is None:
        raise UsageError(
            "--metric agreement needs an output with a score for each class, which this model does "
            "not have; use --tolerance or another --metric"
        )
    return ratio(1 - share, 1 - agreement)


def _metric_excess(metric: TaskMetric) -> float:
    return max(
        (0.0 if output.passed else math.inf)
        if output.drop is None
        else max(
            ratio(output.drop, output.max_drop), 0.0 if output.passed else math.nextafter(1, 2)
        )
        for output in metric.outputs
    )


def _gradients_excess(gradients: Gradients) -> float:
    if not gradients.trials:
        return 0.0
    error = gradient_error(gradients)
    return math.inf if error is None else ratio(error, GRADIENT_ERROR)


class Promise(Struct, frozen=True, kw_only=True):
    """
    What the rule of ``check`` says about a run on the rows that the search did not use: the output
    that decides, with the bound on its change.
    """

    answer: Answer
    rows: int
    kind: OutputKind | None = None
    """The kind of the changed predictions; None if nothing was compared."""

    most: float | None = None
    """
    The upper bound at 95 % confidence: the share of changed predictions, the error relative to the
    spread or to the mean probability, or the drop of the metric. None if there is no bound.
    """

    metric: str | None = None
    """The name of the metric with labels; None if it does not decide."""

    spoiled: int = 0
    """The number of rows with NaN or infinity in the candidate only."""

    why: Open | None = None
    """Why the answer is undecided."""

    needed: int | None = None
    """The number of rows, with those of the search, that would show that the model is safe."""


def promise(run: CheckRun) -> Promise | None:
    """Return the promise of a run on other rows; None if it has no output to judge."""
    deciding = max(
        run.answers,
        key=lambda answer: (
            severity(answer.answer),
            answer.deciding.change.upper if answer.deciding is not None else 0.0,
        ),
        default=None,
    )
    if deciding is None:
        return None
    kind, labels, metric = deciding.deciding, deciding.labels, run.verdict.metric
    is_by_labels = labels is not None and metric is not None
    bound = kind.change.upper if kind is not None else None
    if labels is not None:
        bound = labels.bounds[1] if labels.bounds is not None else labels.drop
    needed = kind.needed if kind is not None and not is_by_labels else None
    is_evidence = run.is_on_data or deciding.spoiled  # synthetic rows only show NaN and infinity
    return Promise(
        answer=deciding.answer if is_evidence else Answer.UNDECIDED,
        rows=deciding.samples,
        kind=kind.kind if kind is not None else None,
        most=bound if bound is not None and math.isfinite(bound) else None,
        metric=metric.name if is_by_labels and metric is not None else None,
        spoiled=deciding.spoiled,
        why=deciding.why,
        needed=_rows_of_both(needed, run.inputs.batch_size) if needed is not None else None,
    )


def _rows_of_both(needed: int, batch_size: int) -> int:
    """Return the number of rows of which every second batch, from the second on, has ``needed``."""
    return needed + -(-needed // batch_size) * batch_size


class Ending(StrEnum):
    """Why a search ended."""

    MINIMAL = "minimal"
    """Trials showed that the objective is not met if one more layer is converted."""

    IMPOSSIBLE = "impossible"
    """The objective is not met even with every candidate in float32."""

    TRIALS = "trials"
    TIME = "time"
    INTERRUPTED = "interrupted"


class Split(StrEnum):
    """The inputs that validate the result of the search."""

    BATCHES = "batches"
    """Every second batch, which the search does not use; a single batch is split into two."""

    SHARED = "shared"
    """Every second batch, which the search used too, because its rows are too few."""

    NONE = "none"
    """No separate inputs, because there is only one row, or the batch size is fixed."""


class Trial(Struct, frozen=True, kw_only=True):
    """The measurements of the model with a set of layers in float32."""

    kept: tuple[str, ...]
    """The paths of the layers in float32, in the order of the model."""

    excess: float
    """
    The error on the inputs of the search as a multiple of what the objective allows: at most 1 if
    the objective is met; infinite for NaN, and if the model cannot run with this set.
    """

    validation: float | None
    """The excess on the validation inputs; None if there are none."""

    error: float | None
    """The largest relative error of an output, over all inputs; None if it is not finite."""

    agreement: float | None
    """
    The share of rows with the same class over all inputs, for the output with the smallest share;
    None if the objective is not an agreement.
    """

    gradient_error: float | None
    """
    The relative error of all gradients together at the best loss scale; None if gradients are not
    part of the objective, or are finite at no scale.
    """

    metric: float | None = None
    """The metric of the task; None if the objective has none."""

    failure: str | None = None
    """Why the model cannot run with this set; None if it can."""

    promise: Promise | None = None
    """The answer on the validation inputs; None if there are none."""

    @property
    def largest_excess(self) -> float:
        """The excess on the half of the inputs on which it is larger."""
        return max(self.excess, self.validation or 0.0)

    @property
    def is_refuted(self) -> bool:
        """Whether the validation inputs show that the set does not meet the objective."""
        return (self.validation is not None and self.validation > 1) or (
            self.promise is not None and self.promise.answer is Answer.NOT_SAFE
        )


class LayerEvidence(Struct, frozen=True, kw_only=True):
    """The measurements of a layer when all candidates are converted."""

    error: float | None
    """
    The largest relative error of the layer's calls with the inputs of the reference; None if it was
    not measured or is not finite.
    """

    is_finite: bool
    """Whether all values that are finite in the reference are also finite in the candidate."""

    largest: float | None
    """The largest finite magnitude of the layer's outputs in the reference."""

    headroom: float | None
    """The factor by which the values could grow before they overflow the 16-bit dtype."""

    flushed: float | None
    """The share of values that underflow: they are too small for the dtype, and become zero."""


NO_EVIDENCE: Final = LayerEvidence(
    error=None, is_finite=True, largest=None, headroom=None, flushed=None
)


class TunedLayer(LayerEvidence, frozen=True, kw_only=True):
    """A candidate layer, with its measurements."""

    path: str
    class_name: str
    kept: bool
    """Whether the layer stays in float32."""

    rule: str | None
    """Why ``migrate`` would keep the layer in float32 by default; None if it would not."""

    excess_if_converted: float | None
    """
    The excess of the trial that also converts this layer, or shows that the set without it fails,
    on the half of the inputs on which it is larger; None if the result converts the layer, or there
    was no such trial. At most 1 if only the changes of predictions on the validation inputs show
    that the layer is needed.
    """

    excess_by_itself: float | None
    """
    The same for the trial that converts only this layer; None if there was none.
    """

    decides: tuple[str, ...]
    """
    The calls that cause errors according to the diagnosis and compute in the dtype of this layer:
    ops that use its outputs, and layers inside it, which have no policy in the file.
    """


class CurvePoint(Struct, frozen=True, kw_only=True):
    """The best trial among those that convert the same number of layers."""

    converted: int
    share: float
    """The share of candidates that are converted, from 0 to 1."""

    excess: float
    """The excess on the half of the inputs on which it is larger."""

    error: float | None
    kept: tuple[str, ...]
    """The candidates in float32."""

    promise: Promise | None
    """The change of predictions in rows that the search did not use."""

    bytes: int | None
    """The size of the stored variables; None if the file has none."""


class Tuning(Struct, frozen=True, kw_only=True):
    """The result of a search."""

    policy: str
    """The policy of the converted layers."""

    objective: Objective
    reference: CheckSide
    device: TensorFlowDevice
    inputs: CheckInputs
    versions: Mapping[str, str]
    split: Split
    layers: tuple[TunedLayer, ...]
    """The candidates, in the order of the model."""

    fixed: Mapping[str, str]
    """
    Output layers that compute in float32 and are not candidates, with the reason.
    """

    trials: tuple[Trial, ...]
    """All trials in the order of the search. Trials of a resumed record come first."""

    resumed: int
    """The number of trials from the record of an earlier search."""

    best: Trial | None
    """The smallest set that meets the objective; None if none was found."""

    closest: Trial | None
    """The trial with the smallest excess; None if there was no trial."""

    metric: TaskMetric | None
    """
    The metric of the reference and of the model with the layers of ``best``, or of ``closest`` if
    no set was found; None if the objective has no metric.
    """

    options: Options | None
    """
    The options of ``migrate`` that write the model with the layers of ``best``; None if no set was
    found.
    """

    ending: Ending
    is_minimum: bool
    """
    Whether no smaller set exists, if additional layers in float32 never increase the error.
    """

    margin: int
    """
    The number of layers that stay in float32 only because the set without them did not hold on the
    validation inputs.
    """

    seconds: float
    seed: int
    notes: tuple[CheckNote, ...] = ()
    connected_layers: tuple[Layer, ...] = ()
    """All layers of the model with their inputs."""

    options_by_count: Mapping[int, Options] = field(default_factory=dict)
    """The options of ``migrate`` for the points of the curve, by the number of converted layers."""

    saved_bytes: Mapping[str, int] = field(default_factory=dict)
    """The bytes that the quantization of each candidate saves; empty for policies."""

    policies: Mapping[str, int] = field(default_factory=dict)
    """
    The number of layers that compute with each policy in the model with ``best``, or with
    ``closest`` if no set was found; empty for a quantization.
    """

    float32_layers: tuple[str, ...] = ()
    """Of these, the layers in float32: those of the set, and those that are not candidates."""

    @property
    def layer_count(self) -> int:
        """The number of layers that compute; of candidates if only they are known."""
        return sum(self.policies.values()) or len(self.layers)

    @property
    def float32_count(self) -> int:
        """The number of layers that stay in float32, with those that are not candidates."""
        trial = self.best or self.closest
        kept_count = len(trial.kept) if trial is not None else 0
        return len(self.float32_layers) if self.policies else kept_count

    @property
    def is_quantization(self) -> bool:
        """Whether Keras quantizes the converted layers, and ``policy`` is the mode."""
        return self.policy in QUANTIZATIONS

    @property
    def passed(self) -> bool:
        """
        Whether a set was found that converts a layer, and that the validation inputs do not refute.
        """
        return (
            self.best is not None
            and len(self.best.kept) < len(self.layers)
            and not self.best.is_refuted
        )

    @property
    def answer(self) -> Answer:
        """
        Whether the model with the set is safe, by the rule of ``check`` on the validation inputs;
        undecided for synthetic inputs, and without validation inputs.
        """
        if self.best is None or not self.passed:
            return Answer.NOT_SAFE
        promised = self.best.promise
        if promised is None or self.inputs.kind is InputKind.SYNTHETIC:
            return Answer.UNDECIDED
        return promised.answer

    @property
    def kept(self) -> tuple[TunedLayer, ...]:
        """The layers to keep in float32."""
        return tuple(layer for layer in self.layers if layer.kept)

    @property
    def converted(self) -> tuple[TunedLayer, ...]:
        """The layers that compute in 16 bits."""
        return tuple(layer for layer in self.layers if not layer.kept)

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """
        The frontier: for each number of converted layers that was tried, the chosen set, or the
        trial with the smallest excess on all inputs.
        """
        best_kept = self.best.kept if self.best is not None else None
        best_trials: dict[int, Trial] = {}
        for trial in sorted(
            self.trials, key=lambda trial: (trial.kept != best_kept, trial.largest_excess)
        ):
            best_trials.setdefault(len(self.layers) - len(trial.kept), trial)
        return tuple(
            CurvePoint(
                converted=count,
                share=count / len(self.layers) if self.layers else 1.0,
                excess=best_trials[count].largest_excess,
                error=best_trials[count].error,
                kept=best_trials[count].kept,
                promise=best_trials[count].promise,
                bytes=self._bytes(frozenset(best_trials[count].kept)),
            )
            for count in sorted(best_trials)
        )

    def _bytes(self, kept: frozenset[str]) -> int | None:
        """Return the size of the variables if only these candidates stay in float32."""
        if self.is_quantization:
            size = sum(
                variable.parameters * itemsize(variable.dtype)
                for layer in self.connected_layers
                for variable in layer.variables
            )
            return size - sum(saved for path, saved in self.saved_bytes.items() if path not in kept)
        width = itemsize(policy_from_name(self.policy).variable_dtype or "float32")
        converted = {layer.path for layer in self.layers} - kept
        size = sum(
            variable.parameters
            * (width if is_converted and is_float(variable.dtype) else itemsize(variable.dtype))
            for layer in self.connected_layers
            for is_converted in [_decides(layer.path, converted, kept)]
            for variable in layer.variables
        )
        return size or None


def _decides(path: str, converted: Container[str], kept: Container[str]) -> bool:
    """Return whether the innermost candidate that contains a layer is converted."""
    while path and path not in converted and path not in kept:
        path = path.rpartition("/")[0]
    return path in converted
