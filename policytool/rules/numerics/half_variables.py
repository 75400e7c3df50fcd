"""
Trainable variables of a model with an optimizer are stored in 16 bits.

A training step is often much smaller than the weight that it changes. float16 has no number between
1 and 1.00098, and bfloat16 has no number between 1 and 1.0078, so smaller updates are lost. The
mixed policies also compute in 16 bits, but keep variables in float32. The rule checks only models
with an optimizer: in other models, 16-bit variables are a way to halve the file size. It skips
layers that are not trainable.

Sources: https://www.tensorflow.org/guide/mixed_precision; "Mixed Precision Training", section 3.1,
https://arxiv.org/abs/1710.03740.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from policytool.migration.planning.base import base_policy
from policytool.releases.dtypes import HALVES
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.numerics._judging import has_graph, judged_model, to_policy
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield one finding for each 16-bit variable dtype."""
    loaded = judged_model(case, options)
    if loaded is None or case.model.optimizer is None:
        return
    by_dtype: dict[str, list[int]] = defaultdict(list)
    for index, layer in enumerate(loaded.layers):
        trains = loaded.config(index).get("trainable") is not False and loaded.has_weights(index)
        if (
            layer.variable_dtype in HALVES
            and layer.quantization is None
            and trains
            and not loaded.is_input(index)
        ):
            by_dtype[layer.variable_dtype or ""].append(index)
    for dtype, indices in by_dtype.items():
        yield _finding(loaded, dtype, indices)


def _finding(loaded: LoadedModel, dtype: str, indices: list[int]) -> Finding:
    paths = [loaded.layers[index].path for index in indices]
    keeps = (
        "1 layer trains its variables"
        if len(paths) == 1
        else f"{len(paths)} layers train their variables"
    )
    mixed = f"mixed_{dtype}"
    if base_policy(loaded) == dtype:
        remedy: Remedy | None = Remedy(fix=Fix.UNSAFE, to=mixed, retrace=has_graph(loaded))
    else:
        remedy = to_policy(loaded, indices, mixed)
    return RULE.finding(
        f"{keeps} in {dtype}, so small updates are lost ({join_first(paths)})",
        detail=dtype,
        remedy=remedy,
    )


RULE: Final = Rule(
    id="PT309",
    name="half-variables",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example='{"class_name": "Dense", "config": {"dtype": "float16", ...}} in a compiled model',
)
