"""The report of a migration for people: what changes in each layer and why, what stays, what is lost, and who loads the file then."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool import generations
from policytool.discovery import shown
from policytool.errors import SpellingError
from policytool.generations import GENERATIONS
from policytool.operations.migration import Status
from policytool.plan import ABSENT, Kind, Severity
from policytool.policy import Policy
from policytool.reports._layout import Cell, Column, clean, table, width_of, wrapped
from policytool.reports._words import FORMATS, generation_words, loader_ranges, loss_scale_words
from policytool.reports.plans._base import PlanReporter

if TYPE_CHECKING:
    from policytool.jsontext import Json
    from policytool.operations.migration import Migration
    from policytool.plan import Absent, Edit
    from policytool.reports._layout import View
    from policytool.reports.plans._base import Migrations
    from policytool.verification import Output

_LABEL: Final = 12
_WIDE: Final = 120
"""From this width on the table has room for the reasons."""

_KEPT: Final = "stays"
_TENSORLESS: Final = frozenset({"json", "keras-metadata"})


def render(found: Migrations, view: View) -> str:
    """Return the report as text for a terminal of the view's width."""
    return "\n".join("\n".join(_migration(migration, view)) + "\n" for migration in found.migrations)


def _migration(migration: Migration, view: View) -> list[str]:
    plan = migration.plan
    arrow = " → " if view.unicode else " -> "
    separator = " · " if view.unicode else " - "
    titles = [clean(plan.path)]
    if migration.target is not None and migration.target != migration.source:
        target = arrow + clean(shown(migration.target))
        titles = [titles[0] + target] if width_of(titles[0] + target) <= view.width else [titles[0], target]
    facts = [FORMATS.get(plan.format, plan.format), generation_words(plan.generation)]
    if plan.base_policy is not None:
        facts.append(f"the model's policy is {plan.base_policy}")
    lines = [*(view.paint(title, "title") for title in titles), *wrapped("", separator.join(facts), view)]
    rows = _rows(migration)
    if rows:
        legend: list[str] = []
        if view.width < _WIDE:
            rows, legend = _with_legend(rows)
        lines += ["", *table(_columns(rows), rows, view)]
        lines += [line for text in legend for line in wrapped("     ", text, view, "dim")] + [""]
    for label, text, style in _facts(migration):
        lines += wrapped(f"{label:{_LABEL}}", clean(text), view, style)
    return lines


def _with_legend(rows: list[list[Cell]]) -> tuple[list[list[Cell]], list[str]]:
    """Return the rows with numbers for their reasons, and the reasons: a narrow table has no room for sentences."""
    reasons = list(dict.fromkeys(row[3].text for row in rows))
    numbered = [[*row[:3], Cell(text=str(reasons.index(row[3].text) + 1))] for row in rows]
    return numbered, [f"{number}  {reason}" for number, reason in enumerate(reasons, 1)]


def _columns(rows: list[list[Cell]]) -> list[Column]:
    longest = max(len(row[0].text) for row in rows)
    return [
        Column(title="layer", minimum=min(longest, 20), middle=True),
        Column(title="before", minimum=12),
        Column(title="after", minimum=12),
        Column(title="why", minimum=min(16, max(len(row[3].text) for row in rows))),
    ]


def _rows(migration: Migration) -> list[list[Cell]]:
    """
    Return a row for each layer that changes or is kept from changing, each once, and one for the optimizer.

    A SavedModel says one policy in many places, which are one row as long as they say the same.
    """
    rows: list[list[Cell]] = []
    seen = set[str]()
    shown_rows = set[tuple[str, ...]]()
    for edit in migration.plan.edits:
        name = edit.path or ("optimizer" if edit.kind in {Kind.TRAINING, Kind.SPELLING} and "optimizer" in edit.address.pointer else edit.address.pointer)
        if edit.path is not None:
            seen.add(edit.path)
        before, after = _words(edit, edit.before), _words(edit, edit.after)
        row = [Cell(text=clean(name)), Cell(text=clean(before), style="dim"), Cell(text=clean(after), style=_style(edit)), Cell(text=clean(edit.reason))]
        identity = tuple(cell.text for cell in row)
        if edit.path is None or identity not in shown_rows:
            rows.append(row)
            shown_rows.add(identity)
    rows += [
        [Cell(text=clean(kept.path)), Cell(text=kept.policy, style="dim"), Cell(text=_KEPT, style="dim"), Cell(text=clean(kept.reason))]
        for kept in migration.plan.kept
        if kept.path not in seen
    ]
    return rows


def _style(edit: Edit) -> str:
    return {Kind.NUMERICS: "mixed", Kind.TRAINING: "half"}.get(edit.kind, "good")


def _words(edit: Edit, value: Json | Absent) -> str:
    """Return a JSON value in a few words: a policy by its class and name, an optimizer by its class."""
    if value is ABSENT:
        return "unsaid" if edit.address.pointer.endswith("/dtype") else "nothing"
    if isinstance(value, dict) and isinstance(value.get("class_name"), str):
        class_name, config = str(value["class_name"]), value.get("config")
        for generation in reversed(GENERATIONS):
            try:
                found = generations.parse(value, generation)
            except SpellingError:
                break
            scale = loss_scale_words(found.effective_loss_scale) if isinstance(found, Policy) and isinstance(config, dict) and "loss_scale" in config else ""
            return f"{class_name} {found.name}" + (f", loss scale {scale}" if scale else "")
        inner = config.get("inner_optimizer", config.get("optimizer")) if isinstance(config, dict) else None
        within = inner.get("class_name") if isinstance(inner, dict) else inner
        return f"{class_name}({within})" if within else class_name
    return value if isinstance(value, str) else repr(value)


def _facts(migration: Migration) -> list[tuple[str, str, str]]:
    plan = migration.plan
    facts = [(note.severity.value, note.message, "half" if note.severity is Severity.WARNING else "dim") for note in plan.notes]
    facts += [("refused", refusal.message, "bad") for refusal in plan.refusals]
    if storage := _storage(migration):
        facts.append(("tensors", storage, ""))
    facts += _done_by_tensorflow(migration)
    if plan.state is not None:
        facts.append(("optimizer", "its state moves to the places where the loader looks for it", ""))
    if not plan.is_empty and not plan.refusals:
        facts += _loaders(migration)
    return [*facts, (_LABELS[migration.status], _outcome(migration), _STYLES[migration.status])]


def _done_by_tensorflow(migration: Migration) -> list[tuple[str, str, str]]:
    """Return what was traced anew, and how far predictions are apart."""
    facts = []
    if migration.plan.retrace and migration.retraced is None and not migration.plan.refusals:
        facts.append(("traced anew", "TensorFlow builds the model from its config and traces it, in a process of its own", ""))
    if (retraced := migration.retraced) is not None:
        held = retraced.held
        library = f"{retraced.versions['library']} {retraced.versions['keras']} with TensorFlow {retraced.versions['tensorflow']}"
        cast = f", {held.variables - held.identical} exactly as cast" if held.identical != held.variables else ""
        signatures = f"; signatures {', '.join(retraced.signatures)}" if retraced.signatures else ""
        facts.append(("traced anew", f"by {library}{signatures}", "good"))
        facts.append(("variables", f"{held.identical} of {held.variables} are bit for bit what they were{cast}", "good"))
        if held.judged:
            facts.append(("graph", f"{held.judged} layers compute in what their policies say", "good"))
    if (comparison := migration.comparison) is not None:
        allowed = f"{comparison.tolerance:.2g} of the largest value is allowed" if comparison.tolerance else "they have to be the same bit for bit"
        for call in comparison.calls:
            said = ", ".join(f"{output.name} {_apart(output)}" for output in call.outputs)
            facts.append(("predictions", f"{call.signature + ': ' if call.signature else ''}{said} ({comparison.samples} samples; {allowed})", ""))
        facts += [("missed", text, "bad") for text in comparison.missed]
    return facts


def _apart(output: Output) -> str:
    if output.equal:
        return "the same bit for bit"
    if output.relative is None:
        return f"differs in {output.differing} of {output.values} values"
    return f"off by {output.relative:.2g} of its largest value, {output.max_abs:.2g} at most"


_LABELS: Final = {
    Status.UNCHANGED: "unchanged",
    Status.PLANNED: "would write",
    Status.WRITTEN: "written",
    Status.REFUSED: "not written",
    Status.MISSED: "not written",
}
_STYLES: Final = {Status.UNCHANGED: "dim", Status.PLANNED: "mixed", Status.WRITTEN: "good", Status.REFUSED: "bad", Status.MISSED: "bad"}


def _outcome(migration: Migration) -> str:
    kinds = Counter(edit.kind for edit in migration.plan.edits)
    edits = ", ".join(f"{count} {kind.value}" for kind, count in kinds.items()) or "no config value"
    match migration.status:
        case Status.UNCHANGED:
            nothing = (
                f"nothing follows {migration.plan.suffix}, for the reasons above, and the file was" if migration.plan.kept else "the file needs nothing and was"
            )
            return f"{nothing} not touched"
        case Status.REFUSED | Status.MISSED:
            return "the original is as it was"
        case Status.PLANNED:
            return f"{shown(migration.target or migration.source)} ({edits} changed)"
    written = migration.written
    backup = f", the original is {shown(written.backup)}" if written is not None and written.backup is not None else ""
    return f"{shown(migration.target or migration.source)} ({edits} changed), read back and compared{backup}"


def _storage(migration: Migration) -> str:
    """Return what the casts do to the stored values."""
    plan = migration.plan
    if not plan.casts:
        return "every stored value stays bit for bit" if migration.target is not None and plan.format not in _TENSORLESS and not plan.refusals else ""
    ways = Counter(f"{cast.before} to {cast.after}" for cast in plan.casts)
    text = "cast " + ", ".join(f"{count} from {way}" for way, count in ways.items())
    counts = list(migration.counts.values())
    for word, number in (
        ("overflow", sum(count.overflow for count in counts)),
        ("become subnormal", sum(count.subnormal for count in counts)),
        ("become zero", sum(count.flushed for count in counts)),
    ):
        if number:
            text += f"; {number:,} of {sum(count.values for count in counts):,} values {word}"
    return text


def _loaders(migration: Migration) -> list[tuple[str, str, str]]:
    plan = migration.plan
    before = {verdict.loader for verdict in plan.loaders_before if verdict.reason is None}
    after = {verdict.loader: verdict.reason for verdict in plan.loaders_after}
    taking = [loader for loader, reason in after.items() if reason is None]
    if not after:
        return []
    facts = [("loads in", loader_ranges(taking) or "none of the loaders that were tried", "good" if taking else "bad")]
    lost = [loader for loader, reason in after.items() if reason is not None and loader in before]
    for reason in dict.fromkeys(after[loader] for loader in lost):
        loaders = [loader for loader in lost if after[loader] == reason]
        hint = f"; --target {loaders[-1]} writes what it reads" if plan.suffix != loaders[-1] and loaders[-1].startswith("tf2.") and not plan.retrace else ""
        hint = hint or ("; --python with an older release writes what it reads" if migration.retraced is not None else "")
        facts.append(("no longer", f"{loader_ranges(loaders)}: {reason}{hint}", "half"))
    refused = [loader for loader, reason in after.items() if reason is not None and loader not in before]
    by_reason = {reason: [loader for loader in refused if after[loader] == reason] for reason in dict.fromkeys(after[loader] for loader in refused)}
    return [*facts, *(("refused by", f"{loader_ranges(loaders)}: {reason}", "dim") for reason, loaders in by_reason.items())]


REPORTER: Final = PlanReporter(name="table", render=render)
