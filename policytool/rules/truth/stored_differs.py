"""
Variables that are stored in another dtype than their layer declares.

A loader makes the variable in the dtype that the config says and casts what it reads, without a
word: float32 values become float16 there, or a float16 file fills float32 variables that have long
lost their digits. Judged are floats of Keras' own layers whose policy the file says. Layers that
keep some variables in another dtype, such as BatchNormalization under Keras 2's float16, are known,
as measured; bfloat16 is rightly stored as float32 where no loader reads it (PT403); quantised
layers, integers and TensorFlow.js, which stores float32 alone, are left out.

Sources: tf_keras 2.21 and Keras 3.15 were asked for the variables of every class under every policy
(policytool/releases/data/layer_dtypes.json); from a file of TF 2.15 with float16, and with float64,
in place of float32, tf_keras 2.21 made float32 without a word.
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
                f"a loader casts them to {layer.variable_dtype}; migrate --set gives the layer "
                "another policy, and saving it anew gives it what it declares"
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
    name="stored-differs",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example="dense declares float16, whose variables are float16, and stores float32",
)
