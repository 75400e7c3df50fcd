"""``policytool migrate`` at the command line: where outputs go, what stays, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import pytest

import policytool
from policytool.commands.migrate import Status
from policytool.support.errors import ModelFileError, UsageError
from tests.conftest import MIXED_H5, MIXED_JSON, MIXED_KERAS, MIXED_SAVEDMODEL, UNPACKED, run
from tests.helpers import small_models
from tests.helpers.changes import held
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

OLD: Final = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
CURRENT: Final = FIXTURES / "keras3.15/default_float32.h5"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(place: Path) -> Path:
    """Return a model with a deprecated spelling, alone in the working directory."""
    return Path(shutil.copy(OLD, place / "model.h5"))


def copied(source: Path, target: Path) -> Path:
    """Return a copy of a fixture."""
    return Path(shutil.copy(source, target))


def names(directory: Path) -> set[str]:
    """Return what is in a directory."""
    return {path.name for path in directory.iterdir()}


def policies(path: Path) -> set[str | None]:
    """Return the policies of a model's layers."""
    return {layer.policy for layer in policytool.inspect(path).layers}


def test_the_one_model_of_a_directory_is_migrated(model: Path, place: Path) -> None:
    before = model.read_bytes()
    ended = run("migrate", "--to", "mixed_bfloat16", "--include", "outputs")
    assert ended.code == 0, ended.err
    assert names(place) == {"model.h5", "model.mixed_bfloat16.h5"}
    assert model.read_bytes() == before
    assert "mixed_bfloat16" in policies(place / "model.mixed_bfloat16.h5")
    assert ended.out.startswith("model.mixed_bfloat16.h5: written; ")


def test_second_run_does_not_overwrite_the_output_of_the_first(model: Path, place: Path) -> None:
    """The output is not a second model, and is replaced only with ``--existing replace``."""
    assert run("migrate").code == 0
    written = (place / "model.migrated.h5").read_bytes()
    again = run("migrate")
    assert again.code == 3
    assert "--existing replace" in again.err
    assert "[target-exists]" in again.err
    assert (place / "model.migrated.h5").read_bytes() == written
    assert run("migrate", "--existing=replace").code == 0
    assert names(place) == {"model.h5", "model.migrated.h5"}
    assert model.exists()


def test_second_migration_changes_nothing(model: Path, place: Path) -> None:
    """An output with nothing to change is not written again."""
    for options in ((), ("--to", "mixed_bfloat16"), ("--to", "float32")):
        assert (
            run("migrate", model, *options, "-o", place / "first.h5", "--existing=replace").code
            == 0
        )
        again = run("migrate", place / "first.h5", *options, "-o", place / "second.h5")
        assert again.code == 0
        assert "unchanged" in again.out
        assert "second.h5 was not written; use " in " ".join(again.out.split())
        assert not (place / "second.h5").exists()


@THOROUGH
def test_several_models_are_listed_and_none_is_chosen(model: Path, place: Path) -> None:
    """Without a path, the directory must contain exactly one model."""
    shutil.copy(MIXED_KERAS, place / "other.keras")
    (place / "notes.json").write_text("{}", encoding="utf-8")
    ended = run("migrate")
    assert ended.code == 2
    assert "model.h5" in ended.err
    assert "other.keras" in ended.err
    assert "notes.json" not in ended.err
    assert model.exists()


def test_no_model_is_exit_code_four(place: Path) -> None:
    """An empty directory has none."""
    assert run("migrate").code == 4
    assert not names(place)


@pytest.mark.parametrize("format_", ["table", "diff", "json"])
def test_preview_writes_no_file(format_: str, model: Path, place: Path) -> None:
    """In every format, the exit code is 1 if there are changes."""
    before = (model.read_bytes(), model.stat().st_mtime_ns)
    ended = run("migrate", model, "--preview", "--format", format_)
    assert (ended.code, ended.err) == (1, "")
    assert names(place) == {"model.h5"}
    assert (model.read_bytes(), model.stat().st_mtime_ns) == before


def test_unchanged_file_is_not_written(place: Path) -> None:
    """Neither an explicit output nor the original is written, and a preview ends with 0."""
    path = copied(CURRENT, place / "model.h5")
    before = path.stat().st_mtime_ns
    for options in (("-o", "out.h5"), ("--in-place",), ("--preview",), ()):
        ended = run("migrate", path, *options)
        assert ended.code == 0
        assert "unchanged" in ended.out
    assert names(place) == {"model.h5"}
    assert path.stat().st_mtime_ns == before


def test_unchanged_file_that_fails_to_load_names_the_next_step(place: Path) -> None:
    """Without options, migrate does not convert a model that only other releases load."""
    path = copied(FIXTURES / "tf2.15/mha.h5", place / "model.h5")
    ended = run("migrate", path)
    assert "unchanged" in ended.out
    assert "fails in Keras 3.15" in ended.out
    assert "policytool audit" in ended.out
    assert "fails" not in run("migrate", copied(CURRENT, place / "current.h5")).out


def test_in_place_keeps_a_backup(model: Path, place: Path) -> None:
    """The original is kept as NAME.bak, which is not overwritten either."""
    before = model.read_bytes()
    assert run("migrate", model, "--in-place").code == 0
    assert names(place) == {"model.h5", "model.h5.bak"}
    assert (place / "model.h5.bak").read_bytes() == before
    assert policies(model) == {None, "float32", "mixed_float16"}
    again = run("migrate", model, "--in-place", "--to", "float32")
    assert again.code == 3
    assert (place / "model.h5.bak").read_bytes() == before
    assert run("migrate", model, "--in-place=no-backup", "--to", "float32").code == 0
    assert (place / "model.h5.bak").read_bytes() == before
    assert names(place) == {"model.h5", "model.h5.bak"}


def test_a_value_of_in_place_follows_an_equals_sign(model: Path, place: Path) -> None:
    """The next argument is a path, also after ``--``; settings and Python have the value too."""
    assert run("migrate", "--in-place", model).code == 0
    assert names(place) == {"model.h5", "model.h5.bak"}
    (place / "model.h5.bak").unlink()
    settings = place / "own.toml"
    settings.write_text('in-place = "no-backup"\n', encoding="utf-8")
    assert run("migrate", model, "--to", "float32", "--config", settings).code == 0
    settings.unlink()
    policytool.migrate(model, to="mixed_float16", in_place="no-backup")
    assert names(place) == {"model.h5"}
    odd = copied(OLD, place / "--in-place")
    assert run("migrate", "--", "--in-place").code == 0
    assert odd.read_bytes() == OLD.read_bytes()


def test_an_unknown_value_of_in_place_is_an_error(model: Path) -> None:
    before = model.read_bytes()
    assert run("migrate", model, "--in-place=keep").code == 2
    with pytest.raises(UsageError, match="expected True or no-backup"):
        policytool.migrate(model, in_place="keep")  # type: ignore[arg-type]
    assert model.read_bytes() == before


def test_in_place_migration_follows_a_link_and_reports_the_link(model: Path, place: Path) -> None:
    link = place / "link.h5"
    link.symlink_to(model.name)
    ended = run("migrate", link, "--in-place")
    assert ended.code == 0
    assert "is a link" in ended.err
    assert link.is_symlink()
    assert "mixed_float16" in policies(model)
    assert not any(layer.deprecated for layer in policytool.inspect(model).layers)


def test_an_output_directory_keeps_names(model: Path, place: Path) -> None:
    """-o DIRECTORY takes as many as there are, under their own names."""
    shutil.copy(MIXED_JSON, place / "other.json")
    (place / "out").mkdir()
    ended = run("migrate", model, "other.json", "-o", "out")
    assert ended.code == 0, ended.err
    assert names(place / "out") == {"model.h5", "other.json"}
    assert "2 written" in ended.err


def test_archive_that_keras_does_not_load_by_its_name_is_not_written(place: Path) -> None:
    """Keras selects the reader of a file by its suffix."""
    source = str(FIXTURES / "tf2.15/default_float32.h5")
    result = run("migrate", source, "--target", "keras3", "--no-verify", "-o", "converted")
    assert result.code == 3
    text = " ".join(result.out.split())
    assert "use -o converted.keras, or -o converted/ for a directory" in text
    assert not (place / "converted").exists()
    result = run("migrate", source, "--target", "keras3", "--no-verify", "-o", "converted/")
    assert (result.code, names(place / "converted")) == (0, {"default_float32.keras3.keras"})


def test_one_output_for_several_inputs_is_an_error(model: Path, place: Path) -> None:
    """The results would overwrite each other."""
    shutil.copy(MIXED_JSON, place / "other.json")
    ended = run("migrate", model, "other.json", "-o", "out.h5")
    assert ended.code == 2
    assert names(place) == {"model.h5", "other.json"}


def test_one_bad_file_among_many_is_not_the_end(model: Path, place: Path) -> None:
    """The others are migrated, and the exit code is 3."""
    (place / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    ended = run("migrate", "broken.h5", model)
    assert ended.code == 3
    assert "broken.h5" in ended.err
    assert (place / "model.migrated.h5").exists()


def test_a_glob_and_a_directory_pass_over_outputs(model: Path, place: Path) -> None:
    """A found file with the name of another's output is no input."""
    assert run("migrate", "*.h5").code == 0
    ended = run("migrate", ".", "--existing=replace")
    assert ended.code == 0
    assert names(place) == {model.name, "model.migrated.h5"}


def test_models_without_policies_are_rejected(place: Path) -> None:
    """Weights files and SavedModels without Keras metadata have no policies."""
    for path in (
        FIXTURES / "keras3.15/global_mixed_float16.export",
        FIXTURES / "tf2.3/weights_only.weights.h5",
    ):
        ended = run("migrate", path)
        assert ended.code == 3
        assert "contains no policy that can be changed. [not-migratable]" in ended.err
        ended = run("migrate", path, "--target", "keras3")
        assert ended.code == 3
        assert "contains no layers that can be converted" in ended.err
        assert "could be changed" not in ended.err
    assert not names(place)


@pytest.mark.parametrize(
    ("source", "output", "advice"),
    [
        (MIXED_H5, "new.keras", "use the file extension .h5"),
        (MIXED_KERAS, "new.h5", "use the file extension .keras"),
        (MIXED_H5, "new.json", "use the file extension .h5"),
        (MIXED_SAVEDMODEL, "new.keras", "use a name without a file extension"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--to", "mixed_bfloat16")])
def test_another_file_extension_needs_a_target(
    place: Path, source: str, output: str, advice: str, options: tuple[str, ...]
) -> None:
    """A different extension requires a conversion, which loses state and needs ``--target``."""
    ended = run("migrate", FIXTURES / source, "-o", output, *options)
    assert ended.code == 2
    assert f"{advice.capitalize()}, or add --target" in ended.err
    assert not names(place)


def test_a_suffix_that_the_input_has_as_well_asks_for_no_conversion(place: Path) -> None:
    """TF 2.3 writes HDF5 under any name that does not end in a slash."""
    shutil.copy(FIXTURES / MIXED_H5, place / "old.keras")
    ended = run("migrate", "old.keras", "-o", "new.keras", "--to", "mixed_bfloat16")
    assert ended.code == 0, ended.err
    assert policytool.inspect("new.keras").format == "h5"


@pytest.mark.parametrize("kind", ["keras-metadata", "json"])
def test_file_without_weights_has_one_blocker(place: Path, kind: str) -> None:
    """The number of blockers does not depend on the number of layers."""
    source = FIXTURES / MIXED_JSON
    if kind == "keras-metadata":
        source = place / "keras_metadata.pb"
        shutil.copy(FIXTURES / "tf2.15/global_mixed_float16/keras_metadata.pb", source)
    ended = run("migrate", source, "--target", "keras3", "-o", "new.keras", "--format", "json")
    assert ended.code == 3
    refusals = [blocker["message"] for blocker in ended.json["plans"][0]["blockers"]]
    assert ["contains no weights" in refusal for refusal in refusals] == [True]


def test_a_saved_model_is_migrated_beside_itself(place: Path) -> None:
    """The output is named after the policy, and a second run has nothing to do."""
    shutil.copytree(FIXTURES / "tf2.15/global_mixed_float16", place / "v1.2")
    ended = run("migrate", "v1.2", "--to", "mixed_bfloat16")
    assert ended.code == 0, ended.err
    assert names(place) == {"v1.2", "v1.2.mixed_bfloat16"}
    assert run("migrate", "v1.2.mixed_bfloat16", "--to", "mixed_bfloat16", "--preview").code == 0
    assert run("migrate", ".", "--to", "mixed_bfloat16", "--preview").code == 1
    assert policytool.inspect("v1.2.mixed_bfloat16").layers[0].policy == "mixed_bfloat16"


def test_interrupted_replacement_is_reported_by_the_next_run(place: Path) -> None:
    """Between the two renames of a replacement, the original has the name of the backup."""
    shutil.copytree(MIXED_SAVEDMODEL, place / "model.bak")
    ended = run("migrate", "model", "--in-place")
    assert ended.code == 3
    assert "model.bak does" in ended.err
    assert "Rename the backup to the original name" in ended.err


def test_single_metadata_file_is_migrated(place: Path) -> None:
    copied(FIXTURES / "tf2.15/global_mixed_float16/keras_metadata.pb", place / "keras_metadata.pb")
    ended = run("migrate", "keras_metadata.pb", "--to", "mixed_bfloat16")
    assert ended.code == 0, ended.err
    assert names(place) == {"keras_metadata.pb", "keras_metadata.mixed_bfloat16.pb"}
    assert ended.out.startswith("keras_metadata.mixed_bfloat16.pb: written; ")


@THOROUGH
def test_plan_for_a_savedmodel_can_be_saved_and_applied(place: Path) -> None:
    """The edits refer to both metadata files, and the result equals that of ``migrate``."""
    shutil.copytree(MIXED_SAVEDMODEL, place / "model")
    (place / "plan.json").write_text(
        run("migrate", "model", "--to", "float32", "--preview", "--format", "json").out,
        encoding="utf-8",
    )
    parts = {
        edit["part"]
        for edit in json.loads((place / "plan.json").read_text(encoding="utf-8"))["plans"][0][
            "edits"
        ]
    }
    assert {part.partition("#")[0] for part in parts} == {"saved_model.pb", "keras_metadata.pb"}
    assert run("migrate", "--plan", "plan.json").code == 0
    assert run("migrate", "model", "--to", "float32", "-o", "direct").code == 0
    assert held(place / "model.float32") == held(place / "direct")
    diff = run("migrate", "model", "--to", "float32", "--preview", "--format", "diff").out
    assert diff.count("+++") == len(parts)


def test_weights_files_matched_by_a_glob_are_skipped(model: Path, place: Path) -> None:
    copied(FIXTURES / "tf2.3/weights_only.weights.h5", place / "model.weights.h5")
    ended = run("migrate", "*.h5")
    assert ended.code == 0, ended.err
    assert "Skipped" in ended.err
    assert names(place) == {model.name, "model.weights.h5", "model.migrated.h5"}


def test_blocked_migration_writes_nothing_and_names_the_layer(place: Path) -> None:
    """The error contains the file, the layer and the reason."""
    shutil.copy(FIXTURES / "keras3.15/int8.keras", place / "model.keras")
    ended = run("migrate", "--to", "mixed_float16")
    assert ended.code == 3
    assert "net/embedding is quantized" in " ".join(ended.out.split())
    assert names(place) == {"model.keras"}
    as_json = run("migrate", "--to", "mixed_float16", "--format", "json")
    assert as_json.code == 3
    assert "[quantized]" in as_json.err
    assert as_json.json["plans"][0]["status"] == "blocked"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--to", "float99"),
        ("--to", "infer"),
        ("--set", "dense"),
        ("--set", "nowhere=float32"),
        ("--target", "tf9.9"),
        ("--in-place", "-o", "x.h5"),
        ("-o", "-"),
        ("-o", "model.h5", "--existing=replace"),
        ("-o", "model.yaml"),
        ("--target", "tf2.13", "-o", "model.keras"),
        ("--to", ""),
        ("--target", ""),
        ("--plan", "missing.json"),
        ("--plan", "missing.json", "--to", "float32"),
    ],
)
def test_wrong_calls_end_with_exit_code_2(
    arguments: tuple[str, ...], model: Path, place: Path
) -> None:
    """One sentence describes the problem."""
    ended = run("migrate", model, *arguments)
    assert ended.code == 2
    assert ended.err.strip()
    assert names(place) == {"model.h5"}


def test_saved_plan_gives_the_same_file_as_the_options(model: Path, place: Path) -> None:
    """The plan is the output of ``--preview --format json``."""
    planned = run("migrate", model, "--to", "mixed_bfloat16", "--preview", "--format", "json")
    (place / "plan.json").write_text(planned.out, encoding="utf-8")
    assert run("migrate", model, "--to", "mixed_bfloat16", "-o", "direct.h5").code == 0
    ended = run("migrate", "--plan", "plan.json")
    assert ended.code == 0, ended.err
    direct, by_plan = (h5py.File(place / name) for name in ("direct.h5", "model.mixed_bfloat16.h5"))
    with direct, by_plan:
        assert dict(direct.attrs) == dict(by_plan.attrs)
    assert run("migrate", "--plan", "plan.json", "--preview").code == 1


def test_a_plan_for_another_file_does_nothing(model: Path, place: Path) -> None:
    """The values that the plan found have to be there."""
    planned = run("migrate", model, "--to", "mixed_bfloat16", "--preview", "--format", "json")
    (place / "plan.json").write_text(planned.out, encoding="utf-8")
    shutil.copy(FIXTURES / "tf2.3/global_mixed_float16.h5", model)
    ended = run("migrate", "--plan", "plan.json")
    assert ended.code == 3
    assert "[plan-stale]" in ended.err
    assert names(place) == {"model.h5", "plan.json"}


def test_invalid_edited_plan_is_not_applied(model: Path, place: Path) -> None:
    """The plan has an unknown policy, or a blocked migration without its reasons."""
    planned = json.loads(
        run("migrate", model, "--to", "mixed_bfloat16", "--preview", "--format", "json").out
    )
    planned["plans"][0]["edits"][0]["after"] = "mixed_nonsense"
    (place / "plan.json").write_text(json.dumps(planned), encoding="utf-8")
    assert "[plan-invalid]" in run("migrate", "--plan", "plan.json").err
    planned["plans"][0]["edits"][0]["after"] = "mixed_bfloat16"
    planned["plans"][0]["status"] = "blocked"
    (place / "plan.json").write_text(json.dumps(planned), encoding="utf-8")
    assert "[plan-blocked]" in run("migrate", "--plan", "plan.json").err
    assert names(place) == {"model.h5", "plan.json"}


def test_fifo_is_not_replaced(model: Path, place: Path) -> None:
    """An output that is not a regular file is rejected, also with ``--existing replace``."""
    os.mkfifo(place / "pipe.h5")
    ended = run("migrate", model, "-o", "pipe.h5", "--existing=replace")
    assert ended.code == 3
    assert "is not a regular file. Specify another output" in ended.err
    assert (place / "pipe.h5").is_fifo()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "plans": []}',
        '{"version": 1, "plans": [{}]}',
        '{"version": 1, "plans": {}}',
        "\xff",
    ],
)
def test_file_that_is_not_a_plan_is_a_usage_error(text: str, model: Path, place: Path) -> None:
    """The user may give any file to ``--plan``."""
    (place / "plan.json").write_text(text, encoding="latin-1")
    ended = run("migrate", model, "--plan", "plan.json")
    assert ended.code == 2, ended.err
    assert "--plan" in ended.err


@pytest.mark.parametrize(
    ("place_", "value"),
    [
        *((("plans", 0, key), None) for key in ("path", "format", "suffix", "edits", "casts")),
        *((("plans", 0, "edits", 0, key), 1) for key in ("kind", "part", "pointer", "reason")),
        (("plans", 0, "edits", 0), []),
        (("plans", 0, "casts"), [{"tensor": "a"}]),
        (("plans", 0, "state"), [{"tensor": ["a"], "source": None, "dtype": None, "value": True}]),
        (("plans", 0, "blockers"), [{"code": "c", "path": None}]),
        (("plans", 0), "plan"),
        *((("plans", 0, key), ...) for key in ("path", "written_by", "state", "status", "edits")),
        *((("plans", 0, "edits", 0, key), ...) for key in ("kind", "part", "pointer", "reason")),
    ],
)
def test_a_plan_with_a_wrong_or_missing_value_is_an_error(
    place_: tuple[str | int, ...], value: object, model: Path, place: Path
) -> None:
    """The error is one line, and nothing is written. The value ``...`` removes the key."""
    plan: Any = run(
        "migrate", model, "--to", "mixed_bfloat16", "--preview", "--format", "json"
    ).json
    *path, key = place_
    parent = plan
    for step in path:
        parent = parent[step]
    if value is ...:
        del parent[key]
    else:
        parent[key] = value
    (place / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    ended = run("migrate", "--plan", "plan.json")
    assert ended.code == 2, ended.err
    assert "is not a plan" in ended.err
    assert ended.err.count("\n") == 1
    assert names(place) == {"model.h5", "plan.json"}


@pytest.mark.parametrize("dtype", ["int8", 16])
def test_a_plan_with_a_cast_to_another_kind_of_dtype_is_an_error(
    dtype: object, place: Path
) -> None:
    """A plan casts stored values only to the float dtypes that the documentation lists."""
    shutil.copy(FIXTURES / "tf2.3/exp_mf16_fixed128.h5", place / "model.h5")
    options = ("--to", "float16", "--include", "outputs", "--preview", "--format", "json")
    planned = json.loads(run("migrate", "model.h5", *options).out)
    planned["plans"][0]["casts"][0]["after"] = dtype
    (place / "plan.json").write_text(json.dumps(planned), encoding="utf-8")
    ended = run("migrate", "--plan", "plan.json")
    assert ended.code == 2
    assert "is not a plan" in ended.err


def test_a_cast_to_float16_counts_small_values_and_blocks_large_values(place: Path) -> None:
    """``--allow overflow`` permits values above 65504."""
    path = small_models.h5_model(
        place / "model.h5", small_models.sequential(small_models.dense(), small_models.dense("out"))
    )
    with h5py.File(path, "r+") as file:
        kernel = np.full((6, 2), 1.0, dtype="float32")
        kernel[0] = (1e-7, 1e-9)
        file["model_weights/dense_a/dense_a/kernel:0"][...] = kernel
    assert run("migrate", path, "--to", "float16", "-o", "small.h5", "--format", "json").code == 0
    report = run("migrate", path, "--to", "float16", "--preview", "--format", "json").json
    casts = report["plans"][0]["casts"]
    assert [sum(cast[key] for cast in casts) for key in ("subnormal", "flushed")] == [1, 1]
    with h5py.File(place / "small.h5") as file:
        assert file["model_weights/dense_a/dense_a/kernel:0"].dtype == np.float16
    with h5py.File(path, "r+") as file:
        file["model_weights/dense_a/dense_a/kernel:0"][0, 0] = 70000.0
    refused = run("migrate", path, "--to", "float16", "-o", "large.h5")
    assert refused.code == 3
    assert "--allow overflow" in " ".join(refused.out.split())
    assert not (place / "large.h5").exists()
    allowed = run("migrate", path, "--to", "float16", "-o", "large.h5", "--allow", "overflow")
    assert allowed.code == 0


def test_an_unpacked_model_is_migrated_as_a_directory(place: Path) -> None:
    """The result is a directory like it."""
    shutil.copytree(UNPACKED, place / "model.keras.d")
    options = ("--to", "mixed_bfloat16", "--include", "outputs")
    assert run("migrate", "model.keras.d", *options).code == 0
    assert names(place) == {"model.keras.d", "model.keras.d.mixed_bfloat16"}
    assert names(place / "model.keras.d") == names(place / "model.keras.d.mixed_bfloat16")
    assert "mixed_bfloat16" in policies(place / "model.keras.d.mixed_bfloat16")


def test_target_option_writes_the_policy_format_of_an_old_release(place: Path) -> None:
    """TF 2.4 needs a dict; if other parts fail in the target, the model is converted."""
    path = copied(FIXTURES / "tf2.5/global_mixed_float16.h5", place / "model.h5")
    assert run("migrate", path, "-o", "bare.h5").code == 0
    ended = run("migrate", "bare.h5", "--target", "tf2.4")
    assert ended.code == 0, ended.out
    with h5py.File(place / "bare.tf2.4.h5") as file:
        assert (
            '{"class_name": "Policy", "config": {"name": "mixed_float16"}}'
            in file.attrs["model_config"]
        )
    assert run("migrate", "bare.h5", "--target", "tf2.2").code == 0
    assert policytool.inspect(place / "bare.tf2.2.h5").releases["tf2.2"].reason is None


def test_python_api(model: Path, place: Path) -> None:
    """The same in Python: values, and errors that say what is wrong."""
    done = policytool.migrate(model, to="mixed_bfloat16")
    assert done.status is Status.WRITTEN
    assert done.output == place / "model.mixed_bfloat16.h5"
    assert (
        policytool.migrate(model, set={".*/dense_a": "float64"}, preview=True).status
        is Status.PLANNED
    )
    with pytest.raises(ModelFileError):
        policytool.migrate(place / "missing.h5")


def test_python_function_converts_models(place: Path) -> None:
    """
    The target may have any name that ``--target`` accepts. A blocked conversion is a result with
    its reason.
    """
    path = copied(FIXTURES / "tf2.15/rnn.h5", place / "rnn.h5")
    done = policytool.migrate(path, target="keras3", allow=["weight-rewrite"])
    assert (done.status, done.output) == (Status.WRITTEN, place / "rnn.keras3.keras")
    assert done.plan.conversion is not None
    refused = policytool.migrate(path, target="keras3", output=place / "other.keras")
    assert refused.status is Status.BLOCKED
    assert "--allow weight-rewrite" in refused.blockers[0].message
    assert policytool.migrate(path, target="tf2.10", preview=True).status is Status.UNCHANGED
    with pytest.raises(UsageError, match="unknown target"):
        policytool.migrate(path, target="tf3")


def test_a_saved_plan_does_not_carry_out_a_conversion(place: Path) -> None:
    """A plan file does not contain a converted model, so the error says to plan again."""
    copied(FIXTURES / "keras3.15/default_float32.keras", place / "model.keras")
    ended = run("migrate", "model.keras", "--target", "tf2.15", "--preview", "--format", "json")
    assert ended.code == 1, ended.err
    (place / "plan.json").write_text(ended.out, encoding="utf-8")
    again = run("migrate", "--plan", "plan.json")
    assert again.code == 2
    assert "Run migrate --target tf2.15 again" in again.err
    assert [path.name for path in place.iterdir() if path.suffix == ".h5"] == []


def test_a_directory_that_is_named_is_created(model: Path, place: Path) -> None:
    """The directory and its parents are created when a file is written; a plan creates none."""
    assert run("migrate", model, "-o", "new/deep/", "--preview").code == 1
    assert not (place / "new").exists()
    refused = run("migrate", model, "-o", "new/", "--target", "keras2.1")
    assert (refused.code, (place / "new").exists()) == (2, False)
    ended = run("migrate", model, "-o", "new/deep/")
    assert (ended.code, names(place / "new/deep")) == (0, {"model.h5"})
    (place / "file").write_text("")
    assert run("migrate", model, "-o", "file/").code != 0


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("tf2.14", "model.tf2.14.h5"),
        ("tf2.4", "model.tf2.4.h5"),
        ("keras3", "model.keras3.keras"),
        ("keras3.13", "model.keras3.13.keras"),
        ("tf_keras", "model.tf_keras.h5"),
    ],
)
def test_output_name_contains_the_target_of_the_user(
    target: str, name: str, model: Path, place: Path
) -> None:
    """The name does not contain the release whose format the target reads."""
    assert run("migrate", model, "--target", target, "--no-verify").code == 0
    assert names(place) == {"model.h5", name}
