"""
Code that a loader runs: Lambda layers and other functions stored as Python's byte code.

A Lambda, at any depth (in wrappers, nested models, RNN cells), holds the byte code of a Python
function, and so does ``__lambda__`` wherever it stands: as an activation, an initialiser, a loss, a
metric or a schedule of the optimizer. Loading builds the function and calls it to find the layer's
shape. Byte code can do whatever Python can, and it runs only under the Python version that wrote
it. Keras 3 refuses it unless ``safe_mode=False`` or code loaded earlier says so, but from 3.0 to
3.11.2 not in HDF5; Keras 2 and TensorFlow run it, tf_keras 2.21 even with ``safe_mode=True`` in
HDF5. Nothing is said of what the code does.

Weights in a ``.keras`` archive can be a pickle (``model.weights.npz``), which runs code when it is
loaded.

A note tells of YAML that calls Python classes, as TF 1.15 to 2.2 wrote it: the classes hold one
value and do no harm, other tags are refused by the reader. PyYAML 5.2 and later do not read them.

Sources: CVE-2024-3660, CVE-2025-9905, CVE-2026-12481; keras/src/layers/core/lambda_layer.py of
Keras 3.15.1. With ``safe_mode=True``, Keras 3.6.0 and tf_keras 2.21.0 ran the Lambda of a file of
TF 2.15 in HDF5, and Keras 3.15.1 refused it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.hazards import Harm
from policytool.rules import _observations
from policytool.rules.base import Rule
from policytool.rules.finding import Severity
from policytool.rules.safety._found import findings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_ADVICE: Final = (
    "put the computation into a layer class, or load it only where you would run its author's "
    "programs"
)


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield what holds byte code."""
    yield from findings(RULE, case, Harm.CODE, advice=_ADVICE)
    for observation in _observations.select(case, "pickled-weights"):
        yield _observations.finding(
            RULE,
            case,
            observation,
            advice="do not load the file; save the model anew with its weights in HDF5",
        )
    for observation in _observations.select(case, "python-objects"):
        yield _observations.finding(RULE, case, observation, severity=Severity.NOTE)


RULE: Final = Rule(
    id="PT601",
    name="executes-code",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"class_name": "Lambda", "config": {"function": ["4wEAAAAAAAAAAQAAAAIAAABDABAA...", '
    "null, "
    'null], "function_type": "lambda", ...}',
    references=("CVE-2024-3660", "CVE-2025-9905", "CVE-2026-12481"),
)
