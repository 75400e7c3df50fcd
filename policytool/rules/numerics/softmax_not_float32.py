"""
Softmax before the output computes in 16 bits.

A softmax between the last layer with weights and an output computes the model's probabilities.
float16 rounds probabilities below 0.00000006 to zero and represents probabilities below 0.00006
with reduced precision. As a result, the sum of the probabilities is no longer 1, and logarithms
become infinite. For 1,000 logits with a standard deviation of 20, the error in the probabilities
was 3% in float16 and 17% in bfloat16. Layers between the softmax and the output also round the
probabilities. The rule does not report a softmax in the middle of a model, such as in attention. If
the softmax is the output layer, the rule output-not-float32 reports it.

Sources: "Ensure the output is float32" in TensorFlow's guide to mixed precision,
https://www.tensorflow.org/guide/mixed_precision; measured on CPU with Keras 3.15.1 and tf_keras
2.21.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep import outputs
from policytool.model.rounded_weights import compute_dtype
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.numerics._judging import judged_model, to_float32
from policytool.rules.numerics.output_not_float32 import units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield each softmax before an output, and what stands behind it."""
    loaded = judged_model(case, options)
    if loaded is None:
        return
    softmaxes = units(loaded, outputs.SOFTMAX)
    for index, members in units(loaded, outputs.SOFTMAX, outputs.BETWEEN).items():
        layer = loaded.layers[index]
        what = (
            "is a softmax before the output"
            if index in softmaxes
            else "is between a softmax and the output"
        )
        message = f"{layer.path} {what} and computes in {compute_dtype(loaded, index)}"
        yield RULE.finding(
            message, path=layer.path, address=layer.address, remedy=to_float32(loaded, members)
        )


RULE: Final = Rule(
    id="PT302",
    name="softmax-not-float32",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example='{"class_name": "Softmax", "config": {"name": "probabilities", "dtype": '
    '"mixed_float16", '
    "...}}, followed by a Reshape in float32",
)
