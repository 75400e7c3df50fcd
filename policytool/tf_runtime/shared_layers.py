"""
Models in which one layer belongs to several models.

A config says it nowhere that Keras obeys, and builds such a layer twice. The live original knows
which layers are one object, so the models are put together from the inside, each with the layers
that exist already, as the loader of SavedModels does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .library import class_of, config_of

if TYPE_CHECKING:
    from typing import Any, Mapping

    from .library import Library

    Places = Mapping[tuple[str, ...], int]
    """Names from the outermost model down, to a number that a layer has in all of its places."""

MODELS = ("Functional", "Model")


def shared_places(original: Any) -> Places:
    """Return the places of layers that are part of more than one model."""
    paths_by_layer: dict[int, list[tuple[str, ...]]] = {}

    def find(layer: Any, path: tuple[str, ...]) -> None:
        paths_by_layer.setdefault(id(layer), []).append(path)
        for child in getattr(layer, "layers", None) or []:
            find(child, (*path, child.name))

    find(original, ())
    return {
        path: number
        for number, places in enumerate(paths_by_layer.values())
        if len(places) > 1
        for path in places
    }


class Builder:
    """Builds functional models whose layers are shared between them."""

    def __init__(self, library: Library, places: Places) -> None:
        self.functional = library.internal("engine.functional", "engine.network")
        self.keras = library.keras
        self.custom = library.custom
        self.places = places
        self.made: dict[int, Any] = {}

    def model(self, config: Mapping[str, Any], path: tuple[str, ...] = ()) -> Any:
        """Return the model of a functional config."""
        created = {}
        for layer in config["layers"]:
            inner = config_of(layer)
            place = (*path, inner["name"])
            if (
                self.places.get(place) not in self.made
                and class_of(layer) in MODELS
                and "layers" in inner
            ):
                created[place[-1]] = self.model(inner, place)
        for layer in config["layers"]:
            name = config_of(layer)["name"]
            number = self.places.get((*path, name))
            if number in self.made:
                created[name] = self.made[number]
        inputs, outputs, layers = self.functional.reconstruct_from_config(
            config, self.custom, created
        )
        model = self.keras.Model(inputs, outputs, name=config["name"])
        self.functional.connect_ancillary_layers(model, layers)
        if config.get("trainable") is False:
            model.trainable = False
        for name, layer in layers.items():
            number = self.places.get((*path, name))
            if number is not None:
                self.made.setdefault(number, layer)
        return model
