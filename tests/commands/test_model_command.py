"""The command that fixes a model that fails its audit, or the reason why there is none."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

import policytool
from policytool.model.model import Effect
from policytool.releases.releases import descriptions
from policytool.rules.base import Fix, ModelCommand
from tests.conftest import run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import dense, h5_model, instance, sequential

if TYPE_CHECKING:
    from pathlib import Path


def commands(name: str, *targets: str) -> tuple[ModelCommand, ...]:
    """Return the commands of a fixture for some targets."""
    return policytool.audit(FIXTURES / name, target=targets).commands


def test_a_model_that_passes_has_none() -> None:
    """A model without errors and warnings has no command, even if it has notes."""
    assert commands("keras3.15/mha.keras", "keras3") == ()
    assert commands("tf2.15/custom_layer.h5", "tf2.15") == ()


def test_an_edit_comes_before_a_conversion() -> None:
    """
    An edit is preferred to a conversion if only policies must change, because the rest of the file
    stays unchanged.
    """
    (command,) = commands("tf2.3/global_mixed_float16.h5", "keras3.6")
    assert command == ModelCommand(target="keras3.6", arguments=(), effect=Effect.UNCHANGED)


def test_layers_of_another_package_have_no_command(tmp_path: Path) -> None:
    """The reason names the package, and a step that the release that wrote the file can do."""
    inner = {**dense("inner"), "module": "keras.layers", "registered_name": None}
    wrapper = instance("PruneLowMagnitude", name="dense_a", pruning_schedule={}, layer=inner)
    file = h5_model(tmp_path / "model.h5", sequential(wrapper), keras_version="2.15.0")
    (command,) = policytool.audit(file, target="keras3").commands
    assert command.arguments is None
    assert command.reason is not None
    assert "tensorflow-model-optimization" in command.reason
    assert "strip_pruning" in command.reason


@pytest.mark.parametrize("release", ["tf2.3", "tf2.15"])
def test_wrappers_with_another_policy_are_converted(release: str) -> None:
    """
    An edit would load in Keras 3, which rounds to the policy of the wrapper; only a conversion
    keeps predictions.
    """
    audited = policytool.audit(
        FIXTURES / release / "wrappers_mixed.h5", target="keras3", ignore=["PT301"]
    )
    (command,) = audited.commands
    assert command.arguments == ("--target", "keras3")
    assert command.fix is Fix.SAFE
    assert release == "tf2.3" or not any(finding.fix_safety for finding in audited.findings)


@pytest.mark.parametrize("name", ["tf1.15/custom_layer.h5", "tf2.15/custom_layer.h5"])
def test_predictions_of_custom_classes_depend_on_their_code(name: str) -> None:
    """A conversion and an edit for another library both say so, as ``migrate`` does."""
    audited = policytool.audit(FIXTURES / name, target="keras3", ignore=["PT301"])
    assert audited.commands
    for command in audited.commands:
        assert (command.effect, command.fix) == (Effect.CUSTOM_CODE, Fix.UNSAFE)


def test_a_conversion_has_the_target_by_the_name_that_was_given() -> None:
    """
    The command for a conversion has the target's name as the user wrote it, and --allow
    weight-rewrite if it is the only safe way.
    """
    (command,) = commands("tf2.15/rnn.h5", "keras3")
    assert command.arguments == ("--target", "keras3", "--allow", "weight-rewrite")
    assert command.fix is Fix.UNSAFE


def test_second_command_also_fixes_the_remaining_findings() -> None:
    """
    The first command keeps predictions and leaves findings that are not errors. The second command
    also fixes those, such as a 16-bit output with ``--set``.
    """
    errors_only, command = commands("tf2.15/per_layer", "keras3")
    assert errors_only.arguments == ("--target", "keras3")
    assert (errors_only.fix, errors_only.leaves) == (Fix.SAFE, ("PT301",))
    assert command.leaves == ()
    assert command.arguments is not None
    assert command.arguments[::2] == ("--set", "--set", "--target")
    assert command.fix is Fix.UNSAFE


def test_savedmodel_with_traced_dtypes_is_converted_to_an_archive() -> None:
    (command,) = commands("tf2.15/per_layer", "tf2.15")
    assert command.arguments is not None
    assert command.arguments[-2] == "-o"
    assert command.arguments[-1].endswith("fixtures/tf2.15/per_layer.tf2.15.keras")


def test_each_target_has_a_separate_command() -> None:
    """A change for one target can make the model fail for another."""
    found = commands("tf2.5/tf_op_layers.h5", "keras3", "tf2.3", "tf2.15")
    assert [command.target for command in found] == ["keras3", "tf2.3"]
    assert len({command.arguments for command in found}) == 2


def test_command_for_several_targets_is_listed_once() -> None:
    (command,) = commands("tf2.3/global_mixed_float16.h5", "keras3", "keras3.6")
    assert command.target == "keras3"


@THOROUGH
def test_an_output_that_exists_is_overwritten(tmp_path: Path) -> None:
    """The command overwrites an existing output, so that it works when it is repeated."""
    source = tmp_path / "m.h5"
    shutil.copy(FIXTURES / "tf2.15/rnn.h5", source)
    for last in ("weight-rewrite", "replace"):
        (command,) = policytool.audit(source, target="keras3").commands
        assert command.arguments is not None
        assert command.arguments[-1] == last
        assert run("migrate", source, *command.arguments).code == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("keras3.15/loops.export", "a SavedModel without Keras metadata contains no"),
        ("tf2.15/weights_only.weights.h5", "a file of weights contains no layers"),
        ("keras2.3.1/sequential_unbuilt_input.h5", "stack (Sequential) has no input shape"),
        ("attacks/models/external_storage.h5", "PT606 still occurs"),
        ("attacks/models/shape_bomb.h5", "no release loads the file: the variable kernel of Dense"),
    ],
)
def test_model_without_a_command_has_a_reason(name: str, reason: str) -> None:
    (command,) = commands(name, "keras3")
    assert command.arguments is None
    assert command.fix is None
    assert str(command.reason).startswith(reason)


def test_findings_on_training_prevent_a_command_only_if_selected() -> None:
    """Predictions are correct without it."""
    path = FIXTURES / "tf2.3/exp_mf16_none.h5"
    (command,) = policytool.audit(path, target="keras3").commands
    assert command.arguments == ("--target", "keras3")
    (command,) = policytool.audit(path, target="keras3", select=["ALL", "PT2"]).commands
    assert command.arguments is None
    assert str(command.reason).startswith("PT203 still occurs after migrate --target keras3")


def test_command_without_a_target_is_for_the_newest_keras() -> None:
    audited = policytool.audit(FIXTURES / "tf2.15/tf_op_layers.h5")
    assert [one.rule for one in audited.findings if one.severity == "warning"] == ["PT505"]
    (command,) = audited.commands
    assert command == ModelCommand(
        target=None, arguments=("--target", "keras3"), effect=Effect.UNCHANGED
    )


@THOROUGH
def test_suppressed_findings_need_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXTURES / "tf2.15/rnn.h5", tmp_path / "m.h5")
    for glob, count in (("*.keras", 1), ("*.h5", 0)):
        text = f"[per-file-ignores]\n'{glob}' = 'PT505'\n"
        (tmp_path / "policytool.toml").write_text(text, encoding="utf-8")
        ended = run("audit", "m.h5", "--format", "json")
        (model,) = json.loads(ended.out)["models"]
        assert len(model["commands"]) == count


@THOROUGH
@pytest.mark.parametrize("target", [name for name, _ in descriptions()])
def test_audit_has_every_target_of_migrate(target: str, tmp_path: Path) -> None:
    """
    Audit accepts each target of migrate, also unmeasured releases, and the printed command fixes
    the model.
    """
    source = tmp_path / "m.keras"
    shutil.copy(FIXTURES / "keras3.15/default_float32.keras", source)
    ended = run("audit", source, "--target", target, "--format", "json")
    (model,) = json.loads(ended.out)["models"]
    assert ended.code == bool(model["commands"])
    for command in model["commands"]:
        assert run("migrate", source, *command["arguments"], "--preview").code == 1


def test_an_archive_is_no_model_for_tf_2_14() -> None:
    """No other release uses its layout."""
    audited = policytool.audit(FIXTURES / "tf2.12/default_float32.keras", target="tf2.14")
    (finding,) = audited.findings
    assert (finding.rule, finding.detail) == ("PT501", "tf2.14 container")
    assert audited.commands[0].arguments == ("--target", "tf2.14")
