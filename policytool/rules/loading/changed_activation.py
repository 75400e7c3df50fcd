"""
Activation function has a different formula in the target release.

``hard_sigmoid`` is 0.2 x + 0.5 in Keras 2 and x / 6 + 0.5 in Keras 3, clipped to the range from 0
to 1. In an LSTM or ConvLSTM2D with this activation, the gates return different values, and outputs
differ by about 10%. If the file is loaded without conversion, the activation keeps its name, but
its formula silently changes. ``migrate --target`` keeps predictions unchanged: it scales the input
of the activation with an additional layer or, in recurrent layers with ``--allow-weight-rewrite``,
rescales the weights. The rule does not check custom functions with the same name.

Sources: every activation function of every release, called with the same inputs
(fixtures/layer_arguments.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.compatibility import serialized_objects
from policytool.model.model import Cause, Obstacle
from policytool.releases import known_arguments
from policytool.releases.releases import release_name
from policytool.rules import conversion_advice
from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Severity
from policytool.rules.loading import _targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each target and activation."""
    if case.loaded is None or not options.targets:
        return
    writer = case.loaded.origins[-1].id
    for name, layers in _activations(case).items():
        written = known_arguments.computes(name, writer)
        for target in options.targets:
            computed = known_arguments.computes(name, target)
            if written is not None and computed is not None and written != computed:
                place = Cause(kind=Obstacle.CLASS, reason="", layers=layers)
                yield RULE.finding(
                    f"{release_name(target)} uses a different formula for {name} than the release "
                    f"that wrote the file: {computed[_AT]:g} instead of {written[_AT]:g} "
                    f"for the input -1{_targets.also(place)}",
                    path=layers[0],
                    address=_targets.address(case, place),
                    detail=f"{target} {name}",
                    advice=conversion_advice.advice(
                        case,
                        target,
                        "pass a custom function with the original formula in custom_objects",
                    ),
                )


def _activations(case: RuleInput) -> dict[str, tuple[str, ...]]:
    """
    Return the activations of a model whose function is not the same everywhere, and the layers that
    have them.
    """
    found: dict[str, tuple[str, ...]] = {}
    for alike in serialized_objects.objects(case.loaded.sites if case.loaded else ()):
        if alike.kind == serialized_objects.ACTIVATIONS and known_arguments.is_known(
            alike.kind, alike.class_name
        ):
            found[alike.class_name] = tuple(
                dict.fromkeys((*found.get(alike.class_name, ()), *alike.layers))
            )
    return found


_AT: Final = 1
"""Where the value at -1 stands in what :func:`accepted.computes` returns."""

RULE: Final = Rule(
    id="PT504",
    name="changed-activation",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example='{"class_name": "LSTM", "config": {"recurrent_activation": "hard_sigmoid", ...}} in a '
    "Keras 2 file, audited with --target keras3",
    needs=Needs.TARGET,
)
