"""
Which stored weights an optimizer trains, in the order of the model's trainable variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Layout
from policytool.releases import dtypes
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.document import Document, Tensor
    from policytool.model.tree import Site
    from policytool.model.tree.storage import Placed

_SEED: Final = "seed_generator"
_STATISTICS: Final = frozenset(
    {
        "moving_mean",
        "moving_variance",
        "running_mean",
        "running_std",
        "sn_u",
        "u",
        "seed_generator_state",
    }
)
_IN_ORDER: Final = (
    "query_dense",
    "key_dense",
    "value_dense",
    "output_dense",
    "forward_layer",
    "backward_layer",
)
"""Groups of one layer in an archive, in the order in which the layer makes them."""


class UnmappedError(Exception):
    """Variables whose order is not known, or a state that is not known to fit; says why."""


def trainable_tensors(document: Document, placed: Placed) -> tuple[Tensor, ...]:
    """
    Return the stored trainable weights, in the order of ``trainable_variables``.

    :raises UnmappedError: where an archive does not say the order of a layer's variables.
    """
    frozen = _frozen_sites(placed.sites)
    tensors: dict[Tensor, None] = {}
    for index, site in enumerate(placed.sites):
        if index in frozen:
            continue
        names = [variable.name for variable in placed.variables.get(index, ())]
        kept = _trainable_tensors(
            site, list(zip(names, placed.sources.get(index, ()), strict=True))
        )
        tensors |= dict.fromkeys(_save_order(kept, archive=document.layout is Layout.OBJECT_PATHS))
    return tuple(tensors)


def _frozen_sites(sites: Sequence[Site]) -> frozenset[int]:
    frozen: set[int] = set()
    for index, site in enumerate(sites):  # each stands behind what holds it
        if site.parent in frozen or (site.config or {}).get("trainable") is False:
            frozen.add(index)
    return frozenset(frozen)


def _trainable_tensors(site: Site, named: Sequence[tuple[str, Tensor]]) -> list[Tensor]:
    config = site.config or {}
    facts = layer_facts(site.class_name)
    if facts.keeps_moving_statistics and all(name.isdigit() for name, _ in named):
        return [tensor for _, tensor in named][
            : (config.get("scale") is not False) + (config.get("center") is not False)
        ]
    if facts.untrained:
        return []
    return [
        tensor
        for name, tensor in named
        if name not in _STATISTICS and _SEED not in tensor.path and dtypes.is_float(tensor.dtype)
    ]


def _save_order(tensors: Sequence[Tensor], *, archive: bool) -> list[Tensor]:
    groups: dict[tuple[str, ...], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.path[:-1] if archive else (), []).append(tensor)
    if len(groups) < 2:  # noqa: PLR2004  # one group needs no order
        return list(tensors)
    ranks = {
        path: next((rank for rank, name in enumerate(_IN_ORDER) if name in path), None)
        for path in groups
    }
    if len(set(ranks.values()) - {None}) != len(groups):
        raise UnmappedError(
            f"the order of the variables below {'/'.join(next(iter(groups)))} is unknown"
        )
    return [
        tensor
        for path in sorted(groups, key=lambda path: ranks[path] or 0)
        for tensor in groups[path]
    ]
