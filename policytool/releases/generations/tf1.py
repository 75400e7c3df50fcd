"""
tf.keras of TF 1.4 to 2.0: policies exist from 1.14 on, but configs hold the variable dtype alone.

A mixed policy is lost when such a release saves (``Layer.get_config`` writes ``self.dtype``), so no
file of it can show one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import policy_formats
from policytool.releases.generations import _recurrent, keras1
from policytool.releases.generations._base import Generation, Release

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap

TITLE: Final = "TF 1.4 to 2.0"

_KERAS_VERSIONS: Final = {
    "1.4": "2.0.8-tf",
    "1.5": "2.1.2-tf",
    "1.6": "2.1.3-tf",
    "1.7": "2.1.4-tf",
    "1.8": "2.1.5-tf",
    **dict.fromkeys(("1.9", "1.10", "1.11", "1.12"), "2.1.6-tf"),
    **dict.fromkeys(("1.13", "1.14", "1.15", "2.0"), "2.2.4-tf"),
}
"""``tensorflow/python/keras/__init__.py`` of each release."""


def render(policy: Policy | PolicyMap) -> str:
    """Return the dtype's name; these releases write no other policies."""
    return keras1.single_dtype(policy, TITLE)


GENERATION: Final = Generation(
    id="tf1.4-2.0",
    title=TITLE,
    releases=tuple(
        Release(id=f"tf{minor}", keras_versions=(version,))
        for minor, version in _KERAS_VERSIONS.items()
    ),
    parse=policy_formats.parse_name,
    render=render,
    composites=_recurrent.CELLS_TO_TF25,
)
