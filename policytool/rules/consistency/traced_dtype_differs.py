"""
Traced dtypes of a SavedModel's graph differ from the policies of its layers.

A SavedModel contains the policies of its layers and the graph that was traced when the model was
saved. Signatures run the graph and ignore the policies, whereas Keras rebuilds the layers from the
policies. If only the metadata was edited, serving and training use different models. The rule
compares only the matrix products, convolutions and RNN kernels of each layer. Other ops are not
reliable evidence: for example, a float16 BatchNormalization layer computes in float32 by design.

Sources: tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h for the ops; graphs saved
by TF 2.1 to tf_keras 2.21, all of which match their metadata.
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
    for observation in _observations.select(case, "traced-dtype-differs"):
        yield _observations.finding(
            RULE, case, observation, remedy=Remedy(fix=Fix.UNSAFE, retrace=True)
        )


RULE: Final = Rule(
    id="PT402",
    name="traced-dtype-differs",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example="3 of 12 layers with matrix products declare mixed_float16 but compute in float32 in "
    "the saved graph",
)
