"""
File was written by TF 2.0 or older, which does not store mixed policies.

TF 1.14 to 2.0 store the dtype of a layer's variables instead of its policy. A mixed_float16 model
therefore loads as float32 in every release, runs slower and returns different results. The file
does not show whether the model used a mixed policy. Standalone Keras 2.2 and 2.3 had no policies,
so their files are not affected.

Sources: HDF5, JSON and YAML files written by TF 1.15.0 and 2.0.4 under each policy that they
support.
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
            advice=(
                "if the model used mixed_float16, restore the policy with migrate --to "
                "mixed_float16"
            ),
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
