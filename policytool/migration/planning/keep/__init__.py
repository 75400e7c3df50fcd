"""
Layers that stay in float32 when a model goes to a 16-bit policy, one rule a module.

To add a rule, write its module and add one line to :data:`KEEP_RULES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep import classes, identifiers, outputs
from policytool.migration.planning.keep._base import KeepRule
from policytool.migration.planning.options import Outputs
from policytool.releases.dtypes import HALVES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.policy import Policy

KEEP_RULES: Final[tuple[KeepRule, ...]] = (
    outputs.RULE,
    classes.RULE,
    identifiers.RULE,
)
"""The first rule that names a layer gives the reason."""


def layers_to_keep(loaded: LoadedModel, policy: Policy, choice: Outputs) -> Mapping[int, str]:
    """
    Return the sites that stay in float32 under this policy, with the reason for each; empty for a
    policy that computes in 32 bits or more.
    """
    reasons: dict[int, str] = {}
    if policy.compute_dtype in HALVES:
        for rule in KEEP_RULES:
            if rule is outputs.RULE and choice is Outputs.FOLLOW:
                continue
            for index, reason in rule.find(loaded, policy):
                reasons.setdefault(index, reason)
    return reasons


__all__ = ["KEEP_RULES", "KeepRule", "layers_to_keep"]
