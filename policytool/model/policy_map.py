"""
Which policy a ``DTypePolicyMap`` gives to a layer path.

An exact path wins. Then every key is tried as a regular expression: searched for up to Keras 3.11,
matched in full from 3.12 on (keras/src/dtype_policies/dtype_policy_map.py, ``__getitem__``); two
matches are an error in Keras. Keys come from strangers, so those that could take exponential time
are not tried.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap

INVALID: Final = (re.error, OverflowError, RecursionError)
"""
What ``re.compile`` raises for text that is not a regular expression; the second is for numbers, the
third for brackets in brackets.
"""

_REPEATS: Final = re.compile(r"[*+?{]")
_NESTED: Final = re.compile(r"[)*+?}][*+?{]|\\[1-9]|\(\?")
_MAX_REPEATS: Final = 4
_MAX_LENGTH: Final = 300
_MAX_STEPS: Final = 10**8
"""
Ways that a match may have to try, by a count that is far too high for most keys: some seconds at
the worst, thousandths for keys that people write.
"""


class UnclearPolicyError(ValueError):
    """The map gives no single policy for a path."""


def resolve(
    policy_map: PolicyMap, path: str, *, full_match: bool, until: float = math.inf
) -> Policy | None:
    """
    Return the policy of the layer at ``path``; None is the loader's global policy.

    :param until: the processor's time (``time.process_time``) after which no further key is tried
    :raises UnclearPolicyError: where two keys match, a key is no regular expression that is safe to
        try, or the time is up.
    """
    for key, policy in policy_map.policies:
        if key == path:
            return policy
    matching = [
        (key, policy)
        for key, policy in policy_map.policies
        if _matches(key, path, full_match=full_match, until=until)
    ]
    if len(matching) > 1:
        raise UnclearPolicyError(
            f"{len(matching)} keys of its policy map match its path "
            f"({', '.join(key for key, _ in matching[:3])}), so Keras raises an error"
        )
    return matching[0][1] if matching else policy_map.default


def _matches(key: str, path: str, *, full_match: bool, until: float) -> bool:
    if time.process_time() > until:
        raise UnclearPolicyError("matching the keys of the policy maps takes too long")
    if (
        not is_simple(key)
        or len(path) > _MAX_LENGTH
        or _steps(key, path, full_match=full_match) > _MAX_STEPS
    ):
        raise UnclearPolicyError("its policy map has a key that is too complex to match")
    expression = _compile(key)
    return bool(expression.fullmatch(path) if full_match else expression.search(path))


def is_simple(pattern: str) -> bool:
    """
    Return whether a regular expression has few repeats, none in another and no reference to a
    group, so that no text takes it exponential time.
    """
    return len(_REPEATS.findall(pattern)) <= _MAX_REPEATS and _NESTED.search(pattern) is None


def _steps(key: str, path: str, *, full_match: bool) -> int:
    """
    Return the most ways there are to match: a repeat takes any number of characters, an alternative
    is one of two, a search begins anywhere.
    """
    repeats = len(_REPEATS.findall(key)) + (not full_match)
    return int((len(path) + 1) ** repeats * 2 ** min(key.count("|"), 64))


@lru_cache(maxsize=512)
def _compile(key: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            # of sets that a later Python reads otherwise: nothing of that is this file's reader's
            # affair
            warnings.simplefilter("ignore")
            return re.compile(key)
    except INVALID as error:
        raise UnclearPolicyError(
            f"its policy map has the key {key!r}, which is not a valid regular expression ({error})"
        ) from error
