"""``policytool audit --fix``: fixed findings, the reasons for others, and unchanged files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest

import policytool
from policytool.migration.planning.options import Assignment, LossScales, Options
from policytool.rules import BY_ID
from policytool.rules.base import Finding, Fix, Remedy, Severity
from policytool.rules.fixes import merge_remedies
from tests.conftest import Ended, run
from tests.helpers import stand_in_rules
from tests.helpers.paths import FIXTURES

OLD: Final = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
LOSING: Final = FIXTURES / "tf2.3/exp_mf16_fixed128_uncompiled.h5"
"""Its loss scale stands in the policy alone."""

DICTS: Final = FIXTURES / "tf2.15/global_mixed_float16.keras"
LOST: Final = (
    "TF 2.3, TF 2.4 load the original, but not the fixed model: mixed policies are stored as plain "
    "names, which need TF 2.5 or later"
)
SAVEDMODEL: Final = FIXTURES / "tf2.3/exp_mf16_fixed128"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory."""
    stand_in_rules.use(monkeypatch, stand_in_rules.REAL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def copied(source: Path, name: str) -> Path:
    """Return a copy of a fixture in the working directory."""
    return Path(shutil.copytree(source, name) if source.is_dir() else shutil.copy(source, name))


def files() -> dict[str, bytes]:
    """Return the files in the working directory."""
    return {path.as_posix(): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def fix(*arguments: str) -> Ended:
    """Fix the models below the working directory."""
    return run("audit", "--fix", "--format", "json", *arguments)


def of(ended: Ended, path: str) -> Any:
    """Return the result for a model."""
    return next(done for done in ended.json["fixes"] if done["path"] == path)


def test_a_safe_fix_is_migrate_in_place() -> None:
    """The result and the backup are those of ``migrate``, and a second audit has no findings."""
    copied(OLD, "a.h5")
    assert run("migrate", "a.h5").code == 0
    ended = fix("a.h5")
    assert ended.code == 0, ended.err
    assert of(ended, "a.h5") == {
        "path": "a.h5",
        "outcome": "fixed",
        "arguments": [],
        "resolved": [{"rule": "PT101", "path": "mlp/dense_a", "detail": ""}],
        "remaining": [],
        "warnings": [LOST],
        "backup": "a.h5.bak",
    }
    assert ended.json["models"][0]["findings"] == []
    assert Path("a.h5.bak").read_bytes() == OLD.read_bytes()
    assert not policytool.diff("a.h5", "a.migrated.h5").differs
    assert "fixed: mlp/dense_a" not in run("audit", "--fix", "a.h5").out


def test_report_lists_the_fixes() -> None:
    for form in ("table", "markdown"):
        copied(OLD, f"{form}.h5")
        ended = run("audit", "--fix", "--format", form, f"{form}.h5")
        assert ended.code == 0
        assert "PT101" in ended.out
        assert "PT101 fixed" in ended.out
        assert "mlp/dense" in ended.out


def test_findings_without_a_fix_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion, which ``--fix`` never does, or no command; the report has it, and a diff."""
    stand_in_rules.use(monkeypatch, *BY_ID.values())
    copied(SAVEDMODEL, "export")
    copied(FIXTURES / "keras3.15/awq_policy.keras", "awq.keras")
    converted = "it needs a conversion, which --fix never does; use the command that audit shows"
    ended = fix("--target", "keras3")
    assert {entry["rule"]: entry["reason"] for entry in of(ended, "export")["remaining"]}[
        "PT501"
    ] == converted
    assert {entry["rule"]: entry["reason"] for entry in of(ended, "awq.keras")["remaining"]}[
        "PT506"
    ] == "no command fixes it; see its hint"
    table = run("audit", "--fix", "--target", "keras3", "export", "--no-backup")
    assert f"PT501 not fixed  the model: {converted}" in " ".join(table.out.split("\n"))
    diff = run("audit", "--diff", "--target", "keras3", "export")
    assert "PT501 would not be fixed (1 finding): it needs a conversion" in diff.err


def test_no_backup_keeps_none() -> None:
    """``--no-backup`` keeps no backup, as in migrate."""
    copied(OLD, "a.h5")
    ended = fix("--no-backup", "a.h5")
    assert (ended.code, list(files())) == (0, ["a.h5"])
    assert of(ended, "a.h5")["backup"] is None


@pytest.mark.parametrize(
    "source",
    [SAVEDMODEL, FIXTURES / "tf2.5/exp_mf16_fixed128", FIXTURES / "tf2.4/exp_mf16_default.json"],
    ids=lambda path: path.name,
)
def test_models_of_other_formats_are_fixed(source: Path) -> None:
    """Fixes work for SavedModels with metadata in either file and for JSON."""
    name = "model.json" if source.suffix else "model"
    copied(source, name)
    before = policytool.inspect(name)
    ended = fix("--fail-on", "note")
    assert ended.code == 0, ended.err
    assert of(ended, name)["outcome"] == "fixed"
    assert any(file.endswith(".bak") for file in {path.name for path in Path().rglob("*")})
    assert [(layer.path, layer.policy) for layer in policytool.inspect(name).layers] == [
        (layer.path, layer.policy) for layer in before.layers
    ]
    assert policytool.audit(name).findings == ()


def test_unsafe_fixes_need_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only ``--unsafe-fixes`` changes a ``.keras`` file to float32."""
    stand_in_rules.use(monkeypatch, stand_in_rules.REAL, stand_in_rules.WIDENED)
    copied(DICTS, "a.keras")
    before = files()
    ended = fix()
    assert ended.code == 1
    assert of(ended, "a.keras")["outcome"] == "unchanged"
    assert {item["reason"] for item in of(ended, "a.keras")["remaining"]} == {
        "it changes numerics or training; use --unsafe-fixes to apply it"
    }
    assert files() == before
    ended = fix("--unsafe-fixes")
    assert ended.code == 0, ended.err
    assert of(ended, "a.keras")["arguments"] == ["--to", "float32"]
    assert {layer.policy for layer in policytool.inspect("a.keras").layers} <= {"float32", None}


def test_a_diff_shows_and_writes_nothing() -> None:
    """``--diff`` prints the changes, and has the exit code of the audit."""
    copied(OLD, "a.h5")
    copied(LOSING, "b.h5")
    before = files()
    ended = run("audit", "--diff", "--format", "json=out.json")
    assert ended.code == 1
    assert ended.out == run("migrate", "--preview", "--format", "diff", "--in-place", "a.h5").out
    assert "b.h5: PT101 would not be fixed (1 finding): it would change training" in ended.err
    assert '"outcome": "planned"' in Path("out.json").read_text(encoding="utf-8")
    Path("out.json").unlink()
    assert files() == before


def test_a_loss_scale_that_training_used_is_not_dropped_by_a_safe_fix() -> None:
    """``--unsafe-fixes`` drops it with a warning."""
    copied(LOSING, "a.h5")
    ended = fix()
    assert ended.code == 1
    assert of(ended, "a.h5")["remaining"][0]["reason"].startswith("it would change training")
    assert list(files()) == ["a.h5"]
    ended = fix("--unsafe-fixes")
    assert ended.code == 0
    assert "is dropped" in of(ended, "a.h5")["warnings"][0]


def test_fix_keeps_the_model_loadable_in_the_target() -> None:
    """A fix keeps a model loadable in the target: TF 2.3 reads a policy only as a dict."""
    copied(OLD, "a.h5")
    ended = fix("--target", "tf2.3")
    assert ended.code == 0  # a note
    assert of(ended, "a.h5")["remaining"][0]["reason"].startswith(
        "TF 2.3 loads the original, but would fail to load the result"
    )
    assert fix("--target", "tf2.15").code == 0


def test_releases_that_load_only_the_original_are_a_warning() -> None:
    """TF 2.3, which wrote the file, and TF 2.4 fail: Cannot convert value 'mixed_float16'."""
    copied(FIXTURES / "tf2.3/exp_mf16_none.h5", "a.h5")
    done = of(fix("a.h5"), "a.h5")
    assert done["outcome"] == "fixed"
    (warning,) = done["warnings"]
    assert warning.partition(": ")[0].endswith("TF 2.4 load the original, but not the fixed model")
    releases = policytool.inspect("a.h5").releases
    assert {releases[name].loads for name in ("tf2.4", "tf2.5")} == {False, True}


def test_file_that_cannot_be_written_does_not_affect_the_other() -> None:
    """A file that cannot be written is unchanged, the exit code is 3, and the other is fixed."""
    copied(OLD, "a.h5")
    copied(OLD, "b.h5")
    Path("a.h5.bak").write_bytes(b"mine")
    ended = fix()
    assert ended.code == 3
    assert "a.h5: not fixed: its backup a.h5.bak already exists" in ended.err
    assert of(ended, "a.h5")["outcome"] == "failed"
    assert of(ended, "b.h5")["outcome"] == "fixed"
    assert (Path("a.h5").read_bytes(), Path("a.h5.bak").read_bytes()) == (OLD.read_bytes(), b"mine")
    Path("a.h5.bak").unlink()
    assert fix().code == 0
    assert Path("a.h5.bak").read_bytes() == OLD.read_bytes()


def test_suppressed_findings_are_not_fixed() -> None:
    copied(OLD, "a.h5")
    before = files()
    assert run("audit", "--config", "/dev/null", "--write-baseline", "known.json").code == 0
    assert fix("--baseline", "known.json").json["fixes"] == []
    Path("own.toml").write_text("[per-file-ignores]\n'a.h5' = 'PT1'\n", encoding="utf-8")
    assert fix("--config", "own.toml").json["fixes"] == []
    new = {"known.json", "own.toml"}
    assert {name: data for name, data in files().items() if name not in new} == before


def test_a_renamed_file_of_a_baseline_is_not_fixed() -> None:
    copied(OLD, "a.h5")
    assert run("audit", "--config", "/dev/null", "--write-baseline", "known.json").code == 0
    Path("a.h5").rename("b.h5")
    copied(DICTS, "c.keras")
    before = files()
    ended = fix("--baseline", "known.json", "--verbose")
    assert (ended.code, ended.json["fixes"]) == (0, [])
    assert {
        suppressed_finding["by"]
        for model in ended.json["models"]
        for suppressed_finding in model["suppressed"]
    } == {"baseline"}
    assert files() == before
    copied(OLD, "a.h5")
    assert of(fix("--baseline", "known.json"), "b.h5")["outcome"] == "fixed"


def test_safe_fixes_are_applied_if_all_fixes_together_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """If only safe fixes are possible, the others are left with the reason of ``migrate``."""
    unknown = stand_in_rules.rule(
        "PT304",
        "elsewhere",
        remedy=Remedy(fix=Fix.UNSAFE, assignments=(("no/such/layer", "float32"),)),
    )
    stand_in_rules.use(monkeypatch, stand_in_rules.REAL, unknown)
    copied(OLD, "a.h5")
    ended = fix("--unsafe-fixes")
    assert ended.code == 1
    done = of(ended, "a.h5")
    assert done["outcome"] == "fixed"
    assert [item["rule"] for item in done["resolved"]] == ["PT101"]
    assert "matches no layer" in done["remaining"][0]["reason"]


def test_findings_decide_the_exit_code_if_migrate_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If ``migrate`` fails or plans no edit, the findings decide the exit code."""
    stand_in_rules.use(
        monkeypatch, stand_in_rules.rule("PT305", "current-already", remedy=Remedy(fix=Fix.SAFE))
    )
    copied(OLD, "a.h5")
    assert run("migrate", "--in-place=no-backup", "a.h5").code == 0
    ended = fix("a.h5")
    assert ended.code == 1
    assert of(ended, "a.h5")["remaining"][0]["reason"] == "migrate would not change the model"


def test_finding_that_remains_after_its_fix_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_rules.use(
        monkeypatch, stand_in_rules.rule("PT305", "never-enough", remedy=Remedy(fix=Fix.SAFE))
    )
    copied(OLD, "a.h5")
    ended = fix()
    assert ended.code == 1
    assert of(ended, "a.h5")["outcome"] == "fixed"
    assert (
        of(ended, "a.h5")["remaining"][0]["reason"]
        == "migrate applied the fix, but the finding remains"
    )


def test_finding_that_disappears_without_a_fix_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in_rules.use(monkeypatch, stand_in_rules.REAL, BY_ID["PT201"])
    copied(LOSING, "a.h5")
    assert {finding.rule for finding in policytool.audit("a.h5").findings} == {"PT101", "PT201"}
    done = of(fix("--unsafe-fixes"), "a.h5")
    assert [item["rule"] for item in done["resolved"]] == ["PT101"]
    assert (
        "PT201 no longer occurs (1 finding), although no applied fix explains this"
        in done["warnings"]
    )


def test_note_that_disappears_causes_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note that disappears without a fix causes no warning, because it reports no effect."""
    stand_in_rules.use(monkeypatch, stand_in_rules.REAL, BY_ID["PT202"])
    copied(OLD, "a.h5")
    assert {finding.rule for finding in policytool.audit("a.h5").findings} == {"PT101", "PT202"}
    done = of(fix(), "a.h5")
    assert [item["rule"] for item in done["resolved"]] == ["PT101"]
    assert not [warning for warning in done["warnings"] if "PT202" in warning]


def test_safe_fix_that_would_change_predictions_is_not_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in_rules.use(
        monkeypatch,
        stand_in_rules.rule("PT306", "not-so-safe", remedy=Remedy(fix=Fix.SAFE, to="float32")),
    )
    copied(OLD, "a.h5")
    assert (
        of(fix(), "a.h5")["remaining"][0]["reason"]
        == "it would change more than the policy format; use --unsafe-fixes to apply it"
    )
    assert Path("a.h5").read_bytes() == OLD.read_bytes()


def test_a_safe_fix_may_store_the_same_values_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 in HDF5, which no release reads, becomes float32."""
    stand_in_rules.use(monkeypatch, BY_ID["PT403"])
    copied(FIXTURES / "tf2.15/global_bfloat16.h5", "a.h5")
    ended = fix()
    assert ended.code == 0, ended.err
    assert [item["rule"] for item in of(ended, "a.h5")["resolved"]] == ["PT403"]
    stored = {
        variable.dtype
        for layer in policytool.inspect("a.h5").layers
        for variable in layer.variables
    }
    assert "bfloat16" not in stored


# Remedies as one migration


def finding(rule: str, remedy: Remedy | None, path: str = "a") -> Finding:
    """Return a finding with a remedy."""
    return Finding(rule=rule, severity=Severity.WARNING, message="m", path=path, remedy=remedy)


SAFE: Final = finding("PT101", Remedy(fix=Fix.SAFE))


def test_remedies_that_go_together_are_one() -> None:
    """Compatible remedies are combined into one migration."""
    parts = (
        SAFE,
        finding("PT201", Remedy(fix=Fix.UNSAFE, keep_loss_scale=True)),
        finding("PT301", Remedy(fix=Fix.UNSAFE, assignments=(("a", "float32"), ("b", "float32")))),
        finding(
            "PT302", Remedy(fix=Fix.UNSAFE, assignments=(("a", "float32"),), to="mixed_bfloat16")
        ),
        finding("PT303", None),
    )
    result = merge_remedies(parts, unsafe=True)
    assert result.options == Options(
        to="mixed_bfloat16",
        assignments=(
            Assignment(pattern="a", policy="float32"),
            Assignment(pattern="b", policy="float32"),
        ),
        loss_scale=LossScales.KEEP,
    )
    assert (result.taken, result.left) == (parts[:4], ())
    assert result.arguments == (
        "--to",
        "mixed_bfloat16",
        "--set",
        "a=float32",
        "--set",
        "b=float32",
        "--keep",
        "loss-scale",
    )


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({"to": "float32"}, {"to": "bfloat16"}, "--to float32 (PT301) and --to bfloat16 (PT302)"),
        (
            {"target": "tf2.4"},
            {"target": "tf2.3"},
            "--target tf2.4 (PT301) and --target tf2.3 (PT302)",
        ),
        (
            {"assignments": (("a", "float32"),)},
            {"assignments": (("a", "float16"),)},
            "--set a=float32 (PT301) and --set a=float16 (PT302)",
        ),
    ],
)
def test_remedies_that_contradict_each_other_are_left(
    one: dict[str, Any], other: dict[str, Any], words: str
) -> None:
    first, second = (
        finding(rule, Remedy(fix=Fix.UNSAFE, **asked))
        for rule, asked in (("PT301", one), ("PT302", other))
    )
    result = merge_remedies((SAFE, first, second), unsafe=True)
    assert result.taken == (SAFE,)
    assert {left.reason for left in result.left} == {f"the fixes conflict: {words}"}
    alone = merge_remedies((first, second), unsafe=True)
    assert (alone.options, alone.arguments) == (None, ())


def test_safe_fix_that_would_drop_the_loss_scale_is_not_applied() -> None:
    """New policies would drop the loss scale that an unsafe remedy preserves."""
    saving = finding("PT201", Remedy(fix=Fix.UNSAFE, keep_loss_scale=True))
    result = merge_remedies((SAFE, saving), unsafe=False)
    assert result.options is None
    assert [left.finding for left in result.left] == [SAFE, saving]
    assert result.left[0].reason == (
        "it would drop the loss scale that PT201 reports; --unsafe-fixes moves the loss "
        "scale to the optimizer"
    )
    assert merge_remedies((SAFE, saving), unsafe=True).left == ()


def test_fix_that_needs_tensorflow_is_not_applied() -> None:
    """The report names the command for a remedy that needs TensorFlow."""
    result = merge_remedies((finding("PT401", Remedy(fix=Fix.UNSAFE, retrace=True)),), unsafe=True)
    assert result.options is None
    assert (
        result.left[0].reason
        == "it requires TensorFlow, which audit never runs; use migrate --retrace"
    )
