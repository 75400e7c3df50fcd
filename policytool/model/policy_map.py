"""
Which policy a ``DTypePolicyMap`` gives to a layer path.

An exact path wins. Then every key is tried as a regular expression: searched for up to Keras 3.11,
matched in full from 3.12 on (keras/src/dtype_policies/dtype_policy_map.py, ``__getitem__``); two
matches are an error in Keras. Keys come from strangers, so they are matched in a bounded number of
steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.support.errors import short
from policytool.support.patterns.matching import ExpressionError, StepsExceededError

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap
    from policytool.support.patterns.matching import Matcher


class UnclearPolicyError(ValueError):
    """The map gives no single policy for a path."""


def resolve(
    policy_map: PolicyMap, path: str, matcher: Matcher, *, full_match: bool
) -> Policy | None:
    """
    Return the policy of the layer at ``path``; None is the loader's global policy.

    :param matcher: counts the steps of all policy maps of a file
    :raises UnclearPolicyError: if two keys match, a key is not a supported regular expression, or
        the steps exceed the limit.
    """
    for key, policy in policy_map.policies:
        if key == path:
            return policy
    matching = [
        (key, policy)
        for key, policy in policy_map.policies
        if _matches(key, path, matcher, full_match=full_match)
    ]
    if len(matching) > 1:
        raise UnclearPolicyError(
            f"{len(matching)} keys of its policy map match its path "
            f"({', '.join(key for key, _ in matching[:3])}), so Keras raises an error"
        )
    return matching[0][1] if matching else policy_map.default


def _matches(key: str, path: str, matcher: Matcher, *, full_match: bool) -> bool:
    try:
        return (matcher.fullmatch if full_match else matcher.search)(key, path)
    except ExpressionError as error:
        raise UnclearPolicyError(f"the key {short(key)!r} of its policy map {error}") from error
    except StepsExceededError as error:
        raise UnclearPolicyError(f"its policy map {error}") from error
