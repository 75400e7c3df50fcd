"""
Layers with weights have no stored policy, so they use the global policy at load time.

A layer without a stored policy (``null``, or a policy map without a default) uses the global policy
of the process that loads it. The same model can run in float32 in one program and in mixed_float16
in another, with different results and memory use. The rule reports one note per file. HDF5 and
``.keras`` files never store the policy of the model itself, so the rule checks only layers with
weights.

Sources: a model whose ``DTypePolicyMap`` has no default, written and loaded by Keras 3.15.1. The
layers of this model computed in float32 under the global policy float32, and in float16 under
mixed_float16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.model import Source
from policytool.releases import dtypes
from policytool.rules.base import Rule
from policytool.rules.finding import Severity
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield one finding with the number of layers."""
    found = [
        layer
        for layer in case.model.layers
        if layer.source is Source.GLOBAL
        and any(dtypes.is_float(variable.dtype) for variable in layer.variables)
    ]
    if found:
        listed = join_first([layer.path for layer in found])
        layers = (
            "1 layer with weights has"
            if len(found) == 1
            else f"{len(found)} layers with weights have"
        )
        message = (
            f"{layers} no stored policy and {'uses' if len(found) == 1 else 'use'} the global "
            f"policy at load time ({listed})"
        )
        yield RULE.finding(
            message,
            advice="if the config of the layer supports a policy, use migrate --set; otherwise, "
            "set the global policy before you load the model",
        )


RULE: Final = Rule(
    id="PT409",
    name="depends-on-global-policy",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example='"class_name": "Dense", "config": {"name": "dense", "dtype": null, ...}',
)
