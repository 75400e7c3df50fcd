"""
Measure what a check costs beside predicting: ``python check_once.py FAMILY POLICY WHAT OUT``.

Runs under the interpreter that has TensorFlow.

EfficientNetV2-B0 with random weights, and a batch of 8. WHAT is ``float32`` or ``POLICY``, which
predict with one model alone, or ``check`` or ``isolated``, which compare both. OUT gets, as
JSON, the peak of this process in bytes and, for a check, the seconds of the two ``predict`` calls
and those of the check, measured in turn after loading and tracing; they predict only after their
peak was read.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
PACKAGE: Final = "policytool_bench_runtime"
RUNTIME: Final = Path(__file__).parents[2] / "policytool" / "runtime"
REPEATS: Final = 5
BATCH: Final = 8


def package() -> None:
    """Import the child's modules, as the child does."""
    spec: Any = importlib.util.spec_from_file_location(
        PACKAGE, RUNTIME / "__init__.py", submodule_search_locations=[str(RUNTIME)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


def peak() -> int:
    """Return the most memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def seconds(call: Any) -> float:
    """Return what a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def made(library: Any, policy: str) -> Any:
    """Return the model under a policy."""
    with library.global_policy(policy):
        return library.keras.applications.EfficientNetV2B0(weights=None)


def predicting(models: list[Any], array: Any) -> Callable[[], None]:
    """Return what calls ``predict`` of each model; it was called twice, and has traced."""

    def predict() -> None:
        for model in models:
            model.predict(array, batch_size=BATCH, verbose=0)

    predict()
    predict()
    return predict


def main() -> None:
    """Run the command line."""
    family, policy, what, out = sys.argv[1:]
    package()
    library = importlib.import_module(f"{PACKAGE}.library").Library(family)
    images = library.tf.random.stateless_uniform((BATCH, 224, 224, 3), (1, 2), 0, 255)
    found: dict[str, Any] = {"predict": [], "check": []}
    if what in {"float32", policy}:
        predicting([made(library, what)], images.numpy())
        found["peak"] = peak()
    else:
        models = [made(library, name) for name in ("float32", policy)]
        models[1].set_weights(models[0].get_weights())
        pairing = importlib.import_module(f"{PACKAGE}.engine.call_pairs")
        pair = pairing.Pair(
            (library, library),
            tuple(models),
            (None, None),
            isolated=what == "isolated",
            counts_exponents=False,
        )
        spec = library.tf.TensorSpec(images.shape, images.dtype)
        batches = importlib.import_module(f"{PACKAGE}.feeding.batches")
        fed = batches.FedInputs([images], spec, BATCH, {"kind": "given", "batches": 1})
        measurements = importlib.import_module(f"{PACKAGE}.engine.measurements")
        pair.trace(measurements.LayerRows(library.tf, fed, explains=False))
        unoptimized = importlib.import_module(f"{PACKAGE}.devices").unoptimized

        def check() -> None:
            with unoptimized(library.tf):
                pair.measure(fed, print)

        check()
        check()
        found["peak"] = peak()
        predict = predicting(models, images.numpy())
        for _ in range(REPEATS):
            found["predict"].append(seconds(predict))
            found["check"].append(seconds(check))
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
