"""
The graph of a model's layers, which HTML pages draw.

Layers whose neighboring names begin alike are a block, as in the table of layers, and so is a layer
with the layers in it.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.reports.page import Fact, Graph, Node, Sentence, Tone
from policytool.reports.words import LEAST_RUN, block_prefix
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from policytool.model.model import Layer

_TEXTS: Final = 2
"""The maximum number of texts of layers that a block names."""

_SEVERITY: Final = (
    *(Tone.PLAIN, Tone.DIM, Tone.GOOD, Tone.MIXED, Tone.HALF),
    *(Tone.CAUTION, Tone.BAD),
)
"""The tones of layers; a block has the last one of its layers."""


class LayerMark(NamedTuple):
    """What a graph shows of a layer."""

    text: str
    tone: Tone = Tone.PLAIN
    details: tuple[Fact, ...] = ()
    value: float | None = None
    """The number in the text, of which a block has the largest; None for other texts."""


def layer_graph(
    title: str,
    layers: Sequence[Layer],
    mark: Callable[[Layer], LayerMark],
    legend: Iterable[Sentence] = (),
) -> Graph | None:
    """
    Return the graph of layers; None if no connection between layers is known.

    :param mark: returns what the graph shows of a layer
    :param legend: the meaning of each colour that layers can have
    """
    inputs = [(layer, source) for layer in layers for source in layer.inputs]
    if not inputs:
        return None
    builder = _Builder(layers, mark)
    builder.add_below(_root(layers), None)
    index = builder.node_by_path
    tones = {node.tone for node in builder.nodes}
    return Graph(
        title=title,
        nodes=tuple(builder.nodes),
        edges=tuple(
            dict.fromkeys(
                (index[source], index[layer.path])
                for layer, source in inputs
                if source in index and layer.path in index and source != layer.path
            )
        ),
        legend=tuple(sentence for sentence in legend if sentence.tone in tones),
    )


def _root(layers: Sequence[Layer]) -> str | None:
    """Return the path of the model that contains all other layers; None if there is none."""
    first = layers[0].path
    return first if all(layer.path.startswith(f"{first}/") for layer in layers[1:]) else None


class _Builder:
    """The nodes of a graph, parents before their children."""

    def __init__(self, layers: Sequence[Layer], mark: Callable[[Layer], LayerMark]) -> None:
        paths = {layer.path for layer in layers}
        self._mark = mark
        self._below = group_pairs((_parent(layer.path, paths), layer) for layer in layers)
        self.nodes: list[Node] = []
        self.node_by_path: dict[str, int] = {}

    def add_below(self, path: str | None, parent: int | None) -> list[LayerMark]:
        """Add the layers below a layer, and return their marks."""
        marks = []
        siblings = self._below.get(path, [])
        runs = [(prefix, list(run)) for prefix, run in groupby(siblings, key=self._prefix)]
        counts = Counter(prefix for prefix, _ in runs)
        for prefix, run in runs:
            if prefix and counts[prefix] == 1 and LEAST_RUN <= len(run) < len(siblings):
                index = self._reserve()
                added = [mark for layer in run for mark in self._add(layer, index)]
                self.nodes[index] = _block(prefix.rstrip("_-."), parent, added)
                marks += added
            else:
                marks += [mark for layer in run for mark in self._add(layer, parent)]
        return marks

    def _prefix(self, layer: Layer) -> str:
        return "" if layer.path in self._below else block_prefix(layer.name, 0)

    def _reserve(self) -> int:
        self.nodes.append(Node(label="", text=""))
        return len(self.nodes) - 1

    def _add(self, layer: Layer, parent: int | None) -> list[LayerMark]:
        index = self._reserve()
        mark = self._mark(layer)
        self.node_by_path[layer.path] = index
        details = (Fact(label="layer", text=layer.path), *mark.details)
        marks = self.add_below(layer.path, index)
        text = " · ".join(filter(None, (layer.class_name, mark.text)))
        if marks:
            block = _block(layer.name, parent, marks)
            if mark.text and not any(below.text for below in marks):
                # the layers inside follow this one, such as those of MultiHeadAttention
                tone = max(block.tone, mark.tone, key=_SEVERITY.index)
                block = block._replace(text=text, tone=tone)
                marks = [mark]
            self.nodes[index] = block._replace(details=details)
            return marks
        self.nodes[index] = Node(
            label=layer.name,
            text=text,
            tone=mark.tone,
            parent=parent,
            details=details,
        )
        return [mark]


def _parent(path: str, paths: set[str]) -> str | None:
    """Return the path of the layer that contains a layer."""
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in paths:
            return path
    return None


def _block(label: str, parent: int | None, marks: Sequence[LayerMark]) -> Node:
    """Return the node of a block, with the most frequent texts and the largest value in it."""
    counts = Counter(mark.text for mark in marks if mark.text and mark.value is None).most_common()
    texts = [f"{count} {text}" for text, count in counts[:_TEXTS]]
    texts += ["…"] if len(counts) > _TEXTS else []
    values = [(mark.value, mark.text) for mark in marks if mark.value is not None]
    texts += [f"up to {max(values)[1]}"] if values else []
    return Node(
        label=label,
        text=", ".join(texts),
        tone=max((mark.tone for mark in marks), key=_SEVERITY.index),
        parent=parent,
    )
