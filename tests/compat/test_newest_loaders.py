"""
The newest tf_keras and Keras load the fixtures as ``policytool inspect`` says they do, and into the
dtypes that it reports.

The libraries are asked once each, in a process of their own (``loader.py``). Every verdict that a
library loads or refuses a file has to be right; what the report leaves open is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from policytool.model.model import Layer, Source
from tests.compat.cases import (
    LIBRARIES,
    LOADED_OTHERWISE,
    OP_LAYERS,
    OTHER,
    RELEASES,
    SAMPLE,
    Record,
    job,
    left_to_the_loader,
    under_another_policy,
    verdict,
)
from tests.model.test_truth import Case, by_path, live_records, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.compat.asking import Answers

# One worker asks both libraries about all files.
pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("newest loaders")]


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_environment_has_the_releases_that_the_reports_name(
    answers: Callable[[str], Answers], library: str
) -> None:
    """The verdicts compared here are about the versions that are installed."""
    assert library.endswith(".".join(answers(library).versions["keras"].split(".")[:2]))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_verdict_agrees_with_the_library(
    answers: Callable[[str], Answers], count: Callable[..., None], library: str, release: str
) -> None:
    """A file loads, or fails to load, as the report says."""
    differing = []
    asked = answers(library)
    for case in (case for case in SAMPLE if case.release == release):
        actual, error = verdict(case, library), asked.loaded[job(case)].error
        left = actual is None or actual.not_judged is not None
        agree = actual is not None and actual.loads == (error is None)
        count(
            library,
            case.format,
            files=1,
            load=error is None,
            refused=error is not None,
            agree=agree and not left,
            open=left,
        )
        if not left and not agree:
            differing.append(
                f"{release}/{case.file}: the report says "
                f"{actual.reason or 'loads' if actual else 'nothing'}, the library "
                f"{error or 'loads'}"
            )
    assert not differing, "\n".join(differing)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_declared_dtypes_equal_those_of_loaded_layers(
    answers: Callable[[str], Answers], count: Callable[..., None], library: str, release: str
) -> None:
    differences = []
    for case in (case for case in SAMPLE if case.release == release):
        loaded = answers(library).loaded[job(case)]
        if loaded.error is None:
            compared, found = 0, []
            for layer, record in _declared_and_live(case, loaded.layers):
                if record is None:
                    found.append(f"{layer.path} ({layer.class_name}) is not in the loaded model")
                    continue
                if not any(excuses(library, case, record) for _, excuses in LOADED_OTHERWISE):
                    compared += 1
                    found += [f"{layer.path}: {text}" for text in _differences(layer, record)]
            count(library, case.format, layers=compared, same_dtypes=compared - len(found))
            differences += [f"{case.file}: {text}" for text in found]
    assert not differences, "\n".join(differences)


def _declared_and_live(
    case: Case, live: tuple[Mapping[str, Any], ...]
) -> Iterator[tuple[Layer, Record | None]]:
    """
    Yield each layer that the file declares dtypes for, and the live one at its path; a Sequential
    does not list its input layer.
    """
    records = live_records(case, report(case.path), live)
    for layer in by_path(report(case.path)).values():
        if (
            layer.source is Source.DECLARED
            and layer.class_name not in OP_LAYERS
            and not (layer.class_name == "InputLayer" and layer.path not in records)
        ):
            yield layer, records.get(layer.path)


def _differences(layer: Layer, record: Record) -> Iterator[str]:
    if record["role"] == "input":
        if layer.policy != record["tensor_dtype"]:
            yield f"reported input of {layer.policy}, loaded {record['tensor_dtype']}"
        return
    reported, loaded = (
        (layer.compute_dtype, layer.variable_dtype),
        (record["compute_dtype"], record["variable_dtype"]),
    )
    if reported != loaded:
        yield f"reported {reported}, loaded {loaded}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_layers_without_a_stored_policy_have_the_global_policy(
    answers: Callable[[str], Answers], library: str
) -> None:
    """
    Such layers compute in bfloat16 when loaded under mixed_bfloat16, and in float32 under the
    default.
    """
    differences = []
    for case in under_another_policy(library):
        for policy, expected in ((OTHER, "bfloat16"), (None, "float32")):
            loaded = answers(library).loaded[job(case, policy)]
            if loaded.error is not None:
                result = verdict(case, library)
                differences += (
                    [f"{case.release}/{case.file} under {policy}: {loaded.error}"]
                    if result is None or result.loads
                    else []
                )
                continue
            live = {record["path"]: dict(record) for record in loaded.layers}
            differences += [
                (
                    f"{case.release}/{case.file}: {layer.path} ({layer.class_name}) computes in "
                    f"{record['compute_dtype']} under {policy}"
                )
                for layer in left_to_the_loader(case)
                if (record := live.get(layer.path)) is not None
                and (record["compute_dtype"], record["variable_dtype"]) != (expected, "float32")
                and not any(excuses(library, case, record) for _, excuses in LOADED_OTHERWISE)
            ]
    assert not differences, "\n".join(differences)
