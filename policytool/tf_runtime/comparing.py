"""The job ``compare``: what two files of one model make of the same inputs."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np

from . import serving, unchanged
from .feeding import seeded
from .library import KERAS2, Library, Refused
from .sentences import sentence

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

SEEDS = (11, 12)


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Return, for the model's own call and for each signature, how far the outputs of ``job["after"]``
    are from those of ``job["before"]``.
    """
    step("importing TensorFlow")
    library = Library(job["family"])
    library.register(job["custom_objects"], job["registered"], job["needed"])
    if job["trust"]:
        library.trust()
    unchanged.check(job)  # after TensorFlow's import, which takes seconds
    step("predicting with the original")
    before = _Predictions(library, job, job["before"], None)
    gc.collect()
    step("predicting with the result")
    after = _Predictions(library, job, job["after"], before)
    calls = [_call("", before.outputs, after.outputs)]
    calls += [
        _call(name, before.signatures[name], after.signatures[name])
        for name in before.signatures
        if name in after.signatures
    ]
    return {
        "versions": library.versions,
        "seeds": list(SEEDS),
        "samples": len(SEEDS) * seeded.BATCH,
        "calls": calls,
    }


class _Predictions:
    """What one file makes of the inputs: its own, or those of another file before it."""

    def __init__(
        self, library: Library, job: Mapping[str, Any], path: str, other: _Predictions | None
    ) -> None:
        model = _loaded(library, job, path)
        loaded = library.tf.saved_model.load(path) if job["signatures"] else None
        signatures = dict(loaded.signatures) if loaded is not None else {}
        nested = serving.structure(model, signatures) if library.family == KERAS2 else model.inputs
        self.size: int = other.size if other is not None else 0
        self.outputs = self._called(library, model, nested)
        self.signatures = {}
        for name, signature in sorted(signatures.items()):
            specs = dict(sorted(signature.structured_input_signature[1].items()))
            wanted = seeded.specs_of(
                [
                    library.tf.TensorSpec(spec.shape, spec.dtype, name=key)
                    for key, spec in specs.items()
                ]
            )
            try:
                made = [
                    signature(
                        **dict(zip(specs, seeded.drawn(library, model, wanted, seed, self.size)))
                    )
                    for seed in SEEDS
                ]
            except library.tf.errors.OpError as error:
                text = "signature {} of {} cannot run here: {}"
                which = "the result" if other is not None else "the original"
                raise Refused("not-callable", text.format(name, which, sentence(error))) from error
            self.signatures[name] = {key: [_array(one[key]) for one in made] for key in made[0]}

    def _called(self, library: Library, model: Any, nested: Any) -> Mapping[str, list[Any]]:
        nest = library.tf.nest
        specs = seeded.specs_of(nest.flatten(nested))
        failed: BaseException | None = None
        for size in [self.size] if self.size else seeded.sizes(specs):
            try:
                made = [
                    nest.flatten(
                        serving.call(
                            model,
                            nest.pack_sequence_as(
                                nested, seeded.drawn(library, model, specs, seed, size)
                            ),
                        )
                    )
                    for seed in SEEDS
                ]
            except (ValueError, library.tf.errors.OpError) as error:
                failed = error
                continue
            self.size = size
            names = list(getattr(model, "output_names", None) or [])
            named = (
                names
                if len(names) == len(made[0])
                else [str(place) for place in range(len(made[0]))]
            )
            return {name: [_array(one[place]) for one in made] for place, name in enumerate(named)}
        text = "the model cannot be called with inputs of its own shapes: {}"
        raise Refused(
            "not-callable", text.format(sentence(failed) if failed is not None else "")
        ) from failed


def _loaded(library: Library, job: Mapping[str, Any], path: str) -> Any:
    which, policy = (
        ("the original", "policy_before")
        if path == job["before"]
        else ("the result", "policy_after")
    )
    with library.loading(which), library.under(job[policy]):
        return library.load(path, compiled=False, trust=job["trust"])


def _array(tensor: Any) -> tuple[str, Any]:
    """Return a tensor's dtype and its values; those of 16 bits as float64, which holds them all."""
    if (
        not hasattr(tensor, "dtype")
        or "Ragged" in type(tensor).__name__
        or "Sparse" in type(tensor).__name__
    ):
        raise Refused(
            "outputs", "an output is {}, which is not compared".format(type(tensor).__name__)
        )
    dtype = str(getattr(tensor.dtype, "name", tensor.dtype))
    array = np.asarray(tensor)
    return dtype, array if array.dtype.kind in "OSUbiu" else array.astype("float64")


def _call(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    missing = sorted(set(before) ^ set(after))
    if missing:
        raise Refused(
            "outputs",
            "{} of {} is in one of the two files alone".format(
                ", ".join(missing), name or "the model"
            ),
        )
    return {
        "signature": name or None,
        "outputs": [_output(key, before[key], after[key]) for key in before],
    }


def _output(name: str, before: Any, after: Any) -> dict[str, Any]:
    """
    Return how far two outputs are apart: the largest absolute difference, and that relative to the
    largest value of the original.
    """
    first = np.concatenate([array.reshape(-1) for _, array in before])
    second = np.concatenate([array.reshape(-1) for _, array in after])
    found: dict[str, Any] = {"name": name, "dtype_before": before[0][0], "dtype_after": after[0][0]}
    if [array.shape for _, array in before] != [array.shape for _, array in after]:
        raise Refused("outputs", "output {} has another shape than before".format(name))
    if first.dtype.kind != "f" or second.dtype.kind != "f":
        differing = int(np.count_nonzero(first != second))
        return {
            **found,
            "values": int(first.size),
            "equal": not differing,
            "max_abs": None,
            "relative": None,
            "differing": differing,
            "not_finite": [0, 0],
        }
    finite = np.isfinite(first) & np.isfinite(second)
    largest = float(np.abs(first[finite]).max()) if finite.any() else 0.0
    distance = float(np.abs(first[finite] - second[finite]).max()) if finite.any() else 0.0
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    return {
        **found,
        "values": int(first.size),
        "equal": bool(same.all()) and before[0][0] == after[0][0],
        "max_abs": distance,
        "relative": distance / largest if largest else distance,
        "differing": int(np.count_nonzero(~same)),
        "not_finite": [int(np.count_nonzero(~np.isfinite(one))) for one in (first, second)],
    }
