"""
Layers that stay in float32 when a model goes to a 16-bit policy.

To add a rule, write a function and add one line to :data:`KEEP_RULES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep import classes, identifiers, outputs
from policytool.migration.planning.options import Outputs
from policytool.releases.dtypes import HALVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.policy import Policy

KEEP_RULES: Final[tuple[Callable[[LoadedModel, Policy], Iterator[tuple[int, str]]], ...]] = (
    outputs.output_reasons,
    classes.class_reasons,
    identifiers.identifier_reasons,
)
"""
The first rule that names a layer gives the reason.

A rule yields the sites that stay in float32 with the reason, for a model and the policy that it is
to have. It depends on the structure of the model, never on its present policies.
"""


def layers_to_keep(loaded: LoadedModel, policy: Policy, choice: Outputs) -> Mapping[int, str]:
    """
    Return the sites that stay in float32 under this policy, with the reason for each; empty for a
    policy that computes in 32 bits or more.
    """
    reasons: dict[int, str] = {}
    for rule in KEEP_RULES if policy.compute_dtype in HALVES else ():
        if rule is not outputs.output_reasons or choice is Outputs.KEEP:
            for index, reason in rule(loaded, policy):
                reasons.setdefault(index, reason)
    return reasons
