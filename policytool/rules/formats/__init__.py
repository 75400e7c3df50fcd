"""Rules about how policies are written, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.formats import (
    experimental_policy,
    incompatible_policy_format,
    infer_policy,
    keras2_policy_dict,
    mixed_policy_formats,
    removed_policy_name,
    shared_object_id,
    unknown_policy,
)

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    experimental_policy.RULE,
    removed_policy_name.RULE,
    infer_policy.RULE,
    incompatible_policy_format.RULE,
    mixed_policy_formats.RULE,
    shared_object_id.RULE,
    unknown_policy.RULE,
    keras2_policy_dict.RULE,
)
