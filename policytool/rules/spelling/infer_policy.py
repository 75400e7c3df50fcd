"""
A policy that takes the dtype of the layer's first input: ``infer``, ``_infer`` and their like.

What such a layer computes in is not in the file: fed float64, it is a float64 layer. Within a
``Policy`` or ``PolicyV1`` dict, ``_infer`` loads from TF 2.3 on up to tf_keras 2.21, and does so;
``infer`` within a ``Policy`` dict loads in TF 2.1 and 2.2. Every other spelling is refused by every
loader, and Keras 3 refuses all of them.

Sources: tensorflow/python/keras/mixed_precision/experimental/policy.py of TF 2.2.3 and 2.3.4;
measured with ``Dense.from_config`` in TF 2.0 to 2.15, tf_keras 2.21 and Keras 3.0 to 3.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.base import Rule
from policytool.rules.finding import Severity
from policytool.rules.spelling._spelled import by_name, describe_layers, everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding
    from policytool.rules.spelling._spelled import Spelled

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
            f"{layers} {'has' if path else 'have'} the policy {name}, by which the first input "
            f"decides the dtype; {loaders}"
        )
        advice = f"say the dtype: policytool migrate --set '{path or 'PATTERN'}=POLICY'"
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
        return Severity.WARNING, "TF 2.4 to tf_keras read it so, Keras 3 refuses it"
    if name == _EXPLICIT and all(one.class_name == _OUTDATED[0] for one in those):
        return Severity.ERROR, "TF 2.1 and 2.2 read it so, every later loader refuses it"
    return Severity.ERROR, "no loader reads it"


RULE: Final = Rule(
    id="PT103",
    name="infer-policy",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "Policy", "config": {"name": "infer"}}',
)
