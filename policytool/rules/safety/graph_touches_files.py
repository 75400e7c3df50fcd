"""
Ops in a SavedModel's graph that open files, connect somewhere, or call Python.

A graph is a program: TensorFlow does what its ops say when a function is called, or when the model
is loaded if the op is in an initialiser. All functions of all graphs in the file count, called or
not. The ops of TensorFlow's own savers and tables (SaveV2, RestoreV2, MergeV2Checkpoints,
InitializeTableFromTextFile) are findings unless their paths come from the saver's placeholder or
from an asset. ``tf.print`` is a note, and an error if it prints to a file. Ops that are on no list
are PT612.

Sources: TensorFlow's SECURITY.md, on untrusted models; the op registry of TensorFlow 2.21.0, by the
names of arguments; ``saved_model_cli scan`` of the same release looks for PrintV2, ReadFile and
WriteFile.
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

_ADVICE: Final = "run the model in a sandbox, or not at all"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield each kind of op."""
    for observation in _observations.select(case, "op-path"):
        yield _observations.finding(RULE, case, observation, advice=_ADVICE)
    for name in sorted(case.document.ops):
        op = hazards.op(name)
        if op is not None:
            severity = Severity.NOTE if name == hazards.PRINTING else None
            yield RULE.finding(
                f"its graph has the op {name}, which {op.what}",
                detail=name,
                severity=severity,
                advice=_ADVICE,
            )


RULE: Final = Rule(
    id="PT605",
    name="graph-touches-files",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="node { name: 'WriteFile' op: 'WriteFile' input: 'filename' input: 'contents' }",
)
