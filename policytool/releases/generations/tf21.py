"""
TF 2.1 to 2.3: the experimental ``Policy``, with a loss scale of its own.

The loss scale is written only where it was passed explicitly; left unsaid, it is dynamic for
``mixed_float16`` and none otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import keras_objects, policy_formats
from policytool.releases.generations import _base
from policytool.releases.generations._base import Generation
from policytool.releases.policy import Auto

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap
    from policytool.support.text.jsontext import Json

TITLE: Final = "TF 2.1 to 2.3"


def parse(value: Json) -> Policy:
    """Return the policy of a bare dtype name or of a ``Policy`` dict."""
    return policy_formats.parse_keras2(value, {"Policy": True})


def render(policy: Policy | PolicyMap) -> Json:
    """
    Return the bare name of a single dtype without a loss scale, and a ``Policy`` dict for the rest
    (``policy.serialize``).
    """
    known = policy_formats.plain(policy, TITLE)
    if not known.should_cast_variables and known.loss_scale in {None, Auto()}:
        return known.name
    return keras_objects.short(
        "Policy", {"name": known.name, **policy_formats.render_loss_scale(known.loss_scale)}
    )


GENERATION: Final = Generation(
    id="tf2.1-2.3",
    title=TITLE,
    parse=parse,
    render=render,
    composites=_base.CELLS_TO_TF25,
)
