"""
Kernels stored as integers in a layer whose policy says nothing of quantisation.

A loader builds the layer with float kernels, for which the file has none. A quantised
MultiHeadAttention of Keras 3 writes such files, because the layers that it makes by itself are
quantised and its config does not say so.

Sources: a MultiHeadAttention quantised to int8 and saved by Keras 3.15.1, which does not load its
own file: "Layer 'key' expected 2 variables, but received 0 variables during loading".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules import _observations
from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield the layers."""
    for observation in _observations.select(case, "quantized-undeclared"):
        yield _observations.finding(
            RULE,
            case,
            observation,
            advice="save the model before it is quantised, and quantise it after loading",
        )


RULE: Final = Rule(
    id="PT407",
    name="quantized-undeclared",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example="attention/query_dense declares float32 and stores a kernel in int8",
)
