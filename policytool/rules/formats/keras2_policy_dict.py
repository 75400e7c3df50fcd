"""
Policies are stored as Keras 2 dicts, so the model fails to load in Keras 3.

TF 2.1 to 2.15 and tf_keras write a mixed policy as a ``Policy`` dict, which they can also read.
Keras 3 fails with ``'str' object has no attribute 'quantization_mode'``. TF 2.5 and later, tf_keras
and every Keras 3 release read the policy name, which ``migrate`` writes instead. With ``--target``,
the rule incompatible-policy-format reports such policies for each target that cannot read them.

Sources: keras/src/dtype_policies/__init__.py in Keras 3.15 (``deserialize``); measured with Keras
3.0 to 3.15 on files written by 12 releases; leondgarse/Keras_insightface issue 132.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.formats._spelled import describe_layers, everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_CLASS: Final = "Policy"


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Yield one finding for all of them; those of the experimental API, names that are gone, and what
    a named target refuses are other rules'.
    """
    if options.targets:
        return
    found = (
        [one for one in everywhere(case.loaded) if one.class_name == _CLASS]
        if case.loaded is not None
        else []
    )
    plain = [one for one in found if not (one.is_experimental or one.is_removed or one.is_inferred)]
    if plain:
        path, layers = describe_layers(plain)
        names = ", ".join(sorted({str(one.name) for one in plain}))
        message = (
            f"{layers} {'stores' if path else 'store'} {names} as a Keras 2 dict, which Keras "
            "3 cannot read"
        )
        yield RULE.finding(
            message, path=path, address=plain[0].address, remedy=Remedy(fix=Fix.SAFE)
        )


RULE: Final = Rule(
    id="PT108",
    name="keras2-policy-dict",
    severity=Severity.NOTE,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "Policy", "config": {"name": "mixed_float16"}}',
)
