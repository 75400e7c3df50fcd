"""
Model computes in float16, which is slower than float32 on a CPU.

Few CPUs have float16 instructions, so TensorFlow converts values to float32 and back for each op.
The rule runs only with ``--device cpu`` and reports one note per model. It does not report
bfloat16, because newer CPUs have bfloat16 instructions.

Sources: TensorFlow's guide to mixed precision, which states that mixed_float16 runs significantly
slower on CPUs, https://www.tensorflow.org/guide/mixed_precision. Times were measured with
TensorFlow 2.21 and Keras 3.15 on an AMD EPYC with AVX512-BF16 but without AVX512-FP16. Under
mixed_float16, three Dense layers took 30% more time than in float32, and two Conv2D layers took 70%
more time. Under mixed_bfloat16, both took 30% less time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.base import base_policy
from policytool.model.rounded_weights import compute_dtype, deciding
from policytool.rules.base import Device, Needs, Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.numerics._judging import has_graph, judged_model, to_float32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_HALF: Final = "float16"


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield one finding for a model that computes in float16."""
    if options.device is not Device.CPU:
        return
    loaded = judged_model(case, options)
    layers = _layers(loaded) if loaded is not None else []
    if layers and loaded is not None:
        what = (
            "1 layer with weights computes"
            if len(layers) == 1
            else f"{len(layers)} layers with weights compute"
        )
        yield RULE.finding(
            f"{what} in float16, which is slower than float32 on CPUs",
            remedy=_remedy(loaded, layers),
        )
    elif loaded is None and (
        names := [
            signature.name
            for signature in case.model.signatures
            if _HALF in signature.compute_dtypes
        ]
    ):
        message = (
            f"{', '.join(names)} {'computes' if len(names) == 1 else 'compute'} in "
            "float16, which is slower than float32 on CPUs"
        )
        yield RULE.finding(message, advice="export the model again in float32")


def _layers(loaded: LoadedModel) -> list[int]:
    return [
        index
        for index in range(len(loaded.sites))
        if compute_dtype(loaded, index) == _HALF and loaded.has_weights(index)
    ]


def _remedy(loaded: LoadedModel, layers: list[int]) -> Remedy | None:
    """
    Return ``--to float32`` where the layers follow the model's policy; it passes over those that do
    not.
    """
    base = base_policy(loaded)
    if all(loaded.policy_name(deciding(loaded, index)) == base for index in layers):
        return Remedy(fix=Fix.UNSAFE, to="float32", retrace=has_graph(loaded))
    return to_float32(loaded, layers)


RULE: Final = Rule(
    id="PT311",
    name="half-on-cpu",
    severity=Severity.NOTE,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example="layers that use mixed_float16, audited with --device cpu",
    needs=Needs.DEVICE,
)
