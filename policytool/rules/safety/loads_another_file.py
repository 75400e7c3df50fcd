"""
Layers that open or fetch another file when the model is loaded.

``TFSMLayer`` loads a SavedModel from a path in the config and runs its graph;
``TorchModuleWrapper`` unpickles a module, which runs what the pickle says; TensorFlow Hub's
``KerasLayer`` fetches a model by its handle; ``StringLookup``, ``IntegerLookup`` and
``TextVectorization`` read the file or URL that ``vocabulary`` names, where it is no list; a feature
column reads the checkpoint in ``ckpt_to_load_from``. What is opened is what the path means on the
machine that loads the model, and its content becomes part of the model, from which whoever gets
that can read it.

Sources: CVE-2026-1462 (TFSMLayer), CVE-2025-49655 (TorchModuleWrapper), CVE-2025-12058
(vocabulary); keras/src/export/tfsm_layer.py, keras/src/utils/torch_utils.py and
keras/src/layers/preprocessing/index_lookup.py of Keras 3.15.1. A ``StringLookup`` with a path was
filled from that file by tf_keras 2.21.0 as it loaded a model, and by Keras 3.6.0 and 3.15.1 as they
built the layer outside safe mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.hazards import Harm
from policytool.rules.base import Rule
from policytool.rules.finding import Severity
from policytool.rules.safety._found import findings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield the layers."""
    yield from findings(
        RULE,
        case,
        Harm.FILE,
        advice="save the model with what it needs inside it, or load it only where you trust what "
        "the "
        "name leads to",
    )


RULE: Final = Rule(
    id="PT604",
    name="loads-another-file",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"class_name": "StringLookup", "config": {"name": "words", "vocabulary": '
    '"/etc/passwd", '
    "...}",
    references=("CVE-2025-12058", "CVE-2025-49655", "CVE-2026-1462"),
)
