"""Rules about what is computed wrongly, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.numerics import (
    constant_out_of_range,
    epsilon_underflow,
    float_ids,
    half_on_cpu,
    half_variables,
    output_not_float32,
    softmax_not_float32,
    wrong_in_16_bits,
)

if TYPE_CHECKING:
    from policytool.rules._base import Rule

RULES: Final[tuple[Rule, ...]] = (
    output_not_float32.RULE,
    softmax_not_float32.RULE,
    wrong_in_16_bits.RULE,
    epsilon_underflow.RULE,
    float_ids.RULE,
    half_variables.RULE,
    half_on_cpu.RULE,
    constant_out_of_range.RULE,
)
