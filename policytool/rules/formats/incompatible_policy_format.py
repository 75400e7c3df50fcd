"""
Policy format is not supported by the target release.

TF 2.1 to 2.4 read mixed policies only from dicts, not from plain names: TF 2.1 to 2.3 from
``Policy`` dicts, and TF 2.4 also from ``PolicyV1`` dicts, as do later releases and tf_keras. Keras
3.4 and later write ``DTypePolicy`` dicts, which Keras 2 cannot read. Keras 3.3 and later cannot
read Keras 2 dicts. TF 2.5 and all later releases can read a plain policy name. This rule covers
only the policy format; the loading rules (PT5) report other incompatibilities.

Sources: measured with 15 releases, which loaded 872 files written by 17 releases and 250 files
written by ``migrate``; the table in docs/reference/compatibility.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration import planning
from policytool.model import config_traits
from policytool.model.compatibility.incompatibilities import REFUSALS, Evidence
from policytool.model.model import Obstacle
from policytool.releases.policy import PolicyMap
from policytool.releases.releases import release_name
from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.formats._spelled import describe_layers, everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Verdict
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding
    from policytool.rules.formats._spelled import Spelled

_WORD: Final = "needs-decision"
"""The code of a migration's refusal where only the user knows a policy's successor."""


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each target that refuses them."""
    loaded = case.loaded
    if loaded is None:
        return
    for target in options.targets:
        reason = _reason(case.model.loaders, target)
        if reason is not None:
            path, layers = describe_layers(_those(loaded, reason))
            remedy, advice = _find_remedy(loaded, target)
            message = f"{release_name(target)} cannot read the policy of {layers}: {reason}"
            yield RULE.finding(message, path=path, detail=target, remedy=remedy, advice=advice)


def _reason(verdicts: Sequence[Verdict], target: str) -> str | None:
    """Return why a target does not read the policies; None where it does."""
    causes = (cause for verdict in verdicts if verdict.loader == target for cause in verdict.causes)
    return next((cause.reason for cause in causes if cause.kind is Obstacle.POLICY), None)


def _those(loaded: LoadedModel, reason: str) -> list[Spelled]:
    """Return the policies that are refused for a reason: those by which alone it would be seen."""
    releases = frozenset(release.id for release in loaded.origins)
    blank = Evidence(document=loaded.document, traits=config_traits.of({}), releases=releases)
    rows = [
        row
        for row in REFUSALS
        if row.reason == reason
        and row.kind is Obstacle.POLICY
        and loaded.document.format in row.formats
    ]
    found = everywhere(loaded)
    alone = [
        one
        for one in found
        if any(
            row.shows(replace(blank, traits=config_traits.of({"dtype": one.value}))) for row in rows
        )
    ]
    return alone or list(found)


def _find_remedy(loaded: LoadedModel, target: str) -> tuple[Remedy | None, str | None]:
    """
    Return the migration after which the target reads the policies, to the spelling of the newest or
    else to its own; or else what to know.
    """
    advice = f"PT501 reports further incompatibilities with {release_name(target)}"
    if any(
        isinstance(found, PolicyMap) or found.quantization for found in loaded.own_policies.values()
    ):
        advice = "no policy format of the target release can represent the policy"
    for asked in (None, target):
        made = planning.plan(loaded, planning.Options(target=asked))
        if made.edits and not made.refusals and _reason(made.loaders_after, target) is None:
            return Remedy(fix=Fix.SAFE, target=asked), None
        advice = next(
            (
                f"migrate requires a decision: {refusal.message}"
                for refusal in made.refusals
                if refusal.code == _WORD
            ),
            advice,
        )
    return None, advice


RULE: Final = Rule(
    id="PT104",
    name="incompatible-policy-format",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "Policy", "config": {"name": "mixed_float16"}}, audited with '
    "--target keras3",
    needs=Needs.TARGET,
)
