"""
Loading the model executes code from the file, such as the function of a Lambda layer.

A Lambda layer contains the bytecode of a Python function. Lambda layers can occur at any depth: in
wrappers, nested models and RNN cells. A ``__lambda__`` object also contains bytecode and can be an
activation, initializer, loss, metric or learning-rate schedule. Keras builds the function when it
loads the model, and calls it to determine the output shape of the layer. Bytecode can do anything
that Python can, and runs only in the Python version that wrote it. Keras 3 rejects bytecode unless
``safe_mode=False`` is set or previously loaded code has disabled safe mode; Keras 3.0 to 3.11.2 do
not check HDF5 files. Keras 2 and TensorFlow run the bytecode; for HDF5 files, tf_keras 2.21 does so
even with ``safe_mode=True``. The rule does not analyze the code.

The weights in a ``.keras`` archive can be a pickle (``model.weights.npz``), which executes code
when it is loaded.

TF 1.15 to 2.2 write YAML with tags that call Python classes. These classes only store a value and
are harmless, so the rule reports them as a note. policytool rejects all other tags. PyYAML
5.2 and later cannot read files with these tags.

Sources: CVE-2024-3660, CVE-2025-9905, CVE-2026-12481; keras/src/layers/core/lambda_layer.py in
Keras 3.15.1. With ``safe_mode=True``, Keras 3.6.0 and tf_keras 2.21.0 ran the Lambda layer in an
HDF5 file written by TF 2.15, and Keras 3.15.1 rejected it.
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
    "move the computation into a layer class, or load the model only if you trust its author"
)


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield what holds byte code."""
    yield from findings(RULE, case, Harm.CODE, advice=_ADVICE)
    for observation in _observations.select(case, "pickled-weights"):
        yield _observations.finding(
            RULE,
            case,
            observation,
            advice="do not load the file; save the model again with its weights in HDF5",
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
