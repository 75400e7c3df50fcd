"""What a graph computes in, compared with what its layers declare."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from policytool.model.model import Model, Signature
from policytool.reports import inspection
from policytool.reports.inspection import fields
from tests.helpers.drawn_models import op, scopes, traced_in


def contradiction(model: Model) -> str | None:
    """Return how the model's first signature contradicts its layers."""
    return inspection.contradiction(inspection.declared_dtypes(model), model.signatures[0])


@pytest.mark.parametrize(
    ("computed", "found"),
    [
        ((), None),
        (("float16",), None),
        (("float16", "float32"), None),
        (("float32",), "layers declare float16"),
        (("bfloat16", "float32"), "layers declare float16 and no layer declares bfloat16"),
        (("float16", "bfloat16"), "no layer declares bfloat16"),
    ],
)
def test_a_16_bit_dtype_on_one_side_contradicts(
    computed: tuple[str, ...], found: str | None
) -> None:
    """Softmax and sums stay in float32."""
    assert contradiction(traced_in(*computed)) == found


def test_layers_without_variables_need_leave_no_op() -> None:
    """A dropout under mixed_float16 is no promise that something computes in float16."""
    model = traced_in("float32")
    changed = tuple(
        replace(layer, compute_dtype="float32", policy="float32") if layer.variables else layer
        for layer in model.layers
    )
    assert contradiction(replace(model, layers=changed)) is None


def test_a_graph_without_declarations_contradicts_nothing() -> None:
    """If no layer declares a dtype, the signature is not judged."""
    assert contradiction(scopes()) is None


def test_signatures_with_equal_contradictions_share_a_sentence() -> None:
    """The footer has one sentence for both signatures."""
    model = traced_in("float32")
    twice = (
        *model.signatures,
        replace(model.signatures[0], name="predict"),
        Signature(name="init", inputs={}, outputs={}),
    )
    assert inspection.contradictions(replace(model, signatures=twice)) == [
        (
            "serving_default, predict compute in float32, although layers declare float16: "
            "servers run the graph, regardless of the policies"
        )
    ]


def test_ops_are_grouped_by_list_and_sorted_by_count() -> None:
    """At most four kinds of ops in a list are named."""
    ops = (
        *(op(f"Op{number}", "float32", number, "clear") for number in range(1, 8)),
        op("MatMul", "float16", 2, "allow"),
        op("MatMul", "float32", 9, "allow"),
    )
    assert inspection.ops_words(ops) == (
        "9 MatMul in float32, 2 MatMul in float16 (mixed precision: 16 bits); 7 Op7 in "
        "float32, 6 Op6 in float32, 5 Op5 in float32, 4 Op4 in float32, 6 others (mixed precision: "
        "16 bits between ops in 16 bits)"
    )
    assert (
        inspection.ops_words((op("Odd", "float32", 1, None),))
        == "1 Odd in float32 (mixed precision: unknown op, stays as it is)"
    )
    assert inspection.ops_words(()) == ""


@pytest.mark.parametrize(
    ("dtypes", "marked"),
    [((), False), (("float32",), True), (("float16", "float32"), False), (("bfloat16",), True)],
)
def test_layer_without_an_op_in_its_dtype_is_marked(
    dtypes: tuple[str, ...],
    marked: bool,  # noqa: FBT001
) -> None:
    """The layer has a note if ops were traced and none has the declared dtype."""
    layer = next(layer for layer in traced_in(*dtypes).layers if layer.name == "dense_a")
    assert fields.has_other_traced_dtype(layer) is marked
