"""
Model uses functions, ops, classes or arguments that were never reviewed.

policytool includes reviewed lists of symbols that only compute values: the classes of every Keras
release, about 1,000 TensorFlow functions and about 1,000 TensorFlow ops. ``check``, ``migrate
--verify`` and ``migrate --retrace`` load a model without ``--trust`` only if all of its symbols are
on these lists. This rule reports symbols that are neither on these lists nor known to be harmful.
Such a symbol may have side effects, be new in a later release, or be misspelled.

Sources: data/pure_classes.json, data/pure_functions.json and data/pure_ops.json, reviewed against
TensorFlow 2.21.0, tf_keras 2.21.0 and Keras 3.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import hazards
from policytool.model.hazards import Harm
from policytool.rules.base import Rule
from policytool.rules.finding import Severity
from policytool.rules.safety._found import findings
from policytool.support.errors import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_ADVICE: Final = "review it before you load the model"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield what the configs name, then each kind of op in the graph."""
    yield from findings(RULE, case, Harm.UNKNOWN, advice=_ADVICE)
    for name in sorted(case.document.ops):
        if not (hazards.is_pure_op(name) or hazards.is_placed_op(name) or hazards.op(name)):
            yield RULE.finding(
                f"the graph contains the op {short(name)}, which is not on the list of ops "
                "that only compute",
                detail=name,
                advice=_ADVICE,
            )


RULE: Final = Rule(
    id="PT612",
    name="unknown-symbol",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example='"class_name": "TFOpLambda", "config": {"function": "map_fn", ...}',
)
