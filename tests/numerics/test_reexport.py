"""
``--retrace`` and ``--verify`` in the parent process: the child's answer is compared with the files,
and a failure leaves no files.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import jsonschema
import pytest
from msgspec.structs import replace

from policytool.commands.destinations import Destination
from policytool.commands.inspect import Failure
from policytool.commands.migrate import Migration, Result, Status
from policytool.commands.migrate_all import migrate_all
from policytool.formats import discovery, format_detection
from policytool.formats.document import TracedOp
from policytool.migration.planning.options import Options, Outputs
from policytool.model import reading, untrusted_code
from policytool.numerics import reexport
from policytool.numerics.predictions import rewritten_tolerance
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from tests.conftest import run
from tests.helpers import changed_fixtures
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from policytool.formats.checkpoint.bundle import Bundle as StoredBundle


SAVED: Final = FIXTURES / "tf2.15/global_mixed_float16"
"""A SavedModel with traces, in the current spelling of its release."""

FAKE: Final = """
import json, os, shutil, signal, sys
import numpy as np
stream = os.fdopen(int(sys.argv[1]), "w")
script = json.load(open(__file__ + ".json"))
for line in sys.stdin:
    job = json.loads(line)
    with open(__file__ + ".seen", "a") as seen:
        whole = os.path.isdir(job.get("model", ""))
        listed = sorted(os.listdir(job["model"])) if whole else []
        seen.write(json.dumps({**job, "listed": listed}) + chr(10))
    if job["job"] == "predict":
        after = job["which"] == "the result"
        values = np.array(script["predict"]["after" if after else "before"])
        np.savez(job["outputs"], **{"0.0.0": values})
        outputs = [{"name": "probabilities", "dtype": str(values.dtype)}]
        call = {"signature": None, "number": 0, "batches": 1, "inputs": [], "outputs": outputs}
        answer = {"versions": {"tensorflow": "2.21.0"}, "samples": 6, "calls": [call]}
    else:
        shutil.copytree(script.get("instead", job["source"]), job["draft"], dirs_exist_ok=True)
        for name in script.get("without", []):
            os.unlink(os.path.join(job["draft"], name))
        if script.get("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = script.get("retrace") or {
            "versions": {"tensorflow": "2.15.1", "keras": "2.15.0", "library": "tensorflow.keras"},
            "signatures": ["serving_default"], "traces": True, "variables": 6, "cast": [],
            "optimizer": {"restored": 3, "lost": 2}, "policies": {},
        }
    line = json.dumps({"error": answer} if "code" in answer else {"result": answer})
    stream.write(line + chr(10))
    stream.flush()
"""

VALUES: Final = [0.25, 0.5, 1.0]
"""What the original predicts for all samples."""

pytestmark = THOROUGH


def predicted(after: Sequence[float] = VALUES, before: Sequence[float] = VALUES) -> dict[str, Any]:
    """Return the child's predictions with both files."""
    return {"before": list(before), "after": list(after)}


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., Worker]:
    """
    Return a function that creates a worker whose child copies the model and gives a prepared
    answer.
    """

    def make(**script: Any) -> Worker:
        path = tmp_path / "fake.py"
        path.write_text(FAKE, encoding="utf-8")
        Path(f"{path}.json").write_text(json.dumps(script), encoding="utf-8")
        return Worker(Interpreter(script=path))

    return make


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a SavedModel in its own directory."""
    return Path(shutil.copytree(SAVED, tmp_path / "models/model"))


def migrated(
    worker: Worker,
    path: Path,
    options: Options,
    *,
    verify: bool = False,
    trust: bool = False,
    **destination: Any,
) -> Result:
    """Return the result of migrating one model."""
    with worker:
        tools = TensorFlowTools(worker=worker, verify=verify, trust=trust)
        return next(
            migrate_all(
                list(discovery.inputs([str(path)])), options, Destination(**destination), tools
            )
        )


def test_correct_result_is_moved_to_the_output(child: Callable[..., Worker], model: Path) -> None:
    """
    A correct result is moved to the output, the report names the library and the comparison, and no
    other file is left.
    """
    done = migrated(child(), model, Options(retrace=True))
    assert isinstance(done, Migration)
    assert done.status is Status.WRITTEN
    assert done.retraced is not None
    held = done.retraced.held
    assert (held.variables, held.identical, held.judged) == (6, 6, 1)
    assert [note.code for note in done.plan.notes][-1] == "optimizer-state-lost"
    assert sorted(path.name for path in model.parent.iterdir()) == ["model", "model.retraced"]
    assert reading.read(model.parent / "model.retraced", "x").layers


def test_in_place_keeps_the_original(child: Callable[..., Worker], model: Path) -> None:
    """A re-export in place keeps the original directory as a backup."""
    before = (model / "saved_model.pb").read_bytes()
    done = migrated(child(), model, Options(retrace=True), in_place=True)
    assert isinstance(done, Migration)
    assert done.status is Status.WRITTEN
    assert (model.parent / "model.bak/saved_model.pb").read_bytes() == before
    assert sorted(path.name for path in model.parent.iterdir()) == ["model", "model.bak"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            {"instead": str(FIXTURES / "tf2.15/default_float32")},
            "is missing from the model that the code builds",
        ),
        ({"without": ["saved_model.pb", "keras_metadata.pb", "fingerprint.pb"]}, "no-model"),
        ({"without": ["variables/variables.index"]}, "variables.index"),
        ({"kill": True}, "was terminated by SIGKILL"),
        (
            {
                "retrace": {
                    "code": "foreign-signature",
                    "message": "signature x is not the model's own call",
                    "trace": "",
                }
            },
            "signature x",
        ),
    ],
    ids=["another model", "nothing", "no checkpoint", "killed", "refused"],
)
def test_wrong_result_is_reported_and_not_written(
    child: Callable[..., Worker], model: Path, script: dict[str, Any], words: str
) -> None:
    """
    A wrong result is reported and not written, regardless of the child's answer, because the files
    are checked.
    """
    failed = migrated(child(**script), model, Options(retrace=True))
    assert isinstance(failed, Failure), failed
    assert words in f"{failed.code} {failed.message}"
    assert [path.name for path in model.parent.iterdir()] == ["model"]


def test_a_policy_that_the_result_lacks_is_found_out(
    child: Callable[..., Worker], model: Path
) -> None:
    """
    A result without the planned policy is an error, as from a child that only copies the model.
    """
    failed = migrated(child(), model, Options(to="float32", retrace=True))
    assert isinstance(failed, Failure)
    assert failed.code == "retrace-differs"
    assert "float32 in the plan" in failed.message


def test_the_child_gets_the_planned_config(
    child: Callable[..., Worker], model: Path, tmp_path: Path
) -> None:
    """
    The child receives the config with the new policy of each layer, and with unchanged inputs and
    outputs.
    """
    migrated(child(), model, Options(to="mixed_bfloat16", retrace=True))
    job = json.loads((tmp_path / "fake.py.seen").read_text(encoding="utf-8"))
    policies = {
        layer["config"]["name"]: layer["config"]["dtype"] for layer in job["config"]["layers"]
    }
    assert policies == {
        "features": "float32",
        "norm": "mixed_bfloat16",
        "dense_a": "float32",
        "dropout": "float32",
        "probabilities": "float32",
    }
    assert (job["policy_before"], job["policy"], job["traces"]) == (
        "mixed_float16",
        "mixed_bfloat16",
        True,
    )
    source, draft = Path(job["source"]), Path(job["draft"])
    assert source.name == "model"
    assert source.parents[1] == draft.parents[1], "both are in one private directory"
    assert not source.exists()


def test_reexport_may_change_the_dtypes_of_a_checkpoint(
    child: Callable[..., Worker], model: Path
) -> None:
    """A re-export can change the dtypes of a checkpoint, and the plan lists the casts of values."""
    options = Options(to="float16", outputs=Outputs.FOLLOW, retrace=True)
    done = migrated(child(), model, options, write=False)
    assert isinstance(done, Migration)
    assert done.status is Status.PLANNED
    assert {(cast.path, cast.before, cast.after) for cast in done.plan.casts} == {
        ("mlp/dense_a", "float32", "float16")
    }
    assert sum(count.values for count in done.counts.values()) == sum(
        variable.parameters
        for layer in reading.read(SAVED, "x").layers
        if layer.path == "mlp/dense_a"
        for variable in layer.variables
    )
    refused = migrated(child(), model, replace(options, retrace=False), write=False)
    assert isinstance(refused, Migration)
    assert refused.status is Status.BLOCKED
    assert "--retrace" in refused.plan.refusals[0].message


def test_overflow_is_rejected_before_the_child_starts(
    child: Callable[..., Worker], model: Path, tmp_path: Path
) -> None:
    """
    Values that overflow are an error before the child starts; without an overflow, the child
    starts.
    """
    migrated(child(), model, Options(to="float16", retrace=True))
    assert (tmp_path / "fake.py.seen").exists()


def test_predictions_within_the_tolerance_are_reported(
    child: Callable[..., Worker], tmp_path: Path
) -> None:
    """
    Predictions within the tolerance are reported; they must be identical if only the policy format
    changes.
    """
    shutil.copy(FIXTURES / "tf2.15/global_mixed_float16.h5", tmp_path / "model.h5")
    done = migrated(child(predict=predicted()), tmp_path / "model.h5", Options(), verify=True)
    assert isinstance(done, Migration)
    assert done.status is Status.WRITTEN
    assert done.comparison is not None
    assert (done.comparison.tolerance, done.comparison.samples, done.comparison.missed) == (
        0.0,
        6,
        (),
    )
    seen = (tmp_path / "fake.py.seen").read_text(encoding="utf-8").splitlines()
    before, after = (json.loads(line) for line in seen)
    assert (before["family"], Path(before["model"]).name) == ("keras2", "model.h5")
    assert (before["which"], after["which"]) == ("the original", "the result")
    assert [call["signature"] for call in after["like"]] == [None]
    assert not Path(after["model"]).exists()
    assert not Path(after["inputs"]).exists()


@pytest.mark.parametrize(
    ("to", "before", "after", "words"),
    [
        (None, VALUES, [0.25, 0.5, 1.0 + 1e-9], "differs in 1 of 3 values"),
        ("float32", VALUES, [0.25, 0.5, 1.5], "differs by up to 0.5"),
        ("float32", VALUES, [0.25, math.nan, math.inf], "2 NaN or infinite values"),
        ("float32", [1, 2, 3], [3, 2, 1], "differs in 2 of 3 values"),
    ],
    ids=["not the same bits", "too far", "not finite", "other ids"],
)
def test_a_missed_tolerance_writes_nothing(  # noqa: PLR0917
    child: Callable[..., Worker],
    tmp_path: Path,
    to: str | None,
    before: list[float],
    after: list[float],
    words: str,
) -> None:
    """Predictions beyond the tolerance leave no output, and the status has the reason."""
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(FIXTURES / "tf2.15/global_mixed_float16.h5", models / "model.h5")
    worker = child(predict=predicted(after, before))
    done = migrated(worker, models / "model.h5", Options(to=to), verify=True)
    assert isinstance(done, Migration)
    assert done.status is Status.MISSED
    assert done.comparison is not None
    assert words in done.comparison.missed[0]
    assert [path.name for path in models.iterdir()] == ["model.h5"]


def test_verification_uses_the_complete_model_directory(
    child: Callable[..., Worker], model: Path, tmp_path: Path
) -> None:
    """
    The comparison uses a complete model directory, for a new directory and for one replaced file.
    """
    shown: list[list[str]] = []
    worker = child(predict=predicted())
    for destination in ({"in_place": False}, {"in_place": True}):
        done = migrated(worker, model, Options(to="mixed_bfloat16"), verify=True, **destination)
        assert isinstance(done, Migration)
        assert done.comparison is not None
        seen = (tmp_path / "fake.py.seen").read_text(encoding="utf-8").splitlines()
        shown.append(json.loads(seen[-1])["listed"])
    assert shown[0] == shown[1] == sorted(path.name for path in SAVED.iterdir())


def test_architectures_have_nothing_to_predict_with(
    child: Callable[..., Worker], tmp_path: Path
) -> None:
    """An architecture is an error before anything is written, because it cannot predict."""
    shutil.copy(FIXTURES / "tf2.3/global_mixed_float16.json", tmp_path / "model.json")
    failed = migrated(child(predict=predicted()), tmp_path / "model.json", Options(), verify=True)
    assert isinstance(failed, Failure)
    assert failed.code == "no-weights"


@pytest.mark.parametrize("name", ["keras2.3.1/lambda.h5"])
def test_code_in_a_file_is_not_run_unless_trusted(
    child: Callable[..., Worker], tmp_path: Path, name: str
) -> None:
    """
    A file that contains code is an error that names the layer, and the child does not start without
    ``--trust``.
    """
    worker = child(predict=predicted())
    done = migrated(
        worker, FIXTURES / name, Options(to="float64"), verify=True, output=tmp_path / "out.h5"
    )
    assert isinstance(done, Migration)
    assert [refusal.code for refusal in done.plan.refusals] == ["runs-code"]
    assert "--trust" in done.plan.refusals[0].message
    assert not (tmp_path / "fake.py.seen").exists()
    trusted = migrated(
        child(predict=predicted()),
        FIXTURES / name,
        Options(to="float64"),
        verify=True,
        trust=True,
        output=tmp_path / "out.h5",
    )
    assert not (isinstance(trusted, Migration) and trusted.status is Status.BLOCKED)


def test_code_in_a_model_is_reported_with_its_place(tmp_path: Path) -> None:
    """
    Code in a model is reported with its place, including ops that access files; a plain model has
    none.
    """
    assert not list(
        untrusted_code.reasons_not_to_run(reading.load_model(format_detection.document(SAVED, "x")))
    )
    model = changed_fixtures.with_op(tmp_path, str(SAVED), "WriteFile")
    result = untrusted_code.reasons_not_to_run(
        reading.load_model(format_detection.document(model, "x"))
    )
    assert [reason.what for reason in result] == [
        "the graph contains the op WriteFile, which opens the path given by its filename"
    ]


def test_the_tolerance_follows_the_wider_rounding() -> None:
    """
    The tolerance follows the coarser dtype, which is bfloat16 rather than float16; a change of the
    policy format allows no difference.
    """
    before = reading.read(SAVED, "x")
    after = {
        dtype: replace(
            before, layers=tuple(replace(layer, compute_dtype=dtype) for layer in before.layers)
        )
        for dtype in ("float32", "bfloat16")
    }
    weighted = sum(bool(layer.variables) for layer in before.layers)
    assert rewritten_tolerance(before, before) == pytest.approx(8 * 2**-24 * weighted**0.5)
    assert rewritten_tolerance(before, after["float32"]) == pytest.approx(
        8 * 2**-11 * weighted**0.5
    )
    assert rewritten_tolerance(before, after["bfloat16"]) == pytest.approx(
        8 * 2**-8 * weighted**0.5
    )
    assert rewritten_tolerance(before, before, reexported=True) == rewritten_tolerance(
        before, after["float32"]
    )


@dataclass(frozen=True)
class Bundle:
    """A checkpoint with one tensor, in memory."""

    array: Any

    @property
    def entries(self) -> dict[str, Any]:
        return {"key": SimpleNamespace(dtype=str(self.array.dtype), shape=self.array.shape)}

    def chunks(self, _entry: Any) -> Iterator[bytes]:
        yield self.array.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_values_are_the_same_or_exactly_as_cast(dtype: str) -> None:
    """A changed bit in a value is an error, for unchanged values and for cast values."""
    import numpy as np

    from policytool.formats import casting

    values = np.random.default_rng(0).standard_normal(500).astype("float32")
    result, _ = casting.cast(values, "float32", dtype)
    wrong = result.copy()
    wrong.view(np.uint8)[17] ^= 1
    stored = [
        reexport.StoredVariable(bundle=cast("StoredBundle", Bundle(array)), key="key")
        for array in (values, result, wrong, result[:-1])
    ]
    assert [reexport.hold_same_values(stored[0], other) for other in stored[1:]] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("before", ["float16", "float32", "float64"])
@pytest.mark.parametrize("after", ["float16", "bfloat16", "float32", "float64"])
def test_the_child_casts_as_the_parent_does(before: str, after: str) -> None:
    """
    The child casts values to the same bits as the parent, including ties, subnormal values and
    overflows.
    """
    import numpy as np

    from policytool.formats import casting
    from policytool.runtime import rebuilt_model

    random = np.random.default_rng(1)
    values = np.ldexp(random.standard_normal(4000), random.integers(-30, 20, 4000))
    awkward = np.array(
        [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            1 + 2**-8,
            1 + 2**-8 + 2**-40,
            1 + 2**-11 + 2**-45,
            65519.999,
            65520.0,
            2.0**-24,
            2.0**-25,
            2.0**-134,
            3e38,
        ]
    )
    with np.errstate(over="ignore"):
        array = np.concatenate([values, awkward]).astype(casting.DTYPES[before])
    ours, _ = casting.cast(array, before, after)
    assert rebuilt_model.cast(array, casting.DTYPES[after]).tobytes() == ours.tobytes()


def test_command_reports_matching_json_and_applies_saved_plans(
    child: Callable[..., Worker], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The command's JSON matches its schema, ``--plan`` applies the plan of ``--preview``, and a
    missed tolerance exits with code 1.
    """
    schema = json.loads(
        (ROOT / "policytool/reports/schemas/migrate.schema.json").read_text(encoding="utf-8")
    )
    child(predict=predicted())
    monkeypatch.setattr(
        "policytool.commands.tensorflow.Interpreter",
        lambda **_: Interpreter(script=model.parent.parent / "fake.py"),
    )
    planned = run("migrate", model, "--retrace", "--preview", "--format", "json")
    assert planned.code == 1
    assert planned.json["plans"][0]["retrace"] is True
    saved = model.parent.parent / "plan.json"
    saved.write_text(planned.out, encoding="utf-8")
    done = run(
        "migrate", "--plan", saved, "--verify", "--format", "json", "-o", model.parent / "one"
    )
    assert done.code == 0, done.err
    jsonschema.validate(done.json, schema)
    assert done.json["plans"][0]["reexport"]["identical"] == 6
    assert done.json["plans"][0]["verification"]["calls"][0]["outputs"][0]["equal"] is True
    table = run("migrate", model, "--retrace", "--verify", "-o", model.parent / "two")
    assert "6 of 6 are unchanged" in table.out
    assert "identical (" in table.out
    child(predict=predicted([0.5, 0.5, 2.0]))
    missed = run(
        "migrate", model, "--retrace", "--verify", "-o", model.parent / "three", "--format", "json"
    )
    assert missed.code == 1
    jsonschema.validate(missed.json, schema)
    assert missed.json["plans"][0]["status"] == "missed"
    assert not (model.parent / "three").exists()


def test_missing_tensorflow_is_a_one_line_error(model: Path) -> None:
    """
    Missing TensorFlow is a one-line error with exit code 3 and the extra to install, and nothing is
    written.
    """
    ended = run("migrate", model, "--retrace", "--python", sys.executable)
    assert ended.code == 3
    assert ended.err.count("\n") <= 2
    assert "policytool[check]" in ended.err or "has no" in ended.err
    assert [path.name for path in model.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("size", ["0", "8X", "-1", "much"])
def test_sizes_are_checked(size: str) -> None:
    """An invalid memory limit is a usage error."""
    assert run("migrate", SAVED, "--limit", f"tensorflow-bytes={size}").code == 2


def test_nothing_is_started_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans, and migrations without ``--retrace`` and ``--verify``, start no child."""
    monkeypatch.setattr(
        "policytool.support.processes.pool.subprocess.Popen",
        lambda *_, **__: pytest.fail("a process was started"),
    )
    assert run("migrate", SAVED, "--to", "mixed_bfloat16", "--preview").code == 1
    assert run("migrate", SAVED, "--retrace", "--verify", "--preview").code == 1


@pytest.mark.parametrize(
    ("ops", "wrong"),
    [
        (
            (
                TracedOp(op="MatMul", dtype="float16", count=1, amp="allow"),
                TracedOp(op="Softmax", dtype="float32", count=1, amp="infer"),
            ),
            [],
        ),
        (
            (TracedOp(op="MatMul", dtype="float32", count=1, amp="allow"),),
            ["mlp/dense_a has the policy mixed_float16, but its graph computes in float32"],
        ),
        ((TracedOp(op="Softmax", dtype="float32", count=1, amp="infer"),), []),
    ],
    ids=["as declared", "otherwise", "nothing to judge by"],
)
def test_layers_of_the_new_graph_are_compared_with_their_policies(
    ops: tuple[TracedOp, ...], wrong: list[str]
) -> None:
    """
    A layer whose matrix products have another dtype than its policy is reported; a layer without
    matrix products is not.
    """
    model = reading.read(SAVED, SAVED.name)
    layers = tuple(
        replace(layer, traced_ops=ops if layer.path == "mlp/dense_a" else ())
        for layer in model.layers
    )
    assert (
        list(reexport._trace_differences(replace(model, layers=layers))) == wrong  # noqa: SLF001  # what a child would have to be made to do wrong
    )


def test_layers_that_keras_numbers_are_matched_by_class_and_parent() -> None:
    """A layer that the result does not have is a new layer of its class in the same parent."""
    model = reading.read(SAVED, SAVED.name)
    path = "mlp/dense_a"
    layers = [
        replace(layer, path=f"{path}_1") if layer.path == path else layer for layer in model.layers
    ]
    paths = reexport._matching_paths(model, replace(model, layers=tuple(layers)))  # noqa: SLF001  # a child would have to number layers
    assert paths == {
        layer.path: after.path for layer, after in zip(model.layers, layers, strict=True)
    }
