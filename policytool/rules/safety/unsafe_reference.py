"""
Config refers to harmful functions or classes that no model needs.

A config refers to classes and functions by module and name. Keras 3.0 to 3.8 import any module that
a config names, and Keras 3.9 and 3.10 import any function from the Keras package. The rule reports
references that have no legitimate use in a model: Python's standard library; packages that unpickle
data or install software; Keras functions that load or download files, draw models, unpack archives
or disable safe mode; TensorFlow functions that access files, load libraries or call Python; and
classes from the copy of Keras that TensorFlow includes, which has no safe mode. The rule detects
only known cases, so a file without a finding may still refer to another harmful package.

Sources: CVE-2025-1550, CVE-2025-8747, CVE-2025-9906, CVE-2025-12060 and CVE-2025-12638
(``get_file``), GHSA-pwq7-2gvj-vg9v (classes). The Keras functions are those that Keras 3.15.1
itself rejects (NON_MODELING_APIS in keras/src/saving/serialization_lib.py) and those in modules
unrelated to modeling. The standard library modules come from ``sys.stdlib_module_names`` in Python
3.11. For ten of these references, from ``os.system`` to
``tensorflow.python.ops.gen_io_ops.read_file``, Keras 3.0.5, 3.3.3 and 3.6.0 return the function,
and Keras 3.12.0 and 3.15.1 raise an error.
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
    yield from findings(RULE, case, Harm.NAMED, advice="do not load the file; check its origin")


RULE: Final = Rule(
    id="PT602",
    name="unsafe-reference",
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
