"""``explain``: the entries for a message, tested against the model that it is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.model.model import Outcome, verdict_of
from policytool.releases.releases import KERAS3, loaders_of, release_name
from policytool.support.errors import UsageError
from policytool.troubleshooting.entries import Explanation, TestedModel, explain_text

if TYPE_CHECKING:
    from policytool.model.model import Verdict

_TARGET: Final = re.compile(r"--target (\S+)")


def explain(text: str, model: str | None) -> Explanation:
    """
    Return the entries for a text. With a model, their commands name it, and its verdict comes
    first.

    :raises UsageError: if the text is empty or too long
    :raises ModelFileError: if the model cannot be read
    """
    explanation = explain_text(text, model)
    if model is None:
        return explanation
    return replace(explanation, model=_tested_model(model, _target(explanation)))


def _tested_model(path: str, target: str) -> TestedModel:
    """Return what a release does with a model, and the fix that ``audit`` prints."""
    from policytool.commands import audit  # imports all rules
    from policytool.formats import discovery
    from policytool.rules import AuditOptions
    from policytool.support import steps

    source = discovery.named_input(path, remote=True)
    options = AuditOptions(targets=loaders_of((target,)), target_names=(target,))
    with steps.budget(source.display_path):
        case = audit.read_model(source)
        audited = audit.audit_model(case, source.path, options)
    verdict = verdict_of(case.model.loaders, options.targets[0])
    fix = next((each.arguments for each in audited.commands if each.arguments is not None), None)
    return TestedModel(
        path=source.display_path,
        release=release_name(options.targets[0]),
        loads=_loads(verdict),
        reason=_reason(verdict),
        arguments=None if _loads(verdict) else fix,
    )


def _target(explanation: Explanation) -> str:
    """Return the release that the first command names as its target; the newest Keras without."""
    for match in explanation.matches:
        for step in (*match.entry.fix, match.entry.check):
            if name := _TARGET.search(step.command):
                try:
                    loaders_of((name[1],))
                except UsageError:
                    continue
                if loaders_of((name[1],)):
                    return name[1]
    return KERAS3


def _loads(verdict: Verdict | None) -> bool | None:
    """Return whether a release loads the model and its training configuration; None if unknown."""
    if verdict is None or verdict.outcome is Outcome.UNKNOWN:
        return None
    is_training_broken = (
        verdict.training is not None and verdict.training.outcome is Outcome.INCOMPATIBLE
    )
    return verdict.loads and not is_training_broken


def _reason(verdict: Verdict | None) -> str | None:
    if verdict is None:
        return None
    if verdict.loads and verdict.training is not None:
        return verdict.training.explanation
    return verdict.explanation
