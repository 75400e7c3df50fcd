"""
Write the models that ``check`` is tested with: ``python -m tests.compat.check_models DIR`` in the
repository's root, under the interpreter with TensorFlow.

DIR gets, for each Keras, the models of every case of ``check_cases.py`` in two files (all of it
under the case's policy, and all in float32) with their inputs, and the models of
``check_kinds.py``. ``DIR/truth.json`` has what the case's layer, called by itself in the library,
makes of its inputs under its policy against what it makes of them in float32, reduced by NumPy in
float64.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.compat import check_cases, check_kinds

SUFFIXES: Final = {"tf_keras": ".h5", "keras": ".keras"}
"""
What each Keras writes the models under a policy as; those in float32 are ``.keras`` of either.
"""

SAVED: Final = ("average-2d", "dense-overflow")
"""Cases that tf_keras writes as SavedModels too."""


def main() -> None:
    """Write everything."""
    base = Path(sys.argv[1])
    truth = {}
    for name, suffix in SUFFIXES.items():
        keras = import_module(name)
        directory = base / name
        directory.mkdir(parents=True)
        truth[name] = {
            case.name: written(keras, case, directory, suffix) for case in check_cases.CASES
        }
        check_kinds.write(keras, directory)
    (base / "truth.json").write_text(json.dumps(truth), encoding="utf-8")


def written(
    keras: Any, case: check_cases.Measured, directory: Path, suffix: str
) -> dict[str, Any] | None:
    """
    Write a case's files; return what is true of them, None where the layer has no kernel here.
    """
    keras.utils.set_random_seed(3)
    candidate, reference = (
        check_cases.built(keras, case, policy) for policy in (case.policy, "float32")
    )
    reference.set_weights([weight.astype("float32") for weight in candidate.get_weights()])
    candidate.save(str(directory / (case.name + suffix)))
    reference.save(str(directory / f"{case.name}.float32.keras"))
    if case.name in SAVED and suffix == SUFFIXES["tf_keras"]:
        candidate.save(str(directory / case.name), save_format="tf")
    np.savez(directory / f"{case.name}.npz", **{check_cases.INPUT: case.inputs})
    try:
        return {
            "isolated": isolated(keras, case, reference, candidate),
            "outputs": compared(reference(case.inputs), candidate(case.inputs)),
        }
    except Exception as error:
        if type(error).__name__ not in {"NotFoundError", "InvalidArgumentError"}:
            raise
        return None


def isolated(
    keras: Any, case: check_cases.Measured, reference: Any, candidate: Any
) -> dict[str, Any]:
    """
    Return how far the candidate's layer is from the reference's on the reference's inputs, which it
    gets in the dtype of its own.
    """
    layers = [model.get_layer(check_cases.LAYER) for model in (reference, candidate)]
    if case.first:
        return compared(*(case.called(layer, case.inputs) for layer in layers))
    given, own = (
        keras.Model(model.inputs, model.get_layer("before").output)(case.inputs)
        for model in (reference, candidate)
    )
    return compared(
        case.called(layers[0], given),
        case.called(layers[1], np.asarray(given).astype(own.dtype.as_numpy_dtype)),
    )


def compared(reference: Any, candidate: Any) -> dict[str, Any]:
    """Return the numbers about two tensors, summed in float64."""
    first, second = (np.asarray(tensor).astype("float64") for tensor in (reference, candidate))
    finite = np.isfinite(first), np.isfinite(second)
    both = finite[0] & finite[1]
    error = np.where(both, first - second, 0.0) if both.any() else np.zeros_like(first)
    place = int(np.abs(error).argmax())
    norms = float(np.linalg.norm(error)), float(np.linalg.norm(first[both]))
    return {
        "elements": first.size,
        "relative": (norms[0] / norms[1] if norms[1] else 0.0) if both.any() else None,
        "largest_error": float(np.abs(error).max()),
        "worst": [float(first.flat[place]), float(second.flat[place])],
        "overflowed": int(np.count_nonzero(finite[0] & ~finite[1])),
        "nan_candidate": int(np.count_nonzero(np.isnan(second))),
        "infinite_candidate": int(np.count_nonzero(np.isinf(second))),
        "largest_candidate": float(np.abs(second[finite[1]]).max(initial=0.0)),
    }


if __name__ == "__main__":
    main()
