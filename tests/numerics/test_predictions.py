"""
Predictions of a source and its conversion: how outputs are paired and compared, and the jobs of the
two processes.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import numpy as np
import pytest
from msgspec.structs import replace

from policytool.commands.migrate import Migration, Status
from policytool.formats import format_detection
from policytool.formats.edits import Content
from policytool.migration import planning
from policytool.migration.plan import Conversion
from policytool.migration.planning.options import Options
from policytool.model import reading
from policytool.numerics.hand_over import PrivateCopy
from policytool.numerics.predictions import PredictionSide, compare_predictions, converted_tolerance
from policytool.numerics.tensorflow_run import TensorFlowRun, TensorFlowTools, ToleranceMissedError
from policytool.numerics.workers import Interpreter, Worker
from policytool.reports import View
from policytool.reports.page import Fact
from policytool.reports.plans import Migrations, facts
from policytool.reports.plans.fields import REPORT
from policytool.reports.reporter import json_reporter
from policytool.runtime.feeding import given_arrays
from policytool.runtime.feeding import inputs as fed
from policytool.runtime.feeding.slots import Slot
from policytool.runtime.library import Refused
from policytool.support.errors import ModelFileError, WorkerError
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.numerics.predictions import PredictionComparison

FLOAT32: Final = FIXTURES / "tf2.15/default_float32.h5"
COPY: Final = PrivateCopy(
    path=FLOAT32, document=format_detection.document(FLOAT32, "m.h5"), loaded=None
)
"""What is compared does not depend on what was loaded."""

VALUES: Final = np.array([[0.5, 1.0], [-2.0, 0.25]], dtype="float32")
"""Two outputs' rows; their largest value is 2."""

CALL: Final[dict[str, Any]] = {"signature": None, "number": 0, "batches": 1, "inputs": []}
"""What a child answers of the model's own call, without its outputs."""

FAKE: Final = """
import json, os, sys
import numpy as np
stream = os.fdopen(int(sys.argv[1]), "w")
script = json.load(open(__file__ + ".json"))
for line in sys.stdin:
    job = json.loads(line)
    with open(__file__ + ".seen", "a") as seen:
        more = {"pid": os.getpid(), "there": os.listdir(job["inputs"])}
        seen.write(json.dumps({**job, **more}) + chr(10))
    answer = script[job["which"]]
    if "code" not in answer:
        if job["like"] is None:
            np.savez(os.path.join(job["inputs"], "inputs.0.npz"), x=np.zeros(3))
        np.savez(job["outputs"], **{"0.0.0": np.array(answer.pop("values"), dtype="float32")})
    line = json.dumps({"error": answer} if "code" in answer else {"result": answer})
    stream.write(line + chr(10))
    stream.flush()
"""


def compared(
    folder: Path,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    told: tuple[Any, Any] | None = None,
    numerics: bool = False,
) -> PredictionComparison:
    """
    Return the comparison of outputs by name, with one batch each; ``told`` contains the dtypes that
    differ from those of the arrays.
    """
    model = reading.read(FLOAT32, "m.h5")
    sides = tuple(
        PredictionSide(
            which=f"the {which}", copy=COPY, family="keras2", model=model, is_converted=True
        )
        for which in ("source", "result")
    )
    answers = []
    for place, (side, outputs) in enumerate(zip(sides, (before, after), strict=True)):
        given_arrays.write_arrays(
            str(side.outputs(folder)),
            {f"0.{number}.0": array for number, array in enumerate(outputs.values())},
        )
        dtypes = (
            told[place] if told is not None else [array.dtype.name for array in outputs.values()]
        )
        named = [
            {"name": name, "dtype": dtype} for name, dtype in zip(outputs, dtypes, strict=True)
        ]
        answers.append(
            {
                "versions": {"library": "keras"},
                "samples": 2,
                "calls": [{**CALL, "outputs": named}],
            }
        )
    return compare_predictions(
        (sides[0], sides[1]),
        (answers[0], answers[1]),
        folder,
        converted_tolerance(model, model, numerics=numerics),
        keeps_dtypes=not numerics,
    )


def test_outputs_are_compared_relative_to_the_largest_value(tmp_path: Path) -> None:
    """
    The largest difference is relative to the source's largest value, and fails if it exceeds the
    accumulated rounding of the layers.
    """
    near, far = VALUES.copy(), VALUES.copy()
    near[1, 0] = np.nextafter(near[1, 0], np.float32(0))
    far[0, 0] += 0.01
    comparison = compared(
        tmp_path,
        {"same": VALUES, "near": VALUES, "far": VALUES},
        {"same": VALUES, "near": near, "far": far},
    )
    same, close, apart = comparison.calls[0].outputs
    assert (same.equal, same.relative, same.differing) == (True, 0.0, 0)
    assert (close.equal, close.differing) == (False, 1)
    assert close.relative == pytest.approx(2**-23 / 2)
    assert apart.max_abs == pytest.approx(0.01)
    assert apart.relative == pytest.approx(0.005)
    assert comparison.tolerance == pytest.approx(4 * 2**-23 * math.sqrt(2))
    assert [text.partition(" ")[0] for text in comparison.missed] == ["far"]


def test_outputs_are_paired_by_name_where_all_names_are_the_same(tmp_path: Path) -> None:
    """
    Outputs are paired by name if all names are equal, and else by position, as for two outputs of
    the same name.
    """
    other = VALUES + 1
    assert not compared(tmp_path, {"a": VALUES, "b": other}, {"b": other, "a": VALUES}).missed
    assert not compared(
        tmp_path, {"a": VALUES, "b": other}, {"a": VALUES, "tf.math.add": other}
    ).missed
    assert len(compared(tmp_path, {"a": VALUES, "b": other}, {"c": other, "a": VALUES}).missed) == 2


def test_another_output_dtype_fails_unless_the_conversion_requested_it(tmp_path: Path) -> None:
    """
    Another output dtype fails unless the conversion requested it; bfloat16 that is stored as
    float32 counts as bfloat16.
    """
    actual = (["bfloat16"], ["float32"])
    assert compared(tmp_path, {"a": VALUES}, {"a": VALUES}, told=actual).missed == (
        "a is float32 instead of bfloat16",
    )
    assert not compared(tmp_path, {"a": VALUES}, {"a": VALUES}, told=actual, numerics=True).missed
    assert not compared(
        tmp_path, {"a": np.arange(3, dtype="int32")}, {"a": np.arange(3, dtype="int64")}
    ).missed  # generations count in one or the other


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    """NaN equals NaN and a new NaN fails; texts are compared as bytes in any storage."""
    spoilt = VALUES.copy()
    spoilt[0, 0] = np.nan
    both = compared(tmp_path, {"a": spoilt}, {"a": spoilt})
    assert (both.missed, both.calls[0].outputs[0].equal, both.calls[0].outputs[0].not_finite) == (
        (),
        True,
        (1, 1),
    )
    assert "NaN or infinite" in compared(tmp_path, {"a": VALUES}, {"a": spoilt}).missed[0]
    fewer = compared(tmp_path, {"a": spoilt}, {"a": VALUES})
    assert fewer.missed == ("a contains 0 NaN or infinite values (1 before)",)
    assert not compared(tmp_path, {"a": spoilt}, {"a": VALUES}, numerics=True).missed
    words = np.array(["red", "grün"], dtype=object)
    encoded = np.array([word.encode() for word in words], dtype=object)
    assert not compared(
        tmp_path, {"a": words}, {"a": encoded}, told=(["string"], ["string"])
    ).missed
    raw = np.array([b"red", b"\xff"], dtype=object)
    assert compared(tmp_path, {"a": words}, {"a": raw}, told=(["string"], ["string"])).missed == (
        "a differs in 1 of 2 values",
    )
    assert not compared(tmp_path, {"a": VALUES[:0]}, {"a": VALUES[:0]}).missed


def test_signatures_are_compared_by_name(tmp_path: Path) -> None:
    """
    Signatures are compared by name; a signature of only one file is skipped, and a failure names
    the signature.
    """
    model = reading.read(FLOAT32, "m.h5")
    before, after = (
        PredictionSide(which=f"the {which}", copy=COPY, family="keras2", model=model)
        for which in ("original", "result")
    )
    outputs = [{"name": "a", "dtype": "float32"}]
    called = [
        {**CALL, "signature": name, "number": number, "outputs": outputs}
        for number, name in enumerate((None, "classify", "serve"))
    ]
    for side, scale in ((before, 1.0), (after, 2.0)):
        arrays = {f"{number}.0.0": VALUES * (scale if number else 1.0) for number in range(3)}
        given_arrays.write_arrays(str(side.outputs(tmp_path)), arrays)
    actual = {"versions": {"library": "keras"}, "samples": 2}
    result = compare_predictions(
        (before, after),
        ({**actual, "calls": called}, {**actual, "calls": [called[0], called[2]]}),
        tmp_path,
        0.5,
    )
    assert [call.signature for call in result.calls] == [None, "serve"]
    assert result.missed == (
        "serve: a differs by up to 1 of its largest value; the tolerance is 0.5",
    )
    assert result.versions_after is None


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"a": VALUES, "b": VALUES}, "returns 2 outputs, but the source returns 1"),
        (
            {"a": VALUES[:, :1]},
            r"returns output a with the shape \(2, 1\), but the source returns \(2, 2\)",
        ),
    ],
)
def test_different_outputs_are_rejected(
    tmp_path: Path, after: Mapping[str, Any], words: str
) -> None:
    """Another number of outputs or another shape is an error, regardless of tolerances."""
    with pytest.raises(ModelFileError, match=words):
        compared(tmp_path, {"a": VALUES}, after)


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("default_float32.h5", 4 * 2**-23 * math.sqrt(2)),
        ("floatx_float64.h5", 4 * 2**-52),
        ("global_mixed_float16.h5", 16 * 2**-10),
        ("global_mixed_bfloat16.h5", 16 * 2**-7),
    ],
)
def test_the_tolerance_is_of_the_coarsest_layer(name: str, bound: float) -> None:
    """
    The tolerance is four units in the last place of the coarsest layer per layer with weights,
    added as random errors, and at least 16 eps for 16-bit dtypes.
    """
    model = reading.read(next(path for path in sorted(FIXTURES.glob(f"*/{name}"))), name)
    assert converted_tolerance(model, model, numerics=False) == pytest.approx(bound)


def test_change_of_policies_has_the_larger_tolerance() -> None:
    """
    A conversion that changes policies has the larger of both bounds, because many layers in 16 bits
    add larger errors.
    """
    before, after = (
        reading.read(FIXTURES / "tf2.15" / name, name)
        for name in ("default_float32.h5", "global_mixed_float16.h5")
    )
    assert (
        converted_tolerance(before, after, numerics=True)
        >= converted_tolerance(before, after, numerics=False)
        == pytest.approx(16 * 2**-10)
    )


@pytest.fixture
def children(tmp_path: Path) -> Callable[..., tuple[Worker, Worker]]:
    """Return a function that creates two workers whose children give prepared answers."""

    def make(source: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[Worker, Worker]:
        path = tmp_path / "fake.py"
        path.write_text(FAKE, encoding="utf-8")
        Path(f"{path}.json").write_text(
            json.dumps({"the source": source, "the result": result}), encoding="utf-8"
        )
        return Worker(Interpreter(script=path)), Worker(Interpreter(script=path))

    return make


def answer(library: str, values: Any) -> dict[str, Any]:
    """Return the answer of a child to ``predict``, with the values that it wrote."""
    versions = {"library": library, "keras": "9.9", "tensorflow": "2.21.0"}
    call = {
        **CALL,
        "inputs": [{"name": "x", "dtype": "int32"}],
        "outputs": [{"name": "a", "dtype": "float32"}],
    }
    actual = {"versions": versions, "samples": 2, "calls": [call]}
    return {**actual, "values": np.asarray(values).tolist()}


def verified(
    folder: Path, workers: tuple[Worker, Worker], target: str = "keras3.15", **changed: Any
) -> TensorFlowRun:
    """Return the run that verified a conversion to the same file under another name."""
    result = folder / "result.h5"
    shutil.copy(FLOAT32, result)
    loaded = reading.load_model(format_detection.document(FLOAT32, "m.h5"))
    conversion = Conversion(target=target, content=Content(container="h5", config=None))
    with workers[0] as worker, workers[1] as loader:
        plan = replace(planning.plan(loaded, Options()), conversion=conversion, **changed)
        run = TensorFlowRun(
            plan=plan,
            loaded=loaded,
            source=FLOAT32,
            tools=TensorFlowTools(worker=worker, target=loader, verify=True, trust=True),
        )
        run.verify(result)
    return run


@THOROUGH
def test_each_model_runs_in_a_separate_process(
    children: Callable[..., tuple[Worker, Worker]], tmp_path: Path
) -> None:
    """
    Each side has its own process: the source's draws the inputs, the result's uses them with the
    target's library, and no file is left.
    """
    run = verified(tmp_path, children(answer("tf_keras", VALUES), answer("keras", VALUES)))
    assert run.comparison is not None
    assert not run.comparison.missed
    assert (
        run.comparison.versions["library"],
        (run.comparison.versions_after or {})["library"],
    ) == ("tf_keras", "keras")
    source, result = (
        json.loads(line)
        for line in (tmp_path / "fake.py.seen").read_text(encoding="utf-8").splitlines()
    )
    assert source["pid"] != result["pid"]
    assert (source["family"], result["family"]) == ("keras2", "keras3")
    assert [Path(item["model"]).name for item in (source, result)] == ["model.h5"] * 2
    assert source["model"] != result["model"]
    assert {Path(item["model"]).parents[1] for item in (source, result)} == {
        Path(source["inputs"]).parent
    }
    assert source["like"] is None
    assert [call["inputs"] for call in result["like"]] == [[{"name": "x", "dtype": "int32"}]]
    assert (source["there"], "inputs.0.npz" in result["there"]) == ([], True)
    assert source["inputs"] == result["inputs"]
    assert source["trust"] is result["trust"] is True
    assert not Path(source["inputs"]).exists()


@THOROUGH
def test_reports_name_the_library_that_loaded_each_file(
    children: Callable[..., tuple[Worker, Worker]], tmp_path: Path
) -> None:
    """Reports name the library that loaded each file, in a table row and in JSON."""
    run = verified(tmp_path, children(answer("tf_keras", VALUES), answer("keras", VALUES)))
    done = Migration(
        plan=replace(run.plan, conversion=None),
        status=Status.WRITTEN,
        source=FLOAT32,
        comparison=run.comparison,
    )
    result = "tf_keras 9.9 with TensorFlow 2.21.0 before, keras 9.9 with TensorFlow 2.21.0 after"
    assert Fact(label="versions", text=result) in facts(done)
    report = json.loads(
        json_reporter(REPORT).render(Migrations(migrations=(done,), failures=()), View())
    )
    schema = json.loads(
        (ROOT / "policytool/reports/schemas/migrate.schema.json").read_text(encoding="utf-8")
    )
    verification = report["plans"][0]["verification"]
    jsonschema.validate(verification, {"$defs": schema["$defs"], "$ref": "#/$defs/verification"})
    assert verification["versions_after"]["library"] == "keras"


@THOROUGH
def test_predictions_that_are_too_far_apart(
    children: Callable[..., tuple[Worker, Worker]], tmp_path: Path
) -> None:
    """Predictions that differ too much are an error with the comparison, and nothing is written."""
    workers = children(answer("tf_keras", VALUES), answer("keras", VALUES * (1 + 1.75 * 2**-21)))
    with pytest.raises(
        ToleranceMissedError,
        match=r"a differs by up to 8\.3e-07 of its largest value; the tolerance is 6\.7e-07",
    ):
        verified(tmp_path, workers)


@THOROUGH
@pytest.mark.parametrize(("target", "side"), [("tf2.4", "source"), ("keras3.15", "target")])
def test_missing_library_is_a_one_line_error(
    children: Callable[..., tuple[Worker, Worker]], tmp_path: Path, target: str, side: str
) -> None:
    """
    A missing library is a one-line error with the side, the library and the option for another
    interpreter.
    """
    missing = {
        "code": "no-tf-keras" if side == "source" else "no-keras",
        "message": "found TensorFlow 2.21.0",
        "trace": "",
    }
    good = answer("tf_keras", VALUES)
    with pytest.raises(WorkerError) as refused:
        verified(
            tmp_path,
            children(missing, good) if side == "source" else children(good, missing),
            target,
        )
    what = "tf-keras" if side == "source" else "Keras 3"
    message = (
        f"the conversion's {side} cannot be loaded: {sys.executable} has TensorFlow, but not "
        f"{what} (found TensorFlow 2.21.0); install it with"
    )
    assert str(refused.value).startswith(message)
    assert f"--python {side}=PYTHON" in str(refused.value)
    nowhere = Worker(Interpreter(python="no-such-python"))
    fine = children(good, good)
    with pytest.raises(
        WorkerError,
        match=f"the conversion's {side} cannot be loaded: no-such-python cannot be run .*--python "
        f"{side}=PYTHON",
    ):
        verified(tmp_path, (nowhere, fine[1]) if side == "source" else (fine[0], nowhere), target)


def test_a_file_without_weights_predicts_nothing() -> None:
    """A file without weights has no predictions, as with one process."""
    path = FIXTURES / "tf2.15/default_float32.json"
    side = PredictionSide(
        which="the source", copy=COPY, family="keras2", model=reading.read(path, "m.json")
    )
    with pytest.raises(ModelFileError, match="contains no weights"):
        side.job(Path())


@pytest.mark.parametrize(
    ("name", "policy"),
    [("keras2.2.4/floatx_float64.h5", "float64"), ("tf2.15/default_float32.h5", None)],
)
def test_layers_without_a_policy_run_in_their_default(name: str, policy: str | None) -> None:
    """Keras 2.2 stores no policies, so that other releases would run the layers in float32."""
    model = reading.read(FIXTURES / name, "m.h5")
    side = PredictionSide(which="the source", copy=COPY, family="keras2", model=model)
    assert side.job(Path())["policy"] == policy


def test_inputs_go_by_name_and_else_by_place() -> None:
    """
    Inputs are paired by name or else by position, and have the dtypes of the source if the result
    declares none.
    """
    slots = [Slot("b", [None, 3], "float32"), Slot("a", [None, 3], "float32")]
    like = [{"name": "a", "dtype": "int32"}, {"name": "b", "dtype": "float32"}]
    fed.copy_names_and_dtypes(slots, like)
    assert [(slot.name, slot.dtype) for slot in slots] == [("b", "float32"), ("a", "int32")]
    slots = [Slot("x", [None, 3], "float32"), Slot("a", [None, 3], "float32")]
    fed.copy_names_and_dtypes(slots, like)
    assert [(slot.name, slot.dtype) for slot in slots] == [("a", "int32"), ("b", "float32")]
    with pytest.raises(Refused, match="has 1 inputs, but the other model has 2"):
        fed.copy_names_and_dtypes(slots[:1], like)
