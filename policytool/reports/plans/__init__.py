"""
The reports of ``migrate``: a page for people, JSON, and the config as a diff.

The page reports the purpose and the path of the new file, the changes with their reasons, the
losses, and the releases that load the result.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.commands.migrate import Status
from policytool.formats import TITLES
from policytool.formats.discovery import display_path
from policytool.migration.plan import NoteSeverity
from policytool.migration.planning.rebuilt_layers import REVIVES_ALL
from policytool.releases.releases import CURRENT, is_known, release_name
from policytool.reports.page import Block, Fact, Facts, Page, Tone, Verdict
from policytool.reports.plans import diff
from policytool.reports.plans.diff import LayerChange, changes_table, layer_changes
from policytool.reports.plans.fields import REPORT, Migrations, plan_values, verification_words
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.words import (
    COMPILE,
    FAILS,
    LOADS,
    UNKNOWN,
    failure_facts,
    generation_words,
    loader_lines,
    loader_ranges,
    training_lines,
)
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.commands.migrate import Migration
    from policytool.migration.plan import Plan
    from policytool.numerics.predictions import PredictedOutput
    from policytool.reports.layout import View


_TENSORLESS: Final = frozenset({"json", "yaml", "keras-metadata"})
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
    return f"{versions['library']} {versions['keras']} with TensorFlow {versions['tensorflow']}"


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
            if migration.target is not None and plan.format not in _TENSORLESS and not plan.refusals
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
        target_verdicts = [verdict for verdict in plan.loaders_after if verdict.loader == target]
        yield from (
            Fact(label=label, text=text, tone=Tone.CAUTION)
            for label, text in loader_lines(target_verdicts)
            if label in {UNKNOWN, COMPILE}
        )
        return
    yield from (
        Fact(label=label, text=text)
        for label, text in loader_lines(plan.loaders_after)
        if label == UNKNOWN
    )
    yield from _by_reason(plan, migration)
    yield from (
        Fact(label=label, text=text, tone=Tone.CAUTION)
        for label, text in training_lines(
            [verdict for verdict in plan.loaders_after if verdict.loader in CURRENT]
        )
    )


def _by_reason(plan: Plan, migration: Migration) -> Iterator[Fact]:
    before = {verdict.loader for verdict in plan.loaders_before if verdict.reason is None}
    after = {verdict.loader: verdict.reason for verdict in plan.loaders_after}
    failing = [(reason, loader) for loader, reason in after.items() if reason is not None]
    lost_by_reason = group_pairs((reason, loader) for reason, loader in failing if loader in before)
    for reason, loaders in lost_by_reason.items():
        yield Fact(
            label="now fails in",
            text=f"{loader_ranges(loaders)}: {reason}{_hint(migration, loaders[-1], reason)}",
            tone=Tone.CAUTION,
        )
    never_loaded = group_pairs(
        (reason, loader) for reason, loader in failing if loader not in before
    )
    for reason, loaders in never_loaded.items():
        yield Fact(label=FAILS, text=f"{loader_ranges(loaders)}: {reason}", tone=Tone.DIM)


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


_SHOWN: Final = 3
"""The maximum number of layers that the page names for a change; HTML and JSON name all."""


def page(migrations: Migrations, view: View) -> Page:
    """Return the page, with a group for each file."""
    return Page(
        groups=tuple(tuple(_blocks(migration, view)) for migration in migrations.migrations),
        failures=failure_facts(migrations.failures),
    )


def headline(migration: Migration) -> str:
    """Return the outcome for a file in one line, without its path."""
    return _verdict(migration).text


def _blocks(migration: Migration, view: View) -> Iterator[Block]:
    most = None if view.is_searchable else _SHOWN
    yield _verdict(migration)
    yield Facts(facts=(_source(migration), *facts(migration)))
    table = changes_table(migration, most)
    if table is not None:
        yield table
    conversion = migration.plan.conversion
    if conversion is not None and not migration.plan.refusals:
        changes = diff.conversion_changes(conversion, most)
        if changes is not None:
            yield changes


def _source(migration: Migration) -> Fact:
    plan = migration.plan
    paths = filter(None, (plan.path, plan.weights))
    facts = [" with the weights ".join(paths), TITLES.get(plan.format, plan.format)]
    if plan.generation is not None:
        facts.append(f"config of {generation_words(plan.generation)}")
    if plan.base_policy is not None:
        facts.append(f"model policy {plan.base_policy}")
    return Fact(label="original", text=" · ".join(facts))


def _verdict(migration: Migration) -> Verdict:
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
            return Verdict.whole(subject=plan.path, text=f"unchanged; {reason}", tone=Tone.PLAIN)
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
    parts = [_purpose(migration), loads_in(migration), *verification_words(migration)]
    return Verdict.whole(
        subject=target,
        text="; ".join(part for part in parts if part),
        tone=Tone.CAUTION
        if migration.not_verified is not None
        else Tone.GOOD
        if status is Status.WRITTEN
        else Tone.MIXED,
    )


def _purpose(migration: Migration) -> str:
    """Return the purpose of the new file."""
    plan = migration.plan
    written = "written" if migration.status is Status.WRITTEN else "would be written"
    if plan.conversion is not None:
        target = plan.conversion.target
        words = generation_words(target) if is_known(target) else release_name(target)
        return f"{written} for {words}"
    edits = plan.edits
    values = f"{len(edits):,} config value{'s' if len(edits) != 1 else ''} changed"
    kinds = ", ".join(dict.fromkeys(edit.kind.value for edit in edits))
    backup = (
        f"; the original is kept in {display_path(migration.written.backup)}"
        if migration.written is not None and migration.written.backup is not None
        else ""
    )
    changed = f"{values}{f' ({kinds})' if kinds else ''}" if edits else "no config values changed"
    return f"{written} with {changed}{backup}"


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
