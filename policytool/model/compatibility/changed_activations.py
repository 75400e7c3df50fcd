"""
The activation functions of a model that other releases compute with a different formula than the
release that wrote the file, such as ``hard_sigmoid``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from policytool.releases import known_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.model.loaded_model import LoadedModel


class ChangedActivation(Struct, frozen=True, kw_only=True):
    """An activation function with a different formula in a release."""

    name: str
    loader: str
    layers: tuple[str, ...]
    """The paths of the layers that use it."""

    written: tuple[float, ...]
    """
    Its values in the release that wrote the file, as
    :func:`policytool.releases.known_arguments.activation_values` returns them.
    """

    computed: tuple[float, ...]
    """Its values in the other release."""


def changed_activations(loaded: LoadedModel, loaders: Iterable[str]) -> Iterator[ChangedActivation]:
    """Yield the activations with a different formula in each of the releases, by activation."""
    layers_by_name: dict[str, tuple[str, ...]] = {}
    for entry in loaded.stored.objects:
        if entry.kind == known_arguments.ACTIVATIONS and known_arguments.is_known(
            entry.kind, entry.class_name
        ):
            layers_by_name[entry.class_name] = tuple(
                dict.fromkeys((*layers_by_name.get(entry.class_name, ()), *entry.layers))
            )
    loaders = tuple(loaders)
    for name, layers in layers_by_name.items():
        written = known_arguments.activation_values(name, loaded.origins[-1].id)
        for loader in loaders:
            computed = known_arguments.activation_values(name, loader)
            if written is not None and computed is not None and written != computed:
                yield ChangedActivation(
                    name=name, loader=loader, layers=layers, written=written, computed=computed
                )
