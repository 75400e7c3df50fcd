"""
Edits of the dtypes that stand in the operations of a graph themselves, and follow what the layers
around them compute in.

An op layer of TF 1.15 to 2.3 has its dtype written into its ``node_def``; the casts that Keras 3.5
to 3.9 record have theirs in their config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address
from policytool.formats.edits import Edit, EditKind
from policytool.migration.plan import Refusal
from policytool.migration.result_dtypes import ENUMS, node_def_type
from policytool.releases import dtypes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.decisions import Decisions
    from policytool.model.layer_graph import Graph, GraphNode
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

_INPUT_TYPES: Final = ("T", "SrcT")
"""
The attributes of a ``node_def`` that name the dtype of its inputs; ``DstT`` of a Cast is its own.
"""


def node_def_edits(
    loaded: LoadedModel,
    node: GraphNode,
    old: frozenset[str],
    new: frozenset[str],
    decisions: Decisions,
) -> Iterator[Edit]:
    """Yield the edits that give an op of TF 1.15 to 2.3 the dtype its inputs have now."""
    config = node.config
    if len(old) != 1 or len(new) != 1 or old == new:
        return
    (was,), (will,) = old, new
    for name in _INPUT_TYPES:
        if node_def_type(config, name) == ENUMS.get(was):
            if config.get("constants") and not _are_whole(config["constants"]):
                path = loaded.layers[node.site].path if node.site is not None else node.name
                message = (
                    f"{path} has constants of dtype {was}, but its inputs would become {will}; "
                    f"keep the preceding layers in {was} with --set"
                )
                decisions.refusals.append(Refusal(code="op-constants", message=message, path=path))
                return
            for address in _configs(loaded, node):
                yield Edit(
                    kind=EditKind.NUMERICS,
                    address=Address(
                        part=address.part, pointer=f"{address.pointer}/node_def/attr/{name}/type"
                    ),
                    path=loaded.layers[node.site].path if node.site is not None else None,
                    before=ENUMS[was],
                    after=ENUMS[will],
                    reason=f"the op was stored with {was} inputs, but its inputs are now {will}",
                )


def _configs(loaded: LoadedModel, node: GraphNode) -> list[Address]:
    """Return every place where the config of an op layer stands."""
    if node.site is None:
        return [Address(part=loaded.document.config_part or "", pointer=f"{node.pointer}/config")]
    ending = "/config/dtype"
    places = [
        address for address in loaded.addresses[node.site] if address.pointer.endswith(ending)
    ]
    return [
        Address(part=address.part, pointer=address.pointer.removesuffix("/dtype"))
        for address in places
    ]


def _are_whole(constants: Json) -> bool:
    """
    Return whether constants are whole numbers alone: axes and indices, whose dtype does not follow
    the op's.
    """
    pending = [constants]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, float):
            return False
    return True


def cast_edits(
    loaded: LoadedModel, graph: Graph, node: GraphNode, decisions: Decisions
) -> Iterator[Edit]:
    """
    Yield the edit that lets a recorded cast follow the layers it casts for; a cast that someone
    wrote feeds other dtypes and stays.
    """
    consumers = [graph.nodes[name].site for name in graph.children().get(node.name, ())]
    written = node.config.get("dtype")
    sites = [site for site in consumers if site is not None and site not in loaded.graphs]
    if (
        not sites
        or len(sites) != len(consumers)
        or any(loaded.layers[site].compute_dtype != written for site in sites)
    ):
        return
    computed = {
        dtype for site in sites if (dtype := decisions.compute_dtype(loaded, site)) is not None
    }
    will = max(sorted(computed), key=dtypes.itemsize) if computed else written
    if isinstance(written, str) and will is not None and will != written:
        yield Edit(
            kind=EditKind.NUMERICS,
            address=Address(
                part=loaded.document.config_part or "", pointer=f"{node.pointer}/config/dtype"
            ),
            path=None,
            before=written,
            after=will,
            reason=f"the cast {node.name} uses the dtype of the layers that follow it",
        )
