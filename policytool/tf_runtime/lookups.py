"""
The words of lookups: a vocabulary that was learnt, or that stands in a file of the model's, is not
in the config.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .facts import class_facts
from .library import class_of, config_of, paths, with_config

if TYPE_CHECKING:
    from typing import Any, Mapping


class Lookups:
    """The lookups of a live original, by their names, and the directory of its assets."""

    def __init__(self, original: Any, assets: str) -> None:
        self.layers = {
            layer.name: layer for _, layer in paths(original) if _is_lookup(type(layer).__name__)
        }
        self.assets = assets
        self.files: dict[str, str] = {}
        """
        Name of a lookup to the file that its config names, where the model's assets hold that.
        """

    def known(self, config: Any) -> Any:
        """
        Return a config whose lookups have the vocabulary of the original: its asset file if it has
        one, which is then copied with the model, else a list of words.
        """
        if isinstance(config, list):
            return [self.known(entry) for entry in config]
        if not isinstance(config, dict):
            return config
        new_config = {key: self.known(entry) for key, entry in config.items()}
        inner = config_of(new_config)
        if (
            _is_lookup(class_of(new_config))
            and isinstance(inner, dict)
            and inner.get("name") in self.layers
            and "vocabulary" in inner
        ):
            return with_config(new_config, {**inner, **self._words(inner)})
        return new_config

    def told_as_before(self, model: Any) -> None:
        """
        Set the file names in the new lookups to those of the original, not to the paths from which
        this run read them.
        """
        for _, layer in paths(model):
            inner = getattr(layer, "_lookup_layer", layer)
            if layer.name in self.files and hasattr(inner, "input_vocabulary"):
                inner.input_vocabulary = self.files[layer.name]

    def _words(self, config: Mapping[str, Any]) -> dict[str, Any]:
        layer, named = self.layers[config["name"]], config["vocabulary"]
        if isinstance(named, str):
            asset = os.path.join(self.assets, os.path.basename(named))
            if os.path.isfile(asset) and not os.path.islink(asset):
                self.files[config["name"]] = named
                return {"vocabulary": asset}
        elif named is not None:
            return {}
        words = _vocabulary(layer, config)
        entries: dict[str, Any] = {"vocabulary": words or None}
        weights = getattr(getattr(layer, "_lookup_layer", layer), "idf_weights", None)
        if config.get("output_mode") == "tf_idf" and weights is not None:
            entries["idf_weights"] = [float(weight) for weight in weights.numpy()[-len(words) :]]
        return entries


def _is_lookup(class_name: str | None) -> bool:
    return class_name is not None and class_facts(class_name).get("category") == "lookup"


def _vocabulary(layer: Any, config: Mapping[str, Any]) -> list[Any]:
    """Return the words of a lookup without those that it adds by itself."""
    try:
        words = layer.get_vocabulary(include_special_tokens=False)
    except TypeError:  # TF 2.3 to 2.5
        words = [
            word
            for word in layer.get_vocabulary()
            if word not in ("", config.get("oov_token", "[UNK]"), config.get("mask_token"))
        ]
    return [word.item() if hasattr(word, "item") else word for word in words]
