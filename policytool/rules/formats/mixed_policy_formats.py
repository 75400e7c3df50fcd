"""
File mixes policy formats from different releases.

Each release writes all policies in a single format. If a file contains both Keras 2 and Keras 3
dicts, or a version number that does not match the format of its config, the config was edited,
merged or converted. Such a file may fail to load in every release: Keras 2 cannot read one of the
formats, and Keras 3 cannot read the other. The rule does not report mixed formats if a single
release reads them all. For example, it accepts files written by ``migrate``, which omits keys with
default values and writes policies as names.

Sources: the policy formats in files written by TF 1.15 to 2.15, tf_keras 2.21 and Keras 3.0 to
3.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.policy_formats import OUTDATED
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.formats._spelled import describe_layers, everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_CODE: Final = "mixed-policy-formats"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for policies of both families, and what the reader noticed."""
    for observation in case.model.observations:
        if observation.code == _CODE:
            yield RULE.finding(
                observation.message,
                detail=_CODE,
                advice="list the policies of the layers with policytool inspect",
            )
    found = (
        [one for one in everywhere(case.loaded) if one.class_name is not None]
        if case.loaded is not None
        else []
    )
    old, new = (
        [one for one in found if (one.class_name in OUTDATED) is wanted] for wanted in (True, False)
    )
    if old and new:
        (_, in_keras2), (_, in_keras3) = describe_layers(old), describe_layers(new)
        message = (
            f"policies use the Keras 2 format in {in_keras2} and the Keras 3 format in "
            f"{in_keras3}, and no release reads both"
        )
        yield RULE.finding(message, detail="policies", remedy=Remedy(fix=Fix.SAFE))


RULE: Final = Rule(
    id="PT105",
    name="mixed-policy-formats",
    severity=Severity.WARNING,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "Policy", ...} in one layer and {"class_name": "DTypePolicy", '
    "...} in another",
)
