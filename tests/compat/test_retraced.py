"""
``migrate --retrace`` and ``--verify`` with the newest tf_keras: every SavedModel among the fixtures
goes to every policy, or is refused for a reason.

What was written is held against the original by migrate itself (variables, signatures,
predictions); here the library loads it once more and says what its layers are. A sample of the
fixtures goes to one policy each; with ``POLICYTOOL_SAMPLE=all``, every fixture goes to all six.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.commands.destinations import Destination
from policytool.commands.inspect import Failure
from policytool.commands.migrate import Migration, Status
from policytool.commands.migrate_all import migrate_all
from policytool.formats import discovery
from policytool.migration.planning.options import RETARGETS, Options
from policytool.model import reading
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from policytool.releases import dtypes
from tests.compat.asking import Job, ask
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import EVERY_CASE, sampled
from tests.model.test_truth import CASES, Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.commands.migrate import Result

pytestmark = pytest.mark.compat

LIBRARY: Final = "tf_keras2.21"
SAVED: Final = sampled(
    "retraced models",
    (case for case in CASES if case.format == "savedmodel" and not case.path.endswith(".export")),
    share=3,
)

REFUSED: Final = {
    # its table stands in the checkpoint under a name that tf_keras no longer has
    "tf2.3/string_lookup": "not-loadable",
    # the class multiplies what it does not cast, and its config does not say so
    "tf2.15/autocast_false": "not-buildable",
    # the class's own code gives one of its layers float32
    "tf2.15/custom_layer": "retrace-differs",
}
"""
Fixture to the code that it may be refused with; what the planner refuses has its codes tested
elsewhere.
"""

CUSTOM: Final = """
import tensorflow as tf
from writer import api, custom_classes
CLASSES = custom_classes.classes(api.open_release("tf_keras2.21"))
"""


@dataclass(frozen=True, kw_only=True)
class Retraced:
    """What became of one fixture under one policy."""

    case: Case
    to: str
    result: Result

    @property
    def name(self) -> str:
        """The fixture and the policy, for messages."""
        return f"{self.case.release}/{self.case.name} to {self.to}"


def targets(case: Case) -> tuple[str, ...]:
    """Return the policies that a fixture goes to."""
    return (
        RETARGETS if EVERY_CASE else (RETARGETS[zlib.crc32(case.path.encode()) % len(RETARGETS)],)
    )


@pytest.fixture(scope="session")
def tools(
    compat_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TensorFlowTools]:
    """Return one child with the newest tf_keras, and the fixtures' custom classes."""
    modules = tmp_path_factory.mktemp("modules")
    (modules / "fixture_classes.py").write_text(CUSTOM, encoding="utf-8")
    with Worker(Interpreter(python=str(compat_python), timeout=300)) as worker:
        yield TensorFlowTools(
            worker=worker,
            verify=True,
            custom_objects=("fixture_classes:CLASSES",),
            path=(str(FIXTURES), str(modules)),
        )


@pytest.fixture(scope="session")
def retraced(
    tools: TensorFlowTools, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Retraced, ...]:
    """Trace every SavedModel anew."""
    base = tmp_path_factory.mktemp("retraced")
    actual = []
    for case in SAVED:
        for to in targets(case):
            target = base / case.release / to / case.name
            target.parent.mkdir(parents=True, exist_ok=True)
            (result,) = migrate_all(
                list(discovery.inputs([case.path])),
                Options(to=to, retrace=True),
                Destination(output=target),
                tools,
            )
            actual.append(Retraced(case=case, to=to, result=result))
    return tuple(actual)


def written(retraced: tuple[Retraced, ...]) -> Iterator[tuple[Retraced, Migration, Path]]:
    """Yield what was written."""
    for item in retraced:
        if (
            isinstance(item.result, Migration)
            and item.result.status is Status.WRITTEN
            and isinstance(item.result.target, Path)
        ):
            yield item, item.result, item.result.target


def test_every_savedmodel_is_re_exported_or_fails_for_a_known_reason(
    retraced: tuple[Retraced, ...], count: Callable[..., None]
) -> None:
    """
    No child process crashes, and predictions are within the tolerance. Known failures are listed.
    """
    wrong = []
    for item in retraced:
        if isinstance(item.result, Failure):
            known = REFUSED.get(f"{item.case.release}/{item.case.name}") == item.result.code
            wrong += [] if known else [f"{item.name}: {item.result.code}: {item.result.message}"]
        elif isinstance(item.result, Migration) and item.result.status is Status.MISSED:
            wrong.append(f"{item.name}: {item.result.comparison}")
        done = isinstance(item.result, Migration) and item.result.status is Status.WRITTEN
        count(LIBRARY, "retraced savedmodel", files=1, load=done, refused=not done)
    assert not wrong, "\n".join(wrong)


def test_most_savedmodels_are_re_exported(retraced: tuple[Retraced, ...]) -> None:
    """The following tests therefore cover many models."""
    assert len(list(written(retraced))) > 0.8 * len(retraced)


def test_variables_are_bit_for_bit_the_same_or_exactly_as_cast(
    retraced: tuple[Retraced, ...],
) -> None:
    """A mixed policy and float32 cast nothing; a pure one casts what it changes."""
    for one, done, _ in written(retraced):
        assert done.retraced is not None
        held = done.retraced.held
        assert held.variables == sum(
            len(layer.variables) for layer in policytool.inspect(one.case.path).layers
        ), one.name
        assert held.identical >= held.variables - len(done.plan.casts), one.name


def test_signatures_keep_names_and_inputs(retraced: tuple[Retraced, ...]) -> None:
    """
    Callers of a signature need no change. A file without functions has no signatures before and
    after.
    """
    for one, done, target in written(retraced):
        before, after = policytool.inspect(one.case.path), policytool.inspect(str(target))
        assert [
            (signature.name, dict(signature.inputs), set(signature.outputs))
            for signature in before.signatures
        ] == [
            (signature.name, dict(signature.inputs), set(signature.outputs))
            for signature in after.signatures
        ], one.name
        assert done.retraced is not None
        assert done.retraced.traces == bool(before.signatures)


def test_migrating_the_result_again_changes_nothing(retraced: tuple[Retraced, ...]) -> None:
    """The re-exported model has the policy format of ``migrate``."""
    for one, _, target in written(retraced):
        (again,) = migrate_all(
            list(discovery.inputs([str(target)])), Options(), Destination(write=False)
        )
        assert isinstance(again, Migration), one.name
        assert again.status is Status.UNCHANGED, (
            one.name,
            again.plan.edits[:1],
            again.plan.refusals,
        )


def test_the_library_loads_the_planned_policies(
    retraced: tuple[Retraced, ...], compat_python: Path
) -> None:
    """The live layers of the result have the dtypes that the plan gave them."""
    jobs = {
        Job(format="savedmodel", path=str(target), policy=_global(one)): one
        for one, _, target in written(retraced)
    }
    answers = ask(compat_python, LIBRARY, list(jobs))
    wrong = []
    for job, one in jobs.items():
        loaded = answers.loaded[job]
        if loaded.error is not None:
            wrong.append(f"{one.name}: {loaded.error}")
            continue
        live = {
            path: record
            for record in loaded.layers
            for path in (record["path"], *record["also_at"])
        }
        for layer in reading.read(Path(job.path), job.path).layers:
            record = live.get(layer.path)
            if (
                record is None
                or layer.class_name == "InputLayer"
                or not dtypes.is_float(layer.compute_dtype)
            ):
                continue
            result, actual = (
                (layer.compute_dtype, layer.variable_dtype),
                (record["compute_dtype"], record["variable_dtype"]),
            )
            wrong += (
                []
                if result == actual
                else [f"{one.name}: {layer.path} is {result}, loaded {actual}"]
            )
    assert not wrong, "\n".join(wrong)


def _global(one: Retraced) -> str | None:
    """
    Return the policy that a model is to be loaded under: one whose own code builds layers under its
    own.
    """
    notes = one.result.plan.notes if isinstance(one.result, Migration) else ()
    message = next((note.message for note in notes if note.code == "load-under-policy"), "")
    match = re.search(r"set_global_policy\('(\w+)'\)", message)
    return match[1] if match else None


def test_missing_custom_classes_are_errors_with_their_names(
    compat_python: Path, tmp_path: Path
) -> None:
    actual = list(discovery.inputs([str(FIXTURES / "tf2.3/subclassed")]))
    with Worker(Interpreter(python=str(compat_python))) as worker:
        (result,) = migrate_all(
            actual,
            Options(to="float32", retrace=True),
            Destination(output=tmp_path / "x"),
            TensorFlowTools(worker=worker),
        )
    assert isinstance(result, Failure)
    assert result.code == "no-class"
    assert "net (fixtures>Net)" in result.message
    assert "--custom-objects" in result.message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("tf2.15/global_mixed_float16.h5", None),
        ("tf2.15/global_mixed_float16.h5", "float32"),
        ("keras3.15/global_mixed_float16.keras", "float16"),
    ],
)
def test_other_formats_are_verified_before_the_output_is_written(
    tools: TensorFlowTools, tmp_path: Path, name: str, to: str | None
) -> None:
    """
    Predictions are identical if only the policy format changes, and otherwise within the tolerance.
    """
    target = tmp_path / Path(name).name
    (result,) = migrate_all(
        list(discovery.inputs([str(FIXTURES / name)])),
        Options(to=to),
        Destination(output=target),
        tools,
    )
    assert isinstance(result, Migration), result
    assert result.status is Status.WRITTEN
    assert result.comparison is not None
    assert (result.comparison.tolerance == 0) == (to is None)
    assert (
        all(output.equal for call in result.comparison.calls for output in call.outputs)
        or to is not None
    )
    assert list(tmp_path.iterdir()) == [target]
