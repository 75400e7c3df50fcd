"""
Keras 1.0 to 1.2 (2016, 2017): no dtype policies, and hardly a dtype.

Only the first layer of a model has an ``input_dtype``. Everything computes and is stored in the
backend's ``floatx``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import policy_formats
from policytool.releases.generations._base import Generation, Unsaid
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap

TITLE: Final = "Keras 1"


def render(policy: Policy | PolicyMap) -> str:
    """Return the dtype's name; Keras 1 has no other policies."""
    return single_dtype(policy, TITLE)


def single_dtype(policy: Policy | PolicyMap, title: str) -> str:
    """
    Return the one dtype of a policy that computes in what it stores.

    :raises SpellingError: for mixed policies, which releases before TF 2.1 cannot write.
    """
    known = policy_formats.without_loss_scale(policy_formats.plain(policy, title), title)
    if known.should_cast_variables:
        raise SpellingError(
            f"{title} cannot represent {known.name}: the config contains only the variable dtype "
            f"({known.variable_dtype})"
        )
    return known.name


GENERATION: Final = Generation(
    id="keras1",
    title=TITLE,
    parse=policy_formats.parse_name,
    render=render,
    unsaid=Unsaid.FLOATX,
)
