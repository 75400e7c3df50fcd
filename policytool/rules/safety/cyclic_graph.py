"""
Layers depend on each other in a cycle, so loading never finishes.

The config of a functional model lists the inputs of each layer call. No build order exists if two
layers use each other's output, a layer uses its own output, or an input refers to a missing call.
If the inputs of a layer do not exist yet, Keras retries the layer later. Keras 2 retries forever,
and so does Keras 3 up to 3.14 for HDF5 files and for nodes in the Keras 2 format. The process that
loads the file then runs until it is killed. No release writes such a graph.

Sources: ``endless_graph.h5`` and ``endless_graph.keras`` in docs/evidence/attacks.md;
``reconstruct_from_config`` in keras/engine/functional.py in Keras 2.
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
    """Yield each model with such layers."""
    yield from findings(RULE, case, Harm.ENDLESS, advice="do not load the file; check its origin")


RULE: Final = Rule(
    id="PT611",
    name="cyclic-graph",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"name": "a", "inbound_nodes": [[["b", 0, 0, {}]]] and "name": "b", "inbound_nodes": '
    '[[["a", 0, 0, {}]]]',
)
