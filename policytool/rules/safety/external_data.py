"""
Model refers to weights or assets in other files through HDF5 links, external storage or file paths.

HDF5 can store the values of a dataset in any file on the machine, and a link can point to an object
in another file. A release that follows such a reference copies data from the other file into the
weights, so anyone with access to the model can read that data. Keras never writes such references.
A soft link points to an object in the same file, so the rule reports it as a warning. TensorFlow
joins the name of a SavedModel asset to the path of the model directory, so a name such as
``../../secret`` refers to a file outside that directory. policytool does not follow any of these
references.

Sources: CVE-2026-1669 (GHSA-3m4q); ``safe_get_h5_dataset`` in keras/src/saving/saving_lib.py in
Keras 3.15.1. According to the advisory, Keras 3.12.1 and 3.13.2 contain the fix. Keras 3.14.0
rejected external storage in ``.keras`` files. In HDF5 files, Keras 3.14.0 and earlier releases
followed external storage, external links and virtual datasets to another file. Keras 3.15.1
rejected all three, as well as soft links.
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
            advice="do not load the file; save the model again with all values in the file",
        )


RULE: Final = Rule(
    id="PT606",
    name="external-data",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example=("model_weights/dense/dense/kernel:0 stores its values in another file, /etc/passwd"),
    references=("CVE-2026-1669",),
)
