"""
The models of a comparison, and the pairing of their layers: first by path, and then by rules that
are not ambiguous.

The rules are symmetric, so that comparing B with A gives the same pairs as comparing A with B.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from policytool.comparison.result import Pairing
from policytool.model import optimizer_config, reading
from policytool.model.model import Layer, Model, Source
from policytool.model.tree import INPUT_CLASS, LAYERS, Site, Unspelled, children_of, storage
from policytool.releases import keras_objects
from policytool.support import steps
from policytool.support.grouping import EachOnce, group_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from policytool.formats.document import Document, Tensor
    from policytool.model.layer_graph import Graph
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json


@dataclass(slots=True)
class Pairs:
    """The pairs of layers, by index."""

    of_a: dict[int, int] = field(default_factory=dict)
    of_b: dict[int, int] = field(default_factory=dict)
    by: dict[int, Pairing] = field(default_factory=dict)
    """How each layer of A was paired."""

    further_a: dict[int, int] = field(default_factory=dict)
    """
    Shared layers that A lists again for each further place, and B lists once: the index in A of
    each further entry, with the index in B of the layer.
    """

    further_b: dict[int, int] = field(default_factory=dict)
    """Shared layers that B lists again, and A lists once, by the index in B."""

    def paired_index_of_a(self, a: int) -> int | None:
        """
        Return the index of the paired layer in A for an entry of A, which may list a shared layer
        again; None for a layer that is only in A.
        """
        return (
            a if a in self.of_a else self.of_b[self.further_a[a]] if a in self.further_a else None
        )

    def paired_index_of_b(self, b: int) -> int | None:
        """Return the index of the paired layer in A for an entry of B; None if it is only in B."""
        return self.of_b.get(b, self.further_b.get(b))

    def add(self, a: int, b: int, by: Pairing) -> None:
        """Pair two layers."""
        self.of_a[a], self.of_b[b], self.by[a] = b, a, by


def pair_layers(a: ComparedModel, b: ComparedModel) -> Pairs:
    """Return the pairs of layers of two models."""
    work = _Pairing(a, b)
    if a.is_rooted and b.is_rooted:
        work.pairs.add(0, 0, Pairing.ROOT)
        work.below(0, 0)
    else:
        work.below(0 if a.is_rooted else None, 0 if b.is_rooted else None)
    work.places()
    work.pair_moved()
    work.pair_shared()
    return work.pairs


class _Pairing:
    """The pairing of two models."""

    def __init__(self, a: ComparedModel, b: ComparedModel) -> None:
        self._a, self._b = a, b
        self._below_a, self._below_b = children_of(a.sites), children_of(b.sites)
        self._has_shapes = a.has_variables and b.has_variables
        self.pairs = Pairs()

    def below(self, a: int | None, b: int | None) -> None:
        """Pair the layers below two paired layers, at all depths."""
        pending = [(a, b)]
        while pending:
            parent_a, parent_b = pending.pop()
            children_a, children_b = (
                self._below_a.get(parent_a, []),
                self._below_b.get(parent_b, []),
            )
            steps.spend(len(children_a) + len(children_b), walk="layers of a pair")
            self._pair_by_key(
                children_a,
                children_b,
                Pairing.PATH,
                lambda subject, index: subject.layers[index].names[-1:],
            )
            self._pair_by_key(
                children_a,
                children_b,
                Pairing.NAME,
                lambda subject, index: subject.layers[index].layer.name,
            )
            self._pair_by_key(children_a, children_b, Pairing.POSITION, self._kind)
            pending += [
                (index, self.pairs.of_a[index]) for index in children_a if index in self.pairs.of_a
            ]

    def places(self) -> None:
        """Pair shared layers that the two files list at different places."""
        by_place = {
            place: index
            for index, layer in enumerate(self._b.layers)
            if index not in self.pairs.of_b
            for place in layer.places
        }
        for index, layer in enumerate(self._a.layers):
            if index not in self.pairs.of_a:
                candidates = {
                    by_place[place] for place in layer.places if place in by_place
                } - self.pairs.of_b.keys()
                if len(candidates) == 1:
                    self._add_pair(index, candidates.pop(), Pairing.PATH)

    def pair_moved(self) -> None:
        """Pair layers of the same name, class and shapes that have different parents."""
        self._pair_by_key(
            range(len(self._a.layers)),
            range(len(self._b.layers)),
            Pairing.MOVED,
            self._name_and_kind,
            only=True,
        )

    def pair_shared(self) -> None:
        """Pair the further entries of a shared layer with the layer, which the other file lists."""
        places_a = {
            place: index
            for index, layer in enumerate(self._a.layers)
            for place in layer.places
            if index in self.pairs.of_a
        }
        places_b = {
            place: index
            for index, layer in enumerate(self._b.layers)
            for place in layer.places
            if index in self.pairs.of_b
        }
        self.pairs.further_a = {
            index: places_b[layer.names]
            for index, layer in enumerate(self._a.layers)
            if index not in self.pairs.of_a and layer.names in places_b
        }
        self.pairs.further_b = {
            index: places_a[layer.names]
            for index, layer in enumerate(self._b.layers)
            if index not in self.pairs.of_b and layer.names in places_a
        }

    def _pair_by_key(
        self,
        indices_a: Iterable[int],
        indices_b: Iterable[int],
        by: Pairing,
        key: Callable[[ComparedModel, int], Hashable],
        *,
        only: bool = False,
    ) -> None:
        """
        Pair unpaired layers of two lists that have the same key.

        Layers with a key are paired in their order if both lists have the same number of them.

        :param key: the key of a layer, from its model and its index
        :param only: whether to pair only layers whose key no other layer of their list has
        """
        layers_a = self._by_key(self._a, indices_a, self.pairs.of_a, key)
        layers_b = self._by_key(self._b, indices_b, self.pairs.of_b, key)
        for value, same_a in layers_a.items():
            same_b = layers_b.get(value, [])
            if len(same_a) == len(same_b) and (len(same_a) == 1 or not only):
                for index_a, index_b in zip(same_a, same_b, strict=True):
                    if by is Pairing.MOVED:
                        self._add_pair(index_a, index_b, by)
                    else:
                        self.pairs.add(index_a, index_b, by)

    @staticmethod
    def _by_key(
        model: ComparedModel,
        indices: Iterable[int],
        paired: dict[int, int],
        key: Callable[[ComparedModel, int], Hashable],
    ) -> dict[Hashable, list[int]]:
        """Return the unpaired layers by key."""
        return group_pairs((key(model, index), index) for index in indices if index not in paired)

    def _add_pair(self, a: int, b: int, by: Pairing) -> None:
        """Pair two layers that are not below a pair, and the layers below them."""
        if a not in self.pairs.of_a and b not in self.pairs.of_b:
            self.pairs.add(a, b, by)
            self.below(a, b)

    def _kind(self, subject: ComparedModel, index: int) -> Hashable:
        """
        Return the class of a layer and, if both files store them, the shapes of its variables.
        """
        compared = subject.layers[index]
        shapes = (
            sorted(str(variable.shape) for variable in compared.layer.variables)
            if self._has_shapes
            else []
        )
        return compared.layer.class_name, tuple(shapes)

    def _name_and_kind(self, subject: ComparedModel, index: int) -> Hashable:
        return subject.layers[index].layer.name, self._kind(subject, index)


def out_of_order(positions: Sequence[int]) -> frozenset[int]:
    """
    Return the positions of a permutation whose elements moved: the elements that are not part of
    all longest increasing subsequences.

    If two neighbors are swapped, both have moved. The result is the same for the inverse
    permutation.
    """
    ahead, behind = (
        _increasing_lengths(positions),
        _increasing_lengths([-place for place in reversed(positions)])[::-1],
    )
    longest = max(ahead, default=0)
    unmoved = [
        position
        for position in range(len(positions))
        if ahead[position] + behind[position] == longest + 1
    ]
    at_length: dict[int, int] = defaultdict(int)
    for position in unmoved:
        at_length[ahead[position]] += 1
    in_order = {position for position in unmoved if at_length[ahead[position]] == 1}
    return frozenset(range(len(positions))) - in_order


def _increasing_lengths(positions: Sequence[int]) -> list[int]:
    """
    Return, for each element, the length of the longest increasing subsequence that ends with it.
    """
    from bisect import bisect_left

    ends: list[int] = []
    lengths = []
    for place in positions:
        position = bisect_left(ends, place)
        ends[position : position + 1] = [place]
        lengths.append(position + 1)
    return lengths


Sources: TypeAlias = "tuple[int | str, ...]"
"""Layers of a compared model by index, and operations of Keras 3 by name."""

_AUTOMATIC_CASTS: Final = frozenset({"Cast"})
"""
Operations that Keras 3.5 to 3.8 automatically add to functional graphs, at each change of dtype.
"""

_SEEDS: Final = "seed_generator"
"""
The scope for the states of random layers in an export of Keras 3. In other files, the layers
contain these states.
"""


class ComparedLayer(Struct, frozen=True, eq=False):
    """A layer of a compared model, by its index."""

    subject: ComparedModel
    index: int

    @property
    def site(self) -> Site:
        """The site of the layer; for variables without a layer, their scope."""
        return self.subject.sites[self.index]

    @property
    def layer(self) -> Layer:
        """The description of the layer in reports."""
        return self.subject.descriptions[self.index]

    @property
    def parent(self) -> int | None:
        """The index of the layer that contains this layer; None if no layer does."""
        return self.site.parent

    @property
    def names(self) -> tuple[str, ...]:
        """The path of names below the model; empty for the model itself."""
        return self.site.names[1:]

    @property
    def places(self) -> frozenset[tuple[str, ...]]:
        """All paths of names below the model; a shared layer has several."""
        return frozenset(names[1:] for names in (self.site.names, *self.site.also_at))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The stored tensor of each variable."""
        return self.subject.tensors.get(self.index, ())

    @property
    def config(self) -> Mapping[str, Json] | None:
        """The config of the layer; None if the file has no configs."""
        return self.site.config if self.subject.described else None

    @property
    def attribute(self) -> str:
        """The attribute or config key of the parent that contains the layer."""
        return self.site.attribute

    @property
    def implicit(self) -> bool:
        """
        Whether no config describes the layer: its parent creates it, or it stands for the states of
        random layers in an export.
        """
        in_scope = not self.subject.described and self.names[:1]
        return self.site.sub_policy is not None or bool(
            in_scope and self.names[0].startswith(_SEEDS)
        )

    @property
    def before(self) -> int | None:
        """The index of the previous layer in the same parent; None for the first layer."""
        return self.subject.before.get(self.index)

    @property
    def inputs(self) -> Sources | None:
        """
        The layers whose outputs are its inputs. None for a shared layer, whose inputs differ
        between its places, and if the model is not functional.
        """
        return self.subject.inputs.get(self.index) if not self.site.also_at else None

    @property
    def ends(self) -> Mapping[str, Sources] | None:
        """The input and output layers of a functional model; None for other layers."""
        graph = self.subject.graphs.get(self.index)
        return (
            {
                "input_layers": _sources(graph, graph.inputs),
                "output_layers": _sources(graph, graph.outputs),
            }
            if graph is not None
            else None
        )

    @property
    def operations(self) -> Mapping[str, Json] | None:
        """The operations in a functional model of Keras 3, by name; None for other layers."""
        graph = self.subject.graphs.get(self.index)
        return (
            {
                node.name: keras_objects.short(node.class_name, _nameless(node.config))
                for node in graph.nodes.values()
                if node.site is None and node.class_name not in _AUTOMATIC_CASTS
            }
            if graph is not None
            else None
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedModel:
    """One of the two models of a comparison."""

    document: Document
    model: Model
    sites: tuple[Site, ...]
    descriptions: tuple[Layer, ...]
    """The descriptions of the layers in reports, with the same indices as ``sites``."""

    tensors: Mapping[int, tuple[Tensor, ...]]
    """The stored tensor of each variable of a layer, by the index of the layer."""

    described: bool = True
    """Whether the file describes its layers; False if it contains only variables."""

    loaded: LoadedModel | None = None
    """The model with its configs; None if the file does not describe its layers."""

    is_rooted: bool = False
    """Whether the first layer is the model, and all others are below it."""

    @property
    def is_graph(self) -> bool:
        """
        Whether the layers are from the object graph of a SavedModel, which has more layers than a
        config.
        """
        return bool(self.document.nodes)

    @property
    def is_traced(self) -> bool:
        """Whether the file contains a graph that was read."""
        return bool(self.document.traces)

    @property
    def has_unknown_scales(self) -> bool:
        """
        Whether it is unknown if TF 2.3 or TF 2.4 wrote the file. ``mixed_float16`` has a loss scale
        in TF 2.3, but not in TF 2.4.
        """
        return any(
            observation.code == "loss-scale-unknown" for observation in self.model.observations
        )

    @property
    def has_variables(self) -> bool:
        """Whether the format stores variables."""
        return self.document.tensors is not None

    @property
    def optimizer(self) -> Json:
        """The serialized optimizer; None if the model was not compiled."""
        return optimizer_config.optimizer_config(self.document)

    @cached_property
    def layers(self) -> tuple[ComparedLayer, ...]:
        """The layers of the model."""
        return tuple(ComparedLayer(self, index) for index in range(len(self.sites)))

    @cached_property
    def graphs(self) -> Mapping[int, Graph]:
        """The graphs of functional models, by the index of the model."""
        graphs = self.loaded.graphs if self.loaded is not None else {}
        return {index: graph for index, graph in graphs.items() if graph.source is not None}

    @cached_property
    def inputs(self) -> Mapping[int, Sources]:
        """The layers whose outputs are the inputs of each layer in functional models."""
        inputs: dict[int, Sources] = {}
        for graph in self.graphs.values():
            for node in graph.nodes.values():
                if node.site is not None and self.sites[node.site].class_name != INPUT_CLASS:
                    inputs.setdefault(node.site, _sources(graph, node.parents))
        return inputs

    @cached_property
    def before(self) -> Mapping[int, int]:
        """The previous layer in the same parent, for each layer but the first."""
        return {
            index: previous
            for below in children_of(self.sites).values()
            for previous, index in pairwise(below)
        }


def compared_model(document: Document) -> ComparedModel:
    """
    Return a document as one model of a comparison.

    :raises ModelFileError: if its config is not a serialized model.
    """
    if document.config_part is None:
        return _weights_only(document)
    loaded = reading.load_model(document)
    return ComparedModel(
        document=document,
        model=loaded.description,
        sites=loaded.sites,
        descriptions=loaded.layers,
        tensors=loaded.placed.sources,
        loaded=loaded,
        is_rooted=sum(site.parent is None for site in loaded.sites) == 1,
    )


def read_by(weights: ComparedModel, other: ComparedModel) -> ComparedModel:
    """
    Return a weights-only file with its variables assigned to the layers of another file, as Keras
    does when it loads the weights into that model.
    """
    placed = storage.place(weights.document, other.sites)
    layers = tuple(
        Layer(
            path=layer.path,
            also_at=layer.also_at,
            name=layer.name,
            class_name=layer.class_name,
            source=Source.UNKNOWN,
            variables=placed.variables.get(index, ()),
        )
        for index, layer in enumerate(other.descriptions)
    )
    return replace(
        weights,
        sites=other.sites,
        descriptions=layers,
        tensors=placed.sources,
        is_rooted=other.is_rooted,
    )


def _weights_only(document: Document) -> ComparedModel:
    """
    Return a file that contains only variables, with a layer for each scope. Several variables can
    have the same name, because ``tf.Module`` does not name them. The scopes of a graph without
    variables come last and are left out.
    """
    model, groups = reading.model_of(document), reading.group_variables(document)
    return ComparedModel(
        document=document,
        model=model,
        sites=tuple(map(_scope, groups)),
        descriptions=model.layers[: len(groups)],
        tensors={index: tuple(tensors) for index, tensors in enumerate(groups.values())},
        described=False,
    )


def _scope(names: tuple[str, ...]) -> Site:
    """Return a site for a scope of variables that no config describes."""
    return Site(
        names=("", *names),
        class_name="",
        attribute=LAYERS,
        parent=None,
        spelled=Unspelled.ABSENT,
        address=None,
    )


def _nameless(config: Mapping[str, Json]) -> Json:
    """
    Return the config of an operation without its name. All releases write the name next to the
    config, and only some also in the config.
    """
    return {key: value for key, value in config.items() if key != "name"}


def _sources(graph: Graph, names: tuple[str, ...]) -> Sources:
    """
    Return layers as indices and operations as names. Automatic casts are replaced by their inputs.
    """
    sources: dict[int | str, None] = {}
    walk = EachOnce(reversed(names))
    for name in walk:
        node = graph.nodes[name]
        if node.site is not None:
            sources[node.site] = None
        elif node.class_name not in _AUTOMATIC_CASTS:
            sources[node.name] = None
        else:
            walk.add(reversed(node.parents))
    return tuple(sources)
