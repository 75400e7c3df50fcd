"""
The layers that several models of a file share.

Archives of both libraries, and all files of Keras 3, mark the objects of a shared layer, except for
its first object in a nested model, which is written before the second one is found. Other files
show only equal names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from policytool.model.tree import INPUT_CLASS
from policytool.releases import keras_objects
from policytool.releases.layer_classes import layer_facts
from policytool.releases.layer_variables import has_variables
from policytool.support.grouping import group_pairs
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.document import Document
    from policytool.model.tree import Site


class SharedLayer(Struct, frozen=True, kw_only=True):
    """A layer of several models."""

    name: str
    class_name: str
    models: tuple[tuple[str, ...], ...]
    """The path of the model of each place, in the order of the file."""

    is_chained: bool
    """Whether the models are Sequential."""

    @property
    def has_variables(self) -> bool | None:
        """Whether the layer can have variables; None if it is unknown."""
        return has_variables(self.class_name)

    @property
    def is_first(self) -> bool:
        """Whether all other models are in the model that the file lists first."""
        outer = self.models[0]
        return all(model[: len(outer)] == outer for model in self.models)


def shared_layers(
    document: Document, sites: Sequence[Site], *, is_marked: bool
) -> tuple[SharedLayer, ...]:
    """
    Return the layers that several models share.

    :param is_marked: whether only layers with a mark are shared, and not those with equal names
    """
    places = group_pairs(
        ((site.name, site.class_name), site)
        for site in sites
        if site.parent is not None
        and sites[site.parent].is_model
        and not site.is_model
        and site.class_name != INPUT_CLASS
    )
    classes = {site.names: site.class_name for site in sites if site.is_model}
    layers = []
    for (name, class_name), found in places.items():
        marks = [number for number, site in enumerate(found, 1) if _has_mark(document, site)]
        occurrences = found[: max(marks, default=0)] if is_marked else found
        models = tuple(names[:-1] for site in occurrences for names in (site.names, *site.also_at))
        if len(set(models)) > 1:
            chains = all(layer_facts(classes.get(model)).network == "chain" for model in models)
            layers.append(
                SharedLayer(name=name, class_name=class_name, models=models, is_chained=chains)
            )
    return tuple(layers)


def _has_mark(document: Document, site: Site) -> bool:
    entry = site.entry and jsontext.value(document.parts[site.entry.part], site.entry.pointer)
    return isinstance(entry, dict) and keras_objects.SHARED_ID in entry
