"""
Output layer computes in 16 bits.

The layers that produce a model's outputs should compute in float32, regardless of the other layers.
In 16 bits, losses and metrics are less accurate, and clients that expect float32 from a signature
receive a different dtype. float16 has a precision of about 3 decimal digits, and bfloat16 has
slightly less. The rule detects outputs in the graph of a functional or sequential model; the
outputs of a subclassed model are unknown. ``migrate --set`` sets the layer to float32. The
signatures of a SavedModel keep their traced dtypes until ``--retrace`` re-exports the model.

Sources: "Ensure the output is float32" in TensorFlow's guide to mixed precision,
https://www.tensorflow.org/guide/mixed_precision; with TF 2.21 and tf_keras 2.21, a model whose
layers all use mixed_float16 exports a signature with float32 inputs and float16 outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep import outputs
from policytool.model.rounded_weights import compute_dtype
from policytool.releases import dtype_support
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.numerics._judging import computes_half, judged_model, to_float32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Signature
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Yield the layers that make outputs in 16 bits; where no layer is known to, the signatures that
    give such outputs.
    """
    loaded = judged_model(case, options)
    found = list(_layers(loaded)) if loaded is not None else []
    yield from found
    if not found:
        for signature in case.model.signatures:
            yield from _signature(signature)


def units(loaded: LoadedModel, *reasons: str) -> Mapping[int, tuple[int, ...]]:
    """
    Return the layers that are on the way out for one of these reasons and compute in 16 bits, each
    with those in it that do.
    """
    named: dict[int, str] = {}
    for index, reason in outputs.on_the_way_out(loaded):
        named.setdefault(index, reason)
    wanted = {
        index for index, reason in named.items() if reason in reasons and gives_half(loaded, index)
    }
    tops = [index for index in sorted(wanted) if not wanted & set(_above(loaded, index))]
    return {top: tuple(sorted(wanted & set(loaded.below(top)))) for top in tops}


def gives_half(loaded: LoadedModel, index: int) -> bool:
    """
    Return whether a layer gives 16 bits: UpSampling2D of Keras 2 gives float32 in any case,
    Bidirectional of Keras 3 casts what its layers give.
    """
    outer = next(
        (
            above
            for above in _above(loaded, index)
            if layer_facts(loaded.sites[above].class_name).wraps == "directions"
        ),
        None,
    )
    if loaded.is_keras3 and outer is not None:
        return gives_half(loaded, outer)
    if not computes_half(loaded, index):
        return False
    argument = loaded.config(index).get("interpolation")
    policy = loaded.policy_name(index) or ""
    given = dtype_support.output_dtype(
        loaded.loader,
        loaded.sites[index].class_name,
        argument if isinstance(argument, str) else None,
        policy,
    )
    return given is None or given in HALVES


def _above(loaded: LoadedModel, index: int) -> Iterator[int]:
    here = loaded.sites[index].parent
    while here is not None:
        yield here
        here = loaded.sites[here].parent


def _layers(loaded: LoadedModel) -> Iterator[Finding]:
    for index, members in units(loaded, outputs.OUTPUT).items():
        layer = loaded.layers[index]
        softmax = " is a softmax and" if outputs.is_softmax(loaded, index) else ""
        message = (
            f"{layer.path}{softmax} computes an output of the model in "
            f"{compute_dtype(loaded, index)}"
        )
        yield RULE.finding(
            message, path=layer.path, address=layer.address, remedy=to_float32(loaded, members)
        )


def _signature(signature: Signature) -> Iterator[Finding]:
    halves = {name: dtype for name, dtype in signature.outputs.items() if dtype in HALVES}
    if halves:
        listed = ", ".join(f"{name} as {dtype}" for name, dtype in halves.items())
        advice = "cast the output to float32 in the model, and export the model again"
        yield RULE.finding(
            f"the signature {signature.name} returns {listed}",
            detail=f"signature {signature.name}",
            advice=advice,
        )


RULE: Final = Rule(
    id="PT301",
    name="output-not-float32",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example='{"class_name": "Dense", "config": {"name": "predictions", "dtype": "mixed_float16", '
    '...}}, listed in "output_layers"',
)
