"""
A loader that is to take the model computes an activation otherwise than the release that wrote it,
and says nothing.

``hard_sigmoid`` is 0.2 x + 0.5 in Keras 2 and x / 6 + 0.5 in Keras 3, cut off at 0 and 1: the gates
of an LSTM and of a ConvLSTM2D that has it open otherwise, and outputs differ by a tenth. A file
that is loaded as it is keeps the name, and so gets the other function. ``migrate --target`` writes
a model that computes the same: what goes into the activation is multiplied by a layer before it,
or, in recurrent layers and with ``--allow-weight-rewrite``, by the weights. It tells nothing of a
function of the same name that is the user's own.

Sources: every activation of every release was called on the same numbers
(fixtures/layer_arguments.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.compatibility import serialized_objects
from policytool.model.model import Cause, Obstacle
from policytool.releases import known_arguments
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
                    f"{target} computes another {name} than the file's writer, {computed[_AT]:g} "
                    f"at -1 instead of {written[_AT]:g}{_targets.also(place)}",
                    path=layers[0],
                    address=_targets.address(case, place),
                    detail=f"{target} {name}",
                    advice=conversion_advice.advice(
                        case,
                        target,
                        "give the target a function of your own that computes as the writer's does",
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
    name="computes-otherwise",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example='audit --target keras3 of {"class_name": "LSTM", "config": {"recurrent_activation": '
    '"hard_sigmoid", ...}} of Keras 2',
    needs=Needs.TARGET,
)
