"""
TF 2.9 to 2.12: ``Policy`` without a loss scale; the experimental namespace is gone, its files are
still read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import keras_objects, policy_formats
from policytool.releases.generations import _base
from policytool.releases.generations._base import Generation

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap
    from policytool.support.text.jsontext import Json

TITLE: Final = "TF 2.9 to 2.12"


def parse(value: Json) -> Policy:
    """Return the policy of a bare dtype name or of a ``Policy`` dict."""
    return policy_formats.parse_keras2(value, {"Policy": False})


def render(policy: Policy | PolicyMap) -> Json:
    """Return the bare name of a single dtype, and a ``Policy`` dict for a mixed policy."""
    known = policy_formats.without_loss_scale(policy_formats.plain(policy, TITLE), TITLE)
    if not known.should_cast_variables:
        return known.name
    return keras_objects.short("Policy", {"name": known.name})


GENERATION: Final = Generation(
    id="tf2.9-2.12",
    title=TITLE,
    parse=parse,
    render=render,
    composites={**_base.CELLS, **_base.WITH_GLOBAL_POLICY},
)
