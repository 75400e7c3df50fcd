"""
The table of layers: a tree of names with policy and dtypes beside them, in which equal blocks are
shown once.

A block is a layer with the layers in it, or neighbours whose names begin alike up to a number
(``block2b_conv``, ``block2b_bn``). One that equals an earlier block of the same parent, name by
name and dtype by dtype, becomes one row that names the other.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from policytool.reports.inspection import _cells, _notes, _traced
from policytool.reports.page import Cell, Column, Row, Table, Tone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.model.model import Layer

_COLUMNS: Final = (
    Column(title="layer", minimum=12, is_name=True),
    Column(title="class", priority=5, minimum=12, is_name=True),
    Column(title="policy", priority=6, minimum=14),
    Column(title="compute"),
    Column(title="variable"),
    Column(title="stored", priority=1, minimum=16),
    Column(title="traced", priority=2, minimum=16),
    Column(title="source", priority=4),
    Column(title="notes", priority=3, minimum=16, is_beneath=True),
)
_STORED_COLUMNS: Final = (
    Column(title="layer or scope", minimum=12, is_name=True),
    Column(title="stored"),
    Column(title="variables"),
    Column(title="parameters"),
    Column(title="traced", priority=1),
)

_SHORT: Final = 24
"""Up to so many layers, each has a row of its own: they fit a terminal's height."""

_RUN: Final = 4
"""Neighbours whose names begin alike that make a block."""

_PART: Final = re.compile(r"(?<![^\W_])[^\W_]++(?=[_.-])")
"""A part of a name that has parts behind it; found in a time that grows with the name alone."""


def is_stored_alone(layers: Sequence[Layer]) -> bool:
    """
    Return whether the file says no more of its layers than their variables and ops: weights, and
    graphs without Keras' metadata.
    """
    return all(layer.class_name is None for layer in layers)


def layer_table(layers: Sequence[Layer], *, variables: bool, whole: bool) -> Table:
    """
    Return the table of layers.

    :param variables: whether each variable has a row of its own
    :param whole: whether equal blocks are shown, too
    """
    stored = is_stored_alone(layers)
    nodes = _nodes(layers, stored=stored)
    shown = (
        [_Shown(node=node) for node in nodes]
        if whole or variables or len(nodes) <= _SHORT
        else list(_without_repeats(nodes, 0))
    )
    labels = _labels([one.node for one in shown])
    rows: list[Row] = []
    for one, label in zip(shown, labels, strict=True):
        if one.like is not None:
            rows.append(_like_row(one, len(_STORED_COLUMNS if stored else _COLUMNS)))
            continue
        name = Cell(text=label, whole=one.node.layer.path)
        rows.append(Row(depth=one.node.depth, cells=(name, *one.node.cells)))
        if variables:
            rows += _variable_rows(one.node, stored=stored)
    return Table(columns=_STORED_COLUMNS if stored else _COLUMNS, rows=tuple(rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Node:
    """A layer in the tree."""

    layer: Layer
    depth: int
    """How many of the shown layers hold it."""

    parts: tuple[str, ...]
    """Its path."""

    below: int
    """How many of these parts lie below the layer that holds it."""

    cells: tuple[Cell, ...]
    """Its row but for the label."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shown:
    """A node, or the first of several blocks that are like another one."""

    node: _Node
    names: tuple[str, str] = ("", "")
    """The first and the last of those blocks."""

    like: str | None = None
    """The block that they are like."""

    count: int = 0
    """Layers in each of them."""


def _nodes(layers: Sequence[Layer], *, stored: bool) -> list[_Node]:
    cells = _stored_cells if stored else _cells_of
    found: list[_Node] = []
    open_paths: list[str] = []
    for layer in layers:
        while open_paths and not layer.path.startswith(f"{open_paths[-1]}/"):
            open_paths.pop()
        parts = tuple(layer.path.split("/"))
        above = open_paths[-1].count("/") + 1 if open_paths else 0
        found.append(
            _Node(
                layer=layer,
                depth=len(open_paths),
                parts=parts,
                below=len(parts) - above,
                cells=cells(layer),
            )
        )
        open_paths.append(layer.path)
    return found


def _labels(nodes: Sequence[_Node]) -> list[str]:
    """
    Return each node's name below what holds it, with as much of the path before it as it takes to
    tell it from the others.
    """
    lengths = [node.below for node in nodes]
    labels = ["/".join(node.parts[-length:]) for node, length in zip(nodes, lengths, strict=True)]
    while True:
        counts = Counter(labels)
        twice = [
            index
            for index, label in enumerate(labels)
            if counts[label] > 1 and lengths[index] < len(nodes[index].parts)
        ]
        if not twice:
            return labels
        for index in twice:
            lengths[index] += 1
            labels[index] = "/".join(nodes[index].parts[-lengths[index] :])


def _without_repeats(nodes: Sequence[_Node], level: int) -> Iterator[_Shown]:
    """
    Yield the nodes, with one row for neighbouring blocks that are like an earlier one.

    :param level: how many numbers the names of these nodes have in common
    """
    pending: _Shown | None = None
    seen: dict[tuple[object, ...], str] = {}
    for block in _blocks(nodes, level):
        name = _block_name(block, level)
        own = _signature(block, name)
        like = seen.get(own) if len(block) > 1 else None
        if like is None:
            if pending is not None:
                yield pending
                pending = None
            seen[own] = name
            yield from _block_rows(block, level)
            continue
        first = name
        if pending is not None:
            if pending.like == like:
                first = pending.names[0]
            else:
                yield pending
        pending = _Shown(node=block[0], names=(first, name), like=like, count=len(block))
    if pending is not None:
        yield pending


def _block_rows(block: Sequence[_Node], level: int) -> Iterator[_Shown]:
    """Yield the rows of a block that is shown, in which blocks may be alike in turn."""
    if len(block) == 1:
        yield _Shown(node=block[0])
    elif _is_run(block):
        yield from _without_repeats(block, level + 1)
    else:
        yield _Shown(node=block[0])
        yield from _without_repeats(block[1:], 0)


def _blocks(nodes: Sequence[_Node], level: int) -> Iterator[Sequence[_Node]]:
    """Divide siblings, each with what it holds, into blocks."""
    depth = nodes[0].depth if nodes else 0
    starts = [index for index, node in enumerate(nodes) if node.depth <= depth]
    ends = [*starts[1:], len(nodes)]
    prefixes = [
        _prefix(nodes[start].parts[-1], level) if end - start == 1 else ""
        for start, end in zip(starts, ends, strict=True)
    ]
    runs = Counter(
        prefix
        for before, prefix in zip(["", *prefixes], prefixes, strict=False)
        if prefix != before
    )
    position = 0
    while position < len(starts):
        last = position
        prefix = prefixes[position]
        if prefix and runs[prefix] == 1:
            length = sum(1 for _ in takewhile(prefix.__eq__, prefixes[position:]))
            last += length - 1 if length >= _RUN else 0
        yield nodes[starts[position] : ends[last]]
        position = last + 1


def _prefix(name: str, level: int) -> str:
    """Return the beginning of a name up to its first number but ``level``; nothing without one."""
    numbered = (part for part in _PART.finditer(name) if any(map(str.isdecimal, part[0])))
    found = next(islice(numbered, level, None), None)
    return name[: found.end()] if found is not None else ""


def _is_run(block: Sequence[_Node]) -> bool:
    """Return whether a block is neighbours, and no layer with those in it."""
    return len(block) > 1 and block[1].depth == block[0].depth


def _block_name(block: Sequence[_Node], level: int) -> str:
    """Return what a block is called: its layer's name, or how its names begin."""
    name = block[0].parts[-1]
    return _prefix(name, level) if _is_run(block) else name


def _signature(block: Sequence[_Node], name: str) -> tuple[object, ...]:
    """Return what two blocks have to have in common: all that is shown, but for their own name."""
    depth = len(block[0].parts)
    return tuple(
        (
            "/".join((node.parts[depth - 1].removeprefix(name), *node.parts[depth:])),
            *(cell.text for cell in node.cells),
        )
        for node in block
    )


def _like_row(one: _Shown, columns: int) -> Row:
    first, last = one.names
    several = first != last
    count = f"{one.count} layers{' each' if several else ''}"
    text = f"{f'{first} to {last}' if several else first}: like {one.like} ({count})"
    return Row(
        depth=one.node.depth,
        cells=(Cell(text=text, tone=Tone.DIM), *(Cell(text="") for _ in range(columns - 1))),
        is_spanning=True,
    )


def _cells_of(layer: Layer) -> tuple[Cell, ...]:
    style = _cells.style(layer)
    is_traced_otherwise = _traced.is_traced_otherwise(layer)
    stored = _cells.stored_dtypes(layer)
    return (
        Cell(text=layer.class_name or "", tone=Tone.DIM),
        Cell(text=_cells.policy(layer), tone=style if layer.policy else Tone.DIM),
        Cell(
            text=_cells.dtype(layer, layer.compute_dtype),
            tone=style if layer.compute_dtype else Tone.DIM,
        ),
        Cell(
            text=_cells.dtype(layer, layer.variable_dtype),
            tone=Tone.PLAIN if layer.variable_dtype else Tone.DIM,
        ),
        Cell(
            text=stored if stored != layer.variable_dtype else "",
            tone=Tone.CAUTION if _notes.is_stored_otherwise(layer) else Tone.PLAIN,
        ),
        Cell(
            text=_cells.traced_dtypes(layer),
            tone=Tone.CAUTION if is_traced_otherwise else Tone.PLAIN,
        ),
        Cell(text=_cells.source(layer), tone=Tone.DIM),
        Cell(text=_notes.words(layer), tone=Tone.CAUTION if is_traced_otherwise else Tone.DIM),
    )


def _stored_cells(layer: Layer) -> tuple[Cell, ...]:
    variables, parameters = _cells.counts(layer)
    return (
        Cell(text=_cells.stored_dtypes(layer)),
        Cell(text=variables),
        Cell(text=parameters),
        Cell(text=_cells.traced_dtypes(layer)),
    )


def _variable_rows(node: _Node, *, stored: bool) -> Iterator[Row]:
    """Yield a row for each variable of a layer."""
    columns = _STORED_COLUMNS if stored else _COLUMNS
    place = [column.title for column in columns].index("stored")
    for variable in node.layer.variables:
        text = _cells.variable(variable)
        cells = [Cell(text=text, tone=Tone.DIM)] + [Cell(text="")] * (len(columns) - 1)
        cells[place] = Cell(text=variable.dtype, tone=Tone.DIM)
        yield Row(depth=node.depth + 1, cells=tuple(cells))
