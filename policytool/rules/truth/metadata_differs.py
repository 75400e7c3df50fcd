"""
A SavedModel whose two copies of Keras' metadata disagree.

TF 2.5 writes what it knows of each layer to ``keras_metadata.pb`` and into ``saved_model.pb``.
Loaders from TF 2.5 on obey the first, TF 2.4 and older the second: they build different models from
one directory. Numbers of shared objects, which may stand in one copy alone, do not count.

Sources: keras/saving/saved_model/load.py of TF 2.5.3; SavedModels written by it.
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
            advice="save the model anew with the release that is to load it",
        )


RULE: Final = Rule(
    id="PT406",
    name="metadata-differs",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example="keras_metadata.pb says mixed_bfloat16 where saved_model.pb says mixed_float16",
)
