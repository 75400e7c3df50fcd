"""What a baseline remembers, and what it takes for the same."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policytool.commands.audit import tally_of
from policytool.formats.document import Signature
from policytool.rules.base import Audited, Finding, Severity, fingerprints
from policytool.rules.selection import baselines
from policytool.rules.selection.baselines import Baseline
from policytool.rules.selection.suppressions import Suppressions, suppress
from policytool.support.errors import BaselineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

SUPPRESSIONS = Suppressions(directory="/w", today=date(2026, 1, 1))
FINGERPRINT = "0123456789abcdef" * 2


def finding(path: str | None, rule: str = "PT101", detail: str = "") -> Finding:
    """Return a finding."""
    return Finding(rule=rule, severity=Severity.WARNING, message="m", path=path, detail=detail)


def outdated(
    known: Mapping[str, Mapping[str, int]],
    every: Iterable[Audited],
    exists: Callable[[str], bool],
) -> int:
    """Return how many known findings no longer occur in models or in files that are gone."""
    return tally_of(every, replace(SUPPRESSIONS, known=known)).outdated_count(exists)


def audited(path: str, *findings: Finding, signatures: tuple[Signature, ...] = ()) -> Audited:
    """Return a model in which these were found."""
    return Audited(
        path=path, format="h5", generation=None, layers=3, findings=findings, signatures=signatures
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
signatures = st.builds(
    Signature,
    name=texts,
    inputs=st.dictionaries(texts, st.sampled_from(["float32", "int64"]), max_size=2),
    outputs=st.dictionaries(texts, st.sampled_from(["float16", "float32"]), max_size=2),
    compute_dtypes=st.sampled_from([(), ("float16", "float32")]),
)
models = st.lists(
    st.builds(
        lambda path, findings, own: audited(path, *findings, signatures=tuple(own)),
        texts,
        st.lists(
            st.builds(
                finding,
                st.none() | texts,
                st.sampled_from(["PT101", "PT302"]),
                st.sampled_from(["", "kernel"]),
            ),
            max_size=4,
        ),
        st.lists(signatures, max_size=2, unique_by=lambda one: one.name),
    ),
    max_size=3,
    unique_by=lambda one: one.path,
)


@given(models)
def test_baseline_is_read_as_written(every: list[Audited]) -> None:
    """Names may be arbitrary. Each finding has one line, and lines are sorted."""
    written = baselines.of(every, SUPPRESSIONS)
    text = baselines.render(written)
    read = baselines.parse(text)
    assert baselines.render(read) == text
    assert Counter(read.findings) == Counter(written.findings)
    assert list(read.findings) == sorted(read.findings)
    assert read.by_path.keys() == written.by_path.keys()
    lines = [
        json.loads(line.rstrip(",")) for line in text.split("\n") if line.startswith('{"path"')
    ]
    assert len(lines) == len(written.findings) + len(written.signatures)


@given(models)
def test_written_findings_are_suppressed(every: list[Audited]) -> None:
    baseline = baselines.of(every, SUPPRESSIONS)
    known = baselines.known_findings(baseline, every, SUPPRESSIONS, lambda _: True)
    after = [suppress(one, replace(SUPPRESSIONS, known=known)) for one in every]
    assert not any(one.findings for one in after)
    assert outdated(known, after, lambda _: True) == 0


names = st.sampled_from(["dense", "conv2d", "lstm", "batch_normalization", "head_a", "block1"])
layers = st.lists(
    st.lists(st.tuples(names, st.integers(0, 30)), min_size=1, max_size=3), min_size=1, max_size=8
)


@given(layers, st.integers(1, 1000))
def test_a_fingerprint_survives_renumbering(paths: list[list[tuple[str, int]]], more: int) -> None:
    """
    dense_3 is dense_17 in the next model that a process builds, and dense has no number in the
    first.
    """

    def named(parts: list[tuple[str, int]], offset: int) -> str:
        return "/".join(
            name if number + offset == 0 else f"{name}_{number + offset}" for name, number in parts
        )

    first, second = ([finding(named(parts, offset)) for parts in paths] for offset in (0, more))
    assert fingerprints(first) == fingerprints(second)
    assert len(set(fingerprints(first))) == len(first)


@given(layers, st.randoms(use_true_random=False))
def test_the_order_of_layers_changes_no_fingerprint_of_all(
    paths: list[list[tuple[str, int]]], random: Random
) -> None:
    """
    Together they are the same, so a baseline knows a model whose branches were listed otherwise.
    """
    found = [finding("/".join(f"{name}_{number}" for name, number in parts)) for parts in paths]
    shuffled = list(found)
    random.shuffle(shuffled)
    assert sorted(fingerprints(found)) == sorted(fingerprints(shuffled))


def test_fingerprints_ignore_the_number_in_the_input_name_of_a_sequential() -> None:
    """
    tf_keras 2.21 names the input after the first layer, with a number that depends on the process.
    """
    paths = ("model/sequential/dense_3_input", "model_1/sequential_1/dense_7_input")
    assert len({fingerprints([finding(path)]) for path in paths}) == 1
    assert len({fingerprints([finding(path)]) for path in ("m/dense_input", "m/dense_output")}) == 2


def test_baseline_recognizes_a_renamed_file_if_the_old_file_does_not_exist() -> None:
    """The baseline applies to one renamed file, and only if all findings are equal."""
    one, other = finding("a"), finding("b")
    baseline = baselines.of([audited("v1.h5", one)], SUPPRESSIONS)

    def counts(*every: Audited, exists: bool = False) -> list[int]:
        known = baselines.known_findings(baseline, every, SUPPRESSIONS, lambda _: exists)
        return [
            len(suppress(model, replace(SUPPRESSIONS, known=known)).findings) for model in every
        ]

    assert counts(audited("v2.h5", one)) == [0]
    assert counts(audited("v2.h5", one), exists=True) == [1]
    assert counts(audited("v2.h5", one, other)) == [2]
    assert counts(audited("v2.h5", one), audited("v3.h5", one)) == [0, 1]
    assert counts(audited("v1.h5", one), audited("v2.h5", one), exists=True) == [0, 1]


def test_findings_of_the_baseline_that_no_longer_occur_are_counted() -> None:
    """
    Missing findings count in audited models and in deleted files, but not in existing files that
    were not audited.
    """
    one, other = finding("a"), finding("b")
    known = baselines.of(
        [audited("a.h5", one, other), audited("b.h5", one), audited("c.h5", one)], SUPPRESSIONS
    ).fingerprints
    assert outdated(known, [audited("a.h5", one)], lambda path: path != "b.h5") == 2
    assert outdated(known, [], lambda _: True) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not valid JSON"),
        ("[" * 100_000, "nests JSON"),
        ("[]", "is not a baseline; expected a file written by --write-baseline"),
        ('{"version": 1}', "is not a baseline"),
        ('{"version": 2, "findings": []}', "version 2 baseline, but policytool supports version 1"),
        ('{"version": 1, "findings": {}}', "'findings' is not a list of objects"),
        ('{"version": 1, "findings": [1]}', "'findings' is not a list of objects"),
        ('{"version": 1, "findings": [{"rule": "PT101"}]}', "finding 1 lacks a path"),
        (
            '{"version": 1, "findings": [{"path": "a", "rule": "PT101", "layer": 1}]}',
            "finding 1 lacks a path",
        ),
        (
            '{"version": 1, "findings": [{"path": "a", "rule": "PT101", "fingerprint": "x"}]}',
            "the fingerprint of finding 1 is missing",
        ),
        (
            '{"version": 1, "findings": [], "signatures": [{"path": "a"}]}',
            "signature 1 lacks a path",
        ),
        (
            (
                '{"version": 1, "findings": [], "signatures": [{"path": "a", "name": "s", '
                '"inputs": 1, '
                '"outputs": {}, "compute_dtypes": []}]}'
            ),
            "signature 1 has inputs",
        ),
    ],
)
def test_invalid_baseline_gives_a_one_line_error(text: str, words: str) -> None:
    """Each kind of damage has a message."""
    with pytest.raises(BaselineError, match=words):
        baselines.parse(text)


def test_empty_baseline_suppresses_nothing() -> None:
    assert baselines.parse(baselines.render(Baseline())) == Baseline()
    assert f'"version": {baselines.VERSION}' in baselines.render(Baseline())
    assert (
        baselines.parse(
            f'{{"version": 1, "findings": [{{"path": "a", "rule": "PT1", "fingerprint": '
            f'"{FINGERPRINT}"}}]}}'
        )
        .findings[0]
        .layer
        == ""
    )
