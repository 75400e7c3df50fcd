"""Rules about how training goes on."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import h5py
import pytest

import policytool
from policytool.rules import AuditOptions
from policytool.rules.base import Finding, Fix, Severity
from tests.conftest import run
from tests.contracts.rule_contract import RuleContract, found
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path


def edited(source: str, target: Path, **changes: Any) -> Path:
    """Return a copy of an HDF5 fixture with another training configuration; None takes it away."""
    shutil.copyfile(FIXTURES / source, target)
    with h5py.File(target, "r+") as file:
        configuration = json.loads(file.attrs["training_config"])
        del file.attrs["training_config"]
        if changes:
            file.attrs["training_config"] = json.dumps({**configuration, **changes}).encode("ascii")
    return target


ADAM = {"class_name": "Adam", "config": {"name": "Adam", "learning_rate": 0.001, "decay": 0.0}}
SCALED = {
    "class_name": "LossScaleOptimizer",
    "config": {
        "inner_optimizer": ADAM,
        "dynamic": True,
        "initial_scale": 1024.0,
        "dynamic_growth_steps": 50,
    },
}


class TestLossScaleDropped(RuleContract):
    id = "PT201"
    triggers = {
        "tf2.3/exp_mf16_fixed128_uncompiled.h5": (None,),
        "tf2.5/exp_mf16_fixed128_uncompiled.h5": (None,),
        "tf2.1/exp_mf16_fixed128_uncompiled.yaml": (None,),
        "tf2.2/exp_f32_dynamic.json": (None,),
    }
    silent = (
        "tf2.3/exp_mf16_fixed128.h5",
        "tf2.3/exp_mf16_none.h5",
        "tf2.3/exp_per_layer.h5",
        "tf2.3/global_mixed_float16.h5",
        "tf2.15/adam_autowrap_mf16.h5",
        "tf2.4/exp_mf16_fixed128",
    )

    def test_an_optimizer_that_scales_nothing_can_keep_it(self, tmp_path: Path) -> None:
        """``--keep loss-scale`` moves it there, and the audit is silent after."""
        path = edited("tf2.3/exp_mf16_fixed128.h5", tmp_path / "m.h5", optimizer_config=ADAM)
        (finding,) = found(self.id, path)
        assert "does not scale losses" in finding.message
        assert finding.remedy is not None
        assert (finding.remedy.fix, finding.remedy.arguments) == (
            Fix.UNSAFE,
            ("--keep", "loss-scale"),
        )
        assert run("migrate", path, *finding.remedy.arguments, "-o", tmp_path / "kept.h5").code == 0
        assert found(self.id, tmp_path / "kept.h5") == ()
        assert found("PT203", tmp_path / "kept.h5") == ()

    def test_what_no_wrapper_goes_around_cannot(self, tmp_path: Path) -> None:
        """Keras' own wrapper refuses Lion: the line to write is told instead."""
        lion = {
            "class_name": "Custom>Lion",
            "config": {"name": "Lion", "is_legacy_optimizer": False},
        }
        (finding,) = found(
            self.id, edited("tf2.3/exp_mf16_fixed128.h5", tmp_path / "m.h5", optimizer_config=lion)
        )
        assert finding.remedy is None
        assert "initial_scale=128" in str(finding.advice)

    def test_another_scale_in_the_optimizer_counts(self, tmp_path: Path) -> None:
        """Both are named, and what to write if the scale of the policy was intended."""
        (finding,) = found(
            self.id,
            edited("tf2.3/exp_mf16_fixed128.h5", tmp_path / "m.h5", optimizer_config=SCALED),
        )
        assert "fixed 128" in finding.message
        assert (
            "different loss scale (dynamic from 1024, growth by 2 every 50 steps)"
            in finding.message
        )
        assert finding.remedy is None
        assert "to keep the policy's loss scale" in str(finding.advice)

    def test_without_an_optimizer_the_line_is_told(self) -> None:
        """Nothing in the file can keep it."""
        (finding,) = found(self.id, FIXTURES / "tf2.3/exp_mf16_fixed128_uncompiled.h5")
        assert (finding.severity, finding.remedy) == (Severity.NOTE, None)
        assert "LossScaleOptimizer(optimizer, dynamic=False, initial_scale=128)" in str(
            finding.advice
        )

    def test_targets_that_keep_it_lose_nothing(self) -> None:
        """TF 2.1 to 2.3 give the policy its loss scale back."""
        path = FIXTURES / "tf2.1/exp_mf16_fixed128_uncompiled.json"
        assert found(self.id, path, AuditOptions(targets=("tf2.2", "tf2.3"))) == ()
        assert len(found(self.id, path, AuditOptions(targets=("tf2.3", "tf2.4")))) == 1


class TestLossScaleInert(RuleContract):
    id = "PT202"
    triggers = {
        "tf2.3/exp_mf16_fixed128.h5": (None,),
        "tf2.3/exp_mf16_none.h5": (None,),
        "tf2.5/exp_per_layer.h5": (None,),
        "tf2.4/exp_mf16_fixed128": (None,),
        "tf2.3/exp_bf16_fixed64.h5": (None,),
    }
    silent = (
        "tf2.3/exp_mf16_fixed128_uncompiled.h5",
        "tf2.3/exp_mf16_default.h5",
        "tf2.3/lso_exp_fixed128.h5",
        "tf2.15/lso_fixed128.h5",
        "keras3.15/lso_dynamic.keras",
    )

    @pytest.mark.parametrize(
        ("file", "says"),
        [
            ("tf2.3/exp_mf16_fixed128.h5", "has the same loss scale and keeps it"),
            (
                "tf2.3/exp_mf16_none.h5",
                "compiling the model again under mixed_float16 would add loss scaling",
            ),
            ("tf2.3/exp_per_layer.h5", "only the policy of the model itself scales losses"),
        ],
    )
    def test_why_nothing_changes(self, file: str, says: str) -> None:
        """The reason is the file's own."""
        (finding,) = found(self.id, FIXTURES / file)
        assert says in finding.message

    def test_compile_does_the_same(self, tmp_path: Path) -> None:
        """A scale that is the default of its policy is there again once the model is compiled."""
        path = edited("tf2.3/exp_mf16_dynamic_custom.h5", tmp_path / "m.h5")
        text = '"initial_loss_scale": 1024.0, "increment_period": 50, "multiplier": 4.0'
        with h5py.File(path, "r+") as file:
            config = file.attrs["model_config"]
            assert text in config
            file.attrs["model_config"] = config.replace(
                text, '"initial_loss_scale": 32768.0, "increment_period": 2000, "multiplier": 2.0'
            ).encode("ascii")
        (finding,) = found(self.id, path)
        assert "compile() adds the same loss scaling" in finding.message


class TestUnscaledMixedFloat16(RuleContract):
    id = "PT203"
    triggers = {
        "keras3.0/adam_autowrap_mf16.keras": (None,),
        "keras3.15/adam_autowrap_mf16.keras": (None,),
        "tf2.12/adam_autowrap_mf16.keras": (None,),
        "tf_keras2.21/adam_autowrap_mf16.keras": (None,),
        "tf2.3/exp_per_layer.h5": (None,),
    }
    silent = (
        "tf2.15/adam_autowrap_mf16.h5",
        "tf2.15/adam_autowrap_mf16",
        "tf2.5/exp_mf16_none.h5",
        "keras3.15/lso_dynamic.keras",
        "keras3.15/loss_scale_factor128.keras",
        "keras3.15/default_float32_compiled.keras",
        "keras3.15/global_mixed_float16.keras",
        "tf2.3/exp_bf16_fixed64.h5",
    )

    def test_keras3_keeps_what_its_state_shows(self, tmp_path: Path) -> None:
        """
        Its archive is fixed by ``--keep loss-scale``; one of Keras 2 is not, and the call to write
        is told.
        """
        (finding,) = found(self.id, FIXTURES / "keras3.15/adam_autowrap_mf16.keras")
        assert finding.remedy is not None
        assert "does not contain the loss scaling" in finding.message
        target = tmp_path / "m.keras"
        assert (
            run(
                "migrate",
                FIXTURES / "keras3.15/adam_autowrap_mf16.keras",
                *finding.remedy.arguments,
                "-o",
                target,
            ).code
            == 0
        )
        assert found(self.id, target) == ()
        assert found("PT206", target, AuditOptions(targets=("keras3.15",))) == ()
        (finding,) = found(self.id, FIXTURES / "tf_keras2.21/adam_autowrap_mf16.keras")
        assert finding.remedy is None
        assert "set_global_policy('mixed_float16')" in str(finding.advice)


class TestLossScalingInVain(RuleContract):
    id = "PT204"
    triggers = {
        "tf2.3/exp_f32_dynamic.h5": (None,),
        "tf2.5/exp_bf16_fixed64.h5": (None,),
        "keras3.15/loss_scale_factor128.keras": (None,),
    }
    silent = (
        "tf2.0/adam_autowrap_mf16.h5",  # mixed_float16, which TF 2.0 cannot say
        "tf2.3/adam_autowrap_mf16.h5",
        "tf2.3/exp_per_layer.h5",
        "keras3.15/lso_dynamic.keras",
        "keras3.15/default_float32_compiled.h5",
    )

    def test_a_scale_of_one_scales_nothing(self, tmp_path: Path) -> None:
        """It is how Keras 2 says none under mixed_float16."""
        none = {
            "class_name": "LossScaleOptimizer",
            "config": {**SCALED["config"], "dynamic": False, "initial_scale": 1.0},  # type: ignore[dict-item]
        }
        assert (
            found(
                self.id,
                edited(
                    "tf2.5/default_float32_compiled.h5", tmp_path / "one.h5", optimizer_config=none
                ),
            )
            == ()
        )
        assert (
            len(
                found(
                    self.id,
                    edited(
                        "tf2.5/default_float32_compiled.h5",
                        tmp_path / "m.h5",
                        optimizer_config=SCALED,
                    ),
                )
            )
            == 1
        )


class TestOptimizerRefused(RuleContract):
    id = "PT205"
    question = AuditOptions(targets=("tf2.3", "tf2.15", "keras3.15"))
    triggers = {
        "tf2.4/adam_autowrap_mf16.h5": (None, None),
        "tf2.3/adam_autowrap_mf16.h5": (None,),  # with policies that Keras 3 refuses as well
        "tf2.3/lso_exp_customdyn.h5": (None, None),
        "tf2.0/adam_autowrap_mf16.h5": (None,),
        "keras3.15/default_float32_compiled.h5": (None,),
        "keras2.2.4/default_float32_compiled.h5": (None,),
        "tf2.15/default_float32_compiled.h5": (None, None),
    }
    silent = (
        "keras3.15/default_float32_compiled.keras",
        "keras3.15/lso_dynamic.keras",
        "tf2.15/default_float32_compiled.keras",
        "tf2.3/global_mixed_float16.h5",
    )

    def test_each_target_is_told_apart(self) -> None:
        """The two findings of one file name their loaders."""
        said = found(self.id, FIXTURES / "tf2.15/default_float32_compiled.h5", self.question)
        assert [finding.detail for finding in said] == ["tf2.3", "keras3.15"]
        assert [
            ("Custom" in finding.message, "loss mse" in finding.message) for finding in said
        ] == [
            (True, False),
            (False, True),
        ]

    def test_it_needs_a_target(self) -> None:
        """Without one there is nobody to refuse."""
        assert found(self.id, FIXTURES / "keras3.15/default_float32_compiled.h5") == ()


class TestOptimizerStateLost(RuleContract):
    id = "PT206"
    question = AuditOptions(targets=("tf2.15", "tf_keras2.21", "keras3.15"))
    triggers = {
        "tf2.15/lso_fixed128.h5": (None, None),
        "tf2.15/lso_legacy_fixed128.keras": (None, None),
        "keras3.15/adam_autowrap_mf16.keras": (None,),
        "tf_keras2.21/adam_autowrap_mf16.h5": (None,),
    }
    silent = (
        "tf2.15/lso_fixed128.keras",
        "tf2.15/lso_legacy_fixed128.h5",
        "tf2.15/lso_fixed128",
        "tf2.5/lso_fixed128.h5",
        "keras3.15/lso_dynamic.keras",
        "keras3.15/default_float32_compiled.h5",  # which Keras 3.15 refuses
        "tf2.3/exp_mf16_none.h5",
    )

    def test_keras3_restores_the_steps_alone(self, tmp_path: Path) -> None:
        """From an HDF5 file whose training configuration it takes."""
        path = edited(
            "keras3.15/default_float32_compiled.h5", tmp_path / "m.h5", loss="mean_squared_error"
        )
        (finding,) = found(self.id, path, self.question)
        assert "the step count" in finding.message


class TestUnknownOptimizer(RuleContract):
    id = "PT207"
    triggers = {"tf2.15/lso_fixed128.h5": ()}
    silent = (
        "tf2.15/lso_fixed128.h5",
        "tf2.3/lso_exp_customdyn.h5",
        "keras3.15/lso_dynamic.keras",
        "keras2.2.4/default_float32_compiled.h5",
    )

    def test_a_loss_scale_of_no_release(self, tmp_path: Path) -> None:
        """It is told in the reader's words."""
        strange = {
            "class_name": "LossScaleOptimizer",
            "config": {"optimizer": ADAM, "loss_scale": {"class_name": "MyScale", "config": {}}},
        }
        said: tuple[Finding, ...] = found(
            self.id, edited("tf2.3/lso_dynamic.h5", tmp_path / "m.h5", optimizer_config=strange)
        )
        assert ["MyScale" in finding.message for finding in said] == [True]


@pytest.mark.parametrize(
    ("select", "severity"),
    [
        ((), Severity.NOTE),
        (("ALL",), Severity.NOTE),
        (("PT201,PT5",), Severity.WARNING),
        (("loss-scale-dropped",), Severity.WARNING),
        (("ALL", "PT2"), Severity.WARNING),
    ],
)
def test_selecting_training_rules_makes_their_findings_warnings(
    select: tuple[str, ...], severity: Severity
) -> None:
    """Predictions stay the same, so exported models pass, unless these rules are selected."""
    path = FIXTURES / "tf2.3/exp_mf16_fixed128_uncompiled.h5"
    audited = policytool.audit(path, select=select or None)
    assert [finding.severity for finding in audited.findings if finding.rule == "PT201"] == [
        severity
    ]
