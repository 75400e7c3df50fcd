"""
Parts of the file were not checked because they exceed a limit.

policytool limits how much it reads from untrusted files. If a graph exceeds a limit, its traced
dtypes are unknown, and the rules that compare the graph with the layers report nothing. If a
SavedModel contains several graphs, policytool reports only one of them, but searches all of them
for harmful ops. In both cases, the absence of findings proves nothing about the unchecked parts.

Sources: the limits in policytool/support/limits.py with their reasons;
tensorflow/python/saved_model/tag_constants.py for the tag of the graph that releases load.
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
    """Yield what the reader left out."""
    for observation in _observations.select(case, "graph-limit", "several-graphs"):
        yield _observations.finding(RULE, case, observation)


RULE: Final = Rule(
    id="PT609",
    name="limits-reached",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example=(
        "saved_model.pb contains 3 graphs (train; eval; serve); only the graph tagged serve is "
        "reported"
    ),
)
