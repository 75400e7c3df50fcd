"""
The layout of graphs: each node has a row and a lane in the grid of the block that contains it.

The row of a node is below the rows of the nodes that it uses. An edge that skips rows has a lane
there, so that it crosses no node. The script of the page computes the sizes of rows and lanes,
because they change when readers open a block. The time is linear for graphs that are chains with
branches, whose number of lanes does not grow.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policytool.reports.layout import escape_unprintable
from policytool.support.grouping import group_pairs
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.reports.page import Graph

_MOST_LANES: Final = 40
"""The number of lanes from which on edges that skip rows have none."""

_NO_LANE: Final = -1


class Grid(NamedTuple):
    """The places of the nodes of a block."""

    rows: Mapping[int, int]
    lanes: Mapping[int, int]
    edges: Mapping[tuple[int, int], int]
    """The lane of each edge between two nodes; -1 without a lane."""


def graph_data(graph: Graph) -> str:
    """Return the nodes and edges of a graph with their places, as JSON for the script."""
    parents = [node.parent for node in graph.nodes]
    lifted = {edge: _lift(edge, parents) for edge in graph.edges}
    children = group_pairs((parent, index) for index, parent in enumerate(parents))
    edges = group_pairs(
        (parents[source], (source, target))
        for source, target in dict.fromkeys(lifted.values())
        if source != target
    )
    grids = {parent: grid(nodes, edges.get(parent, ())) for parent, nodes in children.items()}
    nodes = [
        [
            escape_unprintable(node.label),
            escape_unprintable(node.text),
            node.tone.value,
            -1 if node.parent is None else node.parent,
            grids[node.parent].rows[index],
            grids[node.parent].lanes[index],
            [[fact.label, escape_unprintable(fact.text)] for fact in node.details],
        ]
        for index, node in enumerate(graph.nodes)
    ]
    lanes = [
        [*edge, grids[parents[pair[0]]].edges.get(pair, _NO_LANE)] for edge, pair in lifted.items()
    ]
    values: dict[str, Any] = {"nodes": nodes, "edges": lanes}
    return codec.encode(values, ascii_only=False, nan=False)


def _lift(edge: tuple[int, int], parents: Sequence[int | None]) -> tuple[int, int]:
    """Return the nodes of the same block that contain the ends of an edge."""
    above: dict[int | None, int] = {}
    node: int | None = edge[0]
    while node is not None:
        above[parents[node]] = node
        node = parents[node]
    target = edge[1]
    while parents[target] not in above:
        target = parents[target] or 0
    return above[parents[target]], target


def grid(nodes: Sequence[int], edges: Iterable[tuple[int, int]]) -> Grid:
    """Return the places of nodes, which are in the order of the model, and of their edges."""
    pairs = list(edges)
    rows = _rows(nodes, pairs)
    parents = group_pairs((target, source) for source, target in pairs)
    targets = group_pairs(pairs)
    busy: list[int] = []
    """For each lane, the last row that it is needed for."""

    lanes: dict[int, int] = {}
    edge_lanes: dict[tuple[int, int], int] = {}
    for row, members in sorted(group_pairs((rows[node], node) for node in nodes).items()):
        for node in members:
            preferred = (lanes[parent] for parent in parents.get(node, ()) if parent in lanes)
            lane = next((lane for lane in preferred if busy[lane] < row), None)
            lanes[node] = _occupy(busy, row, row, lane)
        for node in members:
            later = sorted(
                (rows[target], target) for target in targets.get(node, ()) if rows[target] > row + 1
            )
            has_next = any(rows[target] == row + 1 for target in targets.get(node, ()))
            if not later or (len(busy) > _MOST_LANES):
                continue
            own = None if has_next else lanes[node]
            # Edges of a node share a lane as far as they go together.
            lane = _occupy(busy, row + 1, later[-1][0] - 1, own, last=row)
            edge_lanes.update(((node, target), lane) for _, target in later)
    return Grid(rows=rows, lanes=lanes, edges=edge_lanes)


def _occupy(busy: list[int], start: int, end: int, lane: int | None, *, last: int = -1) -> int:
    """
    Return a lane that is free from a row on, and reserve it.

    :param lane: the lane to use; None for the first free one
    :param last: the row in which a free lane must no longer be in use; by default, ``start``
    """
    if lane is None:
        limit = start if last < 0 else last
        lane = next((lane for lane, row in enumerate(busy) if row < limit), len(busy))
    if lane == len(busy):
        busy.append(end)
    busy[lane] = end
    return lane


def _rows(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """
    Return the row of each node: below those that it uses. Nodes without edges between them are in
    one column. A cycle does not delay the nodes in it.
    """
    if not edges:
        return {node: row for row, node in enumerate(nodes)}
    targets = group_pairs(edges)
    waiting = dict.fromkeys(nodes, 0)
    for _, target in edges:
        waiting[target] += 1
    rows = dict.fromkeys(nodes, 0)
    ready = deque(node for node in nodes if not waiting[node])
    while ready:
        node = ready.popleft()
        for target in targets.get(node, ()):
            rows[target] = max(rows[target], rows[node] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return rows
