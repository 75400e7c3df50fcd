"""
Ops in a SavedModel's graph that open files, connect somewhere, or call Python.

A graph is a program: whoever runs a function of it, or loads it where the op stands in an initialiser, does what its ops say. All functions of all graphs in
the file count, called or not. Passed over are the ops that TensorFlow's own saver puts into every SavedModel (SaveV2, RestoreV2, MergeV2Checkpoints),
initialisers of tables from assets, and caches of data sets. ``tf.print`` is a note, because it can print to a file. Ops of other libraries are not known.

Sources: TensorFlow's SECURITY.md, on untrusted models; the op registry of TensorFlow 2.21.0, by the names of arguments; ``saved_model_cli scan``
of the same release looks for PrintV2, ReadFile and WriteFile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import hazards
from policytool.finding import Severity
from policytool.rules._base import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.finding import Finding
    from policytool.rules._base import Case, Question


def check(case: Case, _question: Question) -> Iterator[Finding]:
    """Yield each kind of op."""
    for name in sorted(case.document.ops):
        op = hazards.op(name)
        if op is not None:
            severity = Severity.NOTE if name == hazards.PRINTING else None
            yield RULE.finding(
                f"its graph has the op {name}, which {op.what}", detail=name, severity=severity, advice="run the model in a sandbox, or not at all"
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
