"""
Layer or optimizer uses an epsilon that float16 cannot represent.

An epsilon prevents a division by zero. In float16, values up to 0.00000003 become 0, and values
below 0.00006 lose precision. The rule reports layers that use their epsilon in float16: the
tf_keras GroupNormalization layer, and the tf_keras LayerNormalization layer under the pure float16
policy. With an epsilon of 1e-8, both return NaN for a constant input. The rule skips layers that
cast to float32 and back: BatchNormalization, the Keras 3 normalization layers, and the tf_keras
LayerNormalization layer under mixed_float16. If a custom class has an epsilon in its config, the
rule reports a note, because the file does not show how the class uses it.

An optimizer applies its epsilon in the dtype of the model's variables. With float16 variables, an
epsilon of 1e-8 produces NaN for every zero gradient; with Adamax, so does an epsilon of 1e-7. With
the default epsilon of 1e-7 and a learning rate of 0.01, three Adam steps moved a weight with a
gradient of 1e-4 from 1 to -0.5 instead of 0.97.

Sources: measured on CPU with tf_keras 2.21 and Keras 3.15, whose optimizers return the same
results; https://github.com/keras-team/keras/issues/22586.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import custom_classes, optimizer_config
from policytool.model.rounded_weights import compute_dtype
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import family_of
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.numerics._judging import (
    ROUNDS_TO_ZERO,
    SMALLEST_NORMAL,
    judged_model,
    libraries,
    to_float32,
)
from policytool.support.errors import SpellingError
from policytool.support.text.jsontext import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_DIVIDES: Final = frozenset(
    {"Adadelta", "Adam", "AdamW", "Adamax", "Lamb", "Muon", "Nadam", "RMSprop", "ScheduleFreeAdamW"}
)
"""Optimizers that divide by a sum of squares that begins at 0; Adagrad's begins at 0.1."""


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield the layers, and the optimizer."""
    loaded = judged_model(case, options)
    if loaded is None:
        return
    asked = libraries(loaded, options)
    for index, site in enumerate(loaded.sites):
        epsilon = number(loaded.config(index).get("epsilon"))
        if (
            epsilon is not None
            and 0 < epsilon < SMALLEST_NORMAL
            and compute_dtype(loaded, index) == "float16"
        ):
            if not custom_classes.is_opaque(site):
                if any(
                    (loaded.policy_name(index) or "")
                    in layer_facts(site.class_name).uses_epsilon.get(family_of(library), ())
                    for library in asked
                ):
                    yield _used_finding(loaded, index, epsilon)
            elif epsilon <= ROUNDS_TO_ZERO:
                yield _declared_finding(loaded, index, epsilon)
    yield from _of_optimizer(loaded)


def _used_finding(loaded: LoadedModel, index: int, epsilon: float) -> Finding:
    layer = loaded.layers[index]
    lost = epsilon <= ROUNDS_TO_ZERO
    comes = "becomes 0, and a constant input produces NaN" if lost else "loses precision"
    return RULE.finding(
        f"{layer.path} ({layer.class_name}) uses its epsilon of {epsilon:g} in float16, where the "
        f"epsilon {comes}",
        path=layer.path,
        address=layer.address,
        severity=Severity.WARNING if lost else Severity.NOTE,
        remedy=to_float32(loaded, (index,)),
    )


def _declared_finding(loaded: LoadedModel, index: int, epsilon: float) -> Finding:
    layer = loaded.layers[index]
    message = (
        f"{layer.path} ({layer.class_name}) computes in float16 and has an epsilon of "
        f"{epsilon:g}, which becomes 0 in float16"
    )
    return RULE.finding(
        message,
        path=layer.path,
        address=layer.address,
        severity=Severity.NOTE,
        remedy=to_float32(loaded, (index,)),
    )


def _of_optimizer(loaded: LoadedModel) -> Iterator[Finding]:
    try:
        found = optimizer_config.innermost(optimizer_config.optimizer_config(loaded.document))
    except SpellingError:
        return  # an optimizer of a kind that no release writes is told elsewhere
    name, config = found or ("", {})
    epsilon = number(config.get("epsilon"))
    halves = [
        layer.path
        for layer in loaded.layers
        if layer.variable_dtype == "float16" and layer.variables and layer.quantization is None
    ]
    if name not in _DIVIDES or not halves or epsilon is None or not 0 < epsilon < SMALLEST_NORMAL:
        return
    zero = epsilon <= ROUNDS_TO_ZERO or (name == "Adamax" and epsilon <= _FAILS_ADAMAX)
    comes = (
        "a zero gradient produces NaN" if zero else "small gradients change weights far too much"
    )
    message = (
        f"the optimizer {name} adds an epsilon of {epsilon:g} in float16, the variable dtype of "
        f"{len(halves)} layer{'s' if halves[1:] else ''}: {comes}"
    )
    advice = (
        "keep variables in float32 (mixed_float16), or compile the model with a larger "
        "epsilon, such as 1e-4"
    )
    yield RULE.finding(message, detail="optimizer", advice=advice)


_FAILS_ADAMAX: Final = 1e-7


RULE: Final = Rule(
    id="PT304",
    name="epsilon-underflow",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example='{"class_name": "GroupNormalization", "config": {"epsilon": 1e-12, "dtype": '
    '"mixed_float16", ...}} in a Keras 2 file',
)
