"""
Standalone Keras 2.0 to 2.3 (2017 to 2019): no dtype policies.

Up to 2.2 only input layers and first layers have a ``dtype``; in 2.3 every layer has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import policy_formats
from policytool.releases.generations import _base, keras1
from policytool.releases.generations._base import Generation, Unsaid

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap

TITLE: Final = "Keras 2.0 to 2.3"


def render(policy: Policy | PolicyMap) -> str:
    """Return the dtype's name; standalone Keras 2 has no other policies."""
    return keras1.single_dtype(policy, TITLE)


GENERATION: Final = Generation(
    id="keras2.0-2.3",
    title=TITLE,
    parse=policy_formats.parse_name,
    render=render,
    unsaid=Unsaid.FLOATX,
    composites=_base.CELLS_TO_TF25,
)
