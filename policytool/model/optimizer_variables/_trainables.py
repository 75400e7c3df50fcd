"""
Which stored weights of the source an optimizer trains, in the order of the model's trainable
variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Layout
from policytool.migration.convert.compiled.state import UnmappedError
from policytool.migration.convert.traversal import below
from policytool.releases import dtypes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.document import Tensor
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext

_SCALED: Final = frozenset({"BatchNormalization", "SyncBatchNormalization"})
"""
Layers with a gamma and a beta, each where the config does not deny it, and two averages that no
gradient reaches.
"""

_UNTRAINED: Final = frozenset({"Normalization", "Discretization", "SpectralNormalization"})
"""Layers whose own variables no gradient reaches."""

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


def trainable(root: Unit, situation: ConversionContext) -> tuple[Tensor, ...]:
    """
    Return the tensors of the source that a gradient reaches, in the order of
    ``trainable_variables``.

    :raises UnmappedError: where an archive does not say the order of a layer's variables.
    """
    frozen = frozenset(_frozen_sites(root, above=False))
    classes = {unit.site: unit for unit in _walk(root) if unit.site is not None}
    placed = situation.loaded.placed
    found: dict[Tensor, None] = {}
    for site in range(len(placed.sites)):
        if site in frozen:
            continue
        own = placed.sources.get(site, ())
        names = [variable.name for variable in placed.variables.get(site, ())]
        kept = _trainable_tensors(classes.get(site), list(zip(names, own, strict=True)))
        found |= dict.fromkeys(
            _save_order(kept, archive=situation.loaded.document.layout is Layout.OBJECT_PATHS)
        )
    return tuple(found)


def _walk(unit: Unit) -> Iterator[Unit]:
    yield unit
    for inner in below(unit):
        yield from _walk(inner)


def _frozen_sites(unit: Unit, *, above: bool) -> Iterator[int]:
    is_frozen = above or unit.config.get("trainable") is False
    if is_frozen and unit.site is not None:
        yield unit.site
    for inner in below(unit):
        yield from _frozen_sites(inner, above=is_frozen)


def _trainable_tensors(unit: Unit | None, named: Sequence[tuple[str, Tensor]]) -> list[Tensor]:
    class_name = unit.class_name if unit is not None else None
    if unit is not None and class_name in _SCALED and all(name.isdigit() for name, _ in named):
        return [tensor for _, tensor in named][
            : (unit.config.get("scale") is not False) + (unit.config.get("center") is not False)
        ]
    if class_name in _UNTRAINED:
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
            f"the order of the variables below {'/'.join(next(iter(groups)))} is not known"
        )
    return [
        tensor
        for path in sorted(groups, key=lambda path: ranks[path] or 0)
        for tensor in groups[path]
    ]
