"""
HDF5: complete models of Keras 1 to 3, and weights files.

A complete model has its config in the root attribute ``model_config`` and its variables below
``model_weights``. A file without this attribute is a weights file (Keras' ``save_weights``), or not
a Keras file.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.base import Probe, parse_json
from policytool.formats.document import (
    NO_WEIGHTS,
    Document,
    Layout,
    Observation,
    Tensor,
    Writer,
)
from policytool.releases.keras_objects import USUAL_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import h5py

    from policytool.formats.hdf5.library import Contents
    from policytool.support.text.jsontext import Json

CONFIG: Final = "model_config"
TRAINING: Final = "training_config"
WEIGHTS: Final = "model_weights"
OPTIMIZER: Final = "optimizer_weights"
LAYER_NAMES: Final = "layer_names"
TOP_LEVEL: Final = "top_level_model_weights"
"""The group of a subclassed model's own variables, which are in no list."""

VARIABLES: Final = "vars"
"""The group of an object's variables in ``.weights.h5`` and ``.keras``, from Keras 2.12 on."""


def read(probe: Probe) -> Document:
    """Return the document of a model; it has no config if the file contains only weights."""
    from policytool.formats.hdf5 import attributes  # h5py costs 80 ms at start
    from policytool.formats.hdf5 import library as _hdf5

    with _hdf5.open_checked(probe, probe.path) as file:
        config = _hdf5.attribute_text(probe, file, CONFIG)
        training = _hdf5.attribute_text(probe, file, TRAINING)
        writer = Writer(
            keras=_hdf5.attribute_text(probe, file, "keras_version"),
            backend=_hdf5.attribute_text(probe, file, "backend"),
        )
        contents = _hdf5.walk(probe, file, attributes=True)
        group = _hdf5.group(file, WEIGHTS) if config is not None else file.id
        prefix = (WEIGHTS,) if config is not None else ()
        lists = _weight_lists(group, contents, prefix) if group is not None else None
        unicode_attributes = frozenset(
            name
            for name, holder in ((CONFIG, file.id), (TRAINING, file.id), (LAYER_NAMES, group))
            if holder is not None and attributes.is_unicode(holder, name.encode())
        )
        if _hdf5.is_recording(probe, file):
            raise probe.failure(
                "h5-not-keras",
                "is a recorded run, not a model; compare a model with it: policytool check MODEL "
                f"--against {shlex.quote(probe.shown)}",
            )
    if config is None:
        return _weights_document(probe, contents, lists, writer)
    observations: list[Observation] = []
    parts: dict[str, Json] = {CONFIG: parse_json(probe, config, CONFIG, observations)}
    if training is not None:
        parts[TRAINING] = parse_json(probe, training, TRAINING, observations)
    tensors = legacy_tensors(contents, (WEIGHTS,))
    unlisted = _unlisted_paths(tensors, lists)
    observations += _list_observations(lists, unlisted)
    return Document(
        path=probe.shown,
        format="h5",
        parts=parts,
        config_part=CONFIG,
        training_part=TRAINING if training is not None else None,
        layout=Layout.LEGACY_H5,
        tensors=tensors,
        unicode_attributes=unicode_attributes,
        unlisted=unlisted,
        listed_layers=lists.layers if lists is not None else (),
        missing=lists.missing if lists is not None else (),
        state=(state := stored_state(contents)),
        missing_state=_missing_state(contents, state),
        writer=writer,
        observations=(*observations, *contents.observations),
    )


class _WeightLists(Struct, frozen=True, kw_only=True):
    """The variables and layers in the lists of a model's group of weights."""

    layers: tuple[str, ...]
    variables: frozenset[tuple[str, ...]]
    missing: tuple[str, ...]
    """The listed names that are not stored."""


def _weight_lists(
    weights: h5py.h5g.GroupID, contents: Contents, prefix: tuple[str, ...]
) -> _WeightLists:
    """
    Return the lists of weights.

    :param prefix: the path of their group
    """
    from policytool.formats.hdf5 import library as _hdf5

    start = len(prefix)
    stored = {tensor.path[start:] for tensor in contents.tensors if tensor.path[:start] == prefix}
    layers = _hdf5.attribute_names(weights, LAYER_NAMES)
    single = {path[start:] for path in contents.single if path[:start] == prefix}
    paths = {name: tuple(name.split("/")) for name in layers}
    listed_single = single.intersection(paths.values())
    variables = {
        path for path in stored if any(path[:end] in listed_single for end in range(1, len(path)))
    }
    missing: list[str] = []
    for name, path in paths.items():
        weight_paths = [
            (*path, *text.split("/")) for text in contents.orders.get((*prefix, *path), ())
        ]
        variables |= set(weight_paths)
        missing += ["/".join(variable) for variable in weight_paths if variable not in stored]
        if not weight_paths and path not in single and not _hdf5.has_group(weights, name):
            missing.append(name)
    return _WeightLists(layers=layers, variables=frozenset(variables), missing=tuple(missing))


def _unlisted_paths(
    tensors: Sequence[Tensor], lists: _WeightLists | None
) -> frozenset[tuple[str, ...]]:
    """Return the paths of the variables that are in no list; empty without lists."""
    return frozenset(
        tensor.path
        for tensor in tensors
        if lists is not None and tensor.path not in lists.variables and tensor.path[0] != TOP_LEVEL
    )


def _list_observations(
    lists: _WeightLists | None, unlisted: frozenset[tuple[str, ...]]
) -> Iterator[Observation]:
    """Yield observations about errors in the lists of a model's weights."""
    if lists is None:
        yield Observation(code=NO_WEIGHTS, message=f"it has no group {WEIGHTS} with its weights")
        return
    if lists.missing:
        yield Observation(
            code="missing-variables",
            message=f"its group {WEIGHTS} lists {_names(lists.missing)}, but does not store it",
            where=lists.missing[0],
        )
    if unlisted:
        paths = sorted("/".join(path) for path in unlisted)
        yield Observation(
            code="unlisted-variables",
            message=f"its group {WEIGHTS} stores {_names(paths)}, but does not list it, so that no "
            "release reads it",
            where=paths[0],
        )


def _names(paths: Sequence[str]) -> str:
    hidden_count = len(paths) - 1
    return f"{paths[0]}{f' and {hidden_count} more' if hidden_count else ''}"


def stored_state(contents: Contents) -> tuple[Tensor, ...]:
    """Return the optimizer's variables in the order in which Keras restores them."""
    position_by_name = {
        name: place for place, name in enumerate(contents.orders.get((OPTIMIZER,), ()))
    }
    return tuple(
        sorted(
            (tensor for tensor in contents.tensors if tensor.path[0] == OPTIMIZER),
            key=lambda tensor: position_by_name.get(
                "/".join(tensor.path[1:]), len(position_by_name)
            ),
        )
    )


def _missing_state(contents: Contents, state: Sequence[Tensor]) -> tuple[str, ...]:
    """Return the listed names of the optimizer's variables that are not stored."""
    stored = {"/".join(tensor.path[1:]) for tensor in state}
    return tuple(name for name in contents.orders.get((OPTIMIZER,), ()) if name not in stored)


def legacy_tensors(contents: Contents, prefix: tuple[str, ...]) -> tuple[Tensor, ...]:
    """
    Return the tensors below ``prefix``, with paths relative to it. The tensors of a layer are in
    the order of its ``weight_names``, or else in the usual order of Keras.
    """
    start = len(prefix)
    orders = {
        group: {name: index for index, name in enumerate(names)}
        for group, names in contents.orders.items()
    }

    def place(tensor: Tensor) -> tuple[tuple[str, ...], int, str]:
        """Return the sort key: the position in the outermost group's list, or else the name."""
        path = tensor.path
        for end in range(start, len(path)):
            index = orders.get(path[:end], {}).get("/".join(path[end:]))
            if index is not None:
                return path[start:end], index, path[-1]
        return path[start:-1], _rank(path[-1]), path[-1]

    below = [tensor for tensor in contents.tensors if tensor.path[:start] == prefix]
    below.sort(key=place)
    return tuple(
        Tensor(path=tensor.path[start:], shape=tensor.shape, dtype=tensor.dtype) for tensor in below
    )


def _rank(name: str) -> int:
    """Return the position of a variable of this name among the variables of a layer."""
    base_name = name.removesuffix(":0")
    return (
        USUAL_VARIABLES.index(base_name) if base_name in USUAL_VARIABLES else len(USUAL_VARIABLES)
    )


def _weights_document(
    probe: Probe, contents: Contents, lists: _WeightLists | None, writer: Writer
) -> Document:
    """Return the document of a file with weights and without a config."""
    layer_names = lists.layers if lists is not None else ()
    if layer_names:
        layout, tensors = Layout.LEGACY_H5, legacy_tensors(contents, ())
    elif contents.has_objects and all(VARIABLES in tensor.path for tensor in contents.tensors):
        layout, tensors = Layout.OBJECT_PATHS, tuple(contents.tensors)
    else:
        top_level_names = (
            ", ".join(sorted({tensor.path[0] for tensor in contents.tensors})[:5]) or "no dataset"
        )
        raise probe.failure(
            "h5-not-keras",
            f"is HDF5, but not a Keras file: it has neither {CONFIG} nor layer groups "
            f"(found: {top_level_names}); expected a file written by model.save()",
        )
    return Document(
        path=probe.shown,
        format="weights",
        layout=layout,
        tensors=tensors,
        unlisted=_unlisted_paths(tensors, lists if layer_names else None),
        listed_layers=layer_names,
        missing=lists.missing if lists is not None else (),
        layer_names=contents.names,
        writer=writer,
        observations=tuple(contents.observations),
    )
