"""
SavedModel graph contains ops that access files or the network, or call Python.

A graph is a program. TensorFlow runs the ops of a function when the function is called, and the ops
of an initializer when the model is loaded. The rule checks all functions of all graphs, including
those that are never called. It reports the ops of TensorFlow's own savers and tables (SaveV2,
RestoreV2, MergeV2Checkpoints, InitializeTableFromTextFile) unless their paths come from the
placeholder of the saver or from an asset. ``tf.print`` is reported as a note, or as an error if it
prints to a file. PT612 reports ops that are not on the reviewed lists.

Sources: the section on untrusted models in TensorFlow's SECURITY.md; the TensorFlow 2.21.0 op
registry, searched by argument name; ``saved_model_cli scan`` in the same release, which looks for
PrintV2, ReadFile and WriteFile.
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

_ADVICE: Final = "run the model only in a sandbox"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield each kind of op."""
    for observation in _observations.select(case, "op-path"):
        yield _observations.finding(RULE, case, observation, advice=_ADVICE)
    for name in sorted(case.document.ops):
        op = hazards.op(name)
        if op is not None:
            severity = Severity.NOTE if name == hazards.PRINTING else None
            yield RULE.finding(
                f"the graph contains the op {name}, which {op.what}",
                detail=name,
                severity=severity,
                advice=_ADVICE,
            )


RULE: Final = Rule(
    id="PT605",
    name="graph-accesses-files",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="node { name: 'WriteFile' op: 'WriteFile' input: 'filename' input: 'contents' }",
)
