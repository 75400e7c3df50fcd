"""Default tolerances follow the coarsest dtype in a call, including nested layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from policytool.numerics.check_results.metrics import CallTrace
from policytool.numerics.predictions import UNIT_ROUNDOFF
from policytool.numerics.verdicts import tolerances
from tests.helpers.example_checks import call

if TYPE_CHECKING:
    from policytool.numerics.check_results.metrics import LayerCall


def of_layer(compute: str, **other: Any) -> float:
    """Return the tolerance of a call without sums."""
    return tolerances.layer_tolerance(call("mlp/dense", 0.0, compute=compute, depth=0, **other))


@pytest.mark.parametrize("dtype", UNIT_ROUNDOFF)
def test_tolerance_of_a_call_is_a_few_roundings_of_its_dtype(dtype: str) -> None:
    """A call can differ by a few roundings of its dtype, including the reference's."""
    assert of_layer(dtype) == 4 * max(UNIT_ROUNDOFF[dtype], UNIT_ROUNDOFF["float32"])


def test_roundings_of_a_sum_add_up_slowly() -> None:
    """
    The tolerance of a sum grows with the logarithm of the number of terms, like the errors of
    kernels that add in blocks or in float32.
    """
    deep = tolerances.layer_tolerance(call("mlp/dense", 0.0, depth=4095))
    assert deep == pytest.approx(of_layer("float16") * (1 + math.log2(4096) / 4))


def test_rounded_weights_increase_the_tolerance() -> None:
    """Rounding errors add like random errors; for float8, the depth of sums adds nothing."""
    plain = tolerances.layer_tolerance(call("mlp/dense", 0.0, depth=4095))
    rounded = replace(call("mlp/dense", 0.0, depth=4095), weight_rounding=0.07)
    assert tolerances.layer_tolerance(rounded) == pytest.approx(math.hypot(plain, 4 * 0.07))
    shallow, deep = (
        replace(call("mlp/dense", 0.0, depth=depth), within=("float32", "float8"))
        for depth in (0, 4095)
    )
    assert tolerances.layer_tolerance(shallow) == pytest.approx(4 * 2.0**-4, rel=1e-3)
    assert tolerances.layer_tolerance(deep) == pytest.approx(4 * 2.0**-4, rel=1e-3)


@pytest.mark.parametrize("inner", ["float16", "bfloat16", "int8", "int4", "float8"])
def test_layers_in_a_layer_count(inner: str) -> None:
    """
    A layer in a wrapper counts: a float32 wrapper of a float16 layer is as coarse as float16, and a
    quantized layer as coarse as its integers.
    """
    assert of_layer("float32", within=("float32", inner)) > 1000 * of_layer("float32")
    assert of_layer("float32", within=("float32",)) == of_layer("float32")


@pytest.mark.parametrize("side", ["compute_candidate", "compute_reference"])
def test_computations_in_a_coarser_dtype_count(side: str) -> None:
    """A layer with float32 inputs and outputs is as coarse as the dtype in which it computes."""
    computation: Any = {side: "float16"}
    plain = call("mlp/dense", 0.0, compute="float32", depth=0)
    assert tolerances.layer_tolerance(replace(plain, **computation)) == of_layer("float16")


def test_output_tolerance_grows_with_the_square_root_of_the_number_of_layers() -> None:
    """
    The tolerance of 16 equal layers is 4 times that of a layer, and the tolerance of one layer is
    equal to it.
    """
    calls = [call(f"mlp/{number}", 0.0) for number in range(16)]
    together = tolerances.outputs_tolerance([*calls, call("mlp", 0.0, children=16)])
    assert together == pytest.approx(math.sqrt(16) * tolerances.layer_tolerance(calls[0]))
    assert tolerances.outputs_tolerance(calls[:1]) == tolerances.layer_tolerance(calls[0])


@pytest.mark.parametrize(
    ("errors", "departing"),
    [
        ([2.0**-22 * 2**number for number in range(8)], []),
        ([2e-7, 4e-7, 9e-6, 9e-6], [2]),
        ([2e-4, 4e-4], [0, 1]),
    ],
)
def test_errors_that_grow_from_layer_to_layer_are_rounding(
    errors: list[float], departing: list[int]
) -> None:
    """
    An error that doubles in each layer is not that of a layer, and one that jumps or takes half of
    the digits is. The model has the errors of its layers.
    """
    last = len(errors)
    calls = [
        replace(
            call("mlp/dense", None, error, compute="float32"),
            children=number == last,
            trace=CallTrace(
                begun=number,
                within=last if number == last - 1 else None,
                producers=(number - 1,) if 0 < number < last else (),
                gets_nonfinite=False,
            ),
        )
        for number, error in enumerate([*errors, errors[-1]])
    ]
    limits = tolerances.grown_tolerances(calls)
    found = [number for number, error in enumerate(errors) if error > limits[number]]
    assert found == departing
    assert (errors[-1] > limits[last]) is (errors[-1] > 2.0**-12)


def recorded(*layers: tuple[str, float], inputs: str = "bfloat16") -> list[LayerCall]:
    """Return calls that follow each other, each with the dtype and the error of its result."""
    return [
        replace(
            call("mlp/dense", None, error, compute=dtype),
            inputs=(inputs,),
            trace=CallTrace(
                begun=number,
                within=None,
                producers=(number - 1,) if number else (),
                gets_nonfinite=False,
            ),
        )
        for number, (dtype, error) in enumerate(layers)
    ]


@pytest.mark.parametrize(
    ("narrow", "head", "departs"),
    [
        (0.0, 1e-3, True),  # the head was edited
        (1e-7, 1e-3, True),
        (0.0, 1e-7, False),
        (1e-5, 3e-4, False),  # few values round to the other side
        (5e-3, 2e-2, False),
        (5e-3, 0.2, True),
    ],
)
def test_rounding_in_16_bits_explains_only_what_a_recorded_run_shows(
    narrow: float, head: float, *, departs: bool
) -> None:
    """
    A float32 layer after 16-bit layers with exact results is as exact as float32, although its
    inputs have 16 bits; with their errors, it may increase them.
    """
    calls = recorded(("bfloat16", narrow), ("bfloat16", narrow), ("float32", head))
    assert (head > tolerances.recorded_tolerances(calls)[-1]) is departs
    assert (head > tolerances.recorded_outputs_tolerance(calls)) is departs


def test_a_recorded_run_in_float32_has_the_same_limits_as_other_runs() -> None:
    """The errors of earlier float32 layers count as expected, also if they are exact."""
    calls = recorded(("float32", 0.0), ("float32", 1e-7), ("float32", 0.0), inputs="float32")
    assert tolerances.recorded_tolerances(calls) == tolerances.grown_tolerances(calls)
    assert tolerances.float32_tolerance(calls) == tolerances.outputs_tolerance(calls)


def test_sums_of_a_graph_count_like_layers() -> None:
    """Other operations of a dtype count together like one."""
    groups = [
        tolerances.RoundingOperations(dtype="float16", depth=depth, count=count)
        for depth, count in ((0, 50), (7, 4))
    ]
    expected = 4 * 2.0**-11 * math.sqrt(1 + 4 * (1 + 3 / 4) ** 2)
    assert tolerances.operations_tolerance(groups) == pytest.approx(expected)
    assert tolerances.operations_tolerance([]) == 0
