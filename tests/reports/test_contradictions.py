"""No report makes two statements about one release and one part of a file that contradict."""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.commands import audit, inspect, migrate, suggested_conversion
from policytool.commands.arguments.reading import AuditArguments
from policytool.commands.audit import Audit, audit_options
from policytool.commands.destinations import Destination
from policytool.commands.explain import explain
from policytool.commands.inspect import Selection, collect, select
from policytool.commands.migrate import MigrateRequest, Migration
from policytool.formats import discovery
from policytool.migration.planning.options import options_from_arguments
from policytool.model.model import Cause, Layer, Model, Obstacle, PartVerdict, Verdict
from policytool.releases.releases import CURRENT, KERAS3, LOADERS, RELEASES, TFJS, release_name
from policytool.reports import View
from policytool.reports.explanations import EXPLANATION_REPORTERS
from policytool.reports.findings import FINDING_REPORTERS
from policytool.reports.inspection import REPORTERS, headline
from policytool.reports.plans import PLAN_REPORTERS, Migrations
from policytool.reports.words import loader_lines
from policytool.rules.base import Audited
from tests.conftest import run
from tests.contracts.reporter_contract import rendered_by
from tests.fuzz import sound_configs
from tests.helpers.drawn_models import models, whole
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from policytool.commands.inspect import SelectedInspection
    from policytool.formats.discovery import Input

TARGETS: Final = ("keras3", "keras3.3", "tf2.15", "tf2.4", "tfjs")
PARTS: Final = 4
"""Tests that share the fixtures, so that a failure of one leaves the others."""

WORDS: Final = {
    "loads in": "loads",
    "same in": "loads",
    "unknown in": "unknown",
    "may not load in": "unknown",
} | dict.fromkeys(("fails in", "now fails in", "fails to load in"), "incompatible")
_RELEASE: Final = r"(?:TF|Keras|tf_keras) \d+\.\d+(?: to \d+\.\d+)?"
_LABELS: Final = sorted(WORDS, key=len, reverse=True)
_STATEMENT: Final = re.compile(
    rf"(compile=True |training configuration )?\b({'|'.join(_LABELS)})\s+"
    rf"({_RELEASE}(?:, {_RELEASE})*)"
)
_COMMAND: Final = re.compile(r"policytool (migrate (?!-).+)")
_NAMES: Final = [release_name(release.id) for release in RELEASES]


def releases_of(words: str) -> Iterator[str]:
    """Yield the releases that a sentence names, those between two ends as well."""
    for part in words.split(", "):
        first, _, version = part.partition(" to ")
        library = first.split()[0]
        last = f"{library} {version}" if version else first
        yield from _NAMES[_NAMES.index(first) : _NAMES.index(last) + 1]


def statements(text: str) -> dict[str, set[str]]:
    """Return what a text says of each release: of the model, and of its training configuration."""
    found = defaultdict[str, set[str]](set)
    for part, label, releases in _STATEMENT.findall(re.sub(r"\s+", " ", text)):
        for release in releases_of(releases):
            found[f"{'compile=True ' if part else ''}{release}"].add(WORDS[label])
    return found


def check_text(text: str, *verdicts: Verdict) -> None:
    """Make sure that a text says one thing of a release, and what its verdict says."""
    said = statements(text)
    assert all(len(words) == 1 for words in said.values()), said
    for verdict in verdicts:
        name = release_name(verdict.loader)
        assert said.get(name, {verdict.outcome}) == {verdict.outcome}, (name, said[name], verdict)
        if verdict.training is not None:
            outcome = verdict.training.outcome
            assert said.get(f"compile=True {name}", {outcome}) == {outcome}


def check_effect(text: str) -> None:
    """Make sure that a text about one command does not say two things of predictions."""
    plain = re.sub(r"\s+", " ", text)
    is_unchanged = re.search(r"predictions (?:are |stay )?unchanged", plain) is not None
    assert not (is_unchanged and "changes predictions" in plain), plain
    assert not (is_unchanged and "predictions depend on" in plain), plain
    assert not ("verified: " in plain and "no measurement covers" in plain), plain


def check_advice(text: str) -> None:
    """Make sure that the advice of findings and the printed commands do not contradict."""
    plain = re.sub(r"\s+", " ", text)
    has_fix = re.search(r" fix(?: for [^(]*)? \(", plain) is not None
    assert not (has_fix and "copy the file again" in plain), plain
    assert not ("fixable with --fix" in plain and "copy the file again" in plain), plain
    if "PT601 error" in plain:
        assert not re.search(r"(?<!trust its author, )load the model in the release", plain), plain


def check_values(values: Any, verdicts: Iterable[Verdict]) -> None:  # JSON
    """Make sure that JSON has the outcome and the reason of each verdict."""
    expected = {verdict.loader: verdict for verdict in verdicts}
    assert [value["release"] for value in values] == list(expected)
    for value in values:
        verdict = expected[value["release"]]
        for part, judged in ((value, verdict), (value["training"], verdict.training)):
            assert (part is None) == (judged is None)
            if part is not None and judged is not None:
                assert (part["verdict"], part["reason"]) == (judged.outcome, judged.explanation)
                assert (part["reason"] is None) == (part["verdict"] == "loads")


def rendered(reporters: Iterable[Any], name: str, value: object) -> str:
    """Return a report, wide enough for every sentence."""
    return rendered_by(reporters, name, value, View(width=10_000))


def check_inspection(selected: SelectedInspection) -> None:
    """Compare all that inspect says of the only model with its verdicts."""
    [model] = selected.inspection.models
    check_text(rendered(REPORTERS, "table", selected), *model.loaders)
    check_text(rendered(REPORTERS, "markdown", selected), *model.loaders)
    check_text(headline(model), *model.loaders)
    [values] = json.loads(rendered(REPORTERS, "json", selected))["models"]
    check_values(values["releases"], model.loaders)


def check_audit(audited: Audited, model: Model, target: str) -> None:
    """Compare the findings about loading with the verdict of the target."""
    verdict = next((entry for entry in model.loaders if entry.loader == target), None)
    kinds = {"PT104": "incompatible", "PT501": "incompatible", "PT502": "unknown"}
    found = {
        kinds[finding.rule]
        for finding in audited.findings
        if finding.rule in kinds and finding.detail.split()[0] == target
    }
    if any(finding.rule == "PT506" for finding in audited.findings):
        found.add("incompatible")  # its detail has no release, because no release loads the file
    if verdict and any(" is a custom class" in doubt.reason for doubt in verdict.doubts):
        assert "PT603" in {finding.rule for finding in audited.findings}
        found |= {"unknown"} if verdict.reason is None else set()
    if audited.format == TFJS:
        assert verdict is None
        assert found == {"incompatible"}  # TensorFlow.js models have no verdict on Keras
    elif verdict is None or not found:
        assert not found
        assert verdict is None or verdict.outcome == "loads" or model.generation is None
    else:
        assert found == {verdict.outcome}
    trained = [finding for finding in audited.findings if finding.rule == "PT205"]
    assert bool(trained) == bool(verdict and verdict.training and verdict.training.reason)
    computed = {layer.path: layer.compute_dtype for layer in model.layers}
    for finding in audited.findings:
        stated = re.search(r" computes in (\w+)", finding.message)
        if stated is not None and finding.path in computed:
            assert stated[1] in {computed[finding.path], "16"}, finding.message


def check_migration(migration: Migration) -> None:
    """Compare all that migrate says of the result with its verdicts."""
    plan = migration.plan
    found = Migrations(migrations=(migration,), failures=())
    check_text(rendered(PLAN_REPORTERS, "table", found), *plan.loaders_after)
    [values] = json.loads(rendered(PLAN_REPORTERS, "json", found))["plans"]
    check_values(values["releases"]["before"], plan.loaders_before)
    check_values(values["releases"]["after"], plan.loaders_after)
    after = {value["release"]: value["verdict"] for value in values["releases"]["after"]}
    matching = values["conversion"]["matching_releases"] if values["conversion"] else []
    assert all(after.get(release, "loads") == "loads" for release in matching)


def check_commands(found: Input, model: Model, audits: Mapping[str | None, Audited]) -> None:
    """
    Make sure that reports print the same command for the same problem, and only commands with
    which migrate writes a result.
    """
    fix = suggested_conversion.attempt(found).extras.fix  # type: ignore[union-attr]  # a model
    printed = audits[KERAS3].commands
    first = next((command for command in printed if command.arguments is not None), None)
    if fix is not None and fix.arguments is not None:
        assert first is not None
        assert (fix.arguments, fix.effect) == (first.arguments, first.effect)
    explanation = explain("'str' object has no attribute 'quantization_mode'", str(found.path))
    explained = rendered(EXPLANATION_REPORTERS, "table", explanation)
    check_text(explained, *model.loaders)
    tested = explanation.model
    assert tested is not None
    if tested.arguments is not None:
        assert first is not None
        assert tested.arguments == first.arguments
    audited_texts = [
        rendered(FINDING_REPORTERS, "table", Audit(audited=(audited,)))
        for audited in audits.values()
    ]
    commands = dict.fromkeys(_COMMAND.findall("\n".join([explained, *audited_texts])))
    assert commands or not any(audited.commands for audited in audits.values() if first)
    for command in commands:
        ended = run(*shlex.split(command), "--preview", "--format", "json")
        [plan] = json.loads(ended.out)["plans"]
        assert plan["status"] == "planned", (command, plan["status"], plan["blockers"])


def dtypes(layers: Iterable[Layer]) -> dict[str, tuple[str | None, ...]]:
    """Return the policy and the dtypes of each layer."""
    return {
        layer.path: (layer.policy, layer.compute_dtype, layer.variable_dtype) for layer in layers
    }


def check_file(found: Input) -> None:
    """Compare all reports about a file."""
    model = inspect.attempt(found)
    if not isinstance(model, Model):
        return
    for every_release in (True, False):
        check_inspection(select(collect([model]), Selection(every_release=every_release)))
    audits = dict[str | None, Audited]()
    for target in (None, *TARGETS):
        options = audit_options(AuditArguments(target=target))
        audited = audit.attempt(found, options)
        assert isinstance(audited, Audited)
        audits[target] = audited
        if options.targets:
            check_audit(audited, model, options.targets[0])
        text = rendered(FINDING_REPORTERS, "table", Audit(audited=(audited,)))
        check_text(text, *model.loaders)
        check_advice(text)
        if len(audited.commands) == 1:
            check_effect(text)
    check_commands(found, model, audits)
    for name in (None, *TARGETS):
        request = MigrateRequest(
            options=options_from_arguments(None, {}, target=name),
            destination=Destination(write=False),
        )
        migration = migrate.attempt(found, request)
        if isinstance(migration, Migration):
            assert dtypes(migration.connected_layers) == dtypes(model.layers)
            check_migration(migration)


@THOROUGH
@pytest.mark.parametrize("part", range(PARTS))
def test_reports_of_fixtures_agree(part: int) -> None:
    """Text, Markdown and JSON of inspect, audit and migrate, for a sample of the fixtures."""
    every = discovery.inputs([str(FIXTURES)])
    for found in sampled("contradictions of reports", every, share=36)[part::PARTS]:
        check_file(found)


@pytest.mark.parametrize("name", ["keras2.1.6/custom_layer.h5", "keras2.1.6/shared_layer.json"])
def test_release_that_may_fail_is_not_listed_with_equal_predictions(name: str) -> None:
    """The layers of these models were measured, but the result may fail to load."""
    [found] = discovery.inputs([str(FIXTURES / name)])
    check_file(found)


def test_release_that_predicted_with_the_result_loads_the_result() -> None:
    """A prediction answers the open question only for the release that ran."""
    doubt = Cause(kind=Obstacle.CLASS, reason="Net is a custom class")
    judged = [
        Verdict(loader=loader, reason=None, doubts=(doubt,)) for loader in ("keras3.6", "keras3.15")
    ]
    versions = {"library": "keras", "keras": "3.15.1", "tensorflow": "2.21.0"}
    after = [migrate._with_observation(one, versions) for one in judged]  # noqa: SLF001  # no process
    assert [one.outcome for one in after] == ["unknown", "loads"]


@THOROUGH
@pytest.mark.parametrize("seed", sampled("contradictions of random models", range(24), share=4))
def test_reports_of_random_models_agree(seed: int, tmp_path: Path) -> None:
    """Models have any classes and arguments that releases of both libraries write."""
    config = sound_configs.model(Random(seed), (2, 3)[seed % 2])  # noqa: S311  # no secret
    path = tmp_path / "model.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    [found] = discovery.inputs([str(path)])
    check_file(found)


REASONS: Final = st.sampled_from(
    ["Net is a custom class", "LSTM has no argument `time_major`", "policies use Keras 2 dicts"]
)
CAUSES: Final = st.lists(
    st.builds(Cause, kind=st.sampled_from(Obstacle), reason=REASONS), max_size=2
).map(tuple)


@st.composite
def verdicts(draw: st.DrawFn) -> tuple[Verdict, ...]:
    """Return a verdict for each release, with any causes and doubts."""

    def verdict(loader: str) -> Verdict:
        causes = draw(CAUSES)
        return Verdict(
            loader=loader,
            reason=causes[0].reason if causes else None,
            causes=causes,
            doubts=draw(CAUSES),
            training=draw(
                st.none()
                | st.builds(PartVerdict, reason=st.none() | REASONS, doubt=st.none() | REASONS)
            ),
        )

    return tuple(map(verdict, LOADERS))


@THOROUGH
@given(selected=models(), judged=verdicts())
def test_reports_of_any_verdicts_agree(
    selected: SelectedInspection, judged: tuple[Verdict, ...]
) -> None:
    [model] = selected.inspection.models
    check_inspection(whole(_with_verdicts(model, judged)))
    lines = loader_lines(judged)
    check_text("\n".join(f"{label} {text}" for label, text in lines), *judged)
    said = statements("\n".join(f"{label} {text}" for label, text in lines))
    assert {name for name in said if "=" not in name} >= {release_name(name) for name in CURRENT}


def _with_verdicts(model: Model, judged: tuple[Verdict, ...]) -> Model:
    return Model(
        path="m.h5",
        format=model.format,
        generation=None,
        writer=model.writer,
        layers=(),
        loaders=judged,
    )
