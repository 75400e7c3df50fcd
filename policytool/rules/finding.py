"""
What an audit says of a model: findings, how much they matter, and what fixes them.

A finding knows its rule by the id alone, and nothing of its presentation. What tells it apart from
others, run after run, is its fingerprint.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address, Signature  # noqa: TC001  # for the codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
