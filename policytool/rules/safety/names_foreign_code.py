"""
Functions and classes outside a model's business, which a loader would look up and call.

A config names classes and functions by module and name, and loaders import the module: Keras 3.0 to
3.8 any module there is, Keras 3.9 and 3.10 any function inside Keras. Named here is what no model
has a reason to name: Python's standard library, packages that unpickle or install, functions of
Keras that load, fetch, draw, unpack or switch safe mode off, functions of TensorFlow that touch
files, load libraries or call Python, and classes of the copy of Keras that TensorFlow holds, which
know no safe mode. That is a list of what is known, and a file without a finding may still name
something harmful that is installed.

Sources: CVE-2025-1550, CVE-2025-8747, CVE-2025-9906, CVE-2025-12060 and CVE-2025-12638
(``get_file``), GHSA-pwq7-2gvj-vg9v (classes). The functions of Keras are those that Keras 3.15.1
refuses itself, NON_MODELING_APIS in keras/src/saving/serialization_lib.py, and those of modules
that do no modelling; the modules are Python 3.11's ``sys.stdlib_module_names``. Asked for ten of
them, from ``os.system`` to ``tensorflow.python.ops.gen_io_ops.read_file``, Keras 3.0.5, 3.3.3 and
3.6.0 return each one, 3.12.0 and 3.15.1 refuse all.
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
    """Yield what is named."""
    yield from findings(
        RULE, case, Harm.NAMED, advice="do not load the file; find out where it is from"
    )


RULE: Final = Rule(
    id="PT602",
    name="names-foreign-code",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"activation": {"module": "keras.utils", "class_name": "function", "config": '
    '"get_file", '
    '"registered_name": "get_file"}',
    references=(
        "CVE-2025-1550",
        "CVE-2025-8747",
        "CVE-2025-9906",
        "CVE-2025-12060",
        "CVE-2025-12638",
        "GHSA-pwq7-2gvj-vg9v",
    ),
)
