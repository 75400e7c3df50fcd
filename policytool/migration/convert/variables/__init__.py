"""
Where each stored variable of a model goes in the file that the target reads: by class and
attribute, never by guess.

``_slots`` is what variables the classes of each release have, ``_sources`` which tensor of the
source is which of them, ``_building`` the layers of the target's model with what they take over;
``_archive`` and ``_hdf5`` are where each container has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.new_model import Placement, StoredGroup
from policytool.migration.convert.variables import _archive, _hdf5
from policytool.migration.convert.variables._building import HolderBuilder
from policytool.migration.convert.variables._sources import Sources
from policytool.model.tree import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.edits import Cast
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.migration.convert.target import Target
    from policytool.migration.convert.variables._holders import Holder, Stored

_BFLOAT16: Final = frozenset({"bfloat16", "opaque16"})
_NAMED_SINCE: Final = "keras3.6"
"""The first release that writes a layer's name beside its ``vars``."""


def place_variables(
    root: Unit, situation: ConversionContext, casts: Sequence[Cast] = ()
) -> tuple[tuple[StoredGroup, ...], tuple[Placement, ...]]:
    """
    Return the groups of the new file and its variables; refusals go to the log, where a layer's
    variables are not those of its class.

    :param casts: what a change of policies casts, by where the source has it
    """
    builder = HolderBuilder(situation, Sources(situation, root))
    holder = builder.holder(root)
    maker = _Maker(situation.target, {cast.tensor: cast for cast in casts})
    found = (
        _archive_layout(holder, maker)
        if situation.target.container == "keras"
        else _hdf5_layout(holder, maker)
    )
    if maker.widened:
        situation.log.note(
            "bfloat16-widened",
            None,
            f"{maker.widened} variables in bfloat16 are stored as float32, which holds the same "
            "values",
        )
    return found


class _Maker:
    """Makes the placements of one file."""

    def __init__(self, target: Target, casts: Mapping[tuple[str, ...], Cast]) -> None:
        self.target = target
        self.casts = casts
        self.widened = 0

    def placement(self, path: tuple[str, ...], holder: Holder, stored: Stored) -> Placement:
        """Return the placement of a variable."""
        cast = self.casts.get(stored.source.path) if stored.source is not None else None
        dtype, through = (stored.dtype, None) if cast is None else (cast.after, cast.through)
        if dtype in _BFLOAT16:
            keeps = self.target.is_keras3 and self.target.container == "keras"
            if not keeps and cast is not None:
                through = "bfloat16"
            elif not keeps:
                self.widened += 1
            dtype = "bfloat16" if keeps else "float32"
        return Placement(
            path=path,
            shape=stored.shape,
            dtype=dtype,
            source=stored.source,
            made_of=stored.made_of,
            through=through,
            scale=stored.scale,
            fill=stored.fill,
            layer=holder.unit.path or path_of((holder.name,)),
        )


def _archive_layout(
    root: Holder, maker: _Maker
) -> tuple[tuple[StoredGroup, ...], tuple[Placement, ...]]:
    groups: dict[tuple[str, ...], StoredGroup] = {}
    placements: list[Placement] = []
    names = maker.target.is_keras3 and maker.target.since(_NAMED_SINCE)
    for path, holder in _archive.places(root, maker.target):
        for place, name in _archive.groups(path, holder):
            groups.setdefault(place, StoredGroup(path=place, name=name if names else None))
        placements += [
            maker.placement(
                (*path, *stored.slot.within, _archive.VARS, str(stored.slot.index)), holder, stored
            )
            for stored in holder.own
        ]
    return tuple(groups.values()), tuple(placements)


def _hdf5_layout(
    root: Holder, maker: _Maker
) -> tuple[tuple[StoredGroup, ...], tuple[Placement, ...]]:
    suffix = "" if maker.target.is_keras3 else ":0"
    groups, placements = [], []
    for holder in root.below:
        path = tuple(holder.name.split("/"))
        names = []
        for name, inner, stored in _hdf5.weights(holder, maker.target):
            names.append(name + suffix)
            placements.append(maker.placement((*path, *names[-1].split("/")), inner, stored))
        groups.append(StoredGroup(path=path, names=tuple(names)))
    return tuple(groups), tuple(placements)


__all__ = ["place_variables"]
