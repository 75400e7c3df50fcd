"""
Config of a float16 layer contains a number outside the range of float16.

Layers cast such numbers to their compute dtype. In float16, values beyond 65504 become infinite,
and values below 0.00000003 become 0. A Rescaling layer returns infinity and NaN for a scale of 1e6,
and zeros for a scale of 1e-8. A Masking layer with the value -1e9 does not mask in Keras 3 and
returns NaN in tf_keras. A Normalization layer divides by infinity. The rule checks only config keys
whose conversion to float16 affects the results. It skips bfloat16, which has the same range as
float32.

Sources: measured on CPU with tf_keras 2.21 and Keras 3.15, with each key set to 1e6 and to 1e-8,
under float32 and mixed_float16. Apple's coremltools keeps an op in float32 if one of its constants
is beyond 65504 (mil/passes/defs/quantization.py), and OpenVINO keeps an op in float32 if its
epsilon is below 6.1e-05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import custom_classes
from policytool.model.rounded_weights import compute_dtype
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.numerics._constants import out_of_range
from policytool.rules.numerics._judging import judged_model, to_float32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield each key whose number is lost."""
    loaded = judged_model(case, options)
    if loaded is None:
        return
    for index, site in enumerate(loaded.sites):
        if compute_dtype(loaded, index) == "float16" and not custom_classes.is_opaque(site):
            layer = loaded.layers[index]
            for key, value, becomes in out_of_range(site.class_name, loaded.config(index)):
                message = (
                    f"{layer.path} ({site.class_name}) computes in float16 and has a {key} "
                    f"of {value:g}, which becomes {becomes} in float16"
                )
                yield RULE.finding(
                    message,
                    path=layer.path,
                    address=layer.address,
                    detail=key,
                    remedy=to_float32(loaded, (index,)),
                )


RULE: Final = Rule(
    id="PT312",
    name="constant-out-of-range",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example='{"class_name": "Masking", "config": {"mask_value": -1000000000.0, "dtype": '
    '"mixed_float16", ...}}',
)
