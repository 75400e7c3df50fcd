"""
What the reports of a migration for people say: a row for each layer and optimizer, and the facts
below them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.commands.migrate import Status
from policytool.formats import TITLES
from policytool.formats.discovery import display_path
from policytool.formats.edits import EditKind
from policytool.migration.plan import NoteSeverity
from policytool.migration.planning.savedmodel_revival import REVIVES_ALL
from policytool.releases import generations
from policytool.releases.generations import GENERATIONS
from policytool.releases.policy import Policy
from policytool.reports._words import (
    UNCOMPILED,
    generation_words,
    loader_lines,
    loader_ranges,
    loss_scale_words,
)
from policytool.reports.plans import _conversion
from policytool.reports.plans._verification import verification_fact
from policytool.support.errors import SpellingError
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.commands.migrate import Migration
    from policytool.formats.edits import Edit
    from policytool.numerics.predictions import PredictedOutput
    from policytool.support.text.jsontext import Absent, Json

KEPT: Final = "stays"
_TENSORLESS: Final = frozenset({"json", "yaml", "keras-metadata"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeRow:
    """What becomes of one layer, or of the optimizer, and why."""

    name: str
    before: str
    after: str
    reason: str
    style: str


def subject(migration: Migration) -> list[str]:
    """Return what the file is, in words."""
    plan = migration.plan
    facts = [TITLES.get(plan.format, plan.format), generation_words(plan.generation)]
    return (
        [*facts, f"the model's policy is {plan.base_policy}"]
        if plan.base_policy is not None
        else facts
    )


def changes(migration: Migration) -> list[ChangeRow]:
    """
    Return what becomes of each layer that changes or is kept from changing, each once, and of the
    optimizer.

    A SavedModel says one policy in many places, and TF 2.5's the optimizer in two, which are one
    change as long as they say the same.
    """
    found: list[ChangeRow] = []
    seen = set[str]()
    told = set[ChangeRow]()
    for edit in migration.plan.edits:
        of_optimizer = (
            edit.path is None
            and edit.kind in {EditKind.TRAINING, EditKind.SPELLING}
            and "optimizer" in edit.address.pointer
        )
        name = "optimizer" if of_optimizer else edit.path or edit.address.pointer
        if edit.path is not None:
            seen.add(edit.path)
        change = ChangeRow(
            name=name,
            before=_words(edit, edit.before),
            after=_words(edit, edit.after),
            reason=edit.reason,
            style=_style(edit),
        )
        if (edit.path is None and not of_optimizer) or change not in told:
            found.append(change)
            told.add(change)
    found += [
        ChangeRow(name=kept.path, before=kept.policy, after=KEPT, reason=kept.reason, style="dim")
        for kept in migration.plan.kept
        if kept.path not in seen
    ]
    return found


def conversion_changes(migration: Migration) -> list[tuple[str, str]]:
    """
    Return what a conversion writes otherwise: the layers, and what becomes of them; nothing for a
    file that is edited, or refused.
    """
    conversion = migration.plan.conversion
    return (
        _conversion.rows(conversion)
        if conversion is not None and not migration.plan.refusals
        else []
    )


def _style(edit: Edit) -> str:
    return {EditKind.NUMERICS: "mixed", EditKind.TRAINING: "half"}.get(edit.kind, "good")


def _words(edit: Edit, value: Json | Absent) -> str:
    """
    Return a JSON value in a few words: a policy by its class and name, an optimizer by its class.
    """
    if value is ABSENT:
        return "unsaid" if edit.address.pointer.endswith("/dtype") else "nothing"
    if isinstance(value, dict) and isinstance(value.get("class_name"), str):
        class_name, config = str(value["class_name"]), value.get("config")
        for generation in reversed(GENERATIONS):
            try:
                found = generations.parse(value, generation)
            except SpellingError:
                break
            scale = (
                loss_scale_words(found.effective_loss_scale)
                if isinstance(found, Policy) and isinstance(config, dict) and "loss_scale" in config
                else ""
            )
            return f"{class_name} {found.name}" + (f", loss scale {scale}" if scale else "")
        inner = (
            config.get("inner_optimizer", config.get("optimizer"))
            if isinstance(config, dict)
            else None
        )
        within = inner.get("class_name") if isinstance(inner, dict) else inner
        return f"{class_name}({within})" if within else class_name
    return value if isinstance(value, str) else repr(value)


def facts(migration: Migration) -> list[tuple[str, str, str]]:
    """
    Return labels, sentences and styles: what is noted, refused, cast, who loads the file, and what
    was written.
    """
    plan = migration.plan
    found = [
        (
            note.severity.value,
            note.message,
            "half" if note.severity is NoteSeverity.WARNING else "dim",
        )
        for note in plan.notes
    ]
    found += [("refused", refusal.message, "bad") for refusal in plan.refusals]
    if plan.conversion is not None and not plan.refusals:
        found += _conversion.facts(plan.conversion)
    if storage := _storage(migration):
        found.append(("tensors", storage, ""))
    found += _done_by_tensorflow(migration)
    if plan.state is not None:
        found.append(
            ("optimizer", "its state moves to the places where the loader looks for it", "")
        )
    if not plan.is_empty and not plan.refusals:
        found += _loaders(migration)
    found.append((_LABELS[migration.status], _outcome(migration), _STYLES[migration.status]))
    verification = verification_fact(migration)
    return found if verification is None else [*found, verification]


def _done_by_tensorflow(migration: Migration) -> list[tuple[str, str, str]]:
    """Return what was traced anew, and how far predictions are apart."""
    found = []
    if migration.plan.retrace and migration.retraced is None and not migration.plan.refusals:
        found.append(
            (
                "traced anew",
                (
                    "TensorFlow builds the model from its config and traces it, in a process of "
                    "its "
                    "own"
                ),
                "",
            )
        )
    if (retraced := migration.retraced) is not None:
        held = retraced.held
        library = _library(retraced.versions)
        cast = (
            f", {held.variables - held.identical} exactly as cast"
            if held.identical != held.variables
            else ""
        )
        signatures = f"; signatures {', '.join(retraced.signatures)}" if retraced.signatures else ""
        found.append(("traced anew", f"by {library}{signatures}", "good"))
        found.append(
            (
                "variables",
                f"{held.identical} of {held.variables} are bit for bit what they were{cast}",
                "good",
            )
        )
        if held.judged:
            words = (
                "layers compute in what their policies say"
                if held.judged != 1
                else "layer computes in what its policy says"
            )
            found.append(("graph", f"{held.judged} {words}", "good"))
    if (comparison := migration.comparison) is not None:
        allowed = (
            f"{comparison.tolerance:.2g} of the largest value is allowed"
            if comparison.tolerance
            else "they have to be the same bit for bit"
        )
        for call in comparison.calls:
            said = ", ".join(f"{output.name} {_apart(output)}" for output in call.outputs)
            found.append(
                (
                    "predictions",
                    (
                        f"{call.signature + ': ' if call.signature else ''}{said} "
                        f"({comparison.samples} samples; {allowed})"
                    ),
                    "",
                )
            )
        if comparison.versions_after is not None:
            found.append(
                (
                    "loaded by",
                    (
                        f"{_library(comparison.versions)} before, "
                        f"{_library(comparison.versions_after)} after"
                    ),
                    "",
                )
            )
        found += [("missed", text, "bad") for text in comparison.missed]
    return found


def _library(versions: Mapping[str, str]) -> str:
    return f"{versions['library']} {versions['keras']} with TensorFlow {versions['tensorflow']}"


def _apart(output: PredictedOutput) -> str:
    if output.equal:
        return "the same bit for bit"
    if output.relative is None:
        return f"differs in {output.differing} of {output.values} values"
    return f"off by {output.relative:.2g} of its largest value, {output.max_abs:.2g} at most"


_LABELS: Final = {
    Status.UNCHANGED: "unchanged",
    Status.PLANNED: "would write",
    Status.WRITTEN: "written",
    Status.SKIPPED: "skipped",
    Status.REFUSED: "not written",
    Status.MISSED: "not written",
}
_STYLES: Final = {
    Status.UNCHANGED: "dim",
    Status.PLANNED: "mixed",
    Status.WRITTEN: "good",
    Status.SKIPPED: "dim",
    Status.REFUSED: "bad",
    Status.MISSED: "bad",
}


def _outcome(migration: Migration) -> str:
    if migration.status is Status.SKIPPED:
        return f"{display_path(migration.target or migration.source)} was there, and was left"
    if migration.plan.conversion is not None and migration.status in {
        Status.PLANNED,
        Status.WRITTEN,
    }:
        compared = ", read back and compared" if migration.status is Status.WRITTEN else ""
        return f"{display_path(migration.target or migration.source)}{compared}"
    edits = migration.plan.edits
    values = (
        "1 config value"
        if len(edits) == 1
        else f"{len(edits):,} config values"
        if edits
        else "no config value"
    )
    kinds = ", ".join(dict.fromkeys(edit.kind.value for edit in edits))
    changed = f"{values} changed{f': {kinds}' if kinds else ''}"
    match migration.status:
        case Status.UNCHANGED:
            nothing = (
                f"nothing follows {migration.plan.suffix}, for the reasons above, and the file was"
                if migration.plan.kept
                else "the file needs nothing and was"
            )
            return f"{nothing} not touched"
        case Status.REFUSED:
            return "the original is as it was"
        case Status.MISSED:
            return "the original is unchanged; --no-verify writes the result without comparing"
        case Status.PLANNED:
            return f"{display_path(migration.target or migration.source)} ({changed})"
    written = migration.written
    backup = (
        f", the original is {display_path(written.backup)}"
        if written is not None and written.backup is not None
        else ""
    )
    return (
        f"{display_path(migration.target or migration.source)} ({changed}), read back and "
        f"compared{backup}"
    )


def _storage(migration: Migration) -> str:
    """Return what the casts do to the stored values."""
    plan = migration.plan
    converted = (
        _conversion.stored_values_words(plan.conversion)
        if plan.conversion is not None and not plan.refusals
        else ""
    )
    if not plan.casts or plan.refusals:
        if plan.conversion is not None:
            return converted
        return (
            "every stored value stays bit for bit"
            if migration.target is not None and plan.format not in _TENSORLESS and not plan.refusals
            else ""
        )
    ways = Counter(f"{cast.before} to {cast.after}" for cast in plan.casts)
    text = converted or "cast " + ", ".join(f"{count} from {way}" for way, count in ways.items())
    counts = list(migration.counts.values())
    for word, number in (
        ("overflow", sum(count.overflow for count in counts)),
        ("become subnormal", sum(count.subnormal for count in counts)),
        ("become zero", sum(count.flushed for count in counts)),
    ):
        if number:
            text += f"; {number:,} of {sum(count.values for count in counts):,} values {word}"
    return text


_OPEN: Final = frozenset({"not judged", UNCOMPILED})
"""Labels of what is left to say of the loader that a model was converted for."""


def _loaders(migration: Migration) -> list[tuple[str, str, str]]:
    plan = migration.plan
    before = {verdict.loader for verdict in plan.loaders_before if verdict.reason is None}
    after = {verdict.loader: verdict.reason for verdict in plan.loaders_after}
    if not after:
        return []
    told = [
        (label, text)
        for label, text in loader_lines(plan.loaders_after)
        if label not in {"refused by", UNCOMPILED}
    ]
    if plan.conversion is not None:  # who loads it then was asked for
        target = plan.conversion.target
        own = [verdict for verdict in plan.loaders_after if verdict.loader == target]
        return [
            *((label, text, "good") for label, text in told if label == "loads in"),
            *((label, text, "half") for label, text in loader_lines(own) if label in _OPEN),
        ]
    found = [
        (label, text, "" if label == "not judged" else "bad" if text.startswith("none") else "good")
        for label, text in told
    ]
    lost = [loader for loader, reason in after.items() if reason is not None and loader in before]
    for reason in dict.fromkeys(after[loader] for loader in lost):
        loaders = [loader for loader in lost if after[loader] == reason]
        spelled = (
            plan.suffix != loaders[-1]
            and loaders[-1].startswith("tf2.")
            and not plan.retrace
            and reason != REVIVES_ALL
        )
        hint = f"; --target {loaders[-1]} writes what it reads" if spelled else ""
        hint = hint or (
            "; --python with an older release writes what it reads"
            if migration.retraced is not None
            else ""
        )
        found.append(("no longer", f"{loader_ranges(loaders)}: {reason}{hint}", "half"))
    refused = [
        loader for loader, reason in after.items() if reason is not None and loader not in before
    ]
    by_reason = {
        reason: [loader for loader in refused if after[loader] == reason]
        for reason in dict.fromkeys(after[loader] for loader in refused)
    }
    return [
        *found,
        *(
            ("refused by", f"{loader_ranges(loaders)}: {reason}", "dim")
            for reason, loaders in by_reason.items()
        ),
    ]
