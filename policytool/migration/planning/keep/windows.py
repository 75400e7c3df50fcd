"""
Average pooling over windows that float16 cannot sum.

float16 holds every integer up to 2048 alone, so a sum of more than 2048 like values stops growing:
over 112x112 values of 10 both libraries return 4 (measured, CPU).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep._base import KeepRule
from policytool.model import custom_classes
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.tree import Site
    from policytool.releases.policy import Policy

_LARGEST_SUM: Final = 2048


def find(loaded: LoadedModel, policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield average pooling layers with more than 2048 values in a window."""
    if policy.compute_dtype != "float16":
        return
    for index, site in enumerate(loaded.sites):
        why = reason(site)
        if why is not None:
            yield index, why


def reason(site: Site) -> str | None:
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


RULE: Final = KeepRule(name="windows", find=find)
