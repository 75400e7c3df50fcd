"""
Policies, or other marks, of several generations of Keras in one file.

A release writes its policies in one way. Dicts of Keras 2 and of Keras 3 side by side, or a version
that never wrote what stands beside it, mean that the config was edited, merged or converted, and no
loader may take all of it: Keras 2 refuses the one kind, Keras 3 the other.

Sources: the spellings of TF 1.15 to 2.15, tf_keras 2.21 and Keras 3.0 to 3.15, read from files that
they wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.policy_formats import OUTDATED
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.spelling._spelled import describe_layers, everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_CODE: Final = "mixed-generations"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for policies of both families, and what the reader noticed."""
    for observation in case.model.observations:
        if observation.code == _CODE:
            yield RULE.finding(
                observation.message,
                detail=_CODE,
                advice="check with policytool inspect what each layer declares",
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
            f"policies are spelled as Keras 2 does at {in_keras2} and as Keras 3 does at "
            f"{in_keras3}, and no loader reads both"
        )
        yield RULE.finding(message, detail="policies", remedy=Remedy(fix=Fix.SAFE))


RULE: Final = Rule(
    id="PT105",
    name="mixed-generations",
    severity=Severity.WARNING,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "Policy", ...} in one layer and {"class_name": "DTypePolicy", '
    "...} in another",
)
