"""
Stored weights overflow to infinity in the compute dtype of their layer.

A layer casts its variables to its compute dtype before it uses them. Under mixed_float16, values of
65520 and above become infinite, and results become infinite or NaN. The rule requires
``--weights``, because it reads the stored values. It skips custom layers, and variables that a
layer uses in their stored dtype, such as the variables of BatchNormalization.

Sources: IEEE 754, binary16; the list of variables that layers cast, measured with tf_keras 2.21 and
Keras 3.15 by changing each variable by less than the precision of float16. NVIDIA's Model Optimizer
keeps a node in float32 if an initializer exceeds 65504 (modelopt/onnx/autocast).
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
            become = "becomes" if counts.overflow == 1 else "become"
            dtype = compute_dtype(found.loaded, found.index)
            message = (
                f"{layer.path} computes in {dtype}, in which {counts.overflow} of {counts.values} "
                f"values in {found.name} {become} infinite"
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
    example="a kernel that contains 70000.0, in a Dense under mixed_float16",
    needs=Needs.WEIGHTS,
)
