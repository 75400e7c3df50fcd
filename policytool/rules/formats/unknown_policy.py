"""
Policy does not exist in any Keras release.

TF 1.15 to 2.15, tf_keras 2.21 and Keras 3.0 to 3.15 have no policy with this name or class. The
policy is a typo, a custom class, or newer than this version of policytool. The model fails to load
unless you pass a custom object with this name.

Source: the names and classes that each release reads and writes, determined by running the
releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_CODE: Final = "unknown-policy"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each layer that has one."""
    addresses = {layer.path: layer.address for layer in case.model.layers}
    for observation in case.model.observations:
        if observation.code == _CODE:
            path = observation.where
            advice = f"set another policy: policytool migrate --set '{path}=POLICY'"
            yield RULE.finding(
                observation.message, path=path, address=addresses.get(path or ""), advice=advice
            )


RULE: Final = Rule(
    id="PT107",
    name="unknown-policy",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"dtype": "mixed_flaot16"',
)
