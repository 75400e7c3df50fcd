"""
Datasets that claim far more bytes than the file stores of them.

HDF5 can keep a dataset of any shape without its values: a file of a few kB claims terabytes, and a
loader that makes room for the shape ends, or takes the machine with it. Reported is what claims
more than a gigabyte and two hundred times what it stores. Keras writes all values that a shape
needs. policytool reads shapes without making room for them, and does not cast such a dataset. A
dataset of more than 1,024 chunks, of which less than a quarter is stored, is reported as well: HDF5
takes a kilobyte of memory for each chunk that it reads, and a file of 9 kB can have a million of
them.

Sources: CVE-2026-0897; h5-ratio in policytool/support/limits.py. For a kernel that claims 160 GB,
Keras 2.12.0 to 3.14.0 asked for all of them as they loaded it, though the advisory has it mended in
3.12.1 and 3.13.2; Keras 3.15.1 refused it.
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
            RULE, case, observation, advice="do not load the file; find out where it is from"
        )


RULE: Final = Rule(
    id="PT610",
    name="claims-more-than-it-stores",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="layers/dense/vars/0 claims 160,000,000,000 bytes and stores 0",
    references=("CVE-2026-0897",),
)
