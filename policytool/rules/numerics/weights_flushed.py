"""
Variable has stored values that are too small for float16.

A layer casts its variables to its compute dtype before it uses them. In float16, values up to
0.00000003 become 0, and values below 0.00006 lose precision. A few small values are harmless,
although TensorRT warns about them: if the same kernel also contains larger values, the small values
do not affect its sums. The rule reports a variable if all of its values are too small for float16.
The finding is a warning if most values become 0, and a note otherwise. The variance of a
Normalization layer has one value per feature, so the rule reports it if any value becomes 0. The
rule skips biases, which are added to larger values, and variables that a layer uses in their stored
dtype. It requires ``--weights``, because it reads the stored values.

Sources: IEEE 754, binary16; the list of variables that layers cast, measured with tf_keras 2.21 and
Keras 3.15. Of 261 variables in 14 published models, 45 contain values that are too small for
float16, and in three of them, most values are too small. In one regularized kernel, 90% of the
values are too small, but the other 10% determine the sums. All of these variables
also contain larger values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.rounded_weights import compute_dtype
from policytool.releases.layer_classes import layer_facts
from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.numerics._judging import rounded_variables, to_float32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.casting import Counts
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_MOST: Final = 0.5
_ADDED: Final = frozenset({"bias", "beta", "moving_mean"})


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield the variables whose values are too small."""
    for found in rounded_variables(case, options):
        layer, name, counts = found.layer, found.name, found.counts
        if name not in _ADDED and _is_lost(
            counts, each=layer_facts(layer.class_name).adapts_statistics and name == "variance"
        ):
            rest = counts.values - counts.zero
            severity = (
                Severity.WARNING
                if counts.flushed > _MOST * rest or counts.flushed + counts.subnormal < rest
                else Severity.NOTE
            )
            dtype = compute_dtype(found.loaded, found.index)
            message = (
                f"{layer.path} computes in {dtype}, but "
                f"{counts.flushed + counts.subnormal} of {rest} nonzero values in {name} "
                f"are too small for {dtype}: {counts.flushed / rest:.0%} become 0, "
                f"{counts.subnormal / rest:.0%} lose precision"
            )
            remedy = to_float32(found.loaded, (found.index,))
            yield RULE.finding(
                message,
                path=layer.path,
                address=layer.address,
                detail=name,
                severity=severity,
                remedy=remedy,
            )


def _is_lost(counts: Counts, *, each: bool) -> bool:
    """
    Return whether all values that are not 0 are too small, or any becomes 0 where each counts.
    """
    rest = counts.values - counts.zero
    return rest > 0 and (counts.flushed + counts.subnormal == rest or (each and counts.flushed > 0))


RULE: Final = Rule(
    id="PT306",
    name="weights-flushed",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example="a scale of 1e-8 for each channel, in a layer under mixed_float16",
    needs=Needs.WEIGHTS,
)
