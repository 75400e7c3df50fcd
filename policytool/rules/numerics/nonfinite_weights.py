"""
Stored weights contain NaN or infinity.

In every dtype, a single NaN or infinity turns most results into NaN. NaN or infinity usually means
that training diverged. With mixed_float16, training often diverges because losses are not scaled.
The rule also checks the variables of the optimizer, but not the variables of metrics. It requires
``--weights``, because it reads the stored values. A note lists the values that could not be read.

Sources: IEEE 754; the section on gradient overflow in TensorFlow's guide to mixed precision,
https://www.tensorflow.org/guide/mixed_precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.rounded_weights import variables
from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Severity
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield the variables with such values, and one finding for those that could not be read."""
    if case.counts is None:
        return
    owners = _owners(case.loaded) if case.loaded is not None else {}
    for path, counts in case.counts.items():
        if counts.nonfinite:
            layer, name = owners.get(path, (None, "/".join(path)))
            owner = layer.path if layer is not None else "the file"
            values = "value" if counts.nonfinite == 1 else "values"
            message = (
                f"{owner} has {counts.nonfinite} NaN or infinite {values} in {name}, out of "
                f"{counts.values}"
            )
            where, address = (layer.path, layer.address) if layer is not None else (None, None)
            yield RULE.finding(
                message,
                path=where,
                address=address,
                detail=name,
                advice="use a checkpoint that was saved before training diverged",
            )
    if case.unread:
        yield _unread(case)


def _owners(loaded: LoadedModel) -> Mapping[tuple[str, ...], tuple[Layer, str]]:
    """
    Return, by a stored tensor's path, the layer whose variable it is, and the variable's name.
    """
    return {
        tensor.path: (layer, name)
        for index, layer in enumerate(loaded.layers)
        for name, tensor in variables(loaded, index)
    }


def _unread(case: RuleInput) -> Finding:
    listed = join_first(["/".join(path) for path in case.unread])
    many = (
        "1 stored variable was"
        if len(case.unread) == 1
        else f"{len(case.unread)} stored variables were"
    )
    message = (
        f"{many} not read, so the values are unknown ({listed}: {next(iter(case.unread.values()))})"
    )
    return RULE.finding(message, detail="unread", severity=Severity.NOTE)


RULE: Final = Rule(
    id="PT307",
    name="nonfinite-weights",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="a kernel that contains NaN",
    needs=Needs.WEIGHTS,
)
