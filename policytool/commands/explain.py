"""``explain``: the entries for a message, tested against the model that it is about."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.model.compatibility import file_names
from policytool.model.model import Outcome, verdict_of
from policytool.releases.releases import KERAS3, TFJS, loaders_of, release_name
from policytool.support.errors import PolicytoolError, UsageError
from policytool.troubleshooting.entries import Explanation, Step, TestedModel, explain_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.formats.discovery import Input
    from policytool.model.model import Verdict
    from policytool.rules import RuleInput
    from policytool.troubleshooting.entries import Entry

_TARGET: Final = re.compile(r"--target (\S+)")


def explain(text: str, model: str | None) -> Explanation:
    """
    Return the entries for a text. With a model, its verdict comes first, and the commands of the
    entries name it; those that migrate it are the command that ``audit`` prints for it.

    Without one, the model that the text names is tested if it is there and an entry migrates it.

    :raises UsageError: if the text is empty or too long
    :raises ModelFileError: if ``model`` cannot be read
    """
    explanation = explain_text(text, model)
    if model is not None:
        return _tested(explanation, model)
    if not _migrates_found_model(explanation):
        return explanation
    try:
        return _tested(explanation, explanation.path)
    except PolicytoolError:
        return explanation  # the text may be about another file


def _migrates_found_model(explanation: Explanation) -> bool:
    """Return whether an entry migrates the model that the text names, and this model is there."""
    try:
        is_there = bool(explanation.path) and Path(explanation.path).exists()
    except (OSError, ValueError):  # such as a name that is too long
        return False
    return is_there and any(
        _converts(step) for match in explanation.matches for step in match.entry.fix
    )


def _tested(explanation: Explanation, path: str) -> Explanation:
    """
    Return the explanation with what the releases of its commands do with a model.

    :raises ModelFileError: if the model cannot be read
    """
    failing = _target(explanation)
    trial_of = _trials(path)
    trial = trial_of(failing)

    def tested_step(step: Step) -> Step:
        if not _converts(step):
            return step
        other = trial_of(_target_of(step) or failing)
        if other.tested.release == trial.tested.release:
            return trial.step(is_failing=True)
        return other.step(is_failing=False)

    def steps(entry: Entry) -> tuple[Step, ...]:
        return tuple(dict.fromkeys(tested_step(step) for step in entry.fix))

    matches = tuple(
        replace(match, entry=replace(match.entry, fix=steps(match.entry)))
        for match in explanation.matches
    )
    return replace(explanation, model=trial.tested, matches=matches)


class _Trial(Struct, frozen=True, kw_only=True):
    """What a release does with a model, and what ``audit`` says about it."""

    tested: TestedModel
    needed_name: str | None
    """The command that renames the file, if it needs nothing else."""

    obstacle: str | None
    """The reason why no command fixes the model; None if it needs none."""

    def step(self, *, is_failing: bool) -> Step:
        """
        Return the step that fixes the model.

        :param is_failing: whether the release is the one that fails, and no other one
        """
        release = "" if is_failing else f" for {self.tested.release}"
        if self.needed_name is not None:
            return Step(text="Rename the file:", command=self.needed_name)
        if self.tested.arguments is not None:
            words = ("policytool", "migrate", self.tested.path, *self.tested.arguments)
            text = "Fix the model:" if is_failing else f"Convert the model{release}:"
            return Step(text=text, command=shlex.join(words))
        if self.obstacle is not None:
            return Step(text=f"No command fixes the model{release}: {self.obstacle}.")
        return Step(text=f"The model needs no conversion{release or ' for this release'}.")


_CONVERSION: Final = re.compile(
    r"policytool migrate (?:'.{1,4096}'|[^\s-]\S*)(?: --target \S+)?(?: -o \S+)?"
)
"""A command that only makes a release load a model, and changes no policy."""


def _converts(step: Step) -> bool:
    """Return whether a step only converts the model, so that ``audit`` has a command for it."""
    return _CONVERSION.fullmatch(step.command) is not None and _target_of(step) != TFJS


def _target_of(step: Step) -> str:
    """Return the target of a command; empty without one."""
    name = _TARGET.search(step.command)
    return name[1] if name is not None else ""


def _trials(path: str) -> Callable[[str], _Trial]:
    """
    Return a function that returns what a release does with a model. The model is read once, and
    audited once for each target.

    :raises ModelFileError: if the model cannot be read
    """
    from policytool.commands import audit  # imports all rules
    from policytool.formats import discovery
    from policytool.support import steps

    source = discovery.named_input(path, remote=True)
    with steps.budget(source.display_path):
        case = audit.read_model(source)

    @cache
    def trial_of(target: str) -> _Trial:
        with steps.budget(source.display_path):
            return _trial(case, source, target)

    return trial_of


def _trial(case: RuleInput, source: Input, target: str) -> _Trial:
    from policytool.commands import audit
    from policytool.rules import AuditOptions

    options = AuditOptions(targets=loaders_of((target,)), target_names=(target,))
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
    return _Trial(tested=tested, needed_name=file_names.needed_name(verdict), obstacle=obstacle)


def _target(explanation: Explanation) -> str:
    """
    Return the release that printed the text; without one, the target of the first command, or else
    the newest Keras.
    """
    if explanation.release and explanation.release != TFJS:
        return explanation.release
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
