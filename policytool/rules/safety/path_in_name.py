"""
Layer names that lead out of a directory.

Keras 3 makes paths of layer names when it saves and loads what a layer keeps beside its weights,
such as vocabularies. A name with ``../`` in it, an absolute path or a NUL makes it write or read
elsewhere on the machine. A slash alone is no harm: DenseNet's layers are called ``conv1/bn`` and
the like.

Sources: CVE-2026-12479; ``DiskIOStore._full_path`` in keras/src/saving/saving_lib.py of Keras
3.15.1, which refuses such paths.
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
                f"the layer name {name[:_SHOWN]!r} is a path that leads out of the directory that "
                "a loader keeps its files in"
            )
            yield RULE.finding(
                message,
                path=layer.path,
                address=layer.address,
                advice="do not load the file; find out where it is from",
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
