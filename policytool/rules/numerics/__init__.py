"""Rules about what is computed wrongly, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.numerics import (
    constant_out_of_range,
    epsilon_underflow,
    float_ids,
    half_on_cpu,
    half_variables,
    no_kernel,
    nonfinite_weights,
    output_not_float32,
    softmax_not_float32,
    weights_flushed,
    weights_overflow,
    wrong_in_16_bits,
)

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    output_not_float32.RULE,
    softmax_not_float32.RULE,
    wrong_in_16_bits.RULE,
    epsilon_underflow.RULE,
    weights_overflow.RULE,
    weights_flushed.RULE,
    nonfinite_weights.RULE,
    float_ids.RULE,
    half_variables.RULE,
    no_kernel.RULE,
    half_on_cpu.RULE,
    constant_out_of_range.RULE,
)
