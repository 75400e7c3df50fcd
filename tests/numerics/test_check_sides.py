"""The two sides of a check, before TensorFlow starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import check_releases
from policytool.commands.arguments.shared import TensorFlowArguments
from policytool.commands.check_options import CheckOptions
from policytool.commands.check_run import check_job
from policytool.formats import format_detection
from policytool.migration.planning.options import Options
from policytool.model import reading, tree
from policytool.numerics.workers import Worker
from policytool.support.errors import WorkerError
from tests.conftest import run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.numerics.check_sides import PreparedSide

FLOAT32: Final = str(FIXTURES / "tf2.15/default_float32.h5")
FLOAT64: Final = str(FIXTURES / "tf2.15/floatx_float64.h5")
MIXED: Final = str(FIXTURES / "tf2.15/global_mixed_float16.h5")
SAVED: Final = str(FIXTURES / "tf2.15/global_mixed_float16")
BFLOAT16: Final = Options(to="mixed_bfloat16")


@pytest.mark.parametrize(
    ("model", "other", "wanted", "count"),
    [
        (FLOAT32, None, {"candidate": BFLOAT16}, 2),
        (FLOAT32, FLOAT64, {}, 2),
        (FLOAT32, FLOAT64, {"candidate": BFLOAT16}, 3),
        (MIXED, None, {"candidate": BFLOAT16}, 3),
        (SAVED, None, {"candidate": BFLOAT16}, 3),
    ],
)
def test_a_model_is_analysed_once_per_file_and_changed_side(
    model: str,
    other: str | None,
    wanted: dict[str, Any],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model is analysed once per file and once per side with changed policies."""
    analysed = []
    build = tree.build

    def counted(document: Any, origin: Any) -> Any:
        analysed.append(document.path)
        return build(document, origin)

    def ended(_worker: Worker, _job: Mapping[str, Any], **_: Any) -> Mapping[str, Any]:
        raise WorkerError("ended", "the child is not asked here")

    monkeypatch.setattr(tree, "build", counted)
    monkeypatch.setattr(Worker, "run", ended)
    with pytest.raises(WorkerError, match="not asked"):
        check_releases.check_files(model, other, CheckOptions(**wanted), TensorFlowArguments())
    assert len(analysed) == count


JUDGED: Final = (
    *("tf2.3/wrappers_mixed.h5", "tf2.3/default_float32.h5", "tf2.15/rnn_mixed.h5"),
    *("tf2.15/nested_models.keras", "tf2.15/shared_layer.h5", "tf2.15/tf_op_layers.h5"),
    *("tf2.15/global_mixed_float16", "tf2.15/default_float32", "tf2.15/default_float32.json"),
    *("keras3.15/sequential.keras", "keras3.15/keras_ops.keras", "keras3.15/preprocessing.keras"),
    *("keras3.15/per_layer.h5", "keras3.15/policy_map_mha.keras", "keras3.15/unpacked.keras.d"),
)
"""Models of each format, with graphs and layers of every kind that a plan treats specially."""


@THOROUGH
@pytest.mark.parametrize(
    "options",
    [
        ("--to", "mixed_bfloat16"),
        ("--to", "mixed_float16", "--include", "outputs"),
        ("--to", "mixed_bfloat16", "--include", "exceptions"),
        ("--to", "mixed_float16", "--set", ".*=mixed_bfloat16"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("model", sampled("checked models", JUDGED, share=3))
def test_check_runs_the_models_that_migrate_writes(
    model: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    ``check`` runs the models that ``migrate`` writes: equal options give each layer the same
    policy.
    """
    checked: list[PreparedSide] = []
    read: list[Any] = []

    def recorded(sides: tuple[PreparedSide, PreparedSide], *others: Any) -> Mapping[str, Any]:
        checked.append(sides[1])
        if sides[1].job["how"] == "saved":  # the file is gone when the check ends
            path = sides[1].job["path"].path
            read.append(format_detection.document(path, str(path)))
        return check_job(sides, *others)

    def ended(_worker: Worker, _job: Mapping[str, Any], **_: Any) -> Mapping[str, Any]:
        raise WorkerError("ended", "the child is not asked here")

    monkeypatch.setattr("policytool.commands.check_run.check_job", recorded)
    monkeypatch.setattr(Worker, "run", ended)
    source, output = FIXTURES / model, tmp_path / f"written{(FIXTURES / model).suffix}"
    assert "not asked" in run("check", source, *options, "--trust").err
    assert run("migrate", source, *options, "-o", output).code == 0
    written = output if output.exists() else source  # nothing to change
    document = format_detection.document(written, str(written))
    migrated = reading.load_model(document)
    (side,) = checked
    assert side.loaded is not None
    assert [(layer.path, layer.policy) for layer in side.loaded.layers] == [
        (layer.path, layer.policy) for layer in migrated.layers
    ]
    for candidate in read or [side.loaded.document]:
        assert candidate.config == document.config


def test_quantized_candidate_is_the_file_with_a_request_to_keras(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job has the mode and the layers that the user leaves unquantized."""
    jobs: list[Mapping[str, Any]] = []

    def ended(_worker: Worker, job: Mapping[str, Any], **_: Any) -> Mapping[str, Any]:
        jobs.append(job)
        raise WorkerError("ended", "the child is not asked here")

    monkeypatch.setattr(Worker, "run", ended)
    model = FIXTURES / "keras3.15/sequential.keras"
    assert "not asked" in run("check", model, "--to", "int8", "--set", ".*_a=float32").err
    request = jobs[0]["candidate"]["quantize"]
    assert request == {"mode": "int8", "kept": ["stack/dense_a"]}
    assert "quantize" not in jobs[0]["reference"]


@pytest.mark.parametrize("command", ["check", "tune"])
def test_only_saved_models_of_keras_3_are_quantized(command: str) -> None:
    """No child process starts for the others."""
    for model, words in (
        (FLOAT32, "only Keras 3 quantizes"),
        (FIXTURES / "keras3.15/default_float32.json", "quantizes stored weights"),
    ):
        ended = run(command, model, "--to", "int8")
        assert ended.code == 3
        assert words in " ".join(ended.err.split())
