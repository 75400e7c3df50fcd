"""What writing a model from nothing takes, and the rules that hold in every container."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policytool.formats.writing import WriteError
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from policytool.formats.document import Document, Tensor
    from policytool.formats.edits import Content, Counted
    from policytool.formats.stored_values import Values
    from policytool.support.text.jsontext import Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Creator:
    """
    How models of one container are written from nothing; the ``creator`` of a format returns one.
    """

    state_group: tuple[str, ...] = ()
    """
    The group that the optimizer's state has to itself; empty if it shares one tree with the layers'
    variables.
    """

    write: Callable[[Path, Content, Values | None], Counted]
    """
    Write into an empty draft; return what the casts did to the values, by
    :attr:`policytool.formats.edits.Placement.path`.
    """

    document: Callable[[Content, str], Document]
    """Return the document that reading the file gives, as if it were at a path."""

    check: Callable[[Path, Content], None]
    """
    Raise :class:`policytool.formats.writers.WriteError` if a draft lacks what loaders need
    and a document does not say: names in attributes.
    """


def ascii_json(value: Json) -> str:
    """
    Return JSON in ASCII: what is not is escaped.

    h5py 2 gives text attributes of another character set as ``str``, which TF 2.3 and 2.4 decode
    (tensorflow/python/keras/saving/hdf5_format.py).
    """
    return json.dumps(value)


def read_back(value: Json, part: str) -> Json:
    """
    Return JSON as a reader will see it.

    :raises WriteError: for what would not be read: it nests too deep, or is too large.
    """
    try:
        return jsontext.parse(ascii_json(value))[0]
    except jsontext.JsonError as error:
        raise WriteError("not-rewritable", f"the new {part} {error}") from error


def flat(path: Iterable[str]) -> tuple[str, ...]:
    """
    Return the steps of a path in HDF5, where a ``/`` in a name makes groups, and empty names and
    ``.`` stand for the group itself.
    """
    return tuple(step for name in path for step in name.split("/") if step not in {"", "."})


def walk_order(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """
    Return tensors in the order in which a walk through a file meets them: a group's own before
    those of the groups in it, each by name.
    """
    return tuple(
        sorted(
            tensors,
            key=lambda tensor: [
                (depth < len(tensor.path) - 1, step.encode())
                for depth, step in enumerate(tensor.path)
            ],
        )
    )


def refuse_collisions(content: Content, state_group: tuple[str, ...]) -> None:
    """
    Make sure that everything has a place of its own.

    :param state_group: as :attr:`Creator.state_group`
    :raises WriteError: where two variables have one path, or one has that of a group.
    """
    together = (*content.placements, *content.state)
    for placements in (content.placements, content.state) if state_group else (together,):
        datasets = [flat(placement.path) for placement in placements]
        seen = {path[:end] for path in datasets for end in range(len(path))}
        if placements is not content.state:
            seen |= {
                path[:end]
                for path in (flat(group.path) for group in content.groups)
                for end in range(len(path) + 1)
            }
        for path in datasets:
            if path in seen:
                raise WriteError(
                    "not-rewritable",
                    f"the new file would have two objects at {'/'.join(path) or 'its root'}; "
                    "rename one of the layers",
                )
            seen.add(path)
