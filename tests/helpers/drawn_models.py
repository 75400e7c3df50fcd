"""
Models made by hand, and models that Hypothesis draws: names of every kind, whatever a file may
hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st
from msgspec.structs import replace

from policytool.commands import inspect as inspection
from policytool.formats.document import Address
from policytool.model.model import (
    Layer,
    Model,
    Optimizer,
    Signature,
    Source,
    TracedOp,
    Variable,
    Writer,
)
from policytool.releases.policy import Dynamic, Fixed, Quantization
from tests.contracts.reporter_contract import inspected

if TYPE_CHECKING:
    from policytool.commands.inspect import SelectedInspection

NAMES: Final = (
    st.text(min_size=1, max_size=12)
    | st.text("|`\\*_<>&@#[]()!:.-=+'\"~ \n\r\t1a", min_size=1, max_size=12)
    | st.sampled_from(["dense_a", "層一"])
)
"""Any text, text that markup lives from, and common names."""

DTYPES: Final = st.sampled_from(["float16", "bfloat16", "float32", "float64"])


@st.composite
def layers(draw: st.DrawFn) -> tuple[Layer, ...]:
    """
    Return the layers of a model in their order: each lies below an earlier one, or begins a tree of
    its own.
    """
    paths: list[str] = []

    def grow(above: str, levels: int) -> None:
        for name in draw(st.lists(NAMES, max_size=2 if levels else 0)):
            path = f"{above}/{name.replace('/', '~1')}".removeprefix("/")
            paths.append(path)
            grow(path, levels - 1)

    grow("", draw(st.integers(1, 3)))
    return tuple(draw(_layer(path)) for path in paths)


def _layer(path: str) -> st.SearchStrategy[Layer]:
    return st.builds(
        Layer,
        path=st.just(path),
        also_at=st.lists(NAMES, max_size=2).map(tuple),
        name=NAMES,
        class_name=st.none() | NAMES,
        registered_name=st.none() | NAMES,
        policy=st.none() | st.sampled_from(["mixed_float16", "float32"]) | NAMES,
        compute_dtype=st.none() | DTYPES,
        variable_dtype=st.none() | DTYPES,
        source=st.sampled_from(Source),
        loss_scale=st.none() | st.builds(Dynamic) | st.builds(Fixed, value=st.floats()),
        quantization=st.none()
        | st.builds(Quantization, mode=st.just("int8"), source=st.just("float32")),
        deprecated=st.booleans(),
        autocast=st.none() | st.booleans(),
        opaque=st.booleans(),
        traced_dtypes=st.lists(DTYPES, max_size=2, unique=True).map(tuple),
        variables=st.lists(
            st.builds(
                Variable, name=NAMES, shape=st.none() | st.tuples(st.integers(0, 9)), dtype=DTYPES
            ),
            max_size=2,
        ).map(tuple),
        address=st.none() | st.builds(Address, part=NAMES, pointer=NAMES),
    )


@st.composite
def models(draw: st.DrawFn) -> SelectedInspection:
    """Return an inspection of a model, every layer kept."""
    signature = st.builds(
        Signature,
        name=NAMES,
        inputs=st.dictionaries(NAMES, DTYPES, max_size=2),
        outputs=st.dictionaries(NAMES, DTYPES, max_size=2),
        compute_dtypes=st.lists(DTYPES, max_size=2, unique=True).map(tuple),
        ops=st.lists(
            st.builds(
                TracedOp,
                op=NAMES,
                dtype=DTYPES,
                count=st.integers(1, 99),
                amp=st.sampled_from(["allow", "deny", None]),
            ),
            max_size=3,
        ).map(tuple),
    )
    model = Model(
        path=draw(NAMES),
        format="savedmodel",
        generation=draw(st.none() | st.just("tf2.5")),
        writer=Writer(
            keras=draw(st.none() | NAMES),
            tensorflow=draw(st.none() | NAMES),
            backend=draw(st.none() | NAMES),
        ),
        layers=draw(layers()),
        optimizer=draw(st.none() | st.builds(Optimizer, class_name=NAMES)),
        signatures=tuple(draw(st.lists(signature, max_size=2))),
    )
    return whole(model)


def whole(*found: Model) -> SelectedInspection:
    """Return models as an inspection, every layer kept."""
    return inspection.select(inspection.collect(found), inspection.Selection())


def op(name: str, dtype: str, count: int, amp: str | None) -> TracedOp:
    """Return ops of one kind."""
    return TracedOp(op=name, dtype=dtype, count=count, amp=amp)


def traced_in(*dtypes: str) -> Model:
    """
    Return a SavedModel whose layers declare mixed_float16, as if its graph computed in these
    dtypes.
    """
    (model,) = inspected("tf2.5/global_mixed_float16").inspection.models
    traced = tuple(
        replace(layer, traced_dtypes=dtypes if layer.name in {"norm", "dense_a"} else ())
        for layer in model.layers
    )
    return replace(
        model,
        layers=traced,
        signatures=tuple(
            replace(signature, compute_dtypes=dtypes) for signature in model.signatures
        ),
    )


def scopes() -> Model:
    """
    Return a graph of which the file tells no layers: a scope with a variable, and one with ops
    alone.
    """
    ops = (
        op("Conv2D", "float32", 3, "allow"),
        op("MatMul", "float32", 12, "allow"),
        op("Softmax", "float32", 1, "deny"),
    )
    kernel = Variable(name="kernel", shape=(6, 4), dtype="float32")
    return Model(
        path="exported",
        format="savedmodel",
        generation=None,
        writer=Writer(tensorflow="1.15.5"),
        layers=(
            Layer(
                path="tower/dense",
                name="dense",
                class_name=None,
                source=Source.UNKNOWN,
                traced_dtypes=("float32",),
                variables=(kernel,),
            ),
            Layer(
                path="tower/softmax",
                name="softmax",
                class_name=None,
                source=Source.UNKNOWN,
                traced_dtypes=("float16", "float32"),
            ),
        ),
        signatures=(
            Signature(
                name="predict",
                inputs={"x": "float32"},
                outputs={"y": "float32"},
                compute_dtypes=("float16", "float32"),
                ops=ops,
            ),
        ),
    )
