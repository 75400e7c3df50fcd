"""
Where each stored variable of a model goes in the file that the target reads: by class and
attribute, never by guess.

``_building`` finds the tensor of the source for each variable of the target's layers, and
``_subclassed`` those of layers that no config lists. ``_containers`` says where each container has
them. :mod:`policytool.releases.layer_variables` has the variables of each class and release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.formats.edits import Placement, StoredGroup
from policytool.migration.convert.variables import _containers, _subclassed
from policytool.migration.convert.variables._building import HolderBuilder, Sources
from policytool.migration.convert.variables._containers import walk
from policytool.model.tree import path_of
from policytool.model.tree.storage import VARS
from policytool.releases import dtype_support, dtypes
from policytool.releases.policy import Policy
from policytool.releases.releases import KERAS2, KERAS3, TFJS, newest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.edits import Cast
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.migration.convert.target import Target
    from policytool.migration.convert.variables._containers import Holder, Stored

_BFLOAT16: Final = frozenset({"bfloat16", "opaque16"})
_TFJS_DTYPES: Final = ("float32", "int32", "bool")


def place_variables(
    root: Unit, context: ConversionContext, casts: Sequence[Cast] = ()
) -> tuple[tuple[StoredGroup, ...], tuple[Placement, ...]]:
    """
    Return the groups of the new file and its variables. A layer whose variables are not those of
    its class is logged as a refusal.

    :param casts: the casts that a change of policies requires
    """
    builder = HolderBuilder(context, Sources(context, root))
    holder = builder.holder(root)
    maker = _Maker(context, {cast.tensor: cast for cast in casts})
    layouts = {"keras": _archive_layout, TFJS: _tfjs_layout}
    layout = layouts.get(context.target.container, _hdf5_layout)(holder, maker)
    if context.crosses:
        for inner in walk(holder):
            _log_rounding(inner, context)
    if maker.widened:
        context.log.note(
            "bfloat16-widened",
            None,
            f"{maker.widened} variables in bfloat16 are stored as float32 with the same values",
        )
    return layout


def stored_dtype(dtype: str, target: Target) -> str:
    """
    Return the stored dtype of a variable: bfloat16 is stored only in archives of Keras 3; other
    formats store it as float32, from which all releases load it.
    """
    if dtype not in _BFLOAT16:
        return dtype
    return "bfloat16" if target.is_keras3 and target.container == "keras" else "float32"


def _log_rounding(holder: Holder, context: ConversionContext) -> None:
    """
    Log a layer whose variables have more bits in the source's library than its policy specifies, if
    the target's library rounds them when it loads them.
    """
    unit = holder.unit
    for stored in holder.own:
        library_dtypes = _own_dtypes(unit, stored, context)
        if library_dtypes is not None and dtypes.itemsize(library_dtypes[1]) < dtypes.itemsize(
            library_dtypes[0]
        ):
            before, after = library_dtypes
            context.log.caution(
                "weights-rounded",
                unit,
                f"{unit.path} ({unit.class_name}) has {before} variables, but "
                f"{context.target.name} creates {after} variables, so loading rounds their "
                "values and predictions differ",
            )


def _own_dtypes(unit: Unit, stored: Stored, context: ConversionContext) -> tuple[str, str] | None:
    """
    Return the dtypes of a variable in the two libraries, if it does not have the policy's variable
    dtype in the source's library; otherwise None.
    """
    policy = unit.config.get("dtype")
    if unit.custom or not isinstance(policy, Policy) or policy.variable_dtype is None:
        return None
    source, target = (
        newest(KERAS3 if keras3 else KERAS2).id
        for keras3 in (context.from_keras3, context.to_keras3)
    )
    names = unit.class_name, policy.name, stored.slot.known_as
    before = dtype_support.variable_dtype(source, *names)
    after = dtype_support.variable_dtype(target, *names) or policy.variable_dtype
    return (before, after) if before is not None else None


@dataclass
class _Maker:
    """Creates the placements of a file."""

    context: ConversionContext
    casts: Mapping[tuple[str, ...], Cast]
    widened: int = 0

    def placement(self, path: tuple[str, ...], holder: Holder, stored: Stored) -> Placement:
        """Return the placement of a variable."""
        cast = self.casts.get(stored.source.path) if stored.source is not None else None
        dtype, rounding_dtype = (
            (self._widened_dtype(holder, stored), None)
            if cast is None
            else (cast.after, cast.through)
        )
        stored_as = stored_dtype(dtype, self.context.target)
        if dtype in _BFLOAT16 and stored_as == "float32":
            if cast is not None:
                rounding_dtype = "bfloat16"
            else:
                self.widened += 1
        return Placement(
            path=path,
            shape=stored.shape,
            dtype=stored_as,
            source=stored.source,
            made_of=stored.made_of,
            through=rounding_dtype,
            scale=stored.scale,
            fill=stored.fill,
            layer=holder.unit.path or path_of((holder.name,)),
        )

    def _widened_dtype(self, holder: Holder, stored: Stored) -> str:
        """
        Return the dtype of a variable: the target's, if the source's library uses fewer bits, as
        tf_keras does for Normalization under a mixed policy. The values are the same.
        """
        if not self.context.crosses:
            return stored.dtype
        library_dtypes = _own_dtypes(holder.unit, stored, self.context)
        widens = (
            library_dtypes is not None
            and library_dtypes[0] == stored.dtype
            and dtypes.itemsize(library_dtypes[1]) > dtypes.itemsize(library_dtypes[0])
        )
        return library_dtypes[1] if library_dtypes is not None and widens else stored.dtype


def _archive_layout(
    root: Holder, maker: _Maker
) -> tuple[tuple[StoredGroup, ...], tuple[Placement, ...]]:
    """Return the groups and the variables of a ``.keras`` archive."""
    groups: dict[tuple[str, ...], StoredGroup] = {}
    placements: list[Placement] = []
    names = maker.context.target.is_keras3 and maker.context.target.since(_subclassed.NAMED_SINCE)
    for path, holder in _containers.archive_places(root, maker.context.target):
        for place, name in _containers.archive_groups(path, holder):
            groups.setdefault(place, StoredGroup(path=place, name=name if names else None))
        placements += [
            maker.placement(
                (*path, *stored.slot.within, VARS, str(stored.slot.index)),
                holder,
                stored,
            )
            for stored in holder.own
        ]
    return tuple(groups.values()), tuple(placements)


def _tfjs_layout(
    root: Holder, maker: _Maker
) -> tuple[tuple[StoredGroup, ...], tuple[Placement, ...]]:
    """
    Return the variables of a TensorFlow.js model, which has no groups; names that occur twice and
    unsupported dtypes are refused.
    """
    placements: dict[tuple[str, ...], Placement] = {}
    log = maker.context.log
    for name, inner, stored in _containers.tfjs_weights(root):
        placement = maker.placement(tuple(name.split("/")), inner, stored)
        if placement.path in placements:
            log.refuse(
                "layer-name",
                inner.unit,
                f"{inner.unit.path} and another layer would store {name}, the name by which "
                f"{maker.context.target.name} finds variables; rename the layer in the source",
            )
        elif placement.dtype not in _TFJS_DTYPES:
            log.refuse(
                "dtype",
                inner.unit,
                f"{inner.unit.path} stores {name} as {placement.dtype}; "
                f"{maker.context.target.name} has only {', '.join(_TFJS_DTYPES)}",
            )
        placements[placement.path] = placement
    return (), tuple(placements.values())


def _hdf5_layout(
    root: Holder, maker: _Maker
) -> tuple[tuple[StoredGroup, ...], tuple[Placement, ...]]:
    """Return the groups and the variables of an HDF5 file."""
    suffix = "" if maker.context.target.is_keras3 else ":0"
    groups, placements = [], []
    for holder in root.below:
        path = tuple(holder.name.split("/"))
        names = []
        for name, inner, stored in _containers.hdf5_weights(holder, maker.context.target):
            names.append(name + suffix)
            placements.append(maker.placement((*path, *names[-1].split("/")), inner, stored))
        groups.append(StoredGroup(path=path, names=tuple(names)))
    return tuple(groups), tuple(placements)
