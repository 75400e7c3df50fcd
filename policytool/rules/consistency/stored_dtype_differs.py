"""
Stored variables have a different dtype than their layer declares.

Releases create each variable in the dtype from the config and silently cast the stored values.
float32 values lose precision in float16 variables, and float16 values do not regain precision in
float32 variables. The rule checks the float variables of built-in Keras layers whose policy is in
the file. It accounts for layers that keep their variables in a different dtype, such as
BatchNormalization under the Keras 2 float16 policy. It accepts bfloat16 variables stored as float32
if no release can read bfloat16 from the file format (PT403). The rule skips quantized layers,
integer variables, and TensorFlow.js models, which store only float32.

Sources: the variables of every layer class under every policy in tf_keras 2.21 and Keras 3.15
(policytool/releases/data/layer_dtypes.json). When tf_keras 2.21 loaded a TF 2.15 file with float16
or float64 values instead of float32, it silently created float32 variables.
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
                f"{layer.path} declares {layer.policy} with {layer.variable_dtype} "
                f"variables, but stores {', '.join(stored)}"
            )
            advice = (
                f"releases cast the stored values to {layer.variable_dtype} when they load "
                "the file; set another policy with migrate --set, or load and save the "
                "model again"
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
    example="dense declares float16 with float16 variables, but stores float32",
)
