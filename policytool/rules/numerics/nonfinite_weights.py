"""
Stored weights that are NaN or infinite.

One of them makes NaN of most of what is computed with it, in every dtype. It is what is left of a
training that diverged, in mixed_float16 often for want of loss scaling. The optimizer's variables
are looked at as well, those of metrics are not. Values are read, with ``--weights`` alone, and a
note says which could not be.

Sources: IEEE 754; TensorFlow's guide to mixed precision on gradients that overflow,
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
            what = f"{layer.path} holds" if layer is not None else "the file holds"
            values = (
                "1 value that is"
                if counts.nonfinite == 1
                else f"{counts.nonfinite} values that are"
            )
            message = f"{what} {values} NaN or infinite, of {counts.values} in {name}"
            where, address = (layer.path, layer.address) if layer is not None else (None, None)
            yield RULE.finding(
                message,
                path=where,
                address=address,
                detail=name,
                advice="go back to a checkpoint from before the training diverged",
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
        f"{many} not read, so nothing is said of its values ({listed}: "
        f"{next(iter(case.unread.values()))})"
    )
    return RULE.finding(message, detail="unread", severity=Severity.NOTE)


RULE: Final = Rule(
    id="PT307",
    name="nonfinite-weights",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="a kernel in which a NaN stands",
    needs=Needs.WEIGHTS,
)
