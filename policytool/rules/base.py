"""
What a rule is, how a function declares it, what it looks at, and its options; and what an audit
says of a model: findings, how much they matter, and what fixes them.

A finding knows its rule by the id alone, and nothing of its presentation. What tells it apart from
others, run after run, is its fingerprint.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections import Counter
from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.formats.document import (
    Address,  # noqa: TC001  # for the codec
    Signature,  # noqa: TC001  # for the codec
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from policytool.formats.casting import Counts
    from policytool.formats.document import Document, Observation
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Model


_NUMBER: Final = re.compile(r"_\d+(?=(?:_input)?(?:/|$))")
"""
What Keras appends to the name of a layer that has none of its own, and counts up for as long as a
process lives.

The input of a Sequential within a model is named after the first layer: ``dense_3_input`` (TF 2.0
to tf-keras 2.21).
"""


class Severity(StrEnum):
    """How much a finding matters, the worst first."""

    ERROR = "error"
    """It does not load, or computes something else than it says."""

    WARNING = "warning"
    """It may train or compute otherwise than meant, depending on data and loader."""

    NOTE = "note"
    """Worth knowing; nothing is wrong."""

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return tuple(Severity).index(self)


class Fix(StrEnum):
    """What a fix does to what the model computes."""

    SAFE = "safe"
    """The same is computed, bit for bit."""

    UNSAFE = "unsafe"
    """Numerics change, or how training goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """What of ``migrate`` fixes a finding; without options, plain ``migrate`` does."""

    fix: Fix
    assignments: tuple[tuple[str, str], ...] = ()
    """Layer path to the policy that it is to have (``--set``)."""

    to: str | None = None
    keep_loss_scale: bool = False
    target: str | None = None
    retrace: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words that follow ``policytool migrate PATH``."""
        return (
            *(("--to", self.to) if self.to else ()),
            *(word for path, policy in self.assignments for word in ("--set", f"{path}={policy}")),
            *(("--keep", "loss-scale") if self.keep_loss_scale else ()),
            *(("--target", self.target) if self.target else ()),
            *(("--retrace",) if self.retrace else ()),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that a rule found in one model."""

    rule: str
    """The rule's id, such as ``PT301``."""

    severity: Severity
    message: str
    """
    What is wrong, in one sentence without a full stop, about this model: names, dtypes, numbers.
    """

    path: str | None = None
    """The layer it is about; None for the model as a whole, or its optimizer."""

    address: Address | None = None
    """Where in the file it stands, where it stands somewhere."""

    detail: str = ""
    """
    What tells it from the rule's other findings at the same layer: a target, a variable, a config
    key. Part of the fingerprint; no numbers that vary.
    """

    remedy: Remedy | None = None
    """What of migrate fixes it; None where nothing does."""

    advice: str | None = None
    """What to do where migrate is not the answer, as a sentence part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCommand:
    """The command whose result passes the audit that its model fails, or why there is none."""

    target: str | None
    """The target that it is for, by the name that was given; None without targets."""

    arguments: tuple[str, ...] | None = None
    """The words that follow ``policytool migrate PATH``; None if no command is known to help."""

    fix: Fix | None = None
    """What it does to what the model computes; None without a command."""

    reason: str | None = None
    """Why there is no command, as a sentence without a full stop."""

    is_beyond_limit: bool = False
    """Whether a limit is the reason, so that nothing is known of the conversion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppressed:
    """A finding that was looked at and is let pass."""

    finding: Finding
    reason: str
    """Why, in the words of who suppressed it."""

    by: str
    """What let it pass: ``suppression``, ``baseline`` or ``per-file-ignores``."""

    fingerprint: str = ""
    """Its own among all that was found in the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Audited:
    """One model, and what was found in it."""

    path: str
    """The file, as reports show it."""

    config_file: str | None = None
    """The file in it that holds the config, if the model is a directory."""

    format: str
    generation: str | None
    layers: int
    findings: tuple[Finding, ...]
    """In the order of the rules, and of the layers within a rule."""

    fingerprints: tuple[str, ...] = ()
    """
    Of the findings, in their order, where others were set apart: those that are left would be
    numbered anew. None where nothing was.
    """

    suppressed: tuple[Suppressed, ...] = ()
    commands: tuple[ModelCommand, ...] = ()
    """
    For a model that fails: one for each target that was named, or one without targets. A command
    that serves several targets is there once, with the first of them.
    """

    signatures: tuple[Signature, ...] = ()
    """A SavedModel's entry points, which a baseline remembers."""


def fingerprints(findings: Sequence[Finding]) -> tuple[str, ...]:
    """
    Return what tells the findings of one model apart, in their order: the same for the same finding
    in the next export of the model.

    Numbers that Keras appends to layer names are left out, because they grow with each model that a
    process builds; findings that are then alike are numbered in their order. Neither the file's
    name nor the wording counts.
    """
    seen = Counter[tuple[str, str, str]]()
    digests = []
    for finding in findings:
        what = (finding.rule, _NUMBER.sub("", finding.path or ""), finding.detail)
        digests.append(
            hashlib.sha256(
                "\0".join((*what, str(seen[what]))).encode("utf-8", "surrogatepass")
            ).hexdigest()[:32]
        )
        seen[what] += 1
    return tuple(digests)


def fails(finding: Finding, fail_on: Severity) -> bool:
    """Return whether a finding is at least as severe as what models fail with."""
    return finding.severity.rank <= fail_on.rank


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the worst severity; None where nothing was found."""
    return min(
        (finding.severity for finding in findings), key=lambda severity: severity.rank, default=None
    )


class Device(StrEnum):
    """Where a model is to run."""

    CPU = "cpu"
    GPU = "gpu"


class Needs(StrEnum):
    """An option without which a rule says nothing."""

    TARGET = "--target"
    DEVICE = "--device"
    WEIGHTS = "--weights"
    BASELINE = "--baseline"


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditOptions:
    """What is asked of every model."""

    rules: frozenset[str] | None = None
    """The ids of the rules that are asked; None for all."""

    targets: tuple[str, ...] = ()
    """
    The loaders that are to take it, such as ``tf2.15`` and ``keras3.6``; see
    :mod:`policytool.releases.releases`.
    """

    target_names: tuple[str, ...] = ()
    """The same by the names that were given, such as ``keras3`` and ``tf2.14``."""

    fail_on: Severity = Severity.WARNING
    """The least severity with which a model fails, and gets a command that makes it pass."""

    device: Device | None = None
    weights: bool = False
    """Whether stored values are read."""

    signatures: Mapping[str, tuple[Signature, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The entry points that a baseline remembers, by the file's path as reports show it."""

    plans_commands: bool = True
    """Whether a command is planned for a model that fails."""

    judges_training: bool = False
    """Whether ``--select`` names rules about training."""

    @property
    def training_severity(self) -> Severity:
        """The severity of findings that affect only training, and no predictions."""
        return Severity.WARNING if self.judges_training else Severity.NOTE

    @property
    def names(self) -> tuple[str, ...]:
        """The targets by the names that were given, where they are known."""
        return self.target_names or self.targets


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleInput:
    """The model that is looked at."""

    model: Model
    document: Document
    loaded: LoadedModel | None
    """
    The model with its graph and its configs; None for what has no config: weights, graphs without
    Keras' metadata.
    """

    counts: Mapping[tuple[str, ...], Counts] | None = None
    """
    By a stored tensor's path, what its values are and what becomes of them in its layer's compute
    dtype; None where values were not read.
    """

    unread: Mapping[tuple[str, ...], str] = field(default_factory=lambda: MappingProxyType({}))
    """By a stored tensor's path, why its values could not be read."""

    is_planned: bool = False
    """Whether it is the result of a plan, for which no further conversion is planned."""

    def observations(self, *codes: str) -> Iterator[Observation]:
        """Yield the reader's observations with one of these codes."""
        yield from (entry for entry in self.model.observations if entry.code in codes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One thing to look for."""

    id: str
    """
    ``PT`` and three digits, the first of them the family's; never used again for another rule.
    """

    name: str
    """The same in words, with hyphens."""

    severity: Severity
    """How much its findings matter, unless one says otherwise."""

    fix: Fix | None
    """What its fixes do, where it has some."""

    check: Callable[[RuleInput, AuditOptions], Iterator[Finding]]
    """Pure: yields what is found, in model order."""

    doc: str
    """
    What it looks for in the first line, then why, with the source: the docstring of its function.
    """

    example: str
    """What a file looks like in which it finds something: JSON, or a few words."""

    needs: Needs | None = None
    references: tuple[str, ...] = ()
    """Advisories that tell of what it looks for: CVE and GHSA ids."""

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

        :param severities: by the code, where the severity is not the rule's.
        """
        observations = tuple(case.observations(*codes))
        layers = {
            layer.path: layer for layer in reversed(case.model.layers if observations else ())
        }
        for observation in observations:
            where = observation.where or ""
            layer = layers.get(where)
            yield self.finding(
                observation.message,
                path=layer.path if layer is not None else None,
                address=layer.address if layer is not None else None,
                detail="" if layer is not None else f"{observation.code}:{where}",
                severity=severities.get(observation.code),
                remedy=remedy,
                advice=advice,
            )

    @property
    def summary(self) -> str:
        """What it looks for, in one line."""
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
    Return a decorator that makes a rule of the function that checks a model.

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
