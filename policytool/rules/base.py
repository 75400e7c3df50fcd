"""What a rule is, how a function declares it, what it looks at, and its options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from policytool.formats.document import Signature  # noqa: TC001  # for the codec
from policytool.rules.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.formats.casting import Counts
    from policytool.formats.document import Address, Document, Observation
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Model
    from policytool.rules.finding import Fix, Remedy


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
    :mod:`policytool.releases.targets`.
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
