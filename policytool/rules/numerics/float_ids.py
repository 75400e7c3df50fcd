"""
Integer IDs are rounded to 16-bit floats before a lookup or an embedding.

Layers cast float inputs to their compute dtype; even Reshape and Concatenate do this. float16
represents all integers up to 2048, and bfloat16 all integers up to 256. For example, the ID 2909
becomes 2908 in float16 and 2912 in bfloat16, and 65535 becomes infinite in float16. The model then
silently looks up the wrong row. Layers do not cast integer inputs, but an input layer with a 16-bit
float dtype rounds its inputs. The rule skips an embedding if the dtype can represent every row
number exactly. It also skips IDs that reach an Embedding directly from a float32 input, because
Embedding does not cast its inputs.

Sources: https://github.com/keras-team/keras/issues/19332; measured with Keras 3.15.1 and tf_keras
2.21.0, both of which create Embedding with autocast=False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep import identifiers
from policytool.model.rounded_weights import compute_dtype
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.numerics._judging import judged_model, to_float32
from policytool.support.text.jsontext import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_EXACT: Final = {"float16": 2048, "bfloat16": 256}
"""The largest integer up to which each holds them all."""

_ROWS: Final = ("input_dim", "num_tokens", "max_tokens")
"""Config keys that say how many ids there are."""


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield the layers that carry ids in 16 bits."""
    loaded = judged_model(case, options)
    if loaded is None:
        return
    told = set[int]()
    for index, lookup in identifiers.identifier_layers(loaded, inputs=True):
        dtype = compute_dtype(loaded, index) or ""
        casts = (
            dtype in HALVES
            and not layer_facts(loaded.sites[index].class_name).is_op_layer
            and loaded.layers[index].autocast is not False
        )
        if casts and index not in told and _ids(loaded, lookup) > _EXACT[dtype]:
            told.add(index)
            layer = loaded.layers[index]
            message = (
                f"{layer.path} passes IDs to {loaded.layers[lookup].path} in {dtype}, which "
                f"cannot represent IDs above {_EXACT[dtype]} exactly"
            )
            yield RULE.finding(
                message,
                path=layer.path,
                address=layer.address,
                remedy=to_float32(loaded, (index,)),
            )


def _ids(loaded: LoadedModel, lookup: int) -> float:
    """Return how many ids a lookup knows; infinitely many where its config does not say."""
    config = loaded.config(lookup)
    return next(
        (rows for key in _ROWS if (rows := number(config.get(key))) is not None), float("inf")
    )


RULE: Final = Rule(
    id="PT308",
    name="float-ids",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example="a float32 Input, a Reshape under mixed_float16, and an Embedding with 30,000 rows",
)
