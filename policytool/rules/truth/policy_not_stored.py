"""
A file of TF 2.0 or older, which cannot say whether the model was mixed.

TF 1.14 to 2.0 write the dtype of a layer's variables in place of its policy: a mixed_float16 model
comes back as float32 from every loader, slower and with other results, and nothing in the file
tells. Standalone Keras 2.2 and 2.3 had no policies, so nothing is lost there.

Sources: H5, JSON and YAML files written by TF 1.15.0 and 2.0.4 under each policy that they know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules import _observations
from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield one finding for such a file."""
    for observation in _observations.select(case, "policy-not-stored"):
        yield _observations.finding(
            RULE,
            case,
            observation,
            advice="if it was mixed, migrate --to mixed_float16 says so again",
        )


RULE: Final = Rule(
    id="PT408",
    name="policy-not-stored",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example='"keras_version": "2.2.4-tf", "dtype": "float32"',
)
