"""
TF 2.13 to 2.15 and tf_keras: ``Policy`` dicts with ``module`` and ``registered_name``, but for
``keras_metadata.pb``, which has the short form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import keras_objects, policy_formats
from policytool.releases.generations import _base
from policytool.releases.generations._base import Generation

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap
    from policytool.support.text.jsontext import Json

TITLE: Final = "TF 2.13 to 2.15, tf_keras"


def parse(value: Json) -> Policy:
    """Return the policy of a bare dtype name or of a ``Policy`` dict."""
    return policy_formats.parse_keras2(value, {"Policy": False})


def render(policy: Policy | PolicyMap) -> Json:
    """
    Return the bare name of a single dtype, and a ``Policy`` dict with its module for a mixed policy
    (never ``tf_keras``, even there).
    """
    known = policy_formats.without_loss_scale(policy_formats.plain(policy, TITLE), TITLE)
    if not known.should_cast_variables:
        return known.name
    return keras_objects.full("keras.mixed_precision", "Policy", {"name": known.name})


ATTENTION_OF_TF213: Final = _base.WITH_GLOBAL_POLICY
"""What TF 2.13 has in place of this generation's own."""

GENERATION: Final = Generation(
    id="tf2.13+",
    title=TITLE,
    parse=parse,
    render=render,
    composites={**_base.CELLS, **_base.WITH_OWN_POLICY},
)
