"""
Stored weights that are too small for float16, as a whole.

A layer rounds its variables to its compute dtype before it uses them. In float16, what is not above
0.00000003 becomes 0, and what is below 0.00006 has fewer digits the smaller it is. TensorRT warns
of a single such value, which is nothing: beside larger ones in the same kernel it adds nothing to a
sum. Told is a variable without a larger value, whose scale float16 cannot hold: a warning where
most of its values become 0, else a note. The variance of a Normalization is one number for each
feature, where each that becomes 0 counts. Biases are added to what is larger and do not count, nor
do variables that a layer computes with as they are stored. The values are read, with ``--weights``
alone.

Sources: IEEE 754, binary16; which variables are rounded was tried with tf_keras 2.21 and Keras
3.15. Of 261 variables in 14 published models 45 have such values and three have mostly such, up to
90 % of a regularised kernel, whose sums the other 10 % make; none has them alone.
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
                f"{counts.flushed + counts.subnormal} of {rest} values "
                f"in {name} are too small: {counts.flushed / rest:.0%} become 0, "
                f"{counts.subnormal / rest:.0%} lose digits"
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
