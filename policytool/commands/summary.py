"""
``inspect --summary``: summarizes many models. The memory for it does not depend on their number.

A worker process returns a short record of each model, and the records are counted as they arrive.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping  # noqa: TC003  # TASK evaluates annotations
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from policytool.commands.batch.task import Task
from policytool.commands.inspect import CACHING, Failure, failure_of, separate_failures
from policytool.formats.discovery import Input  # noqa: TC001  # TASK evaluates annotations
from policytool.model import reading
from policytool.model.compatibility import file_names
from policytool.model.model import Obstacle, Outcome  # TASK evaluates annotations
from policytool.releases import dtypes
from policytool.releases.releases import CURRENT, LOADERS
from policytool.support import steps
from policytool.support.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.model.model import Model, Verdict

Key = TypeVar("Key")

POLICIES: Final = (
    ("float16", "float16"),
    ("bfloat16", "bfloat16"),
    ("mixed_float16", "float32"),
    ("mixed_bfloat16", "float32"),
    ("float32", "float32"),
)
"""The policies whose savings are computed, each with its variable dtype."""

LARGEST: Final = 10
"""The number of models in the list of the largest models."""

DISTINCT: Final = 1_000
"""
Maximum number of policies, dtypes or reasons that are counted separately. Names come from files,
and must not make a summary arbitrarily large.
"""

OTHER: Final = "other"
"""The name for the total of all others, which no policy or dtype has."""


class SummaryRequest(Struct, frozen=True, kw_only=True):
    """The options of a summary."""

    every_release: bool = False
    """Whether to include the verdicts of all releases, and not only of current ones."""

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases whose verdicts the summary includes."""
        return LOADERS if self.every_release else CURRENT


class ReleaseOutcome(Struct, frozen=True, kw_only=True):
    """Whether one release loads one model, and the reason if it may not."""

    release: str
    loading: Outcome
    cause: Obstacle | None = None
    """The property of the model that is the reason; None if the release loads the model."""

    reason: str | None = None


class ModelRecord(Struct, frozen=True, kw_only=True):
    """The values of a model that a summary counts."""

    path: str
    format: str
    generation: str | None
    layers: int
    parameters: int
    policies: Mapping[str, int]
    """The number of layers with each policy; layers without a policy are not counted."""

    stored: Mapping[str, int]
    """The size of the stored variables in bytes, by dtype."""

    outcomes: tuple[ReleaseOutcome, ...]
    """The outcome for each release; empty for formats that ``load_model`` does not read."""

    @property
    def bytes(self) -> int:
        """The size of all stored variables in bytes, without optimizer state and file headers."""
        return sum(self.stored.values())


class PolicyCount(Struct, frozen=True, kw_only=True):
    """The numbers of models and layers that have a policy."""

    policy: str | None
    """None for layers without a policy; ``OTHER`` for policies after the first ``DISTINCT``."""

    models: int
    layers: int


class ReasonCount(Struct, frozen=True, kw_only=True):
    """The number of models with a reason why a release may not load them; a model has only one."""

    loading: Outcome
    cause: Obstacle | None
    """The property of the models that is the reason; None for reasons after ``DISTINCT``."""

    reason: str
    models: int


class ReleaseCount(Struct, frozen=True, kw_only=True):
    """The number of models for each outcome of a release."""

    release: str
    loads: int
    incompatible: int
    unknown: int
    not_applicable: int
    """The number of models in formats that ``load_model`` does not read."""

    reasons: tuple[ReasonCount, ...]
    """The reasons for the incompatible and unknown models, most frequent first."""


class Saving(Struct, frozen=True, kw_only=True):
    """The bytes that another policy would save."""

    policy: str
    models: int
    """The number of models that would become smaller."""

    bytes: int


class FleetSummary(Struct, frozen=True, kw_only=True):
    """
    The summary of many models. Counts are in descending order, and equal counts are sorted by name.
    """

    models: int
    layers: int
    parameters: int
    formats: Mapping[str, int]
    generations: Mapping[str | None, int]
    """The number of models by the releases that may have written them; None if unknown."""

    policies: tuple[PolicyCount, ...]
    releases: tuple[ReleaseCount, ...]
    stored: Mapping[str, int]
    """The size of the stored variables in bytes, by dtype."""

    savings: tuple[Saving, ...]
    largest: tuple[ModelRecord, ...]
    """The models with the largest stored variables, at most ``LARGEST``."""

    failures: tuple[Failure, ...] = ()
    passed_over: int = 0
    """The number of skipped files from directories and globs that are not models."""

    records: tuple[ModelRecord, ...] = ()
    """All models in the order of the inputs, if a report has a row for each model; else empty."""

    @property
    def bytes(self) -> int:
        """The size of all stored variables in bytes."""
        return sum(self.stored.values())


def attempt(source: Input, request: SummaryRequest) -> ModelRecord | Failure | None:
    """Return the record of an input, its failure, or None for a file that is not a model."""
    try:
        with steps.budget(source.display_path):
            return model_record(reading.read(source.path, source.display_path), request)
    except ModelFileError as error:
        return failure_of(source, error)


TASK: Final = Task(
    module=__name__, attempt=attempt, shown=lambda source: source.display_path, caching=CACHING
)
"""Reads one file."""


def model_record(model: Model, request: SummaryRequest) -> ModelRecord:
    """Return the values of a model that a summary counts."""
    stored = Counter[str]()
    for layer in model.layers:
        for variable in layer.variables:
            stored[variable.dtype] += variable.bytes
    totals = model.summary
    releases = request.releases
    return ModelRecord(
        path=model.path,
        format=model.format,
        generation=model.generation,
        layers=totals.layers,
        parameters=totals.parameters,
        policies=dict(totals.policies),
        stored=dict(stored),
        outcomes=tuple(
            _outcome(verdict) for verdict in model.loaders if verdict.loader in releases
        ),
    )


def _outcome(verdict: Verdict) -> ReleaseOutcome:
    decisive = verdict.causes if verdict.outcome is Outcome.INCOMPATIBLE else verdict.doubts
    return ReleaseOutcome(
        release=verdict.loader,
        loading=verdict.outcome,
        cause=next((cause.kind for cause in decisive if cause.kind is not Obstacle.RESULTS), None),
        reason=file_names.without_path(verdict.explanation) if verdict.explanation else None,
    )


def saved_bytes(stored: Mapping[str, int], variable_dtype: str) -> int:
    """
    Return the number of bytes that are saved if each float variable in a wider dtype is stored in
    ``variable_dtype``. Other variables are unchanged.

    :param stored: the size of the variables in bytes, by dtype
    """
    size = dtypes.itemsize(variable_dtype)
    return sum(
        count - count // dtypes.itemsize(dtype) * size
        for dtype, count in stored.items()
        if dtypes.is_float(dtype) and dtypes.itemsize(dtype) > size
    )


def summarize(
    results: Iterable[ModelRecord | Failure | None],
    request: SummaryRequest,
    *,
    keeps_records: bool = False,
) -> FleetSummary:
    """
    Count results as they arrive, and return the summary.

    :param keeps_records: whether the summary includes the record of each model
    """
    counts = _Counts()
    records: list[ModelRecord] = []

    def add(record: ModelRecord) -> None:
        counts.add(record)
        if keeps_records:
            records.append(record)

    failures, passed_over = separate_failures(results, add)
    return FleetSummary(
        models=counts.models,
        layers=counts.layers,
        parameters=counts.parameters,
        formats=_sorted(counts.formats),
        generations=_sorted(counts.generations),
        policies=tuple(
            PolicyCount(policy=policy, models=models, layers=counts.policy_layers[policy])
            for policy, models in _sorted(counts.policy_models).items()
        ),
        releases=tuple(counts.release(release) for release in request.releases),
        stored=_sorted(counts.stored),
        savings=tuple(
            Saving(policy=policy, models=counts.saving[policy], bytes=counts.saved[policy])
            for policy, _ in POLICIES
        ),
        largest=tuple(counts.largest),
        failures=failures,
        passed_over=passed_over,
        records=tuple(records),
    )


class _Counts:
    """The counts over the records that were added so far."""

    def __init__(self) -> None:
        self.models = self.layers = self.parameters = 0
        self.formats = Counter[str]()
        self.generations = Counter[str | None]()
        self.policy_models, self.policy_layers = Counter[str | None](), Counter[str | None]()
        self.stored = Counter[str]()
        self.saving, self.saved = Counter[str](), Counter[str]()
        self.loading = Counter[tuple[str, Outcome]]()
        self.reasons: dict[str, Counter[tuple[Outcome, Obstacle | None, str]]] = {}
        self.largest: list[ModelRecord] = []

    def add(self, record: ModelRecord) -> None:
        """Count a model."""
        self.models += 1
        self.layers += record.layers
        self.parameters += record.parameters
        self.formats[record.format] += 1
        self.generations[record.generation] += 1
        self._add_policies(record)
        for dtype, count in record.stored.items():
            self.stored[_known(dtype, self.stored, OTHER)] += count
        for policy, dtype in POLICIES:
            saved = saved_bytes(record.stored, dtype)
            self.saving[policy] += saved > 0
            self.saved[policy] += saved
        for outcome in record.outcomes:
            self._add_outcome(outcome)
        self.largest = heapq.nsmallest(LARGEST, (*self.largest, record), key=_size_order)

    def _add_policies(self, record: ModelRecord) -> None:
        """Count the layers of a model by policy, and the model for each of its policies."""
        unset_count = record.layers - sum(record.policies.values())
        own_policies = set[str | None]()
        for policy, layers in (
            *record.policies.items(),
            *([(None, unset_count)] if unset_count else []),
        ):
            name = _known(policy, self.policy_layers, OTHER)
            self.policy_layers[name] += layers
            own_policies.add(name)
        self.policy_models.update(own_policies)

    def _add_outcome(self, outcome: ReleaseOutcome) -> None:
        self.loading[outcome.release, outcome.loading] += 1
        if outcome.reason is None:
            return
        reason_counts = self.reasons.setdefault(outcome.release, Counter())
        other = (outcome.loading, None, OTHER)
        reason_counts[
            _known((outcome.loading, outcome.cause, outcome.reason), reason_counts, other)
        ] += 1

    def release(self, name: str) -> ReleaseCount:
        """Return the counts of a release."""
        loads, incompatible, unknown = (self.loading[name, loading] for loading in Outcome)
        reasons = self.reasons.get(name, Counter())
        return ReleaseCount(
            release=name,
            loads=loads,
            incompatible=incompatible,
            unknown=unknown,
            not_applicable=self.models - loads - incompatible - unknown,
            reasons=tuple(
                ReasonCount(loading=loading, cause=cause, reason=reason, models=models)
                for (loading, cause, reason), models in _sorted(reasons).items()
            ),
        )


def _known(name: Key, counts: Counter[Key], other: Key) -> Key:
    """Return the name to count: ``other`` if it is new and there are ``DISTINCT`` names already."""
    return name if name in counts or len(counts) < DISTINCT else other


def _sorted(counts: Counter[Key]) -> Mapping[Key, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], str(item[0]))))


def _size_order(record: ModelRecord) -> tuple[int, str]:
    return -record.bytes, record.path
