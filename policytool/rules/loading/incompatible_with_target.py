"""
Model fails to load in the target release.

The target release does not support a class, op, config key or file format that the model uses, has
no kernel for a dtype, or requires a config key that the file does not contain. Each cause is a
separate finding. The PT1 rules report incompatible policy formats. If ``migrate`` without
``--target`` fixes the model, the finding contains that command. If ``migrate --target`` can convert
the model to a new file, the finding contains that command; otherwise, it states the reason.
``audit`` uses the same plan as ``migrate``, but ``--fix`` never converts a model. The release that
wrote the file can still load it.

Sources: tests of every class and key (fixtures/layer_arguments.py) and of every dtype
(fixtures/layer_dtypes.py) in every release, and the results of loading the fixtures in every
release (fixtures/loads.py; docs/reference/compatibility.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.model import Obstacle
from policytool.releases.releases import get, release_name
from policytool.releases.targets import running_release, target_and_containers
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
                f"fails to load in {release_name(verdict.loader)}: "
                f"{cause.reason}{_targets.also(cause)}",
                path=cause.layers[0] if cause.layers else None,
                address=_targets.address(case, cause),
                detail=_targets.detail(verdict, cause),
                remedy=remedy,
                advice=None
                if remedy
                else conversion_advice.advice(case, verdict.loader, _otherwise(case, cause)),
            )
    yield from _archives(case, options)


def _archives(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Yield a finding for each target that lays out archives in its own way: TF 2.13 and 2.14, whose
    verdicts are those of TF 2.12.
    """
    if case.loaded is None or case.document.format != "keras":
        return
    writers = {release.id for release in case.loaded.origins}
    for name in options.names:
        if running_release(name) and "keras" not in get(name).formats and writers != {name}:
            loader, _ = target_and_containers(name)
            yield RULE.finding(
                f"{name} fails to load the model: it reads only its own layout of .keras "
                "archives, which no other release writes",
                detail=f"{name} container",
                advice=conversion_advice.advice(case, loader, _OTHERWISE),
            )


def _otherwise(case: RuleInput, cause: Cause) -> str:
    """Return what to do where migrate does not convert the file."""
    if case.loaded is None:
        return _WITHOUT_CONFIG.get(case.document.format, _OTHERWISE)
    return _ADVICE.get(cause.kind, _OTHERWISE)


_OTHERWISE: Final = (
    "load the model in the release that wrote it, rebuild it in the target release, and "
    "copy the weights"
)
_ADVICE: Final = {
    Obstacle.DTYPE: (
        "set a policy whose dtypes are supported: float32, or mixed_float16 or mixed_bfloat16 "
        "to replace a pure 16-bit policy"
    ),
}

_WITHOUT_CONFIG: Final = {
    "weights": "build the model from its code and call load_weights",
    "savedmodel": "load its signatures as a layer with keras.layers.TFSMLayer",
}
"""By the format of a file that has no config; Keras 3.0, 3.3 and 3.15 make the layer."""

RULE: Final = Rule(
    id="PT501",
    name="incompatible-with-target",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='{"class_name": "Dense", "config": {"units": 4, "quantization_config": null, ...}}, '
    "audited with --target keras3.6",
    needs=Needs.TARGET,
)
