"""
Stored weights that are infinite in the dtype their layer computes in.

A layer rounds its variables to its compute dtype before it uses them: under mixed_float16 what is
not below 65520 becomes infinite, and what is computed with it infinite or NaN. The values
themselves are read, with ``--weights`` alone. Variables that a layer computes with as they are
stored, such as those of a BatchNormalization, do not count, nor do those of layers whose class is
not Keras' own.

Sources: IEEE 754, binary16; which variables are rounded was tried with tf_keras 2.21 and Keras
3.15, by changing each by less than float16 tells apart. NVIDIA's Model Optimizer leaves a node in
float32 for an initialiser beyond 65504 (modelopt/onnx/autocast).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.rounded_weights import compute_dtype
from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.numerics._judging import rounded_variables, to_float32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield the variables with such values."""
    for found in rounded_variables(case, options):
        layer, counts = found.layer, found.counts
        if counts.overflow:
            become = "value becomes" if counts.overflow == 1 else "values become"
            dtype = compute_dtype(found.loaded, found.index)
            message = (
                f"{layer.path} computes in {dtype}, in which {counts.overflow} {become} infinite "
                f"of {counts.values} in {found.name}"
            )
            yield RULE.finding(
                message,
                path=layer.path,
                address=layer.address,
                detail=found.name,
                remedy=to_float32(found.loaded, (found.index,)),
            )


RULE: Final = Rule(
    id="PT305",
    name="weights-overflow",
    severity=Severity.ERROR,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example="a kernel that holds 70000.0, in a Dense under mixed_float16",
    needs=Needs.WEIGHTS,
)
