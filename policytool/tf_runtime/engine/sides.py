"""
The two models of a check: loaded from files that differ in their policies, or built anew from
configs that do.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from .. import model_calls, rebuilt_model
from ..library import Library, takes
from . import quantized

if TYPE_CHECKING:
    from typing import Any, Mapping

VARIABLES = "variables"


class Sides:
    """
    Loads the sides of a job; each Keras is imported once, and a SavedModel that both sides are
    built from is loaded once.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.job = job
        self.libraries: dict[str, Library] = {}
        self._originals: dict[str, Any] = {}
        self.unquantized = 0
        """How many quantised layers of the reference compute as if they were not."""

    def library(self, family: str) -> Library:
        """Return the library of one family, with the user's classes known to it."""
        if family not in self.libraries:
            library = Library(family)
            library.register(self.job["custom_objects"], self.job["registered"], self.job["needed"])
            if self.job["trust"]:
                library.trust()
            self.libraries[family] = library
        return self.libraries[family]

    @property
    def tf(self) -> Any:
        """TensorFlow."""
        return self.library(self.job["reference"]["family"]).tf

    @property
    def policies(self) -> tuple[str | None, str | None]:
        """The global policies that the reference and the candidate are called under."""
        return self.job["reference"]["policy"], self.job["candidate"]["policy"]

    @property
    def made_up(self) -> bool:
        """Whether the weights are drawn at random, for each side by itself."""
        return all(
            self.job[name]["how"] == "config" and self.job[name]["weights"] is None
            for name in ("reference", "candidate")
        )

    def versions(self) -> dict[str, str]:
        """Return TensorFlow's release and those of the libraries that were used."""
        releases = {}
        for library in self.libraries.values():
            releases.update(
                {
                    "tensorflow": library.versions["tensorflow"],
                    library.versions["library"]: library.versions["keras"],
                }
            )
        return releases

    def load(self, name: str) -> tuple[Library, Any]:
        """Return the model of a side, ``reference`` or ``candidate``, and its library."""
        side = self.job[name]
        library = self.library(side["family"])
        ways = {"saved": self._saved, "config": self._built, "rebuilt": self._rebuilt}
        with library.loading("the " + name, self.job["registered"]), library.under(
            side["policy"]
        ), library.scope():
            model = ways[side["how"]](library, side)
            if side.get("dequantize"):
                self.unquantized = quantized.compute_unquantized(library, model)
            return library, model

    def _saved(self, library: Library, side: Mapping[str, Any]) -> Any:
        return library.load(side["path"], compiled=False, trust=self.job["trust"])

    def _built(self, library: Library, side: Mapping[str, Any]) -> Any:
        """
        Build a model from an architecture, with the weights of a file, or random ones that are the
        same on both sides.
        """
        seed = self.job["inputs"]["seed"]
        library.tf.random.set_seed(seed)
        options = (
            {"safe_mode": not self.job["trust"]}
            if takes(library.keras.models.model_from_json, "safe_mode")
            else {}
        )
        model = library.keras.models.model_from_json(
            json.dumps(side["config"]), custom_objects=library.custom, **options
        )
        if side["weights"] is not None:
            model.load_weights(side["weights"])
        return model

    def _rebuilt(self, library: Library, side: Mapping[str, Any]) -> Any:
        """
        Build the model of a SavedModel anew with other policies, with the values of its checkpoint.
        """
        original = self._original(library, side)
        rebuilt_model.check_code(library, original)
        nested = model_calls.input_structure(
            original, dict(getattr(original, "signatures", None) or {})
        )
        model = rebuilt_model.rebuild_model(
            library, original, nested, {**side, "source": side["path"]}
        )
        rebuilt_model.restore_state(
            library, model, None, os.path.join(side["path"], VARIABLES, VARIABLES)
        )
        return model

    def _original(self, library: Library, side: Mapping[str, Any]) -> Any:
        path = side["path"]
        if path not in self._originals:
            with library.under(side["policy_before"]):
                self._originals[path] = library.load(path, compiled=False, trust=self.job["trust"])
        return self._originals[path]
