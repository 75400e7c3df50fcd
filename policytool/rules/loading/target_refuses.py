"""
A loader that is to take the model refuses it, and which layer and key do it.

A loader refuses a class that it lacks, a key that a class of its release does not know or needs, an
op, a container, or a dtype without a kernel. One finding stands for each cause. How policies are
spelled is told by the rules of PT1. Where ``migrate`` alone makes the loader take the file, the
finding has the command; where ``migrate --target`` converts it into a new file, the finding says
that, and otherwise why it cannot: ``audit`` makes the plan that ``migrate`` would. ``--fix``
converts nothing. The release that wrote the file still loads it.

Sources: every loader was asked about every class and key (fixtures/layer_arguments.py), about every
dtype (fixtures/layer_dtypes.py), and was given the fixtures (fixtures/loads.py; docs/loaders.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.model import Obstacle
from policytool.rules import conversion_advice
from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.loading import _targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.model import Cause
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each target and cause."""
    for verdict in _targets.verdicts(case, options):
        causes = [cause for cause in verdict.causes if cause.kind is not Obstacle.POLICY]
        remedy = _targets.remedy(case, verdict) if causes else None
        for cause in causes:
            yield RULE.finding(
                f"{verdict.loader} refuses the file: {cause.reason}{_targets.also(cause)}",
                path=cause.layers[0] if cause.layers else None,
                address=_targets.address(case, cause),
                detail=_targets.detail(verdict, cause),
                remedy=remedy,
                advice=None
                if remedy
                else conversion_advice.advice(case, verdict.loader, _otherwise(case, cause)),
            )


def _otherwise(case: RuleInput, cause: Cause) -> str:
    """Return what to do where migrate does not convert the file."""
    if case.loaded is None:
        return _WITHOUT_CONFIG.get(case.document.format, _OTHERWISE)
    return _ADVICE.get(cause.kind, _OTHERWISE)


_OTHERWISE: Final = (
    "load the file with the release that wrote it, and save it from a model that the target's own "
    "code builds"
)
_ADVICE: Final = {
    Obstacle.DTYPE: (
        "give the layer a policy that has kernels: mixed_float16 or mixed_bfloat16 in place of a "
        "pure 16-bit policy, or float32"
    ),
}

_WITHOUT_CONFIG: Final = {
    "weights": "build the model with its own code, and call load_weights",
    "savedmodel": "call its signatures as a layer, keras.layers.TFSMLayer",
}
"""By the format of a file that has no config; Keras 3.0, 3.3 and 3.15 make the layer."""

RULE: Final = Rule(
    id="PT501",
    name="target-refuses",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='audit --target keras3.6 of {"class_name": "Dense", "config": {"units": 4, '
    '"quantization_config": null, ...}}',
    needs=Needs.TARGET,
)
