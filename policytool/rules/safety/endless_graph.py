"""
Layers that wait for each other, so that a loader has no end.

A functional model's config says which call of which layer each layer takes. Where two take each
other's output, one its own, or one that of a call which is not there, no order of building them
exists. Loaders come back to a layer whose inputs are missing, and Keras 2 does so for ever, as
Keras 3 does up to 3.14 with HDF5 and with nodes that are spelled as Keras 2's: the process that
loads the file is busy until someone ends it. No release writes such a graph.

Sources: ``endless_graph.h5`` and ``endless_graph.keras`` in docs/attacks.md;
``reconstruct_from_config`` in keras/engine/functional.py of Keras 2.
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
    yield from findings(
        RULE, case, Harm.ENDLESS, advice="do not load the file; find out where it is from"
    )


RULE: Final = Rule(
    id="PT611",
    name="endless-graph",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"name": "a", "inbound_nodes": [[["b", 0, 0, {}]]] and "name": "b", "inbound_nodes": '
    '[[["a", 0, 0, {}]]]',
)
