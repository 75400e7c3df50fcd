"""
Layer computes in a 16-bit dtype that is known to produce wrong results for its class.

The affected classes depend on the library: tf_keras averages and normalizes in the compute dtype,
whereas Keras 3 casts to float32 and back. The rule checks the library that wrote the file and, with
``--target``, the target library as well. Most of these errors produce neither NaN nor a warning: in
float16, the tf_keras GlobalAveragePooling2D layer returns 2 instead of 10 if all 128x128 values are
10. A config does not contain the size of pooled images or the learned values of a Normalization
layer, so findings for these classes are notes. If the config of a Normalization layer contains its
mean and variance, the rule checks these values. ``migrate --to`` keeps all these layers in float32.

Sources: each class was run on a CPU with TensorFlow 2.21, Keras 3.15.1 and tf_keras 2.21.0, and
compared with a float32 layer that had the same weights; the finding contains the result. The
results agree with the lists of ops that automatic mixed precision in TensorFlow and PyTorch keeps
in float32, except for classes that upcast their inputs themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep import classes
from policytool.model.rounded_weights import compute_dtype
from policytool.releases.layer_classes import layer_facts
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.numerics._constants import numbers, out_of_range
from policytool.rules.numerics._judging import computes_half, judged_model, libraries, to_float32

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_LOST: Final = {"float16": 20.0, "bfloat16": 2.5}
"""
A mean of so many standard deviations, whose rounding alone shifts what comes out by 0.01: 20 *
2**-11, 2.5 * 2**-8.
"""


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield the layers of such classes."""
    loaded = judged_model(case, options)
    if loaded is None:
        return
    asked = libraries(loaded, options)
    for index, layer in enumerate(loaded.layers):
        reason = _reason(loaded, index, asked) if computes_half(loaded, index) else None
        dtype = compute_dtype(loaded, index) or ""
        if reason is not None and not (
            layer_facts(layer.class_name).adapts_statistics
            and _is_fine(loaded.sites[index].class_name, loaded.config(index), dtype)
        ):
            severity = (
                Severity.NOTE
                if any(risk.depends_on_values for risk in layer_facts(layer.class_name).risks)
                and not loaded.config(index).get("mean")
                else Severity.WARNING
            )
            message = f"{layer.path} ({layer.class_name}) computes in {dtype}: {reason}"
            yield RULE.finding(
                message,
                path=layer.path,
                address=layer.address,
                severity=severity,
                remedy=to_float32(loaded, (index,)),
            )


def _reason(loaded: LoadedModel, index: int, asked: Iterable[str]) -> str | None:
    """Return what goes wrong, in the first of the libraries in which something does."""
    policy, site = loaded.policy_name(index) or "", loaded.sites[index]
    found = next(
        (
            reason
            for library in asked
            if (reason := classes.risk_reason(library, site, policy)) is not None
        ),
        None,
    )
    return found or (
        classes.window_reason(site) if compute_dtype(loaded, index) == "float16" else None
    )


def _is_fine(class_name: str, config: Mapping[str, object], dtype: str) -> bool:
    """
    Return whether a Normalization was given numbers that the dtype is exact enough for; those that
    it cannot hold are constant-out-of-range's.
    """
    means, variances = numbers(config.get("mean")), numbers(config.get("variance"))
    if not means or not variances:
        return False
    if dtype == "float16" and any(out_of_range(class_name, config)):
        return True
    pairs = (
        zip(means, variances, strict=True)
        if len(means) == len(variances)
        else ((mean, variance) for mean in means for variance in variances)
    )
    return all(abs(mean) <= _LOST[dtype] * max(variance, 0.0) ** 0.5 for mean, variance in pairs)


RULE: Final = Rule(
    id="PT303",
    name="wrong-in-16-bits",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example='{"class_name": "GlobalAveragePooling2D", "config": {"dtype": "mixed_float16", ...}} '
    "in a Keras 2 file",
)
