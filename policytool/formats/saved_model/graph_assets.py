"""
The assets of a SavedModel: files beside the graph, such as vocabularies, whose names loaders put
behind those of the model's directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.formats.base import ASSETS, escaping_asset
from policytool.formats.saved_model.graph_bodies import parse_message, text
from policytool.support.text.paths import leads_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.base import Probe
    from policytool.formats.document import Observation

_COLLECTION: Final = b"saved_model_assets"
_TYPE: Final = b"/tensorflow.AssetFileDef"


def assets_of(graph: Any) -> tuple[Any, ...]:
    """
    Return the assets of a ``MetaGraph``, each an ``AssetFile``. TensorFlow 1 stores them in a
    collection, which TensorFlow reads only if the field ``assets`` is empty.
    """
    if graph.assets:
        return tuple(graph.assets)
    collection = next(
        (entry.value for entry in reversed(graph.collections) if entry.key == _COLLECTION), None
    )
    if collection is None or any(
        collection.HasField(kind) for kind in ("nodes", "bytes", "ints", "floats")
    ):  # TensorFlow uses the last of several kinds
        return ()
    asset_files = (
        parse_message("AssetFile", packed_asset.value)
        for packed_asset in collection.any.values
        if packed_asset.type_url.endswith(_TYPE)
    )
    return tuple(asset for asset in asset_files if asset is not None)


def escaping_assets(probe: Probe, graphs: Any) -> Iterator[Observation]:
    """Yield the assets that lie outside a model's directory, by their names or by a link."""
    for name in sorted({text(asset.filename) for graph in graphs for asset in assets_of(graph)}):
        if leads_out(name):
            yield escaping_asset(name, f"is outside {ASSETS}")
        elif probe.leads_out(probe.path / ASSETS / name):
            yield escaping_asset(name, "is a link to a path outside the model")
