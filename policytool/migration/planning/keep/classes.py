"""
Layers whose class has no exact results in 16 bits.

Some classes are known to compute wrongly in a 16-bit dtype (``risks`` in their facts). Average
pooling sums up windows that float16 cannot sum: it holds every integer up to 2048 alone, so a sum
of more than 2048 like values stops growing, and over 112x112 values of 10 both libraries return 4
(measured, CPU). Encoders turn ids and categories into floats: their ops count in 32 or 64 bits
alone (``DenseBincount``, ``Bucketize``), and what they take as ids a 16-bit float cannot tell
apart; all six 16-bit cases of tf_keras 2.21 fail when they are built, Keras 3.15's when they are
called.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.model import custom_classes
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import family_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.tree import Site
    from policytool.releases.policy import Policy


def _sensitive(loaded: LoadedModel, policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield the layers of such classes."""
    for index, site in enumerate(loaded.sites):
        why = risk_reason(loaded.loader, site, policy.name)
        if why is not None:
            yield index, why


def risk_reason(library: str, site: Site, policy: str) -> str | None:
    """
    Return what goes wrong with a layer under a policy, in the library that loads it; None where
    nothing is known to.
    """
    if custom_classes.is_opaque(site):
        return None
    config: Mapping[str, object] = site.config or {}
    family = family_of(library)
    risks = layer_facts(site.class_name).risks
    return next((risk.reason for risk in risks if risk.concerns(family, policy, config)), None)


_LARGEST_SUM: Final = 2048


def _wide_windows(loaded: LoadedModel, policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield average pooling layers with more than 2048 values in a window."""
    if policy.compute_dtype != "float16":
        return
    for index, site in enumerate(loaded.sites):
        why = window_reason(site)
        if why is not None:
            yield index, why


def window_reason(site: Site) -> str | None:
    """Return what goes wrong with a layer in float16; None for other layers and smaller windows."""
    axes = layer_facts(site.class_name).averages_over
    if axes is None or custom_classes.is_opaque(site):
        return None
    size = (site.config or {}).get("pool_size")
    sides = size if isinstance(size, list) else [size] * axes
    numbers = [side for side in sides if isinstance(side, int)]
    if not numbers or math.prod(numbers) <= _LARGEST_SUM:
        return None
    return (
        f"it averages {math.prod(numbers)} values in float16, and float16 sums of equal values "
        "stop growing after 2048 values"
    )


def _encoders(loaded: LoadedModel, _policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield the layers of these classes; those whose dtype is no float keep it anyway."""
    for index, site in enumerate(loaded.sites):
        if layer_facts(site.class_name).makes_ids and not custom_classes.is_opaque(site):
            yield index, "it encodes IDs or categories with ops that have no 16-bit kernel"


def class_reasons(loaded: LoadedModel, policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield layers of these classes; the first reason for a layer counts."""
    yield from _sensitive(loaded, policy)
    yield from _wide_windows(loaded, policy)
    yield from _encoders(loaded, policy)
