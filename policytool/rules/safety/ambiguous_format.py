"""
File or directory is two models, and programs differ in which one they load.

Keras selects the reader by the suffix, and other programs select it by the content. HDF5 readers
look for a signature at byte 0, 512, 1024 and each further power of two. Zip readers look for a
record at the end of the file, and accept any data before the archive. One file can therefore be a
harmless HDF5 model for a scanner and a different ``.keras`` archive for Keras. A directory can
contain a SavedModel and an unpacked ``.keras`` model, and an archive can have two directories.
Keras never writes such files. ``migrate``, ``check`` and ``tune`` reject them, also with
``--trust``.

A ``.keras`` archive that stores an HDF5 member at one of these offsets does not have the problem.

Sources: ``H5FD_locate_signature`` in src/H5FDint.c in HDF5 1.14; section 4.3.16 of PKWARE APPNOTE
6.3.10; ``load_model`` in keras/src/saving/saving_api.py in Keras 3.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.ambiguity import CODE
from policytool.rules import _observations
from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield what its reader saw."""
    for observation in _observations.select(case, CODE):
        yield _observations.finding(
            RULE, case, observation, advice="do not load it; check its origin"
        )


RULE: Final = Rule(
    id="PT613",
    name="ambiguous-format",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example="model.keras is an HDF5 file with a zip archive appended",
)
