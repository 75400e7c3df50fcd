"""
Layers use a policy name that later releases removed.

TF 1.15 and 2.0 supported ``<dtype>_with_float32_vars``, such as ``float16_with_float32_vars``. TF
2.1 and later raise an error for these names, and even TF 1.15 and 2.0 fail to load files that
contain them. Only Keras 3.1 and 3.2 supported int8 quantization with float16 as the compute dtype.
``migrate`` writes the current names of these policies, ``mixed_float16`` and ``mixed_bfloat16``.
``float64_with_float32_vars`` has no equivalent.

Sources: tensorflow/python/keras/mixed_precision/experimental/policy.py in TF 2.0.4 and 2.1.4;
keras/src/dtype_policies/dtype_policy.py in Keras 3.2 and 3.3; measured with ``Dense.from_config``
in TF 2.0 to 2.15, tf_keras 2.21 and Keras 3.0 to 3.15, all of which raise an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.options import RETARGETS
from policytool.model.loaded_model import current_name
from policytool.releases import policy
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.formats._spelled import by_name, describe_layers, everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding
    from policytool.rules.formats._spelled import Spelled


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each removed name."""
    found = (
        [one for one in everywhere(case.loaded) if one.is_removed]
        if case.loaded is not None
        else []
    )
    for name, those in by_name(found):
        path, layers = describe_layers(those)
        life = policy.lifecycle(policy.policy_from_name(name))
        message = (
            f"{layers} {'uses' if path else 'use'} the policy name {name}, which {life.removed} "
            f"removed; the current name is {life.replacement}"
        )
        remedy = _remedy(name, str(life.replacement), those)
        yield RULE.finding(
            message,
            path=path,
            address=those[0].address,
            detail=name,
            remedy=remedy,
            advice=None if remedy else f"use {life.replacement} instead",
        )


def _remedy(name: str, replacement: str, those: list[Spelled]) -> Remedy | None:
    if current_name(name) != name:
        return Remedy(fix=Fix.SAFE)
    if replacement not in RETARGETS or not all(one.is_layer for one in those):
        return None
    return Remedy(fix=Fix.UNSAFE, assignments=tuple((one.path, replacement) for one in those))


RULE: Final = Rule(
    id="PT102",
    name="removed-policy-name",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='"dtype": "float16_with_float32_vars"',
)
