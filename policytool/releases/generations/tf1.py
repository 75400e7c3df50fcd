"""
tf.keras of TF 1.4 to 2.0: policies exist from 1.14 on, but configs hold the variable dtype alone.

A mixed policy is lost when such a release saves (``Layer.get_config`` writes ``self.dtype``), so no
file of it can show one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import policy_formats
from policytool.releases.generations import _base, keras1
from policytool.releases.generations._base import Generation

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap

TITLE: Final = "TF 1.4 to 2.0"


def render(policy: Policy | PolicyMap) -> str:
    """Return the dtype's name; these releases write no other policies."""
    return keras1.single_dtype(policy, TITLE)


GENERATION: Final = Generation(
    id="tf1.4-2.0",
    title=TITLE,
    parse=policy_formats.parse_name,
    render=render,
    composites=_base.CELLS_TO_TF25,
)
