"""
Layers that turn ids and categories into floats.

Their ops count in 32 or 64 bits alone (``DenseBincount``, ``Bucketize``), and what they take as ids
a 16-bit float cannot tell apart: all six 16-bit cases of tf_keras 2.21 fail when they are built,
Keras 3.15's when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep._base import KeepRule
from policytool.model import custom_classes
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.policy import Policy


def find(loaded: LoadedModel, _policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield the layers of these classes; those whose dtype is no float keep it anyway."""
    for index, site in enumerate(loaded.sites):
        if layer_facts(site.class_name).makes_ids and not custom_classes.is_opaque(site):
            yield index, "it encodes IDs or categories with ops that have no 16-bit kernel"


RULE: Final = KeepRule(name="encoders", find=find)
