"""
A serving graph that computes in other dtypes than the layers declare.

A SavedModel holds its layers' policies and, beside them, the graph that was traced when it was
saved. Signatures run the graph, whatever the policies say; Keras builds the layers anew from the
policies. After an edit of the metadata alone, what is served and what is trained are two models.
Judged are matrix products, convolutions and RNN kernels of layers that have some: a float16
BatchNormalization rightly computes in float32 between casts, so nothing follows from other ops.

Sources: tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h for the ops; the graphs of
TF 2.1 to tf_keras 2.21, none of which disagrees with its metadata as saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules import _observations
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield each group of layers that declare one policy and compute in the same other dtypes."""
    for observation in _observations.select(case, "traced-differs"):
        yield _observations.finding(
            RULE, case, observation, remedy=Remedy(fix=Fix.UNSAFE, retrace=True)
        )


RULE: Final = Rule(
    id="PT402",
    name="traced-differs",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example="3 of 12 layers with matrix products declare mixed_float16 and compute them in float32 "
    "in "
    "the saved graph",
)
