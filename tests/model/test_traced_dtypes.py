"""The layer of each op in a saved graph, and the warning if graph and metadata disagree."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

import policytool
from policytool.formats import format_detection
from policytool.formats.document import GraphOp, Signature, Trace
from policytool.model import reading, traced_dtypes
from policytool.releases import graph_ops
from tests.conftest import MIXED_SAVEDMODEL
from tests.helpers.cases import for_each
from tests.helpers.marks import ALONE, THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import keras_object, saved_model

if TYPE_CHECKING:
    from pathlib import Path

SAVED_MODELS = tuple(sorted(path.parent for path in FIXTURES.glob("*/*/saved_model.pb")))


def _products(model: policytool.Model) -> dict[str, dict[str, int]]:
    """Return the number of matrix products of each dtype, by layer."""
    return {
        layer.path: {op.dtype: op.count for op in layer.traced_ops if op.amp == graph_ops.ALLOW}
        for layer in model.layers
    }


def _differing(model: policytool.Model) -> list[str]:
    return [item.message for item in model.observations if item.code == "traced-dtype-differs"]


@pytest.mark.parametrize("release", ["tf2.3", "tf2.5", "tf2.15", "tf_keras2.21"])
def test_second_call_is_distinguished_from_another_layer(release: str) -> None:
    """
    A second call of the layer ``dense`` at the scope ``dense_1`` counts for ``dense``, although a
    layer ``dense_1`` exists.
    """
    products = _products(policytool.inspect(str(FIXTURES / release / "loops")))
    assert products["net/dense"] == {"float16": 2}
    assert products["net/dense_1"] == {"float64": 1}
    assert products["net/loop"] == products["net/loop/simple_rnn_cell"]
    assert products["net/loop"].keys() == {"float32"}


def test_ops_of_an_export_count_for_the_layer_in_their_scope() -> None:
    """
    In an export of Keras 3 without metadata, each op counts for the layer in its scope, whose name
    can end with the number of a call.
    """
    model = policytool.inspect(str(FIXTURES / "keras3.15/loops.export"))
    products = _products(model)
    assert products["dense"] == {"float16": 2}
    assert products["dense_1"] == {"float64": 1}
    assert [signature.compute_dtypes for signature in model.signatures] == [
        ("float16", "float32", "float64")
    ] * len(model.signatures)


def test_variables_of_an_export_count_once() -> None:
    """
    An export of Keras 3 stores each variable twice; a note reports the copies, and the parameters
    are counted once.
    """
    model = policytool.inspect(str(FIXTURES / "keras3.15/global_mixed_float16.export"))
    assert model.summary.parameters == 47
    assert "variable-copies" in [item.code for item in model.observations]


def _edited(tmp_path: Path, before: bytes, after: bytes) -> Path:
    """
    Return a SavedModel with edited metadata, in which a text is replaced with a text of the same
    length.
    """
    assert len(before) == len(after)
    target = tmp_path / "edited"
    shutil.copytree(MIXED_SAVEDMODEL, target)
    for name in ("keras_metadata.pb", "saved_model.pb"):
        file = target / name
        file.write_bytes(file.read_bytes().replace(before, after))
    return target


def test_metadata_that_contradicts_the_graph_is_a_warning(tmp_path: Path) -> None:
    """
    A warning with the layer reports metadata that declares mixed_bfloat16 for a graph that computes
    in float16.
    """
    path = _edited(tmp_path, b'{"name": "mixed_float16"}', b'{"name":"mixed_bfloat16"}')
    model = policytool.inspect(str(path))
    assert model.layers[3].policy == "mixed_bfloat16"
    assert "float16" in model.signatures[0].compute_dtypes
    (message,) = _differing(model)
    assert message.startswith(
        "1 of 1 layers with matrix products declares mixed_bfloat16 but computes in float16 in "
        "the saved graph (mlp/dense_a)"
    )


@THOROUGH
@for_each("path", SAVED_MODELS, ids=lambda path: path.relative_to(FIXTURES).as_posix())
def test_graphs_of_fixtures_agree_with_the_policies(path: Path) -> None:
    assert not _differing(policytool.inspect(str(path)))


def test_savedmodel_without_traces_has_no_traced_dtypes() -> None:
    """
    A SavedModel without traces (``save_traces=False``) has no traced dtypes and no warning about
    them.
    """
    model = policytool.inspect(str(FIXTURES / "tf2.15/global_mixed_float16"))
    bare = policytool.inspect(str(FIXTURES / "tf2.15/mha_mixed"))
    assert any(layer.traced_dtypes for layer in model.layers)
    assert not any(layer.traced_dtypes for layer in bare.layers)
    assert not _differing(bare)


@THOROUGH
@ALONE
def test_many_scopes_are_found_among_many_layers(tmp_path: Path) -> None:
    """The time to find scopes grows less than quadratically with the number of layers."""
    assert seconds_of_scopes(tmp_path / "4", 4_000) < 9 * seconds_of_scopes(tmp_path / "1", 1_000)


def test_casts_and_calls_of_python_belong_to_a_signature() -> None:
    """Values that only pass through float16 are rounded; stored and returned dtypes are known."""
    document = format_detection.document(FIXTURES / "keras3.15/global_mixed_float16.export", "m")

    def signature(*ops: tuple[str, tuple[str, ...]]) -> Signature:
        trace = Trace(
            entry="serve",
            signature=True,
            ops=tuple((GraphOp(scope=(), op=op, dtypes=dtypes), 1) for op, dtypes in ops),
            reads={},
        )
        first = structs.replace(document.signatures[0], name="serve", outputs={"y": "bfloat16"})
        changed = replace(document, traces=(trace,), signatures=(first,))
        (found,) = traced_dtypes.signatures(changed)
        return found

    cast = ("Cast", ("float16", "float32"))
    product = ("MatMul", ("float32",))
    assert signature(cast, product).cast_dtypes == ("float16",)
    assert signature(cast, product, ("ReadVariableOp", ("float16",))).cast_dtypes == ()
    assert signature(("Cast", ("bfloat16", "float32")), product).cast_dtypes == ()
    assert not signature(product).calls_python
    assert signature(product, ("EagerPyFunc", ("float32",))).calls_python


def seconds_of_scopes(place: Path, many: int) -> float:
    """Return the processor time to find a number of scopes among as many layers."""
    layers = [(f"layer-{number}", number + 1) for number in range(many)]
    objects = [
        keras_object("net", "Functional", children=layers),
        *(keras_object(f"dense_{number}", "Dense") for number in range(many)),
    ]
    loaded = reading.load_model(format_detection.document(saved_model(place, objects), "wide"))
    ops = tuple(
        (
            GraphOp(
                scope=("net", f"other_{number}", f"dense_{number}"),
                op="MatMul",
                dtypes=("float32",),
            ),
            1,
        )
        for number in range(many)
    )
    document = replace(
        loaded.document,
        traces=(Trace(entry="serving_default", signature=True, ops=ops, reads={}),),
    )
    taken = []
    for _ in range(3):
        start = time.process_time()
        _, own = traced_dtypes.layer_tallies(document, loaded.placed)
        taken.append(time.process_time() - start)
    assert {loaded.placed.sites[index].name for index in own} == {
        f"dense_{number}" for number in range(many)
    }
    return min(taken)


def test_product_in_int8_is_listed_without_a_list_and_never_judged() -> None:
    """A quantized layer multiplies in int8, and its policy names another dtype."""
    tally = traced_dtypes.Tally()
    for op in ("BatchMatMulV3", "Einsum"):
        tally.add(GraphOp(scope=("a",), op=op, dtypes=("int8",)), 1)
    tally.add(GraphOp(scope=("a",), op="BatchMatMulV3", dtypes=("float32",)), 1)
    assert [(op.op, op.dtype, op.amp) for op in tally.ops] == [
        ("BatchMatMulV3", "int8", None),
        ("Einsum", "int8", None),
    ]
    assert tally.computing == {"int8", "float32"}
    assert not tally.judged_dtypes
