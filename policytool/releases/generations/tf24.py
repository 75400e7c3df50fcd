"""
TF 2.4 to 2.8: ``Policy`` without a loss scale, and ``PolicyV1`` for what the deprecated
experimental namespace made.

``PolicyV1`` is written even for ``float32``. Its loss scale is read by no loader from TF 2.4 on,
the writer included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import keras_objects, policy_formats
from policytool.releases.generations import _base
from policytool.releases.generations._base import Generation

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap
    from policytool.support.text.jsontext import Json

TITLE: Final = "TF 2.4 to 2.8"


def parse(value: Json) -> Policy:
    """Return the policy of a bare dtype name, of a ``Policy`` dict, or of a ``PolicyV1`` dict."""
    return policy_formats.parse_keras2(value, {"Policy": False, "PolicyV1": True})


def render(policy: Policy | PolicyMap) -> Json:
    """
    Return ``PolicyV1`` for a policy with a loss scale, else the bare dtype name, else ``Policy``.
    """
    known = policy_formats.plain(policy, TITLE)
    if known.loss_scale is not None:
        return keras_objects.short(
            "PolicyV1", {"name": known.name, **policy_formats.render_loss_scale(known.loss_scale)}
        )
    if not known.should_cast_variables:
        return known.name
    return keras_objects.short("Policy", {"name": known.name})


CELLS_TO_TF25: Final = _base.CELLS_TO_TF25
"""What TF 2.4 and 2.5 have in place of this generation's own."""

GENERATION: Final = Generation(
    id="tf2.4-2.8",
    title=TITLE,
    parse=parse,
    render=render,
    composites={**_base.CELLS, **_base.WITH_GLOBAL_POLICY},
)
