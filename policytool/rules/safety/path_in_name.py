"""
Layer name is a path that leads outside the model directory.

Keras 3 uses layer names as paths when it saves and loads data other than weights, such as
vocabularies. If a name is an absolute path or contains ``../`` or a NUL character, Keras 3 reads or
writes files elsewhere on the machine. A plain slash is harmless: DenseNet layers have names such as
``conv1/bn``.

Sources: CVE-2026-12479; ``DiskIOStore._full_path`` in keras/src/saving/saving_lib.py in Keras
3.15.1, which rejects such paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import hazards
from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_SHOWN: Final = 120


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield the layers with such a name."""
    if case.loaded is None:
        return
    for site, layer in zip(case.loaded.sites, case.model.layers, strict=True):
        name = hazards.leading_out(site)
        if name is not None:
            message = (
                f"the layer name {name[:_SHOWN]!r} is a path that leads outside the model directory"
            )
            yield RULE.finding(
                message,
                path=layer.path,
                address=layer.address,
                advice="do not load the file; check its origin",
            )


RULE: Final = Rule(
    id="PT608",
    name="path-in-name",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"class_name": "StringLookup", "config": {"name": "../../../home/user/.config/x", ...}',
    references=("CVE-2026-12479",),
)
