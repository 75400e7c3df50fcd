"""Keras 3.0 to 3.3: every policy is a bare name, quantised ones (from 3.1) included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import policy_formats
from policytool.releases.generations import _base
from policytool.releases.generations._base import Generation
from policytool.releases.policy import PolicyMap
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from policytool.releases.policy import Policy

TITLE: Final = "Keras 3.0 to 3.3"
_MODES: Final = frozenset({"int8", "float8"})


def render(policy: Policy | PolicyMap) -> str:
    """Return the policy's name."""
    if isinstance(policy, PolicyMap):
        raise SpellingError(f"{TITLE} does not support policy maps, which need Keras 3.4 or later")
    if policy.quantization:
        if policy.quantization.mode not in _MODES:
            raise SpellingError(
                f"{TITLE} supports only int8 (since 3.1) and float8 (since 3.3) quantization, not "
                f"{policy.quantization.mode}"
            )
        return policy.name
    if policy.name.startswith("float8"):
        return policy.name
    return policy_formats.without_loss_scale(policy_formats.plain(policy, TITLE), TITLE).name


GENERATION: Final = Generation(
    id="keras3.0-3.3",
    title=TITLE,
    parse=policy_formats.parse_name,
    render=render,
    composites={**_base.CELLS, **_base.KERAS3_ATTENTION},
)
