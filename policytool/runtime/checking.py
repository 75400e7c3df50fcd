"""The job ``check``: a reference and a candidate run on the same inputs, and compared layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import depths, measuring, seeded, serving
from .pairing import Pair
from .sides import Sides

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from .pairing import Row


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """Return what was measured of ``job["candidate"]`` against ``job["reference"]``."""
    step("importing TensorFlow")
    sides = Sides(job)
    step("loading the reference")
    first, reference = sides.load("reference")
    step("loading the candidate")
    second, candidate = sides.load("candidate")
    if job["reference"]["how"] == job["candidate"]["how"] == "config" and job["candidate"]["weights"] is None:
        candidate.set_weights(reference.get_weights())
    nested = serving.structure(reference, {})
    nest = first.tf.nest
    specs = seeded.specs_of(nest.flatten(nested))
    batches = [nest.pack_sequence_as(nested, seeded.drawn(first, reference, specs, seed, 32)) for seed in range(job["inputs"]["batches"])]
    traced = nest.map_structure(lambda tensor: first.tf.TensorSpec(tensor.shape, tensor.dtype), batches[0])
    step("tracing both")
    pair = Pair((first, second), (reference, candidate), isolated=job["isolated"])
    pair.trace(traced)
    found = pair.measure(batches, step)
    names = list(getattr(candidate, "output_names", None) or [])
    return {
        "versions": [first.versions, second.versions],
        "layers": [_row(pair, row, found) for row in pair.rows],
        "outputs": names,
        "only": list(pair.only),
    }


def _row(pair: Pair, row: Row, found: Any) -> dict[str, Any]:
    def told(number: int | None) -> Any:
        return None if number is None else measuring.told(found[number])

    layer = row.candidate.layer
    return {
        "path": row.candidate.path,
        "call": row.candidate.key[1],
        "class_name": type(layer).__name__,
        "children": len(row.reference.children),
        "is_model": isinstance(layer, pair.libraries[1].keras.Model),
        "inputs": row.inputs,
        "depth": depths.depth(pair.graph, row.reference),
        "dtypes": [list(pair_of) for pair_of in row.dtypes],
        "shapes": row.shapes,
        "compute_dtype": [_compute(row.reference.layer), _compute(layer)],
        "accumulated": [told(number) for number in row.accumulated],
        "isolated": None if row.isolated is None else [told(number) for number in row.isolated],
    }


def _compute(layer: Any) -> Any:
    return getattr(layer, "compute_dtype", None) or getattr(layer, "_compute_dtype", None)
