"""Rules about how policies are written."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import h5py
import pytest

from policytool.formats import rewriting
from policytool.formats.document import Address
from policytool.formats.edits import Edit, EditKind, WriteOptions
from policytool.formats.format_detection import document
from policytool.model.loaded_model import dtype_places
from policytool.rules import AuditOptions
from policytool.rules.base import Fix, Severity
from policytool.support.text.jsontext import pointer
from tests.conftest import run
from tests.contracts.rule_contract import RuleContract, found
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from policytool.formats.document import Document

MIXED = "tf2.15/global_mixed_float16.h5"
SHARED = "tf2.12/global_mixed_float16.h5"


def edited(source: str, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """
    Return a copy of an HDF5 fixture after a change to its layers' configs, which are given by name.
    """
    shutil.copyfile(FIXTURES / source, target)
    with h5py.File(target, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        change({layer["config"]["name"]: layer["config"] for layer in config["config"]["layers"]})
        del file.attrs["model_config"]
        file.attrs["model_config"] = json.dumps(config).encode("ascii")
    return target


def with_policy(source: str, target: Path, *values: Any) -> Path:
    """Return a copy of a fixture whose layers dense_a and norm have these policies."""

    def change(layers: dict[str, Any]) -> None:
        for name, value in zip(("dense_a", "norm"), values, strict=False):
            layers[name]["dtype"] = value

    return edited(source, target, change)


def policy(name: str, class_name: str = "Policy") -> dict[str, Any]:
    """Return a policy's dict."""
    return {"class_name": class_name, "config": {"name": name}}


class TestExperimentalPolicy(RuleContract):
    id = "PT101"
    triggers = {
        "tf2.3/exp_mf16_fixed128.h5": ("mlp/dense_a",),
        "tf2.5/exp_mf16_default.h5": ("mlp/dense_a",),
        "tf2.4/exp_per_layer.json": (None,),
        "tf2.5/exp_mf16_fixed128": (None,),
        "tf2.1/exp_mf16_fixed128_uncompiled.yaml": ("mlp/dense_a",),
    }
    silent = (
        "tf2.3/global_mixed_float16.h5",
        "tf2.3/exp_mf16_default.h5",
        "tf2.15/global_mixed_float16.h5",
        "keras3.15/global_mixed_float16.keras",
    )

    def test_several_layers_are_one_finding(self) -> None:
        """With their number and three examples."""
        (finding,) = found(self.id, FIXTURES / "tf2.4/exp_per_layer.json")
        assert finding.message.startswith(
            "7 layers (mlp/dense_default, mlp/dense_none, mlp/dense_fixed, ...) use"
        )

    def test_a_loss_scale_is_named_where_there_is_one(self) -> None:
        """TF 2.4 to 2.8 write PolicyV1 without one too."""
        assert [
            "loss scale" in found(self.id, FIXTURES / f"tf2.5/exp_mf16_{case}.h5")[0].message
            for case in ("default", "fixed128")
        ] == [False, True]

    def test_one_copy_in_a_saved_model_is_enough(self, tmp_path: Path) -> None:
        """Each of the places where metadata says a layer's policy is looked at."""
        path = respelled_once(
            "tf2.5/global_mixed_float16",
            tmp_path / "m",
            "dropout",
            policy("mixed_float16", "PolicyV1"),
        )
        assert [finding.path for finding in found(self.id, path)] == ["mlp/dropout"]


def respelled_once(source: str, target: Path, layer: str, value: Any) -> Path:
    """
    Return a copy of a SavedModel in which the root's metadata spells a layer's policy in another
    way, and the layer's own does not.
    """
    shutil.copytree(FIXTURES / source, target)
    read: Document = document(target, source)
    part = read.config_part or ""
    config: Any = read.parts[part]
    for place, before in dtype_places(config):
        holder = config
        for step in place[:-1]:
            holder = holder[step]
        if holder.get("name") == layer and isinstance(before, dict):
            edit = Edit(
                kind=EditKind.FORMAT,
                address=Address(part=part, pointer=pointer(*place)),
                path=None,
                before=before,
                after=value,
                reason="a test",
            )
            rewriting.write(
                target,
                target,
                rewriting.Changes(edits=(edit,)),
                document_format="savedmodel",
                options=WriteOptions(in_place=True, backup=False),
            )
            return target
    raise LookupError(layer)


class TestRemovedPolicyName(RuleContract):
    id = "PT102"
    triggers = {MIXED: ()}  # no release writes them
    silent = (
        MIXED,
        "tf2.0/global_mixed_float16.h5",
        "keras3.15/int8_policy.keras",
        "keras3.3/global_mixed_float16.keras",
        "tf2.3/exp_per_layer.h5",
    )

    @pytest.mark.parametrize(
        ("name", "fix", "arguments"),
        [
            ("float16_with_float32_vars", Fix.SAFE, ()),
            ("bfloat16_with_float32_vars", Fix.SAFE, ()),
            ("float32_with_float32_vars", Fix.SAFE, ()),
            ("float64_with_float32_vars", Fix.UNSAFE, ("--set", "mlp/dense_a=float64")),
        ],
    )
    def test_names_with_float32_vars(
        self, tmp_path: Path, name: str, fix: Fix, arguments: tuple[str, ...]
    ) -> None:
        """
        Bare or in a dict; migrate writes what computes the same, or what is asked for, and the
        audit is silent after.
        """
        for number, value in enumerate((name, policy(name))):
            path = with_policy(MIXED, tmp_path / f"{number}.h5", value)
            (finding,) = found(self.id, path)
            assert (finding.path, finding.severity) == ("mlp/dense_a", Severity.ERROR)
            assert finding.remedy is not None
            assert (finding.remedy.fix, finding.remedy.arguments) == (fix, arguments)
            target = tmp_path / f"{number}-fixed.h5"
            assert run("migrate", path, *finding.remedy.arguments, "-o", target).code == 0
            assert found(self.id, target) == ()

    def test_names_are_told_one_by_one(self, tmp_path: Path) -> None:
        """A finding for each name."""
        path = with_policy(
            MIXED, tmp_path / "m.h5", "float16_with_float32_vars", "bfloat16_with_float32_vars"
        )
        assert {finding.detail for finding in found(self.id, path)} == {
            "float16_with_float32_vars",
            "bfloat16_with_float32_vars",
        }

    def test_a_quantised_one_has_advice(self, tmp_path: Path) -> None:
        """Nothing that migrate does makes another quantised layer of it."""
        (finding,) = found(
            self.id, with_policy(MIXED, tmp_path / "m.h5", "int8_from_mixed_float16")
        )
        assert finding.remedy is None
        assert "int8_from_mixed_bfloat16" in str(finding.advice)


class TestInferPolicy(RuleContract):
    id = "PT103"
    triggers = {MIXED: ()}  # a release writes the dtype that was inferred
    silent = (
        MIXED,
        "tf2.0/default_float32.h5",
        "tf2.2/global_mixed_float16.h5",
        "keras3.15/global_mixed_float16.keras",
    )

    @pytest.mark.parametrize(
        ("value", "severity", "says"),
        [
            (policy("_infer"), Severity.WARNING, "tf_keras"),
            (policy("_infer", "PolicyV1"), Severity.WARNING, "tf_keras"),
            (policy("infer"), Severity.ERROR, "TF 2.1 and 2.2"),
            (policy("infer_with_float32_vars"), Severity.ERROR, "no release"),
            ("infer", Severity.ERROR, "no release"),
            ("_infer", Severity.ERROR, "no release"),
        ],
    )
    def test_who_reads_it(self, tmp_path: Path, value: Any, severity: Severity, says: str) -> None:
        """As the releases themselves said."""
        (finding,) = found(self.id, with_policy(MIXED, tmp_path / "m.h5", value))
        assert (finding.path, finding.severity) == ("mlp/dense_a", severity)
        assert says in finding.message
        assert "--set 'mlp/dense_a=POLICY'" in str(finding.advice)
        assert found("PT102", tmp_path / "m.h5") == ()


class TestPolicyRefused(RuleContract):
    id = "PT104"
    question = AuditOptions(targets=("tf2.3", "tf2.15", "keras3.15"))
    triggers = {
        "tf2.3/exp_mf16_fixed128.h5": ("mlp/dense_a",),
        "tf2.5/exp_mf16_fixed128.h5": ("mlp/dense_a", "mlp/dense_a"),
        "tf2.15/global_mixed_float16.h5": (None,),
        "keras3.15/default_float32.keras": (None, None),
    }
    silent = (
        "tf2.3/default_float32.h5",
        "keras3.3/default_float32.keras",
        "tf2.15/default_float32.h5",
        "keras2.3.1/default_float32.h5",
    )

    @pytest.mark.parametrize(
        ("file", "target", "arguments"),
        [
            ("tf2.3/exp_mf16_fixed128.h5", "keras3.15", ()),
            ("tf2.15/global_mixed_float16.h5", "keras3.15", ()),
            ("tf2.5/exp_mf16_fixed128.h5", "tf2.3", ("--target", "tf2.3")),
        ],
    )
    def test_the_remedy_fixes_it(
        self, tmp_path: Path, file: str, target: str, arguments: tuple[str, ...]
    ) -> None:
        """
        Plain migrate, or the target's own spelling where it does not read the newest; the audit is
        silent after.
        """
        (finding,) = found(self.id, FIXTURES / file, AuditOptions(targets=(target,)))
        assert finding.remedy is not None
        assert finding.remedy.arguments == arguments
        assert run("migrate", FIXTURES / file, *arguments, "-o", tmp_path / "m.h5").code == 0
        assert found(self.id, tmp_path / "m.h5", AuditOptions(targets=(target,))) == ()

    def test_where_more_is_refused_no_migration_helps(self) -> None:
        """What else the target refuses, other rules say."""
        said = found(self.id, FIXTURES / "keras3.15/default_float32.keras", self.question)
        assert [
            (finding.remedy, "further incompatibilities" in str(finding.advice)) for finding in said
        ] == [(None, True)] * 2

    def test_a_quantised_policy_has_no_other_spelling(self) -> None:
        """Keras 2 has none."""
        (finding,) = found(
            self.id,
            FIXTURES / "keras3.15/int8_policy.keras",
            AuditOptions(targets=("tf_keras2.21",)),
        )
        assert finding.remedy is None

    def test_only_a_user_knows_what_infer_was(self, tmp_path: Path) -> None:
        """What migrate asks is the advice."""
        path = with_policy(MIXED, tmp_path / "m.h5", policy("infer"))
        (finding,) = found(self.id, path, AuditOptions(targets=("keras3.15",)))
        assert finding.remedy is None
        assert "--set 'mlp/dense_a=" in str(finding.advice)


class TestMixedGenerations(RuleContract):
    id = "PT105"
    triggers = {MIXED: ()}  # a release writes its own
    silent = (
        MIXED,
        "tf2.5/exp_per_layer.h5",
        "tf2.15/global_mixed_float16",
        "keras3.15/policy_map.keras",
        "tf2.12/global_mixed_float16.json",
    )

    def test_dicts_of_both_families(self, tmp_path: Path) -> None:
        """Both are named, and migrate leaves no dict of Keras 2."""
        path = with_policy(
            MIXED,
            tmp_path / "m.h5",
            {"module": "keras", **policy("mixed_float16", "DTypePolicy"), "registered_name": None},
        )
        (finding,) = (finding for finding in found(self.id, path) if finding.detail == "policies")
        assert "the Keras 3 format in mlp/dense_a" in finding.message
        assert finding.remedy is not None
        assert run("migrate", path, "-o", tmp_path / "fixed.h5").code == 0
        assert "policies" not in {
            finding.detail for finding in found(self.id, tmp_path / "fixed.h5")
        }

    def test_what_its_version_never_wrote(self, tmp_path: Path) -> None:
        """PolicyV1 in a file of TF 2.15."""
        (finding,) = found(
            self.id, with_policy(MIXED, tmp_path / "m.h5", policy("mixed_float16", "PolicyV1"))
        )
        assert "2.15.0" in finding.message


class TestSharedObjectId(RuleContract):
    id = "PT106"
    triggers = {SHARED: ()}  # a release writes what is the same
    silent = (
        SHARED,
        "tf2.5/exp_per_layer.h5",
        "tf2.15/global_mixed_float16",
        "tf2.5/rnn_mixed.json",
        "keras3.15/shared_layer.keras",
        "tf2.12/mha_mixed.json",
    )

    def test_a_policy_that_was_changed(self, tmp_path: Path) -> None:
        """Loaders take the first for it; migrate writes names, each of which stands for itself."""

        def change(layers: dict[str, Any]) -> None:
            layers["dropout"]["dtype"]["config"]["name"] = "mixed_bfloat16"

        path = edited(SHARED, tmp_path / "m.h5", change)
        (finding,) = found(self.id, path)
        assert finding.message.startswith(
            "Policy mixed_bfloat16 at mlp/dropout has the same shared_object_id ("
        )
        assert (
            "as Policy mixed_float16 at mlp/norm, and releases use only the latter"
            in finding.message
        )
        assert finding.remedy is not None
        assert finding.remedy.fix is Fix.UNSAFE
        assert run("migrate", path, "-o", tmp_path / "fixed.h5").code == 0
        assert found(self.id, tmp_path / "fixed.h5") == ()

    def test_a_number_of_two_classes(self, tmp_path: Path) -> None:
        """A kernel that is drawn as its bias is."""

        def change(layers: dict[str, Any]) -> None:
            for key in ("kernel_initializer", "bias_initializer"):
                layers["dense_a"][key]["shared_object_id"] = 777

        (finding,) = found(self.id, edited(SHARED, tmp_path / "m.h5", change))
        assert (finding.remedy, finding.detail) == (None, "GlorotUniform/Zeros")
        assert "remove the shared_object_id" in str(finding.advice)

    def test_a_saved_model_whose_copies_differ(self, tmp_path: Path) -> None:
        """The numbers of all its objects are one world."""
        value = {
            "class_name": "Policy",
            "config": {"name": "mixed_bfloat16"},
            "shared_object_id": 0,
        }
        assert (
            len(
                found(
                    self.id,
                    respelled_once("tf2.15/global_mixed_float16", tmp_path / "m", "dropout", value),
                )
            )
            == 1
        )


class TestUnknownPolicy(RuleContract):
    id = "PT107"
    triggers = {MIXED: ()}  # no release writes what none knows
    silent = (
        MIXED,
        "keras3.15/awq_policy.keras",
        "keras3.15/policy_map.keras",
        "tf2.5/exp_per_layer.h5",
    )

    @pytest.mark.parametrize("value", ["mixed_flaot16", policy("mixed_float16", "MyPolicy")])
    def test_names_and_classes(self, tmp_path: Path, value: Any) -> None:
        """Neither a name nor a class of no release is read."""
        (finding,) = found(self.id, with_policy(MIXED, tmp_path / "m.h5", value))
        assert finding.path == "mlp/dense_a"
        assert finding.address is not None


class TestKeras2PolicyDict(RuleContract):
    id = "PT108"
    triggers = {
        "tf2.15/global_mixed_float16.h5": (None,),
        "tf2.3/exp_mf16_default.h5": ("mlp/dense_a",),
        "tf2.12/mha_mixed.json": ("net/mha",),
        "tf2.15/global_mixed_float16": (None,),
    }
    silent = (
        "tf2.3/exp_mf16_fixed128.h5",
        "tf2.5/exp_mf16_default.h5",
        "tf2.15/default_float32.h5",
        "keras3.15/global_mixed_float16.keras",
        "keras3.3/global_mixed_float16.keras",
    )

    def test_one_finding_with_a_count(self, tmp_path: Path) -> None:
        """And a remedy after which there is none."""
        (finding,) = found(self.id, FIXTURES / MIXED)
        assert finding.message == (
            "3 layers (mlp/norm, mlp/dense_a, mlp/dropout) store mixed_float16 as a Keras "
            "2 dict, which Keras 3 cannot read"
        )
        assert run("migrate", FIXTURES / MIXED, "-o", tmp_path / "m.h5").code == 0
        assert found(self.id, tmp_path / "m.h5") == ()

    def test_a_target_says_whom_it_hits(self) -> None:
        """With one, incompatible-policy-format speaks."""
        assert found(self.id, FIXTURES / MIXED, AuditOptions(targets=("tf2.15",))) == ()
