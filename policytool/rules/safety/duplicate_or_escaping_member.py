"""
Archive contains duplicate members, members with paths outside the archive, or duplicate keys.

If an archive is extracted without path checks, a member such as ``../../x`` is written outside the
target directory. If two members or keys have the same name, some readers use the first and others
the last, so a scanner may approve content other than what Keras loads. Python and Keras use the
last. The same applies to two functions with the same name in a graph. Keras never writes such
files. An archive with an extreme compression ratio causes an error (exit code 3), not a finding.

Sources: CVE-2025-12060 and CVE-2025-12638 for members with paths outside the archive;
``_reject_zip_bomb`` in keras/src/saving/saving_lib.py in Keras 3.15.1 for extreme compression
ratios.
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
        "stray-metadata",
    ):
        yield _observations.finding(
            RULE, case, observation, advice="do not load the file; check its origin"
        )


RULE: Final = Rule(
    id="PT607",
    name="duplicate-or-escaping-member",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="the member ../../.bashrc points outside the archive",
)
