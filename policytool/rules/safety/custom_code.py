"""
Model uses custom classes or functions, whose code is not in the file.

The file contains the configs of these classes and functions, but not their code. To load the model,
import the package that defines them or pass them in ``custom_objects``; loading runs their code. A
custom layer can compute in any dtype, regardless of its policy. The rule reports one note for each
class or function, with the number of layers, losses and metrics that use it. A SavedModel with
traces loads without the code, at least in Keras 2, because the graph contains the computation.

Sources: keras/src/saving/serialization_lib.py in Keras 3.15.1, ``_retrieve_class_or_fn``; the layer
classes that each release exports.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from policytool.model import custom_classes
from policytool.model.compatibility import training_incompatibilities, training_verdicts
from policytool.model.hazards import Harm
from policytool.releases.layer_classes import layer_facts
from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield each such class or function once."""
    if case.loaded is None:
        return
    for name, (count, first) in _needed_classes(case.loaded).items():
        layer = case.model.layers[first] if first is not None else None
        used = (
            f"{count} layers need"
            if count > 1
            else f"{layer.path if layer is not None else 'the training configuration'} needs"
        )
        message = f"{used} {name}, a custom class or function whose code is not in the file"
        alone = layer if count == 1 else None
        yield RULE.finding(
            message,
            path=alone.path if alone is not None else None,
            address=layer.address if layer is not None else None,
            detail=name,
            advice="import its code before loading, or pass it in custom_objects",
        )


def _needed_classes(loaded: LoadedModel) -> dict[str, tuple[int, int | None]]:
    """Return name to how many layers have it, and the first of them."""
    found: dict[str, dict[int | None, None]] = defaultdict(dict)
    for index, site in enumerate(loaded.sites):
        if not layer_facts(site.class_name).is_opaque and custom_classes.is_opaque(site):
            found[site.registered_name or site.class_name].setdefault(index)
    for hazard in loaded.hazards:
        if hazard.harm is Harm.CUSTOM:
            found[hazard.name].setdefault(hazard.site)
    compiled = training_incompatibilities.evidence(
        loaded.document, loaded.placed, keras3=loaded.is_keras3
    )
    for one in training_verdicts.named(compiled) if compiled is not None else ():
        if one.is_own and not (one.is_class or one.is_lambda):
            found[one.name].setdefault(None)
    return {name: (len(indices), next(iter(indices))) for name, indices in found.items()}


RULE: Final = Rule(
    id="PT603",
    name="custom-code",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example='"module": "mypackage.layers", "class_name": "Scale", "registered_name": '
    '"mypackage>Scale"',
)
