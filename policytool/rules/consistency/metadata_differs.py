"""
The two copies of the Keras metadata in a SavedModel differ.

TF 2.5 writes the metadata of each layer to both ``keras_metadata.pb`` and ``saved_model.pb``. TF
2.5 and later read the first file, and TF 2.4 and older read the second, so these releases build
different models from the same directory. The rule ignores the IDs of shared objects, because some
files contain these IDs in only one copy.

Sources: keras/saving/saved_model/load.py in TF 2.5.3; SavedModels written by TF 2.5.3.
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
    """Yield each object that is described in two ways."""
    for observation in _observations.select(case, "metadata-differs"):
        yield _observations.finding(
            RULE,
            case,
            observation,
            advice="save the model again in the release that will load it",
        )


RULE: Final = Rule(
    id="PT406",
    name="metadata-differs",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example="keras_metadata.pb contains mixed_bfloat16, but saved_model.pb contains mixed_float16",
)
