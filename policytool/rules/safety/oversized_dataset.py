"""
Datasets declare far more data than the file stores.

HDF5 can declare a dataset of any shape without storing its values, so a file of a few kB can
declare terabytes. A release that allocates memory for the declared shape crashes or exhausts the
memory of the machine. The rule reports datasets with a declared size above 1 GiB and more than 50
times the stored size. Keras always stores every value of a dataset. The rule also reports datasets
with more than 1,024 chunks if less than a quarter of the chunks are stored: HDF5 allocates a
kilobyte for each chunk that it reads, and a 9 kB file can declare a million chunks. policytool
reads shapes without allocating memory for them, and does not cast such datasets.

Sources: CVE-2026-0897; h5-ratio in policytool/support/limits.py. Keras 2.12.0 to 3.14.0 tried to
allocate memory for a kernel with a declared size of 160 GB, although the advisory lists 3.12.1 and
3.13.2 as fixed; Keras 3.15.1 rejected it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules import _observations
from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield the datasets."""
    for observation in _observations.select(case, "unstored-values"):
        yield _observations.finding(
            RULE, case, observation, advice="do not load the file; check its origin"
        )


RULE: Final = Rule(
    id="PT610",
    name="oversized-dataset",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="layers/dense/vars/0 declares 160,000,000,000 bytes but stores 0",
    references=("CVE-2026-0897",),
)
