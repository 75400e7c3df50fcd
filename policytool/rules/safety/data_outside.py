"""
Weights and assets that lie outside the model: HDF5 links and external storage, and shards and
vocabularies elsewhere.

HDF5 can keep a dataset's values in any file of the machine, and a link can stand for an object of
another file. A loader that follows them reads that file into the weights, from which whoever gets
the model can read it. Keras writes none of this. A soft link stays within the file and is a
warning. An asset of a SavedModel is a name that loaders put behind the directory's:
``../../secret`` leads out of it. policytool follows none.

Sources: CVE-2026-1669 (GHSA-3m4q); ``safe_get_h5_dataset`` in keras/src/saving/saving_lib.py of
Keras 3.15.1. The advisory has it mended in 3.12.1 and 3.13.2; Keras 3.14.0 refused external storage
in ``.keras``, and in HDF5 read another file through external storage, an external link and a
virtual dataset, as did the releases before it. Keras 3.15.1 refused all three, and soft links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import hazards
from policytool.rules import _observations
from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_SOFT: Final = "soft-link"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield what readers saw and did not follow."""
    for observation in _observations.select(case, *hazards.OUTSIDE, _SOFT):
        severity = Severity.WARNING if observation.code == _SOFT else None
        yield _observations.finding(
            RULE,
            case,
            observation,
            severity=severity,
            advice="do not load the file; save the model anew with its values inside",
        )


RULE: Final = Rule(
    id="PT606",
    name="data-outside",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="model_weights/dense/dense/kernel:0 keeps its values in another file, /etc/passwd",
    references=("CVE-2026-1669",),
)
