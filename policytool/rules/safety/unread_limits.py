"""
Parts of a file that were not looked at.

Files from strangers are read within bounds. Where a graph is beyond them, what it computes in is
unknown, and the rules that compare it with the layers say nothing; of several graphs in one
SavedModel, one is reported, though all of them are searched for harmful ops. No finding about the
rest means nothing then.

Sources: the bounds in policytool/support/limits.py with their reasons;
tensorflow/python/saved_model/tag_constants.py for which graph loaders take.
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
    name="unread-limits",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example="saved_model.pb holds 3 graphs (train; eval; serve); the one tagged serve is reported",
)
