"""``explain``: the entries for a message, tested against the model that it is about."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.model.compatibility import file_names
from policytool.model.model import Outcome, verdict_of
from policytool.releases.releases import KERAS3, loaders_of, release_name
from policytool.support.errors import UsageError
from policytool.troubleshooting.entries import Explanation, Step, TestedModel, explain_text

if TYPE_CHECKING:
    from policytool.model.model import Verdict
    from policytool.troubleshooting.entries import Entry

_TARGET: Final = re.compile(r"--target (\S+)")


def explain(text: str, model: str | None) -> Explanation:
    """
    Return the entries for a text. With a model, its verdict comes first, and the commands of the
    entries name it; those that migrate it are the command that ``audit`` prints for it.

    :raises UsageError: if the text is empty or too long
    :raises ModelFileError: if the model cannot be read
    """
    explanation = explain_text(text, model)
    if model is None:
        return explanation
    target = _target(explanation)
    tested, step = _tested_model(model, target)
    matches = tuple(
        replace(match, entry=replace(match.entry, fix=_tested_steps(match.entry, target, step)))
        for match in explanation.matches
    )
    return replace(explanation, model=tested, matches=matches)


def _tested_steps(entry: Entry, target: str, tested: Step) -> tuple[Step, ...]:
    """Return the fix of an entry, with one tested step for those that migrate the model."""
    others = [step for step in entry.fix if not _migrates(step, target)]
    return entry.fix if len(others) == len(entry.fix) else (tested, *others)


def _fix(tested: TestedModel, needed_name: str | None, obstacle: str | None) -> Step:
    """
    Return the step that fixes the model.

    :param needed_name: the command that renames the file, if it needs nothing else
    :param obstacle: the reason why no command fixes the model; None if it needs none
    """
    if needed_name is not None:
        return Step(text="Rename the file:", command=needed_name)
    if tested.arguments is not None:
        words = ("policytool", "migrate", tested.path, *tested.arguments)
        return Step(text="Fix the model:", command=shlex.join(words))
    if obstacle is not None:
        return Step(text=f"No command fixes the model: {obstacle}.")
    return Step(text="The model needs no conversion for this release.")


def _migrates(step: Step, target: str) -> bool:
    """Return whether a step migrates the model for a target, or without one."""
    name = _TARGET.search(step.command)
    return step.command.startswith("policytool migrate") and (name is None or name[1] == target)


def _tested_model(path: str, target: str) -> tuple[TestedModel, Step]:
    """Return what a release does with a model, with the fix that ``audit`` prints, and its step."""
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
    loads = None if verdict is None or verdict.outcome is Outcome.UNKNOWN else verdict.loads
    training = verdict.training if verdict is not None else None
    fails_to_compile = training is not None and training.outcome is Outcome.INCOMPATIBLE
    obstacle = next((each.reason for each in audited.commands if each.reason is not None), None)
    tested = TestedModel(
        path=source.display_path,
        release=release_name(options.targets[0]),
        loads=loads,
        reason=_reason(verdict),
        is_compiled=training is None or training.outcome is Outcome.LOADS,
        arguments=None if loads and not fails_to_compile else fix,
    )
    return tested, _fix(tested, file_names.needed_name(verdict), obstacle)


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


def _reason(verdict: Verdict | None) -> str | None:
    if verdict is None:
        return None
    if verdict.loads and verdict.training is not None:
        return verdict.training.explanation
    return verdict.explanation
