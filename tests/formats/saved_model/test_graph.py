"""
Saved graphs: the ops that an entry point runs, including calls, loops and branches, within limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

from policytool.formats.document import GraphOp, Trace
from policytool.formats.saved_model import graph as _graph
from policytool.support import limits
from policytool.support.text import protobuf_messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.conftest import Bounded

FLOAT, HALF, INT, INT8 = 1, 19, 3, 6
"""Numbers of tensorflow/core/framework/types.proto."""


@dataclass(frozen=True, kw_only=True)
class Op:
    """A node of a graph."""

    name: str
    op: str
    inputs: Sequence[str] = ()
    types: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


Functions: TypeAlias = "Mapping[str, tuple[Sequence[str], Sequence[Op]]]"
"""Name to arguments and body."""


def _fill(node: Any, op: Op) -> None:
    node.name, node.op = op.name.encode(), op.op.encode()
    node.inputs.extend(source.encode() for source in op.inputs)
    for key, number in op.types.items():
        node.attributes.add(key=key.encode()).value.type = number
    for key, said in op.texts.items():
        node.attributes.add(key=key.encode()).value.text = said.encode()
    for key, called in op.calls.items():
        value = node.attributes.add(key=key.encode()).value
        if isinstance(called, str):
            value.function.name = called.encode()
        else:
            for name in called:
                value.list.functions.add(name=name.encode())


def traces(
    main: Sequence[Op],
    functions: Functions,
    *,
    output: str = "out",
    objects: Sequence[str] = (),
    bound: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Trace, ...]:
    """
    Return the traces of a graph with one signature; ``objects`` are the names of variables, which
    are the nodes of the object graph after its root.
    """
    definition: Any = protobuf_messages.parse("GraphDef", b"")
    for op in main:
        _fill(definition.nodes.add(), op)
    for name, (arguments, body) in functions.items():
        function = definition.library.functions.add()
        function.signature.name = name.encode()
        for argument in arguments:
            function.signature.arguments.add(name=argument.encode())
        for op in body:
            _fill(function.nodes.add(), op)
    meta: Any = protobuf_messages.parse("MetaGraph", b"")
    entry = meta.signatures.add(key=b"serving_default")
    entry.value.outputs.add(key=b"y").value.name = f"{output}:0".encode()
    if objects:
        meta.object_graph.nodes.add()
        for name in objects:
            meta.object_graph.nodes.add().variable.name = name.encode()
        for name, numbers in (bound or {}).items():
            meta.object_graph.concrete_functions.add(key=name.encode()).value.bound_inputs.extend(
                numbers
            )
    return _graph.traces(meta, definition)


def ops(trace: Trace) -> dict[tuple[str, str], tuple[tuple[str, ...], int]]:
    """Return dtypes and counts, by scope and op."""
    return {("/".join(op.scope), op.op): (op.dtypes, count) for op, count in trace.ops}


def matmul(name: str, dtype: int, *inputs: str) -> Op:
    """Return a matrix product."""
    return Op(name=name, op="MatMul", inputs=inputs, types={"T": dtype})


@pytest.mark.parametrize(
    ("op", "dtypes"),
    [("BatchMatMulV3", ("int8",)), ("XlaDotV2", ("int8",)), ("Mul", ()), ("MatMul", ())],
)
def test_product_of_integers_of_8_bits(op: str, dtypes: tuple[str, ...]) -> None:
    """Of 45 exports of Keras 3, those of layers in int8 multiply with BatchMatMulV3."""
    types = {"Ta": INT8, "Tb": INT8, "Tout": INT}
    (trace,) = traces(
        [
            Op(name="big/product", op=op, types=types),
            Op(
                name="out", op="Cast", inputs=("big/product:0",), types={"SrcT": INT, "DstT": FLOAT}
            ),
        ],
        {},
    )
    found = ops(trace)
    assert found.get(("big", op), ((), 0))[0] == dtypes


@pytest.mark.parametrize(
    ("op", "calls"),
    [
        ("PartitionedCall", {"f": "inner"}),
        ("StatefulPartitionedCall", {"f": "inner"}),
        ("If", {"then_branch": "inner", "else_branch": "other"}),
        ("StatelessIf", {"then_branch": "other", "else_branch": "inner"}),
        ("Case", {"branches": ["other", "inner"]}),
        ("While", {"cond": "other", "body": "inner"}),
        ("StatelessWhile", {"cond": "other", "body": "inner"}),
    ],
)
def test_calls_loops_and_branches_are_followed(
    op: str, calls: Mapping[str, str | Sequence[str]]
) -> None:
    """
    The ops of a called function have the scope of the call, and its arguments are the inputs of the
    call, for each op that runs a function.
    """
    with_condition = op in {"If", "StatelessIf", "Case"}
    main = [
        Op(name="w", op="VarHandleOp", types={"dtype": FLOAT}),
        Op(name="which", op="Placeholder", types={"dtype": INT}),
        Op(
            name="net/part/out",
            op=op,
            inputs=(["which"] if with_condition else []) + ["w"],
            types={"Tin": FLOAT},
            calls=calls,
        ),
    ]
    functions: Functions = {
        "inner": (["handle"], [matmul("dense/MatMul", HALF, "handle")]),
        "other": (["handle"], [Op(name="x", op="NoOp")]),
    }
    (trace,) = traces(main, functions, output="net/part/out")
    assert ops(trace) == {("net/part/dense", "MatMul"): (("float16",), 1)}
    assert trace.reads == {("net", "part", "dense"): (0,)}


def test_complete_names_in_a_loop_body_get_no_second_scope() -> None:
    """
    Ops in the body of a loop with complete names, as ``tf.function`` writes them, do not get the
    scope of the loop a second time.
    """
    main = [Op(name="net/rnn/while", op="While", calls={"body": "body", "cond": "body"})]
    functions: Functions = {
        "body": ([], [matmul("net/rnn/while/cell/MatMul", FLOAT), matmul("MatMul", HALF)])
    }
    (trace,) = traces(main, functions, output="net/rnn/while")
    assert ops(trace) == {
        ("net/rnn/while/cell", "MatMul"): (("float32",), 2),
        ("net/rnn", "MatMul"): (("float16",), 2),
    }


def test_only_ops_that_an_output_needs_are_counted() -> None:
    main = [
        matmul("a/MatMul", FLOAT),
        matmul("b/MatMul", HALF),
        Op(name="out", op="Identity", inputs=["a/MatMul:0", "^b/MatMul"], types={"T": FLOAT}),
    ]
    (trace,) = traces(main, {})
    assert ops(trace) == {("a", "MatMul"): (("float32",), 1), ("", "Identity"): (("float32",), 1)}


def test_bound_inputs_identify_the_variables_of_the_last_arguments() -> None:
    """Regardless of their names in the main graph."""
    main = [
        Op(name="x", op="Placeholder", types={"dtype": FLOAT}),
        Op(name="out", op="StatefulPartitionedCall", inputs=["x", "k_1"], calls={"f": "call"}),
    ]
    functions: Functions = {
        "call": (
            ["x", "first", "second"],
            [
                Op(
                    name="model_1/out",
                    op="PartitionedCall",
                    inputs=["x", "second", "first"],
                    calls={"f": "inner"},
                )
            ],
        ),
        "inner": (
            ["x", "b", "a"],
            [
                matmul("dense_1/MatMul", FLOAT, "x", "a"),
                matmul("dense_1_1/MatMul", FLOAT, "x", "b"),
            ],
        ),
    }
    (trace,) = traces(
        main, functions, objects=["dense/kernel", "dense_1/kernel"], bound={"call": [1, 2]}
    )
    assert trace.reads == {("model_1", "dense_1"): (1,), ("model_1", "dense_1_1"): (2,)}


def test_dtypes_of_ops_without_attributes_are_known() -> None:
    """
    The dtype of an op can be the default of a missing attribute or a fixed output dtype; an
    attribute for stored elements does not count.
    """
    main = [
        Op(name="a/LeakyRelu", op="LeakyRelu"),
        Op(name="b/Resize", op="ResizeBilinear", inputs=["a/LeakyRelu"], types={"T": HALF}),
        Op(
            name="c/Reserve",
            op="TensorListReserve",
            types={"element_dtype": HALF, "shape_type": INT},
        ),
        Op(name="out", op="Pack", inputs=["b/Resize", "c/Reserve"], types={"T": INT}),
    ]
    (trace,) = traces(main, {})
    assert ops(trace) == {
        ("a", "LeakyRelu"): (("float32",), 1),
        ("b", "ResizeBilinear"): (("float16", "float32"), 1),
    }


@pytest.mark.parametrize(
    ("mode", "dtypes"), [("FP16", ("float16",)), ("fp32", ("float32",)), ("INT8", ())]
)
def test_tensorrt_engine_counts_with_its_precision_mode(mode: str, dtypes: tuple[str, ...]) -> None:
    """Its inputs, outputs and original segment are float32."""
    engine = Op(
        name="net/engine",
        op="TRTEngineOp",
        types={"InT": FLOAT, "OutT": FLOAT},
        texts={"precision_mode": mode},
        calls={"segment_func": "segment"},
    )
    functions: Functions = {"segment": ((), [matmul("net/MatMul", FLOAT)])}
    found = traces([engine, Op(name="out", op="Identity", inputs=["net/engine"])], functions)
    said = {op: some for trace in found for (_, op), (some, _) in ops(trace).items()}
    assert said == ({"TRTEngineOp": dtypes} if dtypes else {})


def test_a_function_that_calls_itself_is_run_once() -> None:
    call = Op(name="again", op="PartitionedCall", calls={"f": "loop"})
    (trace,) = traces(
        [Op(name="out", op="PartitionedCall", calls={"f": "loop"})],
        {"loop": ([], [matmul("MatMul", HALF), call])},
    )
    assert ops(trace) == {("", "MatMul"): (("float16",), 1)}


def test_a_graph_that_explodes_is_given_up(bounded: Bounded) -> None:
    """
    A graph is an error if its calls exceed the step limit, such as sixty functions that each call
    the next function twice.
    """
    bounded("trace-steps", 10_000)
    functions: Functions = {
        f"f{level}": (
            [],
            [
                Op(name=name, op="PartitionedCall", calls={"f": f"f{level + 1}"})
                for name in ("a", "b")
            ],
        )
        for level in range(60)
    }
    with pytest.raises(_graph.GraphLimitError, match="above the trace-steps limit of 10000"):
        traces([Op(name="out", op="PartitionedCall", calls={"f": "f0"})], functions)


SMALL_AND_LONG: Final[Mapping[str, tuple[Sequence[Op], Functions]]] = {
    "calls": (
        [Op(name="out", op="Case", calls={"branches": ["f"] * 100})],
        {"f": ([], [Op(name="a", op="Case", calls={"branches": ["g"] * 100})]), "g": ([], [])},
    ),
    "inputs": (
        [Op(name="out", op="Case", calls={"branches": ["f"] * 100})],
        {"f": ([], [Op(name="a", op="Pack", inputs=["x"] * 100)])},
    ),
    "arguments": (
        [Op(name="out", op="Case", inputs=["x"] * 100, calls={"branches": ["f"] * 100})],
        {"f": ([f"a{number}" for number in range(100)], [])},
    ),
    "names": (
        [Op(name="out", op="Case", calls={"branches": ["f"] * 100})],
        {"f": ([], [Op(name="a" * 400, op="Pack")])},
    ),
}
"""
A hundred times a hundred of something, of which a file of a megabyte could hold a hundred thousand
times as many.
"""


@pytest.mark.parametrize("case", SMALL_AND_LONG)
def test_calls_and_inputs_count_for_the_step_limit(case: str, bounded: Bounded) -> None:
    bounded("trace-steps", 9_000)
    with pytest.raises(_graph.GraphLimitError, match="above the trace-steps limit of 9000"):
        traces(*SMALL_AND_LONG[case])


def test_functions_of_the_root_are_counted(bounded: Bounded) -> None:
    """
    The functions of the root object count for the step limit, such as a hundred attributes of an
    object with a hundred empty functions.
    """
    bounded("trace-steps", 9_000)
    definition: Any = protobuf_messages.parse("GraphDef", b"")
    definition.library.functions.add().signature.name = b"f"
    meta: Any = protobuf_messages.parse("MetaGraph", b"")
    root, function = meta.object_graph.nodes.add(), meta.object_graph.nodes.add()
    function.function.concrete_functions.extend([b"f"] * 100)
    for _ in range(100):
        root.children.add(node_id=1, local_name=b"call")
    with pytest.raises(_graph.GraphLimitError, match="above the trace-steps limit of 9000"):
        _graph.traces(meta, definition)


def test_scopes_nest_within_bounds() -> None:
    """An op name with more parts than the scope limit is an error."""
    name = "a/" * (limits.SCOPE_DEPTH.value + 1) + "MatMul"
    with pytest.raises(_graph.GraphLimitError, match="above the scope-depth limit of 100"):
        traces([Op(name=name, op="MatMul")], {}, output=name)


def test_calls_nest_within_bounds() -> None:
    """A chain of calls that exceeds the depth limit is an error."""
    functions: Functions = {
        f"f{level}": ([], [Op(name="a", op="PartitionedCall", calls={"f": f"f{level + 1}"})])
        for level in range(limits.CALL_DEPTH.value + 5)
    }
    with pytest.raises(_graph.GraphLimitError, match="above the call-depth limit of 200"):
        traces([Op(name="out", op="PartitionedCall", calls={"f": "f0"})], functions)


def test_missing_function_gives_no_trace() -> None:
    assert (
        traces(
            [
                Op(
                    name="out",
                    op="StatefulPartitionedCall",
                    calls={"f": "gone"},
                    types={"Tout": FLOAT},
                )
            ],
            {},
        )
        == ()
    )


def test_variables_of_a_tf1_graph_are_its_variable_ops() -> None:
    """
    In a graph of TF 1 without an object graph, variables are ops, and a variable counts for the
    scope of the op that reads it.
    """
    main = [
        Op(name="dense/kernel", op="VariableV2", types={"dtype": FLOAT}),
        Op(name="dense/kernel/read", op="Identity", inputs=["dense/kernel"], types={"T": FLOAT}),
        matmul("dense/MatMul", FLOAT, "x", "dense/kernel/read"),
    ]
    (trace,) = traces(main, {}, output="dense/MatMul")
    assert trace.reads == {("dense", "kernel"): (0,)}
    assert GraphOp(scope=("dense",), op="MatMul", dtypes=("float32",)) in dict(trace.ops)
