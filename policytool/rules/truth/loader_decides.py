"""
Layers with weights whose dtypes are those of whoever loads the file.

A layer without a policy in the file (``null``, or a map of policies without a default) takes the
global policy of the process that loads it: the same file is float32 in one program and
mixed_float16 in another, with other results and other memory. One note for the file. A model's own
policy is not stored in HDF5 and ``.keras``, which is normal: a model without variables of its own
is left out.

Sources: ``DTypePolicyMap`` without a default written by Keras 3.15.1 and loaded by it: its layers
were float32 under the global policy float32, and computed in float16 under mixed_float16.
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
        if layer.source is Source.LOADER
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
            f"{layers} no policy in the file and {'takes' if len(found) == 1 else 'take'} the "
            f"global policy of whoever loads it ({listed})"
        )
        yield RULE.finding(
            message,
            advice="migrate --set gives a layer a policy where its config has a place for one; "
            "else "
            "set the global policy before loading",
        )


RULE: Final = Rule(
    id="PT409",
    name="loader-decides",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example='"class_name": "Dense", "config": {"name": "dense", "dtype": null, ...}',
)
