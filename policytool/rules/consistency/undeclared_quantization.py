"""
Layer stores integer kernels, but its policy declares no quantization.

Releases build the layer with float kernels, which the file does not contain. Keras 3 writes such
files for a quantized MultiHeadAttention, because its inner layers are quantized but missing from
its config.

Sources: a MultiHeadAttention that was quantized to int8 and saved by Keras 3.15.1, which fails to
load its own file: "Layer 'key' expected 2 variables, but received 0 variables during loading".
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
    for observation in _observations.select(case, "undeclared-quantization"):
        yield _observations.finding(
            RULE,
            case,
            observation,
            advice="save the model before you quantize it, and quantize it after loading",
        )


RULE: Final = Rule(
    id="PT407",
    name="undeclared-quantization",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example="attention/query_dense declares float32 and stores a kernel in int8",
)
