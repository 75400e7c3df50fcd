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
from policytool.releases.layer_variables import has_variables
from policytool.support.grouping import group_pairs
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.document import Document
    from policytool.model.tree import Site


class SharedLayer(Struct, frozen=True, kw_only=True):
    """A layer of several models."""

    name: str
    class_name: str
    models: tuple[tuple[str, ...], ...]
    """The path of the model of each place, in the order of the file."""

    @property
    def has_variables(self) -> bool | None:
        """Whether the layer can have variables; None if it is unknown."""
        return has_variables(self.class_name)

    @property
    def is_first(self) -> bool:
        """Whether a model lists the layer before a model in it does."""
        return any(_is_inside(later, earlier) for earlier, later in self._pairs())

    @property
    def is_last(self) -> bool:
        """Whether a model lists the layer after a model in it does."""
        return any(_is_inside(earlier, later) for earlier, later in self._pairs())

    def _pairs(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        for number, earlier in enumerate(self.models):
            for later in self.models[number + 1 :]:
                yield earlier, later


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
    layers = []
    for (name, class_name), found in places.items():
        marks = [number for number, site in enumerate(found, 1) if _has_mark(document, site)]
        occurrences = found[: max(marks, default=0)] if is_marked else found
        models = tuple(names[:-1] for site in occurrences for names in (site.names, *site.also_at))
        if len(set(models)) > 1:
            layers.append(SharedLayer(name=name, class_name=class_name, models=models))
    return tuple(layers)


def _has_mark(document: Document, site: Site) -> bool:
    entry = site.entry and jsontext.value(document.parts[site.entry.part], site.entry.pointer)
    return isinstance(entry, dict) and keras_objects.SHARED_ID in entry


def _is_inside(model: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    return len(model) > len(outer) and model[: len(outer)] == outer
