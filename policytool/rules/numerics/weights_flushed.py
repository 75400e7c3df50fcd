"""
Stored weights of a variable are too small for float16.

A layer casts its variables to its compute dtype before it uses them. float16 rounds values up to
0.00000003 to 0 and loses precision below 0.00006. Single small values are harmless, although
TensorRT warns of them: next to larger values in the same kernel, they add nothing to a sum. The
rule reports variables whose values are all too small for float16: as a warning if most become 0,
otherwise as a note. The variance of a Normalization has one number for each feature, so each value
that becomes 0 counts. Biases are added to larger values and are skipped, as are variables that a
layer uses in their stored dtype. The rule reads the stored values, which requires ``--weights``.

Sources: IEEE 754, binary16; the variables that layers cast were determined with tf_keras 2.21 and
Keras 3.15. Of 261 variables in 14 published models, 45 contain such values and three consist mostly
of them (up to 90 % of a regularized kernel, whose sums come from the other 10 %). No variable
consists only of such values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.rounded_weights import compute_dtype
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
            counts, each=layer.class_name == "Normalization" and name == "variance"
        ):
            rest = counts.values - counts.zero
            severity = (
                Severity.WARNING
                if counts.flushed > _MOST * rest or counts.flushed + counts.subnormal < rest
                else Severity.NOTE
            )
            message = (
                f"{layer.path} computes in {compute_dtype(found.loaded, found.index)}, for which "
                f"{counts.flushed + counts.subnormal} of {rest} values in {name} are too small: "
                f"{counts.flushed / rest:.0%} become 0, {counts.subnormal / rest:.0%} lose "
                "precision"
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
