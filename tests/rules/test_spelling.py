"""Rules about how policies are written."""

from __future__ import annotations

from tests.contracts.rule_contract import RuleContract


class TestExperimentalPolicy(RuleContract):
    id = "PT101"
    triggers = {"tf2.3/exp_mf16_fixed128.h5": ("mlp/dense_a",)}
    silent = ("tf2.3/global_mixed_float16.h5", "tf2.15/global_mixed_float16.h5", "keras3.15/global_mixed_float16.keras")
