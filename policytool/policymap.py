"""
Which policy a ``DTypePolicyMap`` gives to a layer path.

An exact path wins. Then every key is tried as a regular expression: searched for up to Keras 3.11, matched in full from 3.12 on
(keras/src/dtype_policies/dtype_policy_map.py, ``__getitem__``); two matches are an error in Keras. Keys come from strangers, so those that
could take exponential time are not tried.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policytool.policy import Policy, PolicyMap

_REPEATS: Final = re.compile(r"[*+?{]")
_NESTED: Final = re.compile(r"[)*+?}][*+?{]|\\[1-9]|\(\?")
_MAX_REPEATS: Final = 4
_MAX_LENGTH: Final = 300


class UnclearPolicyError(ValueError):
    """The map gives no single policy for a path."""


def resolve(policy_map: PolicyMap, path: str, *, full_match: bool) -> Policy | None:
    """
    Return the policy of the layer at ``path``; None is the loader's global policy.

    :raises UnclearPolicyError: where two keys match, or a key is no regular expression that is safe to try.
    """
    for key, policy in policy_map.policies:
        if key == path:
            return policy
    matching = [(key, policy) for key, policy in policy_map.policies if _matches(key, path, full_match=full_match)]
    if len(matching) > 1:
        raise UnclearPolicyError(f"its policy map has {len(matching)} keys that match it ({', '.join(key for key, _ in matching[:3])}); Keras raises an error")
    return matching[0][1] if matching else policy_map.default


def _matches(key: str, path: str, *, full_match: bool) -> bool:
    if len(_REPEATS.findall(key)) > _MAX_REPEATS or _NESTED.search(key) or len(path) > _MAX_LENGTH:
        raise UnclearPolicyError("its policy map has a key that is too complex to try")
    try:
        return bool(re.fullmatch(key, path) if full_match else re.search(key, path))
    except re.error as error:
        raise UnclearPolicyError(f"its policy map has the key {key!r}, which is no regular expression ({error})") from error
