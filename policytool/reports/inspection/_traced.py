"""
What a graph computes in, held against what its layers declare.

Metadata and graph of a SavedModel are written together but read apart: Keras loads the one, a
server runs the other. Where somebody changed the policies afterwards, the signatures still compute
as they were traced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.model.tree import MODEL_CLASSES
from policytool.releases import dtypes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.formats.document import TracedOp
    from policytool.model.model import Layer, Model, Signature

_HALVES: Final = ("float16", "bfloat16")
"""
What is looked for on both sides; float32 proves nothing, because a mixed model computes its softmax
and its sums in it anyway.
"""

_LISTS: Final = ("allow", "infer", "deny", "clear", None)
"""Automatic mixed precision's lists, those first that move a model to 16 bits."""

_KINDS: Final = 4
"""Kinds of ops named of each list, the commonest first; a header is read, not searched."""


def is_traced_otherwise(layer: Layer) -> bool:
    """
    Return whether a layer has traced ops and none of them has the dtype that its policy declares to
    compute in.

    Models compute nothing themselves, and the ops of op layers have their inputs' dtypes whatever
    the policy says.
    """
    judged = layer.class_name not in MODEL_CLASSES and not layer.opaque
    return (
        judged
        and bool(layer.traced_dtypes)
        and dtypes.is_float(layer.compute_dtype)
        and layer.compute_dtype not in layer.traced_dtypes
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """The dtypes that a model's layers declare to compute in."""

    by_any: frozenset[str]
    by_layers_with_variables: frozenset[str]
    """Without those of layers that may leave no op behind: inputs, dropout, models."""


def declared_dtypes(model: Model) -> Declared:
    """Return what a model's layers declare to compute in."""
    holding = [
        layer
        for layer in model.layers
        if any(dtypes.is_float(variable.dtype) for variable in layer.variables)
    ]
    return Declared(
        by_any=_compute_dtypes(model.layers), by_layers_with_variables=_compute_dtypes(holding)
    )


def contradiction(by: Declared, signature: Signature) -> str | None:
    """
    Return how a signature contradicts its layers; None if it does not, if its graph was not read,
    or if no layer declares a dtype.

    It does if layers with variables declare a 16-bit dtype that no op computes in, or if ops
    compute in a 16-bit dtype that no layer declares.
    """
    computed = signature.compute_dtypes
    if not computed or not by.by_any:
        return None
    unmet = [
        dtype for dtype in _HALVES if dtype in by.by_layers_with_variables and dtype not in computed
    ]
    unsaid = [dtype for dtype in _HALVES if dtype in computed and dtype not in by.by_any]
    clauses = [f"layers declare {' and '.join(unmet)}"] * bool(unmet) + [
        f"no layer declares {' or '.join(unsaid)}"
    ] * bool(unsaid)
    return " and ".join(clauses) or None


def computes_words(by: Declared, signature: Signature) -> str:
    """
    Return what a signature computes in, and what contradicts it; nothing where its graph was not
    read.
    """
    return f"computes {_in_words(by, signature)}" if signature.compute_dtypes else ""


def contradictions(model: Model) -> list[str]:
    """Return a sentence for each way in which signatures contradict the layers."""
    by = declared_dtypes(model)
    names_by_words: dict[str, list[str]] = {}
    for signature in model.signatures:
        if contradiction(by, signature):
            names_by_words.setdefault(_in_words(by, signature), []).append(signature.name)
    return [
        (
            f"{', '.join(names)} {'compute' if len(names) > 1 else 'computes'} {words}: servers "
            "run the graph, regardless of the policies"
        )
        for words, names in names_by_words.items()
    ]


def ops_words(ops: Sequence[TracedOp]) -> str:
    """
    Return ops by the list of mixed precision that contains them: ``allow 12 MatMul float32, 3
    Conv2D float32; deny 1 Softmax float32``.
    """
    grouped = ((amp, [op for op in ops if op.amp == amp]) for amp in _LISTS)
    return "; ".join(
        f"{amp or 'unlisted'} {_kinds(listed_ops)}" for amp, listed_ops in grouped if listed_ops
    )


def _in_words(by: Declared, signature: Signature) -> str:
    conflict = contradiction(by, signature)
    *others, last = signature.compute_dtypes
    dtypes_said = f"{', '.join(others)} and {last}" if others else last
    return f"in {dtypes_said}" + (f", although {conflict}" if conflict else "")


def _compute_dtypes(layers: Iterable[Layer]) -> frozenset[str]:
    return frozenset(layer.compute_dtype for layer in layers if layer.compute_dtype)


def _kinds(ops: Iterable[TracedOp]) -> str:
    ordered = sorted(ops, key=lambda op: (-op.count, op.op, op.dtype))
    kind_texts = [f"{op.count} {op.op} {op.dtype}" for op in ordered[:_KINDS]]
    rest = sum(op.count for op in ordered[_KINDS:])
    return ", ".join([*kind_texts, f"{rest} others"] if rest else kind_texts)
