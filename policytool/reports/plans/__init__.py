"""
The reports of ``migrate``: a page for people, JSON, and the config as a diff.

The page reports the purpose and the path of the new file, the changes with their reasons, the
losses, and the releases that load the result.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.commands.migrate import Status
from policytool.formats import TITLES, WITHOUT_WEIGHTS
from policytool.formats.discovery import display_path
from policytool.formats.edits import EditKind
from policytool.migration.plan import NoteSeverity
from policytool.migration.planning.options import UNCHANGED_POLICIES
from policytool.migration.planning.rebuilt_layers import REVIVES_ALL
from policytool.model.model import Obstacle, Outcome, verdict_of
from policytool.releases.releases import BACKENDS, CURRENT, is_known, release_name
from policytool.reports import layout
from policytool.reports.page import (
    Block,
    Fact,
    Facts,
    Figures,
    Graph,
    Page,
    Sentence,
    Tone,
    Verdict,
)
from policytool.reports.plans import diff
from policytool.reports.plans.diff import (
    LayerChange,
    changes_table,
    layer_changes,
    policy_changes,
)
from policytool.reports.plans.fields import REPORT, Migrations, plan_values, verification_words
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.words import (
    COMPILE,
    LOADS,
    OUTCOMES,
    UNKNOWN,
    failure_facts,
    generation_words,
    loader_lines,
    loader_ranges,
    many,
    training_lines,
)
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.commands.migrate import Migration
    from policytool.model.model import Layer
    from policytool.numerics.predictions import PredictedOutput
    from policytool.reports.layout import View


_NOTES: Final = {NoteSeverity.WARNING: Tone.CAUTION}


def facts(migration: Migration) -> Iterator[Fact]:
    """Yield the facts, starting with those that may need a decision."""
    plan = migration.plan
    yield from (
        Fact(label="problem", text=refusal.message, tone=Tone.BAD) for refusal in plan.refusals
    )
    yield from (
        Fact(
            label=note.severity.value,
            text=note.message,
            tone=_NOTES.get(note.severity, Tone.DIM),
        )
        for note in plan.notes
    )
    if plan.conversion is not None and not plan.refusals:
        compared = migration.comparison
        yield from diff.conversion_facts(
            plan.conversion,
            plan.matching_releases,
            is_verified=compared is not None and not compared.missed,
        )
    if storage := _storage(migration):
        yield Fact(label="values", text=storage)
    yield from _reexport(migration)
    yield from _predictions(migration)
    if plan.state is not None:
        yield Fact(
            label="optimizer", text="its state is moved to the location that the release expects"
        )
    if not plan.is_empty and not plan.refusals:
        yield from _releases(migration)


def _reexport(migration: Migration) -> Iterator[Fact]:
    """Yield the facts about the re-export by TensorFlow."""
    retraced = migration.retraced
    if retraced is None:
        if migration.plan.retrace and not migration.plan.refusals:
            yield Fact(
                label="re-export",
                text="TensorFlow will build the model from its config and trace it",
            )
        return
    verified = retraced.held
    cast = (
        f", {verified.variables - verified.identical} are cast without loss"
        if verified.identical != verified.variables
        else ""
    )
    signatures = f"; signatures {', '.join(retraced.signatures)}" if retraced.signatures else ""
    yield Fact(
        label="re-export",
        text=f"by {_library(retraced.versions)}{signatures}",
        tone=Tone.GOOD,
    )
    yield Fact(
        label="variables",
        text=f"{verified.identical} of {verified.variables} are unchanged{cast}",
        tone=Tone.GOOD,
    )
    if verified.judged:
        words = (
            "layers compute in the dtypes of their policies"
            if verified.judged != 1
            else "layer computes in the dtype of its policy"
        )
        yield Fact(label="graph", text=f"{verified.judged} {words}", tone=Tone.GOOD)


def _predictions(migration: Migration) -> Iterator[Fact]:
    comparison = migration.comparison
    if comparison is None:
        return
    allowed = (
        f"tolerance: {comparison.tolerance:.2g} of the largest value"
        if comparison.tolerance
        else "expected to be identical"
    )
    for call in comparison.calls:
        differences = ", ".join(f"{output.name} {_difference(output)}" for output in call.outputs)
        yield Fact(
            label="outputs",
            text=(
                f"{call.signature + ': ' if call.signature else ''}{differences} "
                f"({comparison.samples} samples; {allowed})"
            ),
        )
    if comparison.versions_after is not None:
        yield Fact(
            label="versions",
            text=(
                f"{_library(comparison.versions)} before, "
                f"{_library(comparison.versions_after)} after"
            ),
        )
    yield from (Fact(label="difference", text=text, tone=Tone.BAD) for text in comparison.missed)


def _library(versions: Mapping[str, str]) -> str:
    backends = (f"{BACKENDS[key]} {versions[key]}" for key in BACKENDS if key in versions)
    return f"{versions['library']} {versions['keras']} with {' '.join(backends)}"


def _difference(output: PredictedOutput) -> str:
    if output.equal:
        return "identical"
    if output.relative is None:
        return f"differs in {output.differing} of {output.values} values"
    return (
        f"differs by at most {output.relative:.2g} of its largest value "
        f"({output.max_abs:.2g} absolute)"
    )


def _storage(migration: Migration) -> str:
    """Return the effect of the casts on stored values."""
    plan = migration.plan
    converted = (
        diff.stored_values_words(plan.conversion)
        if plan.conversion is not None and not plan.refusals
        else ""
    )
    if not plan.casts or plan.refusals:
        if plan.conversion is not None:
            return converted
        return (
            "all stored values are unchanged"
            if migration.target is not None
            and plan.format not in WITHOUT_WEIGHTS
            and not plan.refusals
            else ""
        )
    cast_counts = Counter(f"{cast.before} to {cast.after}" for cast in plan.casts)
    text = converted or "cast " + ", ".join(
        f"{count} from {cast_words}" for cast_words, count in cast_counts.items()
    )
    counts = list(migration.counts.values())
    for word, number in (
        ("overflow", sum(count.overflow for count in counts)),
        ("become subnormal", sum(count.subnormal for count in counts)),
        ("become zero", sum(count.flushed for count in counts)),
    ):
        if number:
            text += f"; {number:,} of {sum(count.values for count in counts):,} values {word}"
    return text


def _releases(migration: Migration) -> Iterator[Fact]:
    """Yield the releases that load the result, and those that load only the original."""
    plan = migration.plan
    if plan.conversion is not None:  # the verdict names the release that it is for
        target = plan.conversion.target
        verdict = verdict_of(plan.loaders_after, target)
        yield from (
            Fact(label=label, text=text, tone=Tone.CAUTION)
            for label, text in loader_lines([verdict] if verdict is not None else [])
            if label in {UNKNOWN, COMPILE}
        )
        return
    yield from _changed_verdicts(migration)
    yield from (
        Fact(label=label, text=text, tone=Tone.CAUTION)
        for label, text in training_lines(
            [verdict for verdict in plan.loaders_after if verdict.loader in CURRENT]
        )
    )


def _changed_verdicts(migration: Migration) -> Iterator[Fact]:
    """
    Yield why releases that load the original do not load the result, and, if no current release
    loads the result, why not.
    """
    plan = migration.plan
    loaded = {verdict.loader for verdict in plan.loaders_before if verdict.loads}
    is_current = any(verdict.loads for verdict in plan.loaders_after if verdict.loader in CURRENT)
    relevant = [] if is_current else CURRENT
    loaders_by_verdict = group_pairs(
        (
            (
                verdict.outcome,
                verdict.explanation,
                verdict.loader in loaded,
                any(cause.kind is Obstacle.DTYPE for cause in verdict.causes),
            ),
            verdict.loader,
        )
        for verdict in plan.loaders_after
        if not verdict.loads and verdict.loader in {*loaded, *relevant}
    )
    for (outcome, explanation, was_loaded, by_dtype), loaders in loaders_by_verdict.items():
        is_avoidable = was_loaded and not by_dtype  # migrate --target keeps policies
        hint = _hint(migration, loaders[-1], explanation) if is_avoidable else ""
        yield Fact(
            label=f"now {OUTCOMES[outcome]}" if was_loaded else OUTCOMES[outcome],
            text=f"{loader_ranges(loaders)}: {explanation}{hint}",
            tone=Tone.CAUTION if was_loaded else Tone.DIM,
        )


def _hint(migration: Migration, newest: str, reason: str | None) -> str:
    """Return the option that keeps a release able to load the model, as the end of a sentence."""
    plan = migration.plan
    if (
        plan.suffix != newest
        and newest.startswith("tf2.")
        and not plan.retrace
        and reason != REVIVES_ALL
    ):
        return f"; use --target {newest} to support it"
    return "; use --python with an older release to support it" if migration.retraced else ""


def loads_in(migration: Migration) -> str:
    """
    Return the releases that load the result, as the end of a sentence; empty if there are none.
    """
    loading = [text for label, text in loader_lines(migration.plan.loaders_after) if label == LOADS]
    return f"loads in {loading[0]}" if loading else ""


_OTHER_CHANGES: Final = {
    EditKind.TRAINING: "policies unchanged, training configuration changed",
    EditKind.FORMAT: "policies unchanged, stored in another format",
    EditKind.STORAGE: "policies unchanged, stored dtypes changed",
}

_SHOWN: Final = 3
"""The maximum number of layers that the page names for a change; HTML and JSON name all."""


def page(migrations: Migrations, view: View) -> Page:
    """Return the page, with a group for each file."""
    return Page(
        groups=tuple(tuple(_blocks(migration, view)) for migration in migrations.migrations),
        failures=failure_facts(migrations.failures),
    )


def headline(migration: Migration, *, names_changes: bool = True) -> str:
    """
    Return the outcome for a file in one line, without its path.

    :param names_changes: whether to include the numbers of changed policies
    """
    return _verdict(migration, names_changes=names_changes).text


def _blocks(migration: Migration, view: View) -> Iterator[Block]:
    yield _verdict(migration)
    if view.is_searchable and not migration.plan.refusals:
        yield _figures(migration)
        if (drawing := _graph(migration)) is not None:
            yield drawing
    source_facts = Facts(facts=(_source(migration), *facts(migration)))
    table = changes_table(migration)
    yield from filter(
        None, (source_facts, table) if migration.plan.refusals else (table, source_facts)
    )
    conversion = migration.plan.conversion
    if conversion is not None and not migration.plan.refusals:
        changes = diff.conversion_changes(conversion, each=view.is_searchable)
        if changes is not None:
            yield changes


def _figures(migration: Migration) -> Figures:
    """Return the number of changes, and of the samples whose predictions were compared."""
    plan, compared = migration.plan, migration.comparison
    layers = {layer.path for layer in migration.connected_layers}
    changed = layers & {change.path for change in layer_changes(migration)}
    figures = [
        ("layers changed", len(changed)),
        ("layers kept", len({entry.path for entry in plan.kept} - changed)),
        ("variables cast", len(plan.casts)),
        *([("samples compared", compared.samples)] if compared is not None else []),
    ]
    return Figures(
        figures=tuple(Fact(label=label, text=f"{number:,}") for label, number in figures)
    )


def _graph(migration: Migration) -> Graph | None:
    """Return the graph of the layers, coloured by change; None if no layer of it changes."""
    from policytool.reports import layer_graph  # only HTML needs it

    changes = {change.path: change for change in layer_changes(migration)}
    kept = {entry.path: entry for entry in migration.plan.kept}

    def mark(layer: Layer) -> layer_graph.LayerMark:
        if (change := changes.get(layer.path)) is not None:
            values = f"{change.before} → {change.after}" if change.edits else ""
            facts_of_change = (("change", values), ("reason", change.reason))
            details = tuple(Fact(label=label, text=text) for label, text in facts_of_change if text)
            return layer_graph.LayerMark(text="changed", tone=Tone.MIXED, details=details)
        if (entry := kept.get(layer.path)) is not None:
            details = (
                Fact(label="policy", text=entry.policy),
                Fact(label="reason", text=entry.reason),
            )
            return layer_graph.LayerMark(text="kept", tone=Tone.CAUTION, details=details)
        return layer_graph.LayerMark(text="")

    if changes.keys().isdisjoint(layer.path for layer in migration.connected_layers):
        return None
    return layer_graph.layer_graph(
        "Layers by change, from input to output", migration.connected_layers, mark, _LEGEND
    )


_LEGEND: Final = (
    Sentence(text="unchanged"),
    Sentence(text="changed", tone=Tone.MIXED),
    Sentence(text="kept", tone=Tone.CAUTION),
)
"""The colours of layers in the graph."""


def _source(migration: Migration) -> Fact:
    """Return the original: by its name if the page starts with a path in the same directory."""
    plan = migration.plan
    directory, _, name = plan.path.rpartition("/")
    is_beside = display_path(migration.target or migration.source).startswith(f"{directory}/")
    paths = filter(None, (name if directory and is_beside else plan.path, plan.weights))
    facts = [" with the weights ".join(paths), TITLES.get(plan.format, plan.format)]
    if plan.generation is not None:
        facts.append(f"config of {generation_words(plan.generation)}")
    if plan.base_policy is not None:
        facts.append(f"model policy {plan.base_policy}")
    return Fact(label="original", text=" · ".join(facts))


def _newest_failure(migration: Migration) -> str:
    """
    Return how to convert an unchanged model that the newest release does not load, as the end of a
    sentence; nothing if the user set a policy or a target.
    """
    plan = migration.plan
    newest = verdict_of(plan.loaders_before, CURRENT[-1])
    if (
        plan.suffix != UNCHANGED_POLICIES
        or newest is None
        or newest.outcome is not Outcome.INCOMPATIBLE
    ):
        return ""
    command = layout.command(("policytool", "audit", layout.file(plan.path), "--target", "keras3"))
    return f"; it fails in {release_name(newest.loader)}: `{command}` names the fix"


def _verdict(migration: Migration, *, names_changes: bool = True) -> Verdict:
    """Return the outcome for a file."""
    plan, status = migration.plan, migration.status
    target = display_path(migration.target or migration.source)
    match status:
        case Status.UNCHANGED:
            reason = (
                f"{plan.suffix} does not apply to any layer, for the reasons below"
                if plan.kept
                else "nothing to change"
            )
            if migration.unwritten is not None:
                output = display_path(migration.unwritten)
                reason += f", so {output} was not written; use {plan.path} instead"
            text = f"unchanged; {reason}{_newest_failure(migration)}"
            return Verdict.whole(subject=plan.path, text=text, tone=Tone.PLAIN)
        case Status.SKIPPED:
            return Verdict.whole(subject=target, text="already exists, skipped", tone=Tone.PLAIN)
        case Status.BLOCKED:
            count = len(plan.refusals)
            problems = f"{count} problem{'s' if count != 1 else ''}"
            return Verdict.whole(
                subject=plan.path,
                text=f"nothing was written because of {problems}; the original is unchanged",
                tone=Tone.BAD,
            )
        case Status.MISSED:
            compared = migration.comparison
            are_equal = compared is not None and compared.missed == compared.retyped
            subject = "the dtypes of outputs" if are_equal else "predictions"
            return Verdict.whole(
                subject=plan.path,
                text=(
                    f"nothing was written because {subject} differ; the original is unchanged. "
                    "Use --no-verify to write the result without the comparison"
                ),
                tone=Tone.BAD,
            )
    purpose = _purpose(migration, names_changes=names_changes)
    parts = [purpose, loads_in(migration), *verification_words(migration)]
    return Verdict.whole(
        subject=target,
        text="; ".join(part for part in parts if part),
        tone=Tone.CAUTION
        if migration.not_verified is not None
        else Tone.GOOD
        if status is Status.WRITTEN
        else Tone.TITLE,
    )


def _purpose(migration: Migration, *, names_changes: bool) -> str:
    """Return the purpose of the new file."""
    plan = migration.plan
    written = "written" if migration.status is Status.WRITTEN else "would be written"
    if plan.conversion is not None:
        target = plan.conversion.target
        words = generation_words(target) if is_known(target) else release_name(target)
        return f"{written} for {words}"
    backup = (
        f"; the original is kept in {display_path(migration.written.backup)}"
        if migration.written is not None and migration.written.backup is not None
        else ""
    )
    changes = f"; {_changes_words(migration)}" if names_changes else ""
    return f"{written}{changes}{backup}"


def _changes_words(migration: Migration) -> str:
    """Return the changes of policies, or what else changes, as part of a sentence."""
    changes = policy_changes(migration)
    if 0 < len(changes) <= _SHOWN:
        words = (f"{change} in {many(count, 'layer')}" for change, count in changes.items())
        return ", ".join(words)
    if changes:
        return f"policies of {many(sum(changes.values()), 'layer')} change"
    kinds = {edit.kind for edit in migration.plan.edits}
    return next((words for kind, words in _OTHER_CHANGES.items() if kind in kinds), "same config")


PLAN_REPORTERS: Final[tuple[Reporter[Migrations], ...]] = (
    *reporters_for_people(page, "policytool migrate"),
    json_reporter(REPORT, ascii_only=True),
    diff.REPORTER,
)
"""The reporters; the first is the default."""

__all__ = [
    "PLAN_REPORTERS",
    "LayerChange",
    "Migrations",
    "headline",
    "layer_changes",
    "page",
    "plan_values",
]
