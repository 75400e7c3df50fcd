"""
One model as it is compared: its layers with their configs, what feeds them, and the tensors that
their variables were read from.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.model import optimizer_config, reading
from policytool.model.model import Layer, Model, Source
from policytool.model.tree import INPUT_CLASS, LAYERS, storage
from policytool.releases import keras_objects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.formats.document import Document, Tensor
    from policytool.model.layer_graph import Graph
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.tree import Site
    from policytool.support.text.jsontext import Json

_AUTOMATIC_CASTS: Final = frozenset({"Cast"})
"""
Operations that Keras 3.5 to 3.8 put into functional graphs by themselves, one at each change of
dtype.
"""

_SEEDS: Final = "seed_generator"
"""
The scope of the states of Keras 3's random layers in an export; in other files the layers hold
them.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedLayer:
    """One layer and what the file holds of it."""

    layer: Layer
    parent: int | None
    names: tuple[str, ...]
    """Names from below the model down; none for the model itself."""

    places: frozenset[tuple[str, ...]]
    """All its places, as names from below the model down."""

    tensors: tuple[Tensor, ...]
    """For each variable, what it was read from."""

    config: Mapping[str, Json] | None = None
    attribute: str = LAYERS
    """What the parent holds it by."""

    implicit: bool = False
    """Whether no config describes it: a layer that its parent makes by itself."""

    before: int | None = None
    """The layer that its parent lists before it."""

    inputs: tuple[int | str, ...] | None = None
    """
    The layers that feed it, by index, and operations of Keras 3 by name; None for a shared layer,
    and where the model is no functional one.
    """

    ends: Mapping[str, tuple[int | str, ...]] | None = None
    """Of a functional model: the layers that are its inputs and its outputs."""

    operations: Mapping[str, Json] | None = None
    """Of a functional model of Keras 3: its operations by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedModel:
    """One model."""

    document: Document
    model: Model
    layers: tuple[ComparedLayer, ...]
    sites: tuple[Site, ...] = ()
    described: bool = True
    """Whether the file describes its layers; False where it holds variables alone."""

    loaded: LoadedModel | None = None
    """The whole model; None where the file describes no layers."""

    is_rooted: bool = False
    """Whether the first layer is the model, and all others are below it."""

    @property
    def is_graph(self) -> bool:
        """
        Whether the layers are those of a SavedModel's object graph, which has more of them than a
        config.
        """
        return bool(self.document.nodes)

    @property
    def is_traced(self) -> bool:
        """Whether the file has a graph, and it was read."""
        return bool(self.document.traces)

    @property
    def has_unknown_scales(self) -> bool:
        """
        Whether the file does not tell TF 2.3, whose ``mixed_float16`` scales losses by itself, from
        TF 2.4, whose does not.
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
        """The serialised optimizer; None where the model was not compiled."""
        return optimizer_config.optimizer_config(self.document)

    def children(self) -> dict[int | None, list[int]]:
        """Return the layers directly below each layer; those of None stand at the top."""
        found: dict[int | None, list[int]] = defaultdict(list)
        for index, held in enumerate(self.layers):
            found[held.parent].append(index)
        return found


def compared_model(document: Document) -> ComparedModel:
    """
    Return a document as it is compared.

    :raises ModelFileError: for a config that is no serialised model.
    """
    if document.config_part is None:
        return _weights_only(document)
    loaded = reading.load_model(document)
    sites, placed = loaded.placed.sites, loaded.placed
    fed, ends, operations = _inbound(loaded)
    before = _before(sites)
    layers = tuple(
        ComparedLayer(
            layer=layer,
            parent=site.parent,
            names=site.names[1:],
            places=frozenset(names[1:] for names in (site.names, *site.also_at)),
            tensors=placed.sources.get(index, ()),
            config=site.config,
            attribute=site.attribute,
            implicit=site.sub_policy is not None,
            before=before.get(index),
            inputs=fed.get(index) if not site.also_at else None,  # it has others at each place
            ends=ends.get(index),
            operations=operations.get(index),
        )
        for index, (site, layer) in enumerate(zip(sites, loaded.layers, strict=True))
    )
    return ComparedModel(
        document=document,
        model=loaded.description,
        layers=layers,
        sites=sites,
        loaded=loaded,
        is_rooted=sum(site.parent is None for site in sites) == 1,
    )


def read_by(weights: ComparedModel, other: ComparedModel) -> ComparedModel:
    """
    Return variables alone as those of another file's layers: what a loader does that is given both.
    """
    placed = storage.place(weights.document, other.sites)
    layers = tuple(
        replace(
            held,
            layer=Layer(
                path=held.layer.path,
                also_at=held.layer.also_at,
                name=held.layer.name,
                class_name=held.layer.class_name,
                source=Source.UNKNOWN,
                variables=placed.variables.get(index, ()),
            ),
            tensors=placed.sources.get(index, ()),
            config=None,
            inputs=None,
            ends=None,
            operations=None,
        )
        for index, held in enumerate(other.layers)
    )
    return replace(weights, layers=layers, sites=other.sites, is_rooted=other.is_rooted)


def _weights_only(document: Document) -> ComparedModel:
    model = reading.model_of(document)
    held = zip(
        model.layers, reading.group_variables(document).items(), strict=False
    )  # scopes of a graph without variables come last, and are not compared
    layers = tuple(_scope(layer, names, tensors) for layer, (names, tensors) in held)
    return ComparedModel(document=document, model=model, layers=layers, described=False)


def _scope(layer: Layer, names: tuple[str, ...], tensors: list[Tensor]) -> ComparedLayer:
    """
    Return a group of variables; several may have one name, as in what ``tf.Module`` leaves unnamed.
    """
    return ComparedLayer(
        layer=layer,
        parent=None,
        names=names,
        places=frozenset({names}),
        tensors=tuple(tensors),
        implicit=names[0].startswith(_SEEDS),
    )


def _before(sites: tuple[Site, ...]) -> dict[int, int]:
    """Return what stands before each layer below the same parent."""
    last: dict[int | None, int] = {}
    found = {}
    for index, site in enumerate(sites):
        if site.parent in last:
            found[index] = last[site.parent]
        last[site.parent] = index
    return found


def _inbound(
    loaded: LoadedModel,
) -> tuple[
    dict[int, tuple[int | str, ...]],
    dict[int, Mapping[str, tuple[int | str, ...]]],
    dict[int, Mapping[str, Json]],
]:
    """
    Return what feeds each layer of functional models, and each such model's ends and operations.
    """
    fed: dict[int, tuple[int | str, ...]] = {}
    ends: dict[int, Mapping[str, tuple[int | str, ...]]] = {}
    operations: dict[int, Mapping[str, Json]] = {}
    sites = loaded.sites
    for index, found in loaded.graphs.items():
        config = sites[index].config
        if config is None or "output_layers" not in config:
            continue
        for node in found.nodes.values():
            if node.site is not None and sites[node.site].class_name != INPUT_CLASS:
                fed.setdefault(node.site, _sources(found, node.parents))
        ends[index] = {
            "input_layers": _sources(found, found.inputs),
            "output_layers": _sources(found, found.outputs),
        }
        operations[index] = {
            node.name: keras_objects.short(node.class_name, _nameless(node.config))
            for node in found.nodes.values()
            if node.site is None and node.class_name not in _AUTOMATIC_CASTS
        }
    return fed, ends, operations


def _nameless(config: Mapping[str, Json]) -> Json:
    """
    Return the config of an operation without its name, which some releases write there and all of
    them beside it.
    """
    return {key: value for key, value in config.items() if key != "name"}


def _sources(found: Graph, names: tuple[str, ...]) -> tuple[int | str, ...]:
    """
    Return layers by index and operations by name, with what an automatic cast is fed by in its
    place.
    """
    sources: dict[int | str, None] = {}
    pending = list(reversed(names))
    seen: set[str] = set()
    while pending:
        node = found.nodes[pending.pop()]
        if node.site is not None:
            sources[node.site] = None
        elif node.class_name not in _AUTOMATIC_CASTS:
            sources[node.name] = None
        elif node.name not in seen:
            seen.add(node.name)
            pending += reversed(node.parents)
    return tuple(sources)
