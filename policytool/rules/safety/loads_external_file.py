"""
Layers open or download other files when the model is loaded.

``TFSMLayer`` loads a SavedModel from a path in the config and runs its graph.
``TorchModuleWrapper`` unpickles a module, which can execute arbitrary code. TensorFlow Hub's
``KerasLayer`` downloads the model that its handle refers to. If ``vocabulary`` is not a list,
``StringLookup``, ``IntegerLookup`` and ``TextVectorization`` read it as a file path or URL. A
feature column reads the checkpoint in ``ckpt_to_load_from``. All paths are resolved on the machine
that loads the model. The content of the file becomes part of the model, so anyone with access to
the model can read this content.

Sources: CVE-2026-1462 (TFSMLayer), CVE-2025-49655 (TorchModuleWrapper), CVE-2025-12058
(vocabulary); keras/src/export/tfsm_layer.py, keras/src/utils/torch_utils.py and
keras/src/layers/preprocessing/index_lookup.py in Keras 3.15.1. With a path in ``vocabulary``,
tf_keras 2.21.0 read that file into the ``StringLookup`` layer when it loaded the model. Keras 3.6.0
and 3.15.1 did so when they built the layer with safe mode disabled.
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
        advice="save the data in the model, or load the model only if you trust the file or URL",
    )


RULE: Final = Rule(
    id="PT604",
    name="loads-external-file",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"class_name": "StringLookup", "config": {"name": "words", "vocabulary": '
    '"/etc/passwd", '
    "...}",
    references=("CVE-2025-12058", "CVE-2025-49655", "CVE-2026-1462"),
)
