"""
The names that a file gives to layers, for the names that they have once the model is loaded.

Layers that a class makes without names get names that count up with every layer of the process:
``net/dense_2`` of the file runs as ``net_1/dense_5``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.model.loaded_model import LoadedModel

    Named = tuple[str, str | None]
    """A path, and the class of the layer there; None if it is not known."""

_NUMBERED: Final = re.compile(r"(.*?)(?:_([0-9]{1,18}))?", re.DOTALL)


def file_paths(running: Sequence[Named], stored: Sequence[Named]) -> Mapping[str, str]:
    """
    Return the path in the file for each layer path of a running model, if the two differ.

    Layers with the same parent are paired by class and by name without number, in the order of the
    numbers. If their counts differ, they keep their names.

    :param running: every layer that was called, the model itself last
    :param stored: every layer of the file, the model itself first
    """
    if not running or not stored:
        return {}
    root, stored_root = running[-1][0], stored[0][0]
    classes = dict(running)
    paths = dict.fromkeys(prefix for path in classes for prefix in _prefixes(path))
    below = _by_parent((path, classes.get(path)) for path in paths)
    stored_below = _by_parent(stored)
    stored_paths = {root: stored_root}
    pending = [root]
    while pending:
        parent = pending.pop()
        names = _names(below[parent], stored_below[stored_paths[parent]])
        for name, _ in below[parent]:
            path = f"{parent}/{name}"
            stored_paths[path] = f"{stored_paths[parent]}/{names.get(name, name)}"
            pending.append(path)
    return {path: other for path, other in stored_paths.items() if path != other}


def answered_file_paths(
    answers: Sequence[Mapping[str, Any]], loaded: LoadedModel | None
) -> Mapping[str, str]:
    """Return the path in the file for each path in a child's answers that has another one there."""
    return file_paths(
        [(answer["path"], answer["class_name"]) for answer in answers],
        [(layer.path, layer.class_name) for layer in (loaded.layers if loaded is not None else ())],
    )


def _prefixes(path: str) -> Iterator[str]:
    """Yield a path, and those of the layers around it first."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


def _by_parent(layers: Iterable[Named]) -> defaultdict[str, list[Named]]:
    """Return the names and classes directly below each path."""
    children: defaultdict[str, list[Named]] = defaultdict(list)
    for path, kind in layers:
        parent, slash, name = path.rpartition("/")
        if slash:
            children[parent].append((name, kind))
    return children


def _names(running: Sequence[Named], stored: Sequence[Named]) -> Mapping[str, str]:
    """Return the stored name for each name in the running model, if the two differ."""
    stored_names: dict[str, str] = {}
    groups, stored_groups = _groups(running), _groups(stored)
    for key, names in groups.items():
        others = stored_groups.get(key, [])
        if set(names) != set(others) and len(names) == len(others):
            stored_names.update(zip(names, others, strict=True))
    return stored_names


def _groups(layers: Iterable[Named]) -> Mapping[tuple[str, str | None], list[str]]:
    """Return names by name without number and by class, in the order of their numbers."""
    groups: defaultdict[tuple[str, str | None], list[tuple[int, str]]] = defaultdict(list)
    for name, kind in layers:
        matched = _NUMBERED.fullmatch(name)
        base, number = matched.groups() if matched is not None else (name, None)
        groups[base, kind].append((int(number or 0), name))
    return {key: [name for _, name in sorted(names)] for key, names in groups.items()}
