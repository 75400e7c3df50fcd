"""
Stored variables have a different dtype than their layer declares.

Releases create the variable in the dtype of the config and silently cast the stored values: float32
values become float16, or float16 values fill float32 variables without regaining precision. The
rule checks float variables of Keras' built-in layers whose policy is in the file. It takes into
account that some layers keep variables in a different dtype, such as BatchNormalization under Keras
2's float16. bfloat16 variables stored as float32 are correct if no release can read bfloat16 from
the file format (PT403). Quantized layers, integers and TensorFlow.js models, which store only
float32, are skipped.

Sources: the variables of every class under every policy in tf_keras 2.21 and Keras 3.15
(policytool/releases/data/layer_dtypes.json). From a file of TF 2.15 with float16 or float64 values
instead of float32, tf_keras 2.21 silently created float32 variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning import stored_dtypes
from policytool.releases import dtype_support, dtypes
from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_BFLOAT16: Final = "bfloat16"
_STAND_IN: Final = "float32"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield the layers whose variables are so."""
    if case.loaded is None or not stored_dtypes.stores_dtypes(case.loaded):
        return
    for layer in case.model.layers:
        expected = _expected_dtypes(case.loaded, layer)
        stored = (
            sorted(
                {variable.dtype for variable in layer.variables if dtypes.is_float(variable.dtype)}
                - expected
            )
            if expected
            else []
        )
        if stored:
            message = (
                f"{layer.path} declares {layer.policy}, whose variables are "
                f"{layer.variable_dtype}, and stores {', '.join(stored)}"
            )
            advice = (
                f"releases cast them to {layer.variable_dtype} on loading; set another policy "
                "with migrate --set, or load and save the model again"
            )
            yield RULE.finding(message, path=layer.path, address=layer.address, advice=advice)


def _expected_dtypes(loaded: LoadedModel, layer: Layer) -> frozenset[str]:
    """
    Return the dtypes that a layer's variables may be stored in; nothing where that cannot be told.
    """
    variable = layer.variable_dtype
    if (
        layer.opaque
        or layer.quantization is not None
        or layer.policy is None
        or variable is None
        or not dtypes.is_float(variable)
    ):
        return frozenset()
    own = dtype_support.variable_dtypes(loaded.loader, layer.class_name or "", layer.policy)
    stand_in = {_STAND_IN} if _BFLOAT16 in {variable, *own} else set()
    return frozenset({variable, *own, *stand_in})


RULE: Final = Rule(
    id="PT401",
    name="stored-dtype-differs",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example="dense declares float16, whose variables are float16, and stores float32",
)
