"""
Signature is missing or differs from the baseline in the names or dtypes of its inputs or outputs.

Clients of a served model depend on the dtypes of its signatures. Unless the last layer uses the
float32 policy, a policy change can also change the dtype of the model's outputs, and the first
symptom is a failing client. The rule reports a new signature as a note, because it does not affect
existing clients.

Sources: tf-keras issue 303 and https://github.com/keras-team/keras/issues/17420; the section on
float32 outputs in https://www.tensorflow.org/guide/mixed_precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.document import Signature
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_ADVICE: Final = (
    "restore the dtype of the output layer, or write the baseline again if the change is intended"
)


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield what differs from the baseline, by the names of signatures and arguments."""
    before = {
        signature.name: signature for signature in options.signatures.get(case.model.path, ())
    }
    after = {signature.name: signature for signature in case.model.signatures}
    for name in sorted({*before, *after} if before else ()):
        if name not in after:
            yield RULE.finding(
                f"the signature {name} is missing",
                detail=name,
                advice=(
                    "export the signature again, or write the baseline again if no client uses "
                    "the signature"
                ),
            )
        elif name not in before:
            yield RULE.finding(f"the signature {name} is new", detail=name, severity=Severity.NOTE)
        else:
            yield from _changes(before[name], after[name])


def _changes(before: Signature, after: Signature) -> Iterator[Finding]:
    for kind, old, new in (
        ("input", before.inputs, after.inputs),
        ("output", before.outputs, after.outputs),
    ):
        for argument, message in _differences(old, new):
            yield RULE.finding(
                f"the {kind} {argument} of {before.name} {message}",
                detail=f"{before.name}/{kind}/{argument}",
                advice=_ADVICE,
            )


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for argument in sorted({*old, *new}):
        if argument not in new:
            yield argument, "is missing"
        elif argument not in old:
            yield argument, f"is new ({new[argument]})"
        elif old[argument] != new[argument]:
            yield argument, f"changed from {old[argument]} to {new[argument]}"


RULE: Final = Rule(
    id="PT404",
    name="signature-changed",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="the output predictions of serving_default changed from float32 to float16",
    needs=Needs.BASELINE,
)
