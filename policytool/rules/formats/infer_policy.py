"""
Layers infer their dtype from their first input (policies ``infer`` and ``_infer``).

The file does not contain the compute dtype of such a layer: with a float64 input, the layer
computes in float64. TF 2.3 to tf_keras 2.21 read ``_infer`` in a ``Policy`` or ``PolicyV1`` dict;
TF 2.1 and 2.2 read ``infer`` in a ``Policy`` dict. No release can read these policies in any other
format, and Keras 3 cannot read them in any format.

Sources: tensorflow/python/keras/mixed_precision/experimental/policy.py in TF 2.2.3 and 2.3.4;
measured with ``Dense.from_config`` in TF 2.0 to 2.15, tf_keras 2.21 and Keras 3.0 to 3.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.base import Rule
from policytool.rules.finding import Severity
from policytool.rules.formats._spelled import by_name, describe_layers, everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding
    from policytool.rules.formats._spelled import Spelled

_IMPLICIT: Final = "_infer"
_EXPLICIT: Final = "infer"
_OUTDATED: Final = ("Policy", "PolicyV1")


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each of the names."""
    found = (
        [one for one in everywhere(case.loaded) if one.is_inferred]
        if case.loaded is not None
        else []
    )
    for name, those in by_name(found):
        path, layers = describe_layers(those)
        severity, loaders = _who(name, those)
        message = (
            f"{layers} {'uses' if path else 'use'} the policy {name}, which infers the dtype from "
            f"the first input; {loaders}"
        )
        advice = f"set a policy: policytool migrate --set '{path or 'PATTERN'}=POLICY'"
        yield RULE.finding(
            message,
            path=path,
            address=those[0].address,
            detail=name,
            severity=severity,
            advice=advice,
        )


def _who(name: str, those: Sequence[Spelled]) -> tuple[Severity, str]:
    if name == _IMPLICIT and all(one.class_name in _OUTDATED for one in those):
        return Severity.WARNING, "TF 2.4 and later and tf_keras can read it, but Keras 3 cannot"
    if name == _EXPLICIT and all(one.class_name == _OUTDATED[0] for one in those):
        return Severity.ERROR, "only TF 2.1 and 2.2 read it"
    return Severity.ERROR, "no release reads it"


RULE: Final = Rule(
    id="PT103",
    name="infer-policy",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "Policy", "config": {"name": "infer"}}',
)
