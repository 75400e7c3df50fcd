"""
The table of layers: a tree of names with policy and dtypes beside them, in which equal blocks are
shown once.

A block is a layer with the layers in it, or neighbours whose names begin alike up to a number
(``block2b_conv``, ``block2b_bn``). One that equals an earlier block of the same parent, name by
name and dtype by dtype, becomes one row that names the other; their sizes may differ.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.reports.fields import table_cells, table_columns
from policytool.reports.inspection.fields import LAYER_TABLE, SIZES, STORED, STORED_TABLE
from policytool.reports.page import Cell, Row, Table, Tone
from policytool.reports.words import LEAST_RUN, block_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.model.model import Layer
    from policytool.reports.fields import Field

_POLICIES: Final = frozenset({"policy", "effective_policy"})
"""The columns that a narrow table of a preset keeps: the dtypes follow from only one of them."""

_SHORT: Final = 24
"""Up to so many layers, each has a row of its own: they fit a terminal's height."""


def has_only_weights(layers: Sequence[Layer]) -> bool:
    """
    Return whether the file contains only variables and ops of layers, as weights and graphs without
    Keras metadata do.
    """
    return all(layer.class_name is None for layer in layers)


def layer_table(layers: Sequence[Layer], *, variables: bool, sizes: bool, whole: bool) -> Table:
    """
    Return the table of layers.

    :param variables: whether each variable has a row
    :param sizes: whether layers have output shapes and numbers of parameters
    :param whole: whether to include blocks that are equal to an earlier one
    """
    fields = (
        STORED_TABLE
        if has_only_weights(layers)
        else tuple(field for field in LAYER_TABLE if sizes or field.name not in SIZES)
    )
    if any(layer.effective_policy for layer in layers):
        fields = tuple(
            field._replace(column=field.column._replace(priority=1))
            if field.column is not None and field.name in _POLICIES
            else field
            for field in fields
        )
    nodes = _nodes(layers, fields)
    entries = (
        [_TreeEntry(node=node) for node in nodes]
        if whole or variables or len(nodes) <= _SHORT
        else list(_without_repeats(nodes, 0))
    )
    labels = _labels([entry.node for entry in entries])
    rows: list[Row] = []
    for entry, label in zip(entries, labels, strict=True):
        if entry.like is not None:
            folded = tuple(
                Row(
                    depth=node.depth + 1,
                    cells=(
                        Cell(text="/".join(node.parts[-node.below :]), whole=node.layer.path),
                        *node.cells,
                    ),
                )
                for node in entry.nodes
            )
            rows.append(_like_row(entry, len(fields), folded))
            continue
        name = Cell(text=label, whole=entry.node.layer.path)
        rows.append(Row(depth=entry.node.depth, cells=(name, *entry.node.cells)))
        if variables:
            rows += _variable_rows(entry.node, fields)
    return Table(columns=table_columns(fields), rows=tuple(rows))


class _Node(NamedTuple):
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

    compared: tuple[str, ...]
    """The texts of these cells but for sizes, which blocks that are alike need not share."""


class _TreeEntry(NamedTuple):
    """A node of the table, or the first of several blocks that are equal to an earlier block."""

    node: _Node
    names: tuple[str, str] = ("", "")
    """The first and the last of those blocks."""

    like: str | None = None
    """The block that they are like."""

    nodes: tuple[_Node, ...] = ()
    """The nodes of all those blocks."""

    layers: int = 0
    """Layers in each of them."""


def _nodes(layers: Sequence[Layer], fields: Sequence[Field[Layer]]) -> list[_Node]:
    nodes: list[_Node] = []
    open_paths: list[str] = []
    for layer in layers:
        while open_paths and not layer.path.startswith(f"{open_paths[-1]}/"):
            open_paths.pop()
        parts = tuple(layer.path.split("/"))
        above = open_paths[-1].count("/") + 1 if open_paths else 0
        cells = table_cells(fields[1:], layer)  # before them, the label
        nodes.append(
            _Node(
                layer=layer,
                depth=len(open_paths),
                parts=parts,
                below=len(parts) - above,
                cells=cells,
                compared=tuple(
                    cell.text
                    for field, cell in zip(fields[1:], cells, strict=True)
                    if field.name not in SIZES
                ),
            )
        )
        open_paths.append(layer.path)
    return nodes


def _labels(nodes: Sequence[_Node]) -> list[str]:
    """
    Return the label of each node: its name below its parent, with as much of its path as makes it
    unique.
    """
    lengths = [node.below for node in nodes]
    labels = ["/".join(node.parts[-length:]) for node, length in zip(nodes, lengths, strict=True)]
    while True:
        counts = Counter(labels)
        ambiguous = [
            index
            for index, label in enumerate(labels)
            if counts[label] > 1 and lengths[index] < len(nodes[index].parts)
        ]
        if not ambiguous:
            return labels
        for index in ambiguous:
            lengths[index] += 1
            labels[index] = "/".join(nodes[index].parts[-lengths[index] :])


def _without_repeats(nodes: Sequence[_Node], level: int) -> Iterator[_TreeEntry]:
    """
    Yield the nodes, with one row for neighboring blocks that equal an earlier block.

    :param level: how many numbers the names of these nodes have in common
    """
    pending: _TreeEntry | None = None
    name_by_signature: dict[tuple[object, ...], str] = {}
    for block in _blocks(nodes, level):
        name = _block_name(block, level)
        signature = _signature(block, name)
        equal_block = name_by_signature.get(signature) if len(block) > 1 else None
        if equal_block is None:
            if pending is not None:
                yield pending
                pending = None
            name_by_signature[signature] = name
            yield from _block_rows(block, level)
            continue
        first = name
        earlier: tuple[_Node, ...] = ()
        if pending is not None:
            if pending.like == equal_block:
                first, earlier = pending.names[0], pending.nodes
            else:
                yield pending
        pending = _TreeEntry(
            node=block[0],
            names=(first, name),
            like=equal_block,
            nodes=(*earlier, *block),
            layers=len(block),
        )
    if pending is not None:
        yield pending


def _block_rows(block: Sequence[_Node], level: int) -> Iterator[_TreeEntry]:
    """
    Yield the rows of a block that equals no earlier one. Blocks inside it may equal earlier blocks,
    and then have one row.
    """
    if len(block) == 1:
        yield _TreeEntry(node=block[0])
    elif _is_run(block):
        yield from _without_repeats(block, level + 1)
    else:
        yield _TreeEntry(node=block[0])
        yield from _without_repeats(block[1:], 0)


def _blocks(nodes: Sequence[_Node], level: int) -> Iterator[Sequence[_Node]]:
    """Divide siblings, each with the nodes below it, into blocks."""
    depth = nodes[0].depth if nodes else 0
    starts = [index for index, node in enumerate(nodes) if node.depth <= depth]
    ends = [*starts[1:], len(nodes)]
    prefixes = [
        block_prefix(nodes[start].parts[-1], level) if end - start == 1 else ""
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
            last += length - 1 if length >= LEAST_RUN else 0
        yield nodes[starts[position] : ends[last]]
        position = last + 1


def _is_run(block: Sequence[_Node]) -> bool:
    """
    Return whether a block consists of neighboring layers, and is not a layer with the layers in it.
    """
    return len(block) > 1 and block[1].depth == block[0].depth


def _block_name(block: Sequence[_Node], level: int) -> str:
    """Return the name of a block: the name of its layer, or the common prefix of its names."""
    name = block[0].parts[-1]
    return block_prefix(name, level) if _is_run(block) else name


def _signature(block: Sequence[_Node], name: str) -> tuple[object, ...]:
    """Return the properties that equal blocks share: all except their names and sizes."""
    depth = len(block[0].parts)
    return tuple(
        (
            "/".join((node.parts[depth - 1].removeprefix(name), *node.parts[depth:])),
            *node.compared,
        )
        for node in block
    )


def _like_row(entry: _TreeEntry, columns: int, folded: tuple[Row, ...]) -> Row:
    first, last = entry.names
    is_range = first != last
    count = f"{entry.layers} layers{' each' if is_range else ''}"
    text = f"{f'{first} to {last}' if is_range else first}: like {entry.like} ({count})"
    return Row(
        depth=entry.node.depth,
        cells=(Cell(text=text, tone=Tone.DIM), *(Cell(text="") for _ in range(columns - 1))),
        is_spanning=True,
        folded=folded,
    )


def _variable_rows(node: _Node, fields: Sequence[Field[Layer]]) -> Iterator[Row]:
    """Yield a row for each variable of a layer, with its dtype in the column of stored dtypes."""
    for variable in node.layer.variables:
        shape = "?" if variable.shape is None else f"({', '.join(map(str, variable.shape))})"
        cells = [Cell(text=f"{variable.name} {shape}", tone=Tone.DIM)]
        cells += [
            Cell(text=variable.dtype, tone=Tone.DIM) if field.name == STORED.name else Cell(text="")
            for field in fields[1:]
        ]
        yield Row(depth=node.depth + 1, cells=tuple(cells))
