"""
Archive members that point out of the archive or stand twice, and keys that stand twice.

A member such as ``../../x`` is written outside the directory by whoever unpacks the archive
carelessly. Of two members or keys of one name, one reader takes the first and another the last, so
what a scanner approves need not be what a loader builds; Python and Keras take the last. The same
goes for two functions of one name in a graph, and for a directory that holds a SavedModel and
another model. Keras writes none of this. An archive that inflates beyond all proportion is no
finding: it is refused, with exit code 3.

Sources: CVE-2025-12060 and CVE-2025-12638 for members that escape; ``_reject_zip_bomb`` in
keras/src/saving/saving_lib.py of Keras 3.15.1 for the rest.
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
    """Yield what readers saw."""
    for observation in _observations.select(
        case,
        "escaping-member",
        "duplicate-member",
        "duplicate-key",
        "duplicate-function",
        "several-models",
        "stray-metadata",
    ):
        yield _observations.finding(
            RULE, case, observation, advice="do not load the file; find out who packed it"
        )


RULE: Final = Rule(
    id="PT607",
    name="doubled-or-escaping-member",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="the member ../../.bashrc points out of the archive",
)
