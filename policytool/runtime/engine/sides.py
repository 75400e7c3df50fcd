"""
The two models of a check: loaded from files that differ in their policies, or built anew from
configs; and quantised layers of Keras 3, which can compute as if they were not quantised. A
candidate may also be quantised by Keras when it is loaded.

int8 and int4 files hold rounded weights with their scales; what the weights were before is lost.
float8 files hold the weights as they were: a layer rounds them at every call. In gptq and awq, and
where a layer quantises its weights alone, a layer dequantises its weights and computes in floats.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import numpy as np

from .. import model_calls, rebuilt_model
from ..library import (
    KERAS3,
    TENSORFLOW,
    Library,
    Refused,
    child_layers,
    paths,
    quantization_mode,
    refusing,
)

if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence


_STORED = ("_kernel", "_embeddings", "reverse_embeddings")
"""Attributes of layers that hold integers in place of weights."""

_INT4 = "int4"
_FLOAT8 = "float8"
_STEP_ERROR = 1 / math.sqrt(12)
"""The root mean square of what rounding to integers takes from a number."""


def compute_unquantized(library: Library, model: Any) -> int:
    """
    Make the layers of a model compute with their stored weights after dequantization, and with
    unrounded inputs. Return the number of layers that would otherwise round their inputs.
    """
    changed = 0
    for _, layer in paths(model):
        mode = quantization_mode(layer)
        quantizer = getattr(layer, "inputs_quantizer", None)
        if mode == _FLOAT8:
            layer.dtype_policy = _source(layer)
        elif mode is not None and quantizer is not None:
            layer.inputs_quantizer = _passing(library, quantizer)
        else:
            continue
        changed += 1
    return changed


def weight_rounding(reference: Any, candidate: Any) -> float:
    """
    Return the relative error that the rounding of stored weights explains, for two layers and their
    child layers; 0 if both have the same integers.

    The root-mean-square error of rounding to integers is the square root of 1/12, whatever the
    scale is.
    """
    stored = [_integers(layer) for layer in (reference, candidate)]
    if len(stored[0]) == len(stored[1]) and all(map(np.array_equal, *stored)):
        return 0.0
    return math.sqrt(sum(_relative(integers) ** 2 for side in stored for integers in side))


def _relative(integers: Any) -> float:
    """Return the relative error of rounding to integers; 0 if all integers are zero."""
    mean_square = float(np.mean(np.square(integers, dtype="float32"))) if integers.size else 0.0
    return _STEP_ERROR / math.sqrt(mean_square) if mean_square else 0.0


def _integers(layer: Any) -> list[Any]:
    """Return the integers that represent weights in a layer and in its child layers."""
    arrays = []
    for _, inner in paths(layer):
        mode = quantization_mode(inner)
        for name in _STORED if mode is not None else ():
            variable: Any = getattr(inner, name, None)
            if str(getattr(variable, "dtype", "")) == "int8":
                array = np.asarray(variable.numpy())
                arrays.append(_unpacked(array) if mode == _INT4 else array)
    return arrays


def _unpacked(array: Any) -> Any:
    """Return both numbers of 4 bits of each byte; their order does not matter here."""
    return np.stack([np.left_shift(array, 4) >> 4, array >> 4])


def _source(layer: Any) -> str:
    """Return the name of the policy that a layer had before it was quantized."""
    compute, variable = layer.compute_dtype, layer.variable_dtype
    return str(compute) if compute == variable else "mixed_{}".format(compute)


def _passing(library: Library, quantizer: Any) -> Any:
    """Return a replacement for a quantizer that returns its inputs unchanged, with scale 1."""

    def unchanged(inputs: Any, *places: Any, **options: Any) -> Any:
        _, scale = quantizer(inputs, *places, **options)
        return inputs, library.keras.ops.ones_like(scale)

    return unchanged


def quantize_layers(
    library: Library, model: Any, mode: str, kept: Sequence[str]
) -> list[dict[str, Any]]:
    """
    Quantize the layers of a model as ``model.quantize`` does, except those with the paths ``kept``.

    Return the path, the class and the bytes of the variables, before and after, of each layer. No
    ``filters`` are needed, which Keras 3.13 introduced and which only see the names of layers.

    :raises Refused: if this Keras does not have the mode, or quantizes no layer.
    """
    quantized = []
    for path, layer in paths(model):
        is_leaf = layer is not model and not child_layers(layer)
        if not is_leaf or path in kept or not layer.built or quantization_mode(layer):
            continue
        before = _size(layer)
        text = "layer {} cannot be quantized to {}: {{}}".format(path, mode)
        with refusing("not-quantizable", text):
            try:
                layer.quantize(mode)
            except (NotImplementedError, AttributeError):  # the class has no quantization
                continue
        quantized.append(
            {
                "path": path,
                "class_name": type(layer).__name__,
                "before": before,
                "after": _size(layer),
            }
        )
    if not quantized and not kept:
        raise Refused(
            "not-quantizable",
            "Keras {} quantizes no layer of it to {}".format(library.versions["keras"], mode),
        )
    return quantized


def _size(layer: Any) -> int:
    """Return the bytes of the variables of a layer."""
    return sum(int(np.asarray(variable.numpy()).nbytes) for variable in layer.variables)


VARIABLES = "variables"


_WITHOUT_LAYERS = frozenset({"graph", "lite"})
"""The values of ``how`` for models that TensorFlow runs without Keras."""


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
        """The number of quantised layers of the reference that compute dequantised."""

        self.quantized: list[dict[str, Any]] = []
        """The layers of the candidate that were quantised when it was loaded."""

    def library(self, family: str) -> Library:
        """Return the library of a family, in which the user's classes are registered."""
        if family not in self.libraries:
            library = self._new_library(family)
            library.register(self.job["custom_objects"], self.job["registered"], self.job["needed"])
            if self.job["trust"]:
                library.trust()
            self.libraries[family] = library
        return self.libraries[family]

    def _new_library(self, family: str) -> Library:
        """Return the library of a family; for a model without layers, either one."""
        try:
            return Library(family, self.job.get("backends", (TENSORFLOW,)))
        except Refused as refused:
            ways = {self.job[name]["how"] for name in ("reference", "candidate")}
            if refused.code != "no-tf-keras" or not ways <= _WITHOUT_LAYERS:
                raise
            return Library(KERAS3)

    @property
    def tf(self) -> Any:
        """TensorFlow."""
        return self.library(self.job["reference"]["family"]).tf

    @property
    def policies(self) -> tuple[str | None, str | None]:
        """The global policies that the reference and the candidate are called under."""
        return self.job["reference"]["policy"], self.job["candidate"]["policy"]

    @property
    def has_random_weights(self) -> bool:
        """Whether the weights of each side are random."""
        return all(
            self.job[name]["how"] == "config" and self.job[name]["weights"] is None
            for name in ("reference", "candidate")
        )

    def versions(self) -> dict[str, str]:
        """Return TensorFlow's release and those of the libraries that were used."""
        versions = [library.versions for library in self.libraries.values()]
        return {
            self.library(self.job["reference"]["family"]).backend: self.tf.__version__,
            **{releases["library"]: releases["keras"] for releases in versions},
        }

    def load(self, name: str) -> tuple[Library, Any]:
        """Return the model of a side, ``reference`` or ``candidate``, and its library."""
        side = self.job[name]
        library = self.library(side["family"])
        loaders = {
            "saved": self._saved,
            "config": self._build_model,
            "preset": self._preset,
            "rebuilt": self._rebuilt,
        }
        with library.loading("the " + name, self.job["registered"]), library.global_policy(
            side["policy"]
        ), library.scope():
            model = loaders[side["how"]](library, side)
            if side.get("dequantize"):
                self.unquantized = compute_unquantized(library, model)
            if side.get("quantize"):
                self.quantized = quantize_layers(library, model, **side["quantize"])
            return library, model

    def _saved(self, library: Library, side: Mapping[str, Any]) -> Any:
        return library.load(side["path"], compiled=False, trust=self.job["trust"])

    def _build_model(self, library: Library, side: Mapping[str, Any]) -> Any:
        """
        Build a model from an architecture, with the weights of a file, or random ones that are the
        same on both sides.
        """
        library.tf.random.set_seed(self.job["inputs"]["seed"])
        return library.build(side["config"], side["weights"], trust=self.job["trust"])

    def _preset(self, library: Library, side: Mapping[str, Any]) -> Any:
        weights = os.path.join(side["path"], side["weights"])
        return library.build_preset(side["config"], weights, trust=self.job["trust"])

    def _rebuilt(self, library: Library, side: Mapping[str, Any]) -> Any:
        """
        Rebuild the model of a SavedModel with other policies, with the values of its checkpoint.
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
            with library.global_policy(side["policy_before"]):
                self._originals[path] = library.load(path, compiled=False, trust=self.job["trust"])
        return self._originals[path]
