"""
Rules with their declaration, input and options, and findings with their severities and fixes.

A finding has only the id of its rule, and is independent of its presentation. The fingerprint
identifies a finding across runs.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections import Counter
from collections.abc import Mapping  # noqa: TC003  # for the codec
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.formats.document import (
    Address,  # noqa: TC001  # for the codec
    Signature,  # noqa: TC001  # for the codec
)
from policytool.model.model import Effect, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from policytool.formats.casting import Counts
    from policytool.formats.document import Document, Observation
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Model


_NUMBER: Final = re.compile(r"_\d+(?=(?:_input)?(?:/|$))")
"""
The number that Keras appends to generated layer names. It increases during the lifetime of a
process.

The name of the input of a nested Sequential contains that of the first layer: ``dense_3_input`` (TF
2.0 to tf-keras 2.21).
"""


class Severity(StrEnum):
    """The severity of a finding, the highest first."""

    ERROR = "error"
    """The model fails to load, or does not compute as declared."""

    WARNING = "warning"
    """The model may train or compute in an unintended way, depending on data and release."""

    NOTE = "note"
    """Information; not a problem."""

    @property
    def rank(self) -> int:
        """The position in the order; 0 for the highest severity."""
        return tuple(Severity).index(self)


class Fix(StrEnum):
    """The effect of a fix on the results of the model."""

    SAFE = "safe"
    """Predictions are unchanged, bit for bit."""

    UNSAFE = "unsafe"
    """Predictions or further training change."""


class Remedy(Struct, frozen=True, kw_only=True):
    """The options of ``migrate`` that fix a finding; empty if ``migrate`` without options does."""

    fix: Fix
    assignments: tuple[tuple[str, str], ...] = ()
    """Layer paths with their new policies (``--set``)."""

    to: str | None = None
    keep_loss_scale: bool = False
    target: str | None = None
    retrace: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments after ``policytool migrate PATH``."""
        return (
            *(("--to", self.to) if self.to else ()),
            *(word for path, policy in self.assignments for word in ("--set", f"{path}={policy}")),
            *(("--keep", "loss-scale") if self.keep_loss_scale else ()),
            *(("--target", self.target) if self.target else ()),
            *(("--retrace",) if self.retrace else ()),
        )


class Finding(Struct, frozen=True, kw_only=True):
    """A result of a rule for a model."""

    rule: str
    """The id of the rule, such as ``PT301``."""

    severity: Severity
    message: str
    """
    The problem in this model with names, dtypes and numbers, as a sentence without a full stop.
    """

    path: str | None = None
    """The path of the affected layer; None for the whole model, or its optimizer."""

    address: Address | None = None
    """The address of the affected value; None if the problem is not about a value in the file."""

    detail: str = ""
    """
    The distinction from other findings of the rule at the same layer: a target, a variable or a
    config key. It is part of the fingerprint, so it must not contain varying numbers.
    """

    remedy: Remedy | None = None
    """The options of migrate that fix the problem; None if migrate cannot fix it."""

    advice: str | None = None
    """The recommended action if migrate cannot fix the problem, as a sentence part."""


class ModelCommand(Struct, frozen=True, kw_only=True):
    """
    A command whose result passes the audit that the model fails, or only has no errors left, or the
    reason why there is none.
    """

    target: str | None
    """The target of the command, with the user's name for it; None without targets."""

    arguments: tuple[str, ...] | None = None
    """The arguments after ``policytool migrate PATH``; None if no command is known to help."""

    effect: Effect | None = None
    """The effect of the command on the results of the model; None without a command."""

    existing: str | None = None
    """
    The path in reports of the output, if it already exists and the command replaces it; None if the
    command replaces the model in place.
    """

    leaves: tuple[str, ...] = ()
    """The rules for which the result still fails the audit. None of their findings is an error."""

    reason: str | None = None
    """The reason why there is no command, as a sentence without a full stop."""

    is_beyond_limit: bool = False
    """Whether a limit is the reason, so that the result of the conversion is unknown."""

    @property
    def fix(self) -> Fix | None:
        """Whether the command is a safe fix; None without a command."""
        if self.effect is None:
            return None
        return Fix.SAFE if self.effect is Effect.UNCHANGED else Fix.UNSAFE


class Suppressed(Struct, frozen=True, kw_only=True):
    """A suppressed finding."""

    finding: Finding
    reason: str
    """The user's reason for the suppression."""

    by: str
    """The source: ``suppression``, ``baseline`` or ``per-file-ignores``."""

    fingerprint: str = ""
    """The fingerprint, which is unique among all findings in the model."""


class Audited(Struct, frozen=True, kw_only=True):
    """A model and its findings."""

    path: str
    """The path of the model in reports."""

    config_file: str | None = None
    """The file in the model with the config, if the model is a directory."""

    format: str
    generation: str | None
    layers: int
    findings: tuple[Finding, ...]
    """The findings in the order of the rules, and of the layers within a rule."""

    fingerprints: tuple[str, ...] = ()
    """
    The fingerprints of the findings in their order, if other findings were suppressed, because
    fingerprints depend on the numbers of equal findings. Empty if none were suppressed.
    """

    suppressed: tuple[Suppressed, ...] = ()
    commands: tuple[ModelCommand, ...] = ()
    """
    The commands for a model that fails: a command for each target, or a single one without targets.
    A command for several targets is listed once, with the first of them.
    """

    signatures: tuple[Signature, ...] = ()
    """The signatures of a SavedModel, which a baseline records."""

    connected_layers: tuple[Layer, ...] = ()
    """The layers with their inputs, if a report shows the graph."""


def fingerprints(findings: Sequence[Finding]) -> tuple[str, ...]:
    """
    Return the fingerprints of the findings of a model, in their order. A finding has the same
    fingerprint in the next export of the model.

    Numbers that Keras appends to layer names are left out, because they increase with each model
    that a process builds. Findings that are then equal are numbered in their order. Fingerprints
    are independent of the file name and the message.
    """
    counts = Counter[tuple[str, str, str]]()
    digests = []
    for finding in findings:
        identity = (finding.rule, _NUMBER.sub("", finding.path or ""), finding.detail)
        digests.append(
            hashlib.sha256(
                "\0".join((*identity, str(counts[identity]))).encode("utf-8", "surrogatepass")
            ).hexdigest()[:32]
        )
        counts[identity] += 1
    return tuple(digests)


def fails(finding: Finding, fail_on: Severity) -> bool:
    """Return whether a finding is severe enough to make its model fail."""
    return finding.severity.rank <= fail_on.rank


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the highest severity; None without findings."""
    return min(
        (finding.severity for finding in findings), key=lambda severity: severity.rank, default=None
    )


class Device(StrEnum):
    """The device that will run a model."""

    CPU = "cpu"
    GPU = "gpu"


class Needs(StrEnum):
    """An option that a rule requires."""

    TARGET = "--target"
    DEVICE = "--device"
    WEIGHTS = "--weights"
    BASELINE = "--baseline"
    FORBID = "forbid"


class AuditOptions(Struct, frozen=True, kw_only=True):
    """The options of an audit, which are equal for all models."""

    rules: frozenset[str] | None = None
    """The ids of the selected rules; None for all."""

    targets: tuple[str, ...] = ()
    """
    The releases that must load the model, such as ``tf2.15`` and ``keras3.6``; see
    :mod:`policytool.releases.releases`.
    """

    target_names: tuple[str, ...] = ()
    """The user's names of the targets, such as ``keras3`` and ``tf2.14``."""

    fail_on: Severity = Severity.WARNING
    """The lowest severity that makes a model fail; a command is planned only for such models."""

    device: Device | None = None
    weights: bool = False
    """Whether to read stored values."""

    forbidden: tuple[str, ...] = ()
    """The policies that no layer may have."""

    signatures: Mapping[str, tuple[Signature, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The signatures in the baseline, by the path of the model in reports."""

    plans_commands: bool = True
    """Whether to plan a command for a model that fails."""

    draws_graph: bool = False
    """Whether a report shows the graph of a model with findings."""

    judges_training: bool = False
    """Whether ``--select`` names rules about training."""

    @property
    def training_severity(self) -> Severity:
        """The severity of findings that affect training but not predictions."""
        return Severity.WARNING if self.judges_training else Severity.NOTE

    @property
    def names(self) -> tuple[str, ...]:
        """The user's names of the targets, or the names of the releases if these are unknown."""
        return self.target_names or self.targets


class RuleInput(Struct, frozen=True, kw_only=True):
    """The model to check, with the values that rules read."""

    model: Model
    document: Document
    loaded: LoadedModel | None
    """
    The model with its graph and configs. None for files without a config: weights, and graphs
    without Keras metadata.
    """

    counts: Mapping[tuple[str, ...], Counts] | None = None
    """
    Counts of the values of each stored tensor, before and after rounding to the compute dtype of
    its layer, by the path of the tensor. None if values were not read.
    """

    unread: Mapping[tuple[str, ...], str] = field(default_factory=lambda: MappingProxyType({}))
    """The reason why values could not be read, by the path of the stored tensor."""

    damaged: Mapping[tuple[str, ...], str] = field(default_factory=lambda: MappingProxyType({}))
    """
    The reason why no release restores the values of a stored tensor, by its path. Only ``audit
    --weights`` reads them.
    """

    is_planned: bool = False
    """Whether the model is the result of a plan; no conversion is planned for such a model."""

    def observations(self, *codes: str) -> Iterator[Observation]:
        """Yield the reader's observations with one of these codes."""
        yield from (entry for entry in self.model.observations if entry.code in codes)


class Rule(Struct, frozen=True, kw_only=True):
    """A check of models."""

    id: str
    """
    ``PT`` and three digits, the first of which is that of the family. Ids are never reused.
    """

    name: str
    """The name in words, with hyphens."""

    severity: Severity
    """The default severity of its findings."""

    fix: Fix | None
    """The effect of its fixes; None if it has none."""

    check: Callable[[RuleInput, AuditOptions], Iterator[Finding]]
    """A pure function that yields the findings in model order."""

    doc: str
    """
    The docstring of its function: the problem in the first line, then the reason with its source.
    """

    example: str
    """An example of a file with a finding: JSON, or a few words."""

    needs: Needs | None = None
    references: tuple[str, ...] = ()
    """Advisories about the problem: CVE and GHSA ids."""

    def finding(
        self,
        message: str,
        *,
        path: str | None = None,
        address: Address | None = None,
        detail: str = "",
        severity: Severity | None = None,
        remedy: Remedy | None = None,
        advice: str | None = None,
    ) -> Finding:
        """Return a finding of this rule."""
        return Finding(
            rule=self.id,
            severity=severity or self.severity,
            message=message,
            path=path,
            address=address,
            detail=detail,
            remedy=remedy,
            advice=advice,
        )

    def observation_findings(
        self,
        case: RuleInput,
        *codes: str,
        severities: Mapping[str, Severity] = MappingProxyType({}),
        remedy: Remedy | None = None,
        advice: str | None = None,
    ) -> Iterator[Finding]:
        """
        Yield a finding of this rule for each of the reader's observations with one of these codes.

        A finding about a layer has the layer's path; others are distinguished by their place in
        the file.

        :param severities: severities that differ from that of the rule, by code.
        """
        observations = tuple(case.observations(*codes))
        layers = {
            layer.path: layer for layer in reversed(case.model.layers if observations else ())
        }
        for observation in observations:
            place = observation.where or ""
            layer = layers.get(place)
            yield self.finding(
                observation.message,
                path=layer.path if layer is not None else None,
                address=layer.address if layer is not None else None,
                detail="" if layer is not None else f"{observation.code}:{place}",
                severity=severities.get(observation.code),
                remedy=remedy,
                advice=advice,
            )

    @property
    def summary(self) -> str:
        """The description of the problem in one line."""
        return " ".join(self.doc.strip().partition("\n\n")[0].split())


def rule(  # each is a field of the rule
    *,
    id: str,  # noqa: A002  # the field's name
    severity: Severity,
    example: str,
    fix: Fix | None = None,
    needs: Needs | None = None,
    references: tuple[str, ...] = (),
) -> Callable[[Callable[[RuleInput, AuditOptions], Iterator[Finding]]], Rule]:
    """
    Return a decorator that creates a rule from a function that checks a model.

    The rule has the function's name, with hyphens, and the function's docstring is its reference
    page. Within the function, its name is the rule: ``yield half_variables.finding(...)``.
    """

    def declare(check: Callable[[RuleInput, AuditOptions], Iterator[Finding]]) -> Rule:
        return Rule(
            id=id,
            name=check.__name__.replace("_", "-"),
            severity=severity,
            fix=fix,
            check=check,
            doc=inspect.cleandoc(check.__doc__ or ""),
            example=example,
            needs=needs,
            references=references,
        )

    return declare
