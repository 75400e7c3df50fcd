"""
The newest tf_keras and Keras load the fixtures as ``policytool inspect`` says they do, and into the dtypes that it reports.

The libraries are asked once each, in a process of their own (``loader.py``). Where they differ from the report is listed here, each with its reason;
a disagreement that has gone fails as well.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.model import Layer, Source
from tests.compat.asking import Answers, Job, ask
from tests.test_truth import CASES as WRITTEN
from tests.test_truth import FIXTURES, Case, by_path, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.compat

TF_KERAS: Final = "tf_keras2.21"
KERAS: Final = "keras3.15"
LIBRARIES: Final = (TF_KERAS, KERAS)
CASES: Final = tuple(case for case in WRITTEN if case.format not in {"tfjs", "export"})
"""What a library's own loaders are given; TensorFlow.js models need a converter, and of an export of TF 1 ``load_model`` makes no Keras model."""

RELEASES: Final = tuple(dict.fromkeys(case.release for case in CASES))
OTHER: Final = "mixed_bfloat16"
"""A global policy that no library has by default and few fixtures declare."""

Record = dict[str, Any]

DISAGREEMENTS: Final[Mapping[tuple[str, str], str]] = {
    (TF_KERAS, "tf2.3/string_lookup"): "the lookup table has another name in TF 2.3's checkpoint",
    (TF_KERAS, "keras3.15/subclassed.keras"): "the class decides what it rebuilds: tf_keras builds the layers before it finds weights for them",
    (KERAS, "tf2.15/activation_layer.h5"): "an activation that is a layer, written without a module, is found from Keras 3.15 on",
    (KERAS, "keras3.0/shared_layer.json"): "Keras 3.0 itself writes a graph of a nested, shared layer that cannot be resolved",
    (KERAS, "keras3.15/shared_layer.keras"): "Keras does not load its own archive of a layer that a nested model shares",
    (KERAS, "keras3.15/awq_policy.keras"): "a layer under an AWQ policy that was never calibrated does not save all its variables",
    (KERAS, "keras3.15/gptq_policy.keras"): "as awq_policy",
}
"""Library and file to the reason why the verdict is not what the library says."""

OP_LAYERS: Final = frozenset({"TensorFlowOpLayer", "TFOpLambda", "SlicingOpLambda", "ClassMethod"})
"""Layers that compute in what the graph gives them, whatever they declare."""

LOADED_OTHERWISE: Final[tuple[tuple[str, Callable[[str, Case, Record], bool]], ...]] = (
    (
        "a custom model's constructor makes its layers again, under the loader's global policy",
        lambda library, case, record: library == TF_KERAS and case.name == "subclassed" and record["path"] != "net",
    ),
    (
        "tf_keras gives the layers inside a MultiHeadAttention its policy, releases up to TF 2.12 gave them the global one",
        lambda library, case, record: library == TF_KERAS and case.name.startswith("mha") and record["role"] == "sublayer",
    ),
    (
        "up to TF 2.5 the dtype of a lookup layer is its input's, from TF 2.6 on its output's",
        lambda library, case, record: library == TF_KERAS and record["class_name"] == "StringLookup",
    ),
    (
        "Keras 3 gives lookup layers the dtype of their vocabulary, whatever a file of Keras 2 says",
        lambda library, case, record: library == KERAS and record["class_name"] == "StringLookup" and not case.keras3,
    ),
    (
        "Keras 3 writes the policy of a Sequential and does not read it: the loader's global policy decides",
        lambda library, case, record: library == KERAS and record["class_name"] == "Sequential",
    ),
)
"""Reason, and which live layers it excuses from having the dtypes that the report says."""


@cache
def versions(release: str) -> Mapping[str, str]:
    """Return the versions that a release's fixtures were written with."""
    found: dict[str, str] = json.loads((FIXTURES / release / "truth.json").read_text(encoding="utf-8"))["versions"]
    return found


def job(case: Case, policy: str | None = None) -> Job:
    """Return a case's file as a job."""
    return Job(format=case.format, path=case.path, policy=policy)


def verdict(case: Case, library: str) -> str | None:
    """Return why the report says that a library refuses the file; None where it says that it loads, and ``unsaid`` where it says nothing."""
    return next((verdict.reason for verdict in report(case.path).loaders if verdict.loader == library), "unsaid")


def left_to_the_loader(case: Case) -> list[Layer]:
    """Return the layers whose policy is the loader's."""
    return [layer for layer in report(case.path).layers if layer.source is Source.LOADER]


def under_another_policy(library: str) -> list[Case]:
    """Return one file per release, format and set of classes that leave their policy to the loader."""
    chosen: dict[tuple[str, str, frozenset[str | None]], Case] = {}
    for case in CASES:
        classes = frozenset(layer.class_name for layer in left_to_the_loader(case))
        if classes and case.name != "lambda" and verdict(case, library) is None and (library, f"{case.release}/{case.file}") not in DISAGREEMENTS:
            chosen.setdefault((case.release, case.format, classes), case)
    return list(chosen.values())


@pytest.fixture(scope="session")
def answers(compat_python: Path) -> Callable[[str], Answers]:
    """Return a function that gives a library's answers, asking it the first time."""

    @cache
    def asked(library: str) -> Answers:
        return ask(compat_python, library, [*map(job, CASES), *(job(case, OTHER) for case in under_another_policy(library))])

    return asked


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_environment_has_the_releases_that_the_reports_name(answers: Callable[[str], Answers], library: str) -> None:
    """The verdicts compared here are about the versions that are installed."""
    assert library.endswith(".".join(answers(library).versions["keras"].split(".")[:2]))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_verdict_is_what_the_library_does(answers: Callable[[str], Answers], count: Callable[..., None], library: str, release: str) -> None:
    """A file loads where the report says so, and is refused where it says so."""
    differing, stale = [], []
    asked = answers(library)
    for case in (case for case in CASES if case.release == release):
        file = f"{release}/{case.file}"
        said, error = verdict(case, library), asked.loaded[job(case)].error
        agree = said != "unsaid" and (said is None) == (error is None)
        listed = (library, file) in DISAGREEMENTS or (case.name == "lambda" and said is None and not _same_python(case, asked))
        count(library, case.format, files=1, load=error is None, refused=error is not None, agree=agree, listed=listed and not agree)
        if not agree and not listed:
            differing.append(f"{file}: the report says {said or 'loads'}, the library {error or 'loads'}")
        if agree and (library, file) in DISAGREEMENTS:
            stale.append(f"{file}: agrees, and is listed as a disagreement")
    assert not [*differing, *stale], "\n".join([*differing, *stale])


def _same_python(case: Case, asked: Answers) -> bool:
    """Return whether a Lambda's byte code was written by the Python that reads it; another one refuses it, loads it, or runs astray."""
    writer, reader = (found["python"].split(".")[:2] for found in (versions(case.release), asked.versions))
    return writer == reader


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_declared_dtypes_are_those_of_the_loaded_layers(answers: Callable[[str], Answers], count: Callable[..., None], library: str, release: str) -> None:
    """A loaded layer computes and stores in what the report says that the file declares."""
    differences = []
    for case in (case for case in CASES if case.release == release):
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


def _declared_and_live(case: Case, live: tuple[Mapping[str, Any], ...]) -> Iterator[tuple[Layer, Record | None]]:
    """Yield each layer that the file declares dtypes for, and the live one at its path; a Sequential does not list its input layer."""
    records = {path: dict(record) for record in live for path in (record["path"], *record["also_at"])}
    for layer in by_path(report(case.path)).values():
        if layer.source is Source.DECLARED and layer.class_name not in OP_LAYERS and not (layer.class_name == "InputLayer" and layer.path not in records):
            yield layer, records.get(layer.path)


def _differences(layer: Layer, record: Record) -> Iterator[str]:
    if record["role"] == "input":
        if layer.policy != record["tensor_dtype"]:
            yield f"reported input of {layer.policy}, loaded {record['tensor_dtype']}"
        return
    reported, loaded = (layer.compute_dtype, layer.variable_dtype), (record["compute_dtype"], record["variable_dtype"])
    if reported != loaded:
        yield f"reported {reported}, loaded {loaded}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_left_to_the_loader_takes_its_global_policy(answers: Callable[[str], Answers], library: str) -> None:
    """Layers that the report calls the loader's compute in bfloat16 when loaded under mixed_bfloat16, and in float32 under the default."""
    differences = []
    for case in under_another_policy(library):
        for policy, expected in ((OTHER, "bfloat16"), (None, "float32")):
            loaded = answers(library).loaded[job(case, policy)]
            if loaded.error is not None:
                differences.append(f"{case.release}/{case.file} under {policy}: {loaded.error}")
                continue
            live = {record["path"]: dict(record) for record in loaded.layers}
            differences += [
                f"{case.release}/{case.file}: {layer.path} ({layer.class_name}) computes in {record['compute_dtype']} under {policy}"
                for layer in left_to_the_loader(case)
                if (record := live.get(layer.path)) is not None
                and (record["compute_dtype"], record["variable_dtype"]) != (expected, "float32")
                and not any(excuses(library, case, record) for _, excuses in LOADED_OTHERWISE)
            ]
    assert not differences, "\n".join(differences)
