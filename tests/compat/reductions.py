"""
Reduce pairs of tensors with the newest TensorFlow, and with NumPy in float64: ``python
reductions.py RESULTS``.

RESULTS gets a JSON list of comparisons: what they are of, what the runtime's functions found, and
what is expected. Each is of three batches, merged.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

RUNTIME: Final = Path(__file__).parents[2] / "policytool" / "runtime"
DTYPES: Final = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}
SHAPES: Final = ((4, 5, 6, 7), (3, 40), (11,), (130, 2, 9))
PART: Final = 100
"""How many elements are reduced at a time here: most of the tensors have several such parts."""

SMALLEST_NORMAL: Final = {
    "float16": 2.0**-14,
    "bfloat16": 2.0**-126,
    "float32": 2.0**-126,
    "float64": 2.0**-1022,
}

SMALLEST_VALUE: Final = {**SMALLEST_NORMAL, "float16": 2.0**-24}
"""The smallest numbers that are not zero for a CPU."""


def runtime(name: str) -> ModuleType:
    """Return a module of what runs in the child, imported as the child does: without policytool."""
    spec = importlib.util.spec_from_file_location(
        "policytool_runtime", RUNTIME / "__init__.py", submodule_search_locations=[str(RUNTIME)]
    )
    assert spec is not None
    sys.modules.setdefault("policytool_runtime", importlib.util.module_from_spec(spec))
    return importlib.import_module(f"policytool_runtime.{name}")


def pairs(random: np.random.Generator, shape: tuple[int, ...]) -> dict[str, tuple[Any, Any]]:
    """Return pairs of float64 arrays, each still to be rounded to its dtype."""
    normal, near = random.standard_normal(shape), 1 + random.standard_normal(shape) * 1e-3
    relu = np.maximum(normal, 0)
    special = np.array(
        [
            np.nan,
            np.inf,
            -np.inf,
            0.0,
            -0.0,
            1e-45,
            -3e-39,
            6e-8,
            -3e-5,
            1e30,
            -1e30,
            1e-30,
            65504,
            65520,
            1e5,
            1.0,
            2.5,
            1e200,
            1e-200,
        ]
    )
    mixed = random.choice(special, shape), random.choice(special, shape)
    few = [np.where(random.random(shape) < 0.1, extra, normal) for extra in mixed]
    zeros = np.zeros(shape)
    return {
        "rounded": (normal, normal),
        "near": (normal, normal * near),
        "unlike": (normal, random.standard_normal(shape)),
        "sparse": (relu, np.where(random.random(shape) < 0.2, 0, relu * near)),
        "constant": (zeros + 10, zeros + 2),
        "zeros": (zeros, zeros),
        "from zeros": (zeros, normal),
        "to zeros": (normal, zeros),
        "huge": (normal * 1e30, normal * near * 1e30),
        "tiny": (normal * 1e-30, normal * near * 1e-30),
        "subnormal": (normal * 3e-39, normal * near * 3e-39),
        "half subnormal": (normal * 1e-6, normal * near * 1e-6),
        "beyond float16": (normal * 1e5, normal * 1e5),
        "nothing finite": (zeros + np.nan, zeros - np.inf),
        "mixed": mixed,
        "few": (few[0], few[1]),
        "one NaN": (normal, np.where(np.arange(normal.size).reshape(shape) == 3, np.nan, normal)),
    }


def expected(reference: Any, candidate: Any, before: str, after: str) -> dict[str, Any]:
    """Return every reduction of flat float64 arrays."""
    both = np.isfinite(reference) & np.isfinite(candidate)
    first, second = reference[both], candidate[both]
    normal = SMALLEST_NORMAL[
        "float64" if before == "float64" else "float32"
    ]  # what is below is 0 for a CPU
    size = np.abs(candidate)
    distance = np.abs(first - second)

    def largest(array: Any) -> float:
        return float(np.max(np.abs(array), initial=0.0))

    return {
        "elements": reference.size,
        "squared_error": float(np.sum((first - second) ** 2)),
        "squared_reference": float(np.sum(first**2)),
        "squared_candidate": float(np.sum(second**2)),
        "overflowed": int(np.sum(np.isfinite(reference) & ~np.isfinite(candidate))),
        "nan_reference": int(np.isnan(reference).sum()),
        "nan_candidate": int(np.isnan(candidate).sum()),
        "infinite_reference": int(np.isinf(reference).sum()),
        "infinite_candidate": int(np.isinf(candidate).sum()),
        "subnormal": int(np.sum((size > 0) & (size < SMALLEST_NORMAL[after]))),
        "flushed": [
            int(
                np.sum(
                    (candidate == 0)
                    & (np.abs(reference) >= least)
                    & (np.abs(reference) < SMALLEST_VALUE[after])
                )
            )
            for least in (normal, 5e-324)
        ],
        "largest_reference": largest(reference[np.isfinite(reference)]),
        "largest_candidate": largest(candidate[np.isfinite(candidate)]),
        "largest_error": float(np.max(distance, initial=0.0)),
        "reference_at_largest": float(first[np.argmax(distance)]) if first.size else None,
        "candidate_at_largest": float(second[np.argmax(distance)]) if first.size else None,
        "differing": None,
    }


class Reducing:
    """The runtime's functions, as they are called: in a graph."""

    def __init__(self) -> None:
        self.tf: Any = importlib.import_module("tensorflow")
        self.measuring = runtime("engine.tensor_errors")
        vars(self.measuring)["CPU_PART"] = PART

    @cache  # noqa: B019  # as long as the process
    def traced(
        self,
        dtypes: tuple[str, str],
        shape: tuple[int | None, ...] | None,
    ) -> Callable[..., Any]:
        """Return the comparison of two tensors as a function with a graph."""
        signature = [self.tf.TensorSpec(shape, dtype) for dtype in dtypes]
        compared = self.tf.function(
            lambda one, other: self.measuring.compare_tensors(self.tf, one, other),
            input_signature=signature,
            autograph=False,
        )
        return lambda *arrays: compared(*map(self.tf.constant, arrays)).numpy()

    def told(
        self, batches: list[tuple[Any, Any]], shape: tuple[int | None, ...] | None
    ) -> dict[str, Any]:
        """Return the reductions over batches."""
        result = None
        for one, other in batches:
            vector = self.traced(
                (
                    one.dtype.name.replace("object", "string"),
                    other.dtype.name.replace("object", "string"),
                ),
                shape,
            )(one, other)
            result = vector if result is None else self.measuring.merge(result, vector)
        told: dict[str, Any] = self.measuring.to_json(result)
        return told


def floats(reducing: Reducing) -> Iterator[dict[str, Any]]:
    """
    Yield comparisons of floats, of each pair of dtypes: of known, partly known and unknown shape.
    """
    random = np.random.default_rng(6)
    for (before, after), shape in zip(
        itertools.product(DTYPES, DTYPES), itertools.cycle(SHAPES), strict=False
    ):
        created = [pairs(random, shape) for _ in range(3)]
        for kind in created[0]:
            batches = [
                (item[kind][0].astype(DTYPES[before]), item[kind][1].astype(DTYPES[after]))
                for item in created
            ]
            first, second = [
                np.concatenate([batch[side].astype("float64").ravel() for batch in batches])
                for side in (0, 1)
            ]
            want = expected(first, second, before, after)
            about = {"of": [before, after], "kind": kind, "expected": want}
            for how, dimensions in (
                ("full", shape),
                ("open", (None,) * len(shape)),
                ("unranked", None),
            ):
                if how == "full" or kind in ("near", "mixed"):
                    yield {
                        **about,
                        "how": how,
                        "found": reducing.told(batches, dimensions),
                    }


def others(reducing: Reducing) -> Iterator[dict[str, Any]]:
    """Yield comparisons of what is no float, and of tensors without elements."""
    random = np.random.default_rng(7)
    made: dict[str, Any] = {
        name: random.integers(0, 2, (3, 2, 50)).astype(name)
        for name in ("bool", "int32", "int64", "uint8")
    }
    made["string"] = np.array([b"a", b"b"], dtype=object)[made["int32"]]
    for name, array in made.items():
        batches = [(batch[0], batch[1]) for batch in array]
        differing = int(np.sum(array[:, 0] != array[:, 1]))
        yield {
            "of": [name, name],
            "kind": name,
            "how": "other",
            "found": reducing.told(batches, (50,)),
            "expected": [150, differing],
        }
    for shape, dimensions in (((0, 3), (0, 3)), ((0, 3), (None, 3)), ((2, 0), None)):
        batches = [(np.zeros(shape, "float32"), np.zeros(shape, "float16"))] * 2
        want = expected(np.zeros(0), np.zeros(0), "float32", "float16")
        yield {
            "of": ["float32", "float16"],
            "kind": str(dimensions),
            "how": "empty",
            "found": reducing.told(batches, dimensions),
            "expected": want,
        }


def histograms(reducing: Reducing) -> Iterator[dict[str, Any]]:
    """Yield counts of binary exponents, beside those that NumPy finds in float32."""
    counting = runtime("engine.measurements")
    random = np.random.default_rng(9)
    for dtype, made in DTYPES.items():
        count = reducing.tf.function(
            lambda tensor: counting.count_exponents(reducing.tf, tensor),
            input_signature=[reducing.tf.TensorSpec(None, dtype)],
            autograph=False,
        )
        for kind, (array, _) in [
            *pairs(random, (4, 5, 6)).items(),
            ("empty", (np.zeros((0, 3)), None)),
        ]:
            tensor = array.astype(made)
            wide = tensor.astype("float32").ravel()
            normal = wide[np.isfinite(wide) & (np.abs(wide) >= SMALLEST_NORMAL["float32"])]
            exponents, counts = np.unique(np.frexp(normal)[1] - 1, return_counts=True)
            yield {
                "of": [dtype],
                "kind": kind,
                "how": "exponents",
                "found": counting.exponents_to_json(count(reducing.tf.constant(tensor)).numpy()),
                "expected": [
                    list(pair) for pair in zip(exponents.tolist(), counts.tolist(), strict=True)
                ],
            }


def main() -> None:
    """Reduce everything and write it down."""
    with np.errstate(all="ignore"):
        reducing = Reducing()
        actual = [
            *floats(reducing),
            *others(reducing),
            *histograms(reducing),
        ]
    Path(sys.argv[1]).write_text(json.dumps(actual), encoding="utf-8")


if __name__ == "__main__":
    main()
