"""
What migrate writes, in the hands of the newest tf_keras and Keras: it loads, its layers have the
planned dtypes, and it predicts what the original does.

Modernised files are held against the original, loaded by the same library in the same process: bit
for bit. Where the library refuses the original, against the outputs that were recorded when it was
written. For ``--to`` every fixture goes to every policy and is loaded and called, or refused with
its layer and reason; a run samples the files, and asks for one policy of each in turn;
``POLICYTOOL_SAMPLE=all`` asks for all six policies of every file.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np
import pytest

import policytool
from policytool.commands.destinations import Destination
from policytool.commands.migrate import Migration, Status
from policytool.commands.migrate_all import migrate_all
from policytool.formats import discovery
from policytool.migration.planning.options import RETARGETS, Options
from policytool.model.model import Source
from tests.compat.asking import Answers, Job, Loaded, ask
from tests.compat.cases import LIBRARIES, LOADED_OTHERWISE, OP_LAYERS, RELEASES, SAMPLE
from tests.helpers.sampling import EVERY_CASE
from tests.model.test_truth import Case, by_path, live_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


pytestmark = pytest.mark.compat

REWRITTEN: Final = ("h5", "keras", "keras-dir", "json", "savedmodel")
EPS: Final = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
"""Machine epsilon of each compute dtype."""

ABOUT_POLICIES: Final = re.compile(
    r"policies are|a policy dict|a mixed policy|PolicyV1|quantised policies"
)
"""How the reasons begin that policies alone give."""

UNCALLABLE: Final = {
    "lambda": "byte code of another Python",
    "text_vectorization": "a vocabulary that the architecture alone does not hold",
    "string_lookup": "as text_vectorization",
    "integer_lookup": "as text_vectorization",
    "sequential": (
        "standalone Keras' Sequential lacks an input shape, and Keras 3 then takes another rank "
        "than the sample's"
    ),
}
"""Case to the reason why its models are loaded and not called."""


@cache
def inspected(path: str) -> policytool.Model:
    """Return the report on a file, which is asked for again and again."""
    return policytool.inspect(path)


@dataclass(frozen=True, kw_only=True)
class Migrated:
    """One file that migrate wrote."""

    case: Case
    to: str | None
    path: str

    @property
    def model(self) -> policytool.Model:
        """What the report says of it."""
        return inspected(self.path)

    def loads_in(self, library: str) -> bool:
        """Return whether the report says that the library loads it."""
        return any(
            verdict.loader == library and verdict.reason is None
            for verdict in self.model.releases.values()
        )

    def job(self) -> Job:
        """Return it as a job, called with the recorded inputs where it can be."""
        return Job(
            format=self.case.format,
            path=self.path,
            sample=None
            if self.case.name in UNCALLABLE
            else f"{self.case.release}/{self.case.name}",
        )


@dataclass(frozen=True)
class Written:
    """What migrate made of the fixtures."""

    files: tuple[Migrated, ...]
    refused: tuple[tuple[Case, str, str], ...]
    """Case, target and message."""


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Migrate every fixture: into the current spelling, and to other policies."""
    base = tmp_path_factory.mktemp("migrated")
    files, refused = [], []
    for case in SAMPLE:
        if case.format in REWRITTEN:
            chosen = (
                RETARGETS
                if EVERY_CASE
                else (RETARGETS[zlib.crc32(case.path.encode()) % len(RETARGETS)],)
            )
            for to in (None, *chosen):
                target = base / case.release / str(to) / case.file
                target.parent.mkdir(parents=True, exist_ok=True)
                (result,) = migrate_all(
                    list(discovery.inputs([case.path])), Options(to=to), Destination(output=target)
                )
                assert isinstance(result, Migration), result
                if result.status is Status.WRITTEN:
                    files.append(Migrated(case=case, to=to, path=str(target)))
                elif result.status is Status.BLOCKED:
                    refused.append((case, str(to), result.plan.refusals[0].message))
    return Written(tuple(files), tuple(refused))


@pytest.fixture(scope="session")
def answers(compat_python: Path, written: Written) -> Callable[[str], Answers]:
    """Return a function that gives a library's answers, asking it the first time."""

    @cache
    def asked(library: str) -> Answers:
        jobs = [file.job() for file in written.files if file.loads_in(library)]
        originals = {
            file.case.path: Migrated(case=file.case, to=None, path=file.case.path)
            for file in written.files
            if file.to is None
        }
        return ask(
            compat_python,
            library,
            [*jobs, *(item.job() for item in originals.values() if item.loads_in(library))],
        )

    return asked


def outputs(loaded: Loaded) -> Iterator[Any]:
    """Yield what a model made, as arrays."""
    for output in loaded.outputs:
        dtype = (
            np.dtype(ml_dtypes.bfloat16)
            if output["dtype"] == "bfloat16"
            else np.dtype(output["dtype"])
        )
        if dtype.kind != "O":
            yield np.frombuffer(bytes.fromhex(output["bytes"]), dtype=dtype).reshape(
                output["shape"]
            )


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_migrated_files_load_with_the_planned_dtypes(
    written: Written,
    answers: Callable[[str], Answers],
    count: Callable[..., None],
    library: str,
    release: str,
) -> None:
    """
    The library loads and calls each migrated file if the report says so, and each layer has the
    reported dtypes.
    """
    wrong = []
    asked = answers(library)
    for item in (
        file for file in written.files if file.case.release == release and file.loads_in(library)
    ):
        loaded = asked.loaded[item.job()]
        listed = any(
            verdict.loader == library and verdict.not_judged is not None
            for verdict in item.model.releases.values()
        )
        count(
            library,
            f"migrated {item.case.format}",
            files=1,
            load=loaded.error is None,
            refused=loaded.error is not None,
            open=listed,
        )
        if loaded.error is not None:
            wrong += [] if listed else [f"{item.case.file} to {item.to}: {loaded.error}"]
            continue
        compared, found = 0, []
        for text in _dtypes(library, item, loaded.layers):
            compared += 1
            found += [text] if text else []
        count(
            library,
            f"migrated {item.case.format}",
            layers=compared,
            same_dtypes=compared - len(found),
        )
        wrong += [f"{item.case.file} to {item.to}: {text}" for text in found]
    assert not wrong, "\n".join(wrong)


def _dtypes(library: str, one: Migrated, live: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    """
    Yield, for each declared layer, how the loaded one differs; an empty text where it does not.
    """
    records = live_records(one.case, one.model, live)
    for layer in by_path(one.model).values():
        record = records.get(layer.path)
        if (
            layer.source is not Source.DECLARED
            or layer.class_name in OP_LAYERS
            or (record is None and layer.class_name == "InputLayer")
        ):
            continue
        if record is None:
            yield f"{layer.path} is not in the loaded model"
        elif record["role"] == "input":
            yield (
                ""
                if layer.policy == record["tensor_dtype"]
                else f"{layer.path}: {layer.policy}, loaded {record['tensor_dtype']}"
            )
        elif not any(excuses(library, one.case, record) for _, excuses in LOADED_OTHERWISE):
            actual, loaded = (
                (layer.compute_dtype, layer.variable_dtype),
                (record["compute_dtype"], record["variable_dtype"]),
            )
            yield "" if actual == loaded else f"{layer.path}: {actual}, loaded {loaded}"


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_modernized_files_predict_the_same_as_the_original(
    written: Written,
    answers: Callable[[str], Answers],
    count: Callable[..., None],
    library: str,
    release: str,
) -> None:
    """
    Predictions are identical if the original loads. Otherwise, they are within 8 eps of the compute
    dtype times the largest recorded output.
    """
    wrong = []
    asked = answers(library)
    for item in (
        file
        for file in written.files
        if file.case.release == release and file.to is None and file.loads_in(library)
    ):
        loaded = asked.loaded[item.job()]
        if loaded.error is not None or not loaded.outputs:
            continue
        original = Migrated(case=item.case, to=None, path=item.case.path)
        reference = asked.loaded.get(original.job()) if original.loads_in(library) else None
        if reference is not None and reference.error is None:
            same = loaded.outputs == reference.outputs
            count(library, f"migrated {item.case.format}", bit_for_bit=same)
            wrong += [] if same else [f"{item.case.file}: predicts other bits than the original"]
        else:
            difference = _beyond(item, loaded)
            count(library, f"migrated {item.case.format}", within_8_eps=difference is None)
            wrong += [f"{item.case.file}: {difference}"] if difference else []
    assert not wrong, "\n".join(wrong)


def _beyond(one: Migrated, loaded: Loaded) -> str | None:
    """Return how far a model's outputs are from the recorded ones, where that is too far."""
    computed = [
        EPS[layer.compute_dtype]
        for layer in one.model.layers
        if layer.compute_dtype in EPS and layer.class_name != "InputLayer"
    ]
    for made, recorded in zip(outputs(loaded), one.case.truth["outputs"], strict=True):
        values = np.array(recorded["values"], dtype="float64").reshape(recorded["shape"])
        largest = float(np.abs(values).max(initial=0.0))
        distance = float(np.abs(made.astype("float64") - values).max(initial=0.0))
        if distance > 8 * max(computed) * largest:
            return f"off by {distance:.3g}, with outputs up to {largest:.3g}"
    return None


def test_blocked_migrations_name_a_layer_and_a_reason(written: Written) -> None:
    """
    Each message contains a sentence, and the path of a layer; for stored variables, its class and
    name, as Keras prints them.
    """
    for case, to, message in written.refused:
        layers = policytool.inspect(case.path).layers
        assert any(
            layer.path in message or f"{layer.class_name} {layer.name} has" in message
            for layer in layers
        ), (case.path, to, message)
        assert len(message.split()) > 8


def test_migrated_policies_load_in_the_newest_releases(written: Written) -> None:
    """No migrated file fails to load in the newest releases because of its policies."""
    for file in written.files:
        for verdict in file.model.releases.values():
            if (
                verdict.loader in LIBRARIES
                and file.case.format != "keras-dir"
                and not file.case.keras3
            ):
                assert not ABOUT_POLICIES.match(verdict.reason or ""), (file.case.path, verdict)


def test_the_directory_of_migrated_files_holds_nothing_else(written: Written) -> None:
    """No draft, no backup: what was written and nothing beside it."""
    expected = {Path(file.path) for file in written.files}
    for directory in {path.parent for path in expected}:
        assert set(directory.iterdir()) <= expected
