"""The call that causes an error, and the layers of the file that must stay in float32."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from policytool.numerics.check_results.metrics import CallTrace
from policytool.numerics.verdicts import origins
from policytool.numerics.verdicts.origins import Blame, Choices
from tests.helpers.example_checks import call, measured, output, run

SPOILED: Any = {"overflowed": 10, "infinite_candidate": 10}


def traced(
    path: str,
    producers: tuple[int, ...] = (),
    *,
    within: int | None = None,
    begun: int = 0,
    own: float | None = None,
    rounding: float | None = None,
    **other: Any,
) -> Any:
    """
    Return a call of a diagnosis; ``own`` and ``rounding`` are the parts of its error, and
    ``rounded`` contains the reductions of ``rounding``.
    """
    spoiled, rounded = other.pop("gets_nonfinite", False), other.pop("rounded", {})
    result = call(path, other.pop("isolated", 1e-4), **other)
    (one,) = result.outputs
    split = replace(
        one,
        own=None if own is None else measured(own),
        rounding=None if rounding is None else measured(rounding, **rounded),
    )
    trace = CallTrace(begun=begun, within=within, producers=producers, gets_nonfinite=spoiled)
    return replace(result, outputs=(split,), trace=trace)


def model(*calls: Any, wrong: dict[str, Any] | None = None) -> Any:
    """Return a run of these calls in a model with a wrong output."""
    root = replace(
        traced("net", isolated=None, begun=-1, is_model=True, children=len(calls)),
    )
    inside = [
        replace(
            item,
            trace=replace(
                item.trace, within=len(calls) if item.trace.within is None else item.trace.within
            ),
        )
        for item in calls
    ]
    return run(*inside, root, outputs=(output("y", 0.5, **(wrong or {})),))


def places(found: Any) -> list[tuple[str, Blame, bool]]:
    """Return the charges of a run by path."""
    return [
        (found.calls[charge.call].path, charge.blame, charge.in_code)
        for charge in origins.charges(found)
    ]


def test_layer_that_receives_infinity_is_not_an_origin() -> None:
    """A layer that receives infinity is not charged; the layer that produces it is."""
    result = model(
        traced("net/a", begun=0),
        traced("net/b", (0,), begun=1, along=SPOILED),
        traced("net/c", (1,), begun=2, along=SPOILED, gets_nonfinite=True),
        wrong=SPOILED,
    )
    assert places(result)[0] == ("net/b", Blame.NONFINITE, False)


def test_the_layer_inside_a_block_is_to_blame_for_infinity_in_both() -> None:
    """A block that contains the layer that overflows is not charged."""
    overflow = model(
        traced("net/block/a", within=1, begun=1, along=SPOILED),
        traced("net/block", begun=0, children=1, along=SPOILED),
        wrong=SPOILED,
    )
    assert places(overflow)[0] == ("net/block/a", Blame.NONFINITE, False)


def test_code_between_two_layers_is_the_origin_of_infinity_in_the_second() -> None:
    """If ``net/block`` produces infinity between its two layers, ``net/block`` is charged."""
    result = model(
        traced("net/block/one", within=2, begun=1),
        traced("net/block/two", (0,), within=2, begun=2, along=SPOILED, gets_nonfinite=True),
        traced("net/block", begun=0, children=2, along=SPOILED),
        wrong=SPOILED,
    )
    assert places(result)[0] == ("net/block", Blame.NONFINITE, True)


def test_infinity_that_no_output_shows_is_not_to_blame() -> None:
    """An example is an attention mask of a model with imprecise outputs."""
    result = model(
        traced("net/mask", begun=0, along=SPOILED),
        traced("net/weak", (0,), begun=1, isolated=0.4),
    )
    assert places(result) == [("net/weak", Blame.ERROR, False)]


def test_rounding_error_is_attributed_to_the_layer_that_rounds() -> None:
    """Layers that are exact for rounded inputs are not an origin of errors."""
    result = model(
        traced("net/weak", begun=0),
        traced("net/reshape", (0,), begun=1, isolated=0.0),
        traced("net/head", (1,), begun=2, isolated=0.4, own=0.0, rounding=0.4, compute="float32"),
    )
    assert places(result) == [("net/weak", Blame.ROUNDING, False)]
    (charge,) = origins.charges(result)
    assert origins.origin(result, charge).seen_in == "net/head"


def test_rounding_before_many_exact_blocks_is_found() -> None:
    """A residual stream of 100 blocks has 2**100 paths; each call is visited once."""
    stream = [traced("net/weak", begun=0)]
    for number in range(100):
        last = len(stream) - 1
        stream += [
            traced(f"net/block_{number}", (last,), begun=last + 1, isolated=0.0),
            traced(f"net/add_{number}", (last, last + 1), begun=last + 2, isolated=0.0),
        ]
    last = len(stream) - 1
    head = traced("net/head", (last,), begun=last + 1, isolated=0.4, own=0.0, rounding=0.4)
    assert places(model(*stream, head)) == [("net/weak", Blame.ROUNDING, False)]


def test_layer_with_a_local_error_is_the_origin_despite_rounded_inputs() -> None:
    """The inputs of this layer are also rounded too coarsely."""
    result = model(
        traced("net/a", begun=0),
        traced("net/weak", (0,), begun=1, isolated=0.6, own=0.5, rounding=0.3),
    )
    assert places(result) == [("net/weak", Blame.ERROR, False)]


def test_the_innermost_call_with_an_error_is_charged() -> None:
    """The innermost call with an error is charged, and not the layer around it."""
    result = model(
        traced("net/block/weak", within=1, begun=1, isolated=0.4),
        traced("net/block", begun=0, children=1, isolated=0.4),
    )
    assert places(result) == [("net/block/weak", Blame.ERROR, False)]


def test_a_run_that_was_not_traced_charges_nothing() -> None:
    """A run without traces charges no layer."""
    assert origins.charges(run(call("net/a", 0.5), outputs=(output("y", 0.5),))) == ()


CHOICES = Choices(paths=("net", "net/a", "net/b", "net/block", "net/block/inner", "net/last"))


@pytest.mark.parametrize(
    ("path", "kept"),
    [("net/b", {"net/b"}), ("net/square", {"net/a"}), ("net/unknown", {"net/a"})],
)
def test_ops_are_represented_by_the_layer_before_them(path: str, kept: set[str]) -> None:
    """A layer that can be selected represents itself."""
    result = model(traced("net/a", begun=0), traced(path, (0,), begun=1, isolated=0.4))
    assert origins.propose(result, CHOICES) == kept


@pytest.mark.parametrize(
    ("rounded", "kept"), [(SPOILED, {"net/a", "net/b"}), ({}, {"net/a"})], ids=["range", "digits"]
)
def test_layer_that_receives_values_out_of_range_is_also_kept(
    rounded: dict[str, Any], kept: set[str]
) -> None:
    """In 16 bits, the receiving layer would cast these values to infinity."""
    result = model(
        traced("net/a", begun=0, alone=SPOILED, along=SPOILED),
        traced("net/b", (0,), begun=1, own=1e-4, rounding=0.4, rounded=rounded, along=SPOILED),
        traced("net/last", (1,), begun=2, along=SPOILED),
        wrong=SPOILED,
    )
    assert origins.propose(result, CHOICES) == kept


def test_layer_in_a_custom_layer_is_kept_with_the_whole_custom_layer() -> None:
    """A custom layer casts the inputs of its layers."""
    result = model(
        traced("net/block/weak", within=1, begun=1, isolated=0.4),
        traced("net/block", begun=0, children=1),
    )
    assert origins.propose(result, CHOICES) == {"net/block", "net/block/inner"}


def test_layers_are_ranked_by_error_or_flushed_values() -> None:
    """Layers are ranked by their error, or by the number of values that become zero."""
    result = model(
        traced("net/a", begun=0, isolated=0.01),
        traced("net/b", (0,), begun=1, along={"flushed": 500}),
    )
    assert origins.call_loss(result.calls[1]) > origins.call_loss(result.calls[0]) > 0
