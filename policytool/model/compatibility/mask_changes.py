"""
The layers that get another mask in a release than in the release that wrote the file, which changes
predictions without an error.

Masks are expressions over the layers that make them, and the measured rules of classes carry them
through the outermost network. Nothing is said about a network in which a mask meets anything that
is not measured: a nested model, a custom layer, an argument that is a tensor, or a cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.model import custom_classes
from policytool.model.calls import call_tensors, layer_entries, model_calls, tensors
from policytool.model.flow import CallGraph, chain_graph, follow
from policytool.model.tree import INPUT_CLASS, LAYERS, path_of
from policytool.releases import behaviour, keras_objects
from policytool.releases.layer_classes import is_operation, layer_facts
from policytool.releases.releases import LOADERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.model.calls import Call
    from policytool.model.compatibility.evidence import Evidence
    from policytool.model.flow import Node, TensorValues
    from policytool.model.tree import Site
    from policytool.releases.behaviour import MaskRule
    from policytool.releases.releases import Release
    from policytool.support.text.jsontext import Json

    _Mask = tuple[object, ...]

_ONES: Final[_Mask] = ("ones",)
"""A mask without masked steps, which changes nothing."""

_PLACES: Final = ("first", "second", "third")
_MEASURED_INPUTS: Final = 3
_RANK: Final = 3
"""The rank of the tensors with which merging layers were measured."""


class MaskChange(Struct, frozen=True, kw_only=True):
    """A change of masks between the release that wrote a file and another one."""

    site: Site
    """The first layer that uses masks in another way, or whose output has another mask."""

    readers: tuple[str, ...]
    """The paths of the layers that compute with another mask."""

    loader: str


class _UnmeasuredError(Exception):
    """A mask reaches something that was not measured."""


class _Masks(Struct, frozen=True, kw_only=True):
    """The masks of one release: those of each call's outputs, and those that a call reads."""

    outputs: dict[Node, Sequence[_Mask | None]]
    read: dict[Node, tuple[_Mask, ...]]


def mask_changes(
    evidence: Evidence, origins: Sequence[Release], sites: Sequence[Site]
) -> tuple[MaskChange, ...]:
    """Return the changes of masks in each release that certainly computes with other masks."""
    if evidence.document.format == "savedmodel" or not any(map(_makes_mask, sites)):
        return ()
    network = _network(evidence, sites)
    if network is None:
        return ()
    try:
        written = [network.masks(origin.id) for origin in origins]
    except _UnmeasuredError:
        return ()
    if not written or any(masks.read != written[0].read for masks in written):
        return ()
    changes = (_change(network, written[0], loader) for loader in LOADERS)
    return tuple(change for change in changes if change is not None)


def _change(network: _Network, written: _Masks, loader: str) -> MaskChange | None:
    try:
        masks = network.masks(loader)
    except _UnmeasuredError:
        return None
    readers = [
        node
        for node in network.graph.inputs_first
        if masks.read.get(node) != written.read.get(node)
    ]
    if not readers:
        return None
    first = next(
        node
        for node in network.graph.inputs_first
        if node in readers or masks.outputs.get(node) != written.outputs.get(node)
    )
    names = (path_of(network.sites[name].names) for name, _ in readers)
    return MaskChange(
        site=network.sites[first[0]], readers=tuple(dict.fromkeys(names)), loader=loader
    )


class _Network(Struct, frozen=True, kw_only=True):
    """The calls of the outermost network."""

    graph: CallGraph
    sites: Mapping[str, Site]
    entries: Mapping[str, dict[str, Json]]
    flat: frozenset[str]
    """The names of layers with an input whose rank is not the measured one, or unknown."""

    def masks(self, release: str) -> _Masks:
        """
        Return the masks in a release.

        :raises _UnmeasuredError: if a mask reaches something that was not measured.
        """
        found = _Masks(outputs={}, read={})

        def transfer(
            node: Node, call: Call | None, known: TensorValues[_Mask | None]
        ) -> Sequence[_Mask | None]:
            outputs = (None,) if call is None else self._outputs(node, call, known, release, found)
            found.outputs[node] = outputs
            return outputs

        follow(self.graph, transfer, walk="masks")
        return found

    def _outputs(
        self,
        node: Node,
        call: Call,
        known: TensorValues[_Mask | None],
        release: str,
        found: _Masks,
    ) -> Sequence[_Mask | None]:
        """Return the masks of a call's outputs, and record those that it reads."""
        name = node[0]
        site = self.sites.get(name)
        first = list(tensors(next(iter((*call.args, *call.kwargs.values())), None)))
        masks = [known.of(tensor) for tensor in first]
        if site is not None and _makes_mask(site):
            return (("made", *node),)
        if not any(known.of(tensor) for tensor in call_tensors(call)):
            return (None,)
        if is_operation(self.entries.get(name, {})):
            return (None,)
        if site is None or len(first) != len(list(call_tensors(call))) or name in self.flat:
            raise _UnmeasuredError
        rule = _rule(site, call, len(first), release)
        subset = _subset(masks)
        if rule.out.get(subset) != rule.attached_out.get(subset) or subset not in rule.out:
            raise _UnmeasuredError
        if subset in rule.reads:
            read = tuple(mask or _ONES for mask in masks)
            if set(read) != {_ONES}:
                found.read[node] = read
        return [_output(word, masks) for word in rule.out[subset]]


def _rule(site: Site, call: Call, inputs: int, release: str) -> MaskRule:
    """
    Return the measured rule of a layer's call.

    :raises _UnmeasuredError: if there is none, or if it also depends on other things than the masks
    """
    facts = layer_facts(site.class_name)
    if site.is_model or custom_classes.is_opaque(site) or facts.makes_projections:
        raise _UnmeasuredError
    call_words = [name for name, value in call.kwargs.items() if value is True]
    rule = behaviour.mask_rule(
        site.class_name,
        site.config or {},
        release,
        inputs=min(inputs, _MEASURED_INPUTS),
        call=call_words,
    )
    if rule is None or rule.errors or rule.attached_clears or facts.activation == "softmax":
        raise _UnmeasuredError
    return rule


def _subset(masks: Sequence[_Mask | None]) -> str:
    """Return which inputs are masked, in the notation of the rules."""
    if len(masks) > _MEASURED_INPUTS:
        raise _UnmeasuredError
    return "".join("0" if mask is None else "1" for mask in masks)


def _output(word: str, masks: Sequence[_Mask | None]) -> _Mask | None:
    """Return the mask of an output from the word that a rule has for it."""
    parts = {mask for mask in masks if mask is not None}
    match word:
        case "none":
            return None
        case "first" | "second" | "third":
            return masks[_PLACES.index(word)]
        case "ones":
            return _ONES
        case "or":
            return _ONES if _ONES in parts else _combined(word, parts)
        case "and":
            return _combined(word, parts - {_ONES}) if parts != {_ONES} else _ONES
        case "concat":
            return ("concat", *(mask or _ONES for mask in masks))
    raise _UnmeasuredError


def _combined(word: str, parts: set[_Mask]) -> _Mask:
    return next(iter(parts)) if len(parts) == 1 else (word, frozenset(parts))


def _makes_mask(site: Site) -> bool:
    return not custom_classes.is_opaque(site) and layer_facts(site.class_name).masks_values(
        site.config or {}
    )


def _network(evidence: Evidence, sites: Sequence[Site]) -> _Network | None:
    """Return the outermost network; None if it has no calls, or layers in several dtypes."""
    root = sites[0]
    shapes = evidence.shapes
    dtypes = {
        keras_objects.policy_name((site.config or {}).get("dtype")) or "float32"
        for site in sites
        if site.class_name != INPUT_CLASS and not site.is_model
    }
    if root.config is None or shapes is None or custom_classes.is_opaque(root) or len(dtypes) > 1:
        return None
    below = [
        (index, site)
        for index, site in enumerate(sites)
        if site.parent == 0 and site.attribute == LAYERS
    ]
    if layer_facts(root.class_name).network == "chain":
        if len(below) != len(list(layer_entries(root.config))):
            return None
        names = [str(number) for number in range(len(below))]
        named = dict(zip(names, below, strict=True))
        graph, entries = chain_graph(names), {}
    elif "output_layers" in root.config:
        calls = model_calls(root.config, keras3=evidence.is_keras3)
        named = {site.name: (index, site) for index, site in below}
        graph = CallGraph({layer.name: layer.calls for layer in calls.layers})
        entries = {layer.name: layer.entry for layer in calls.layers}
    else:
        return None
    flat = (
        name
        for name, (index, site) in named.items()
        if layer_facts(site.class_name).category == "merging"
        and any(len(shape) != _RANK for shape in shapes.inputs(index).values() or [()])
    )
    return _Network(
        graph=graph,
        sites={name: site for name, (_, site) in named.items()},
        entries=entries,
        flat=frozenset(flat),
    )
