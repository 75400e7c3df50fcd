"""
Variables are stored as bfloat16, which no release can read from this file format.

HDF5 has no bfloat16 type, so Keras writes two untyped bytes per value. Only Keras 3 can read them,
and only from its own ``.keras`` files. No release can read them from whole-model HDF5 files or from
Keras 2 ``.keras`` files, not even the release that wrote the file (``No cast function available``,
``data type 'bfloat16' not understood``). ``migrate`` stores the same values as float32, which every
release reads under a bfloat16 policy.

Sources: files written by TF 2.3 and 2.15, which were loaded in all releases from TF 2.3 to Keras
3.15 before and after ``migrate`` converted them (fixtures/loads.json,
fixtures/loads_migrated.json).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning import stored_dtypes
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_BFLOAT16: Final = "bfloat16"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield one finding for the file: every such value keeps it from loading."""
    document = case.document
    if (
        case.loaded is None
        or not stored_dtypes.stores_dtypes(case.loaded)
        or stored_dtypes.reads_bfloat16(case.loaded)
    ):
        return
    found = [
        tensor
        for tensor in (*(document.tensors or ()), *document.state)
        if tensor.dtype == _BFLOAT16
    ]
    if found:
        counted = "1 variable is" if len(found) == 1 else f"{len(found)} variables are"
        listed = join_first(["/".join(tensor.path) for tensor in found])
        message = (
            f"{counted} stored as bfloat16 ({listed}), which no release can read from this "
            "file format"
        )
        yield RULE.finding(message, remedy=Remedy(fix=Fix.SAFE))


RULE: Final = Rule(
    id="PT403",
    name="unreadable-bfloat16",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example="6 variables are stored as bfloat16 (dense/dense/kernel:0, ...), which no release can "
    "read from this file format",
)
