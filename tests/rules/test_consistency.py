"""Rules about what a file says against what it holds."""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import TYPE_CHECKING, ClassVar

import h5py
import numpy as np
import pytest

from policytool.formats.document import Signature
from policytool.rules import AuditOptions
from policytool.rules.base import Fix, Severity
from policytool.support.text import protobuf_messages
from tests.contracts.made_rule_contract import MadeRuleContract
from tests.contracts.rule_contract import RuleContract, found
from tests.helpers import changed_fixtures
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.sampling import sampled
from tests.helpers.small_models import keras_zip, sequential

if TYPE_CHECKING:
    from pathlib import Path


def _names_bfloat16(path: Path) -> bool:
    """Return whether the config in an archive or an HDF5 file has the word."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return b"bfloat16" in archive.read("config.json")
    return b"bfloat16" in path.read_bytes()  # attributes are not compressed


def _stored_as(folder: Path, name: str, dtype: str) -> Path:
    """Write an HDF5 fixture whose first layer's variables have another dtype."""
    path = changed_fixtures.h5(folder, name, lambda _: None)
    with h5py.File(path, "a") as file:
        for variable in ("kernel:0", "bias:0"):
            key = f"model_weights/dense_a/dense_a/{variable}"
            values = file[key][()].astype(dtype)
            del file[key]
            file[key] = values
    return path


class TestStoredDiffers(MadeRuleContract):
    id = "PT401"
    paths = ("mlp/dense_a",)
    silent = (
        *(
            "tf2.15/global_mixed_float16.h5",
            "keras3.15/global_mixed_float16.keras",
            "tf2.3/global_bfloat16.h5",
            "keras3.15/global_bfloat16.keras",
        ),
        *(
            "tf2.15/per_layer.h5",
            "keras3.15/int8.h5",
            "keras3.15/int4.keras",
            "tf2.15/string_lookup.h5",
            "keras3.0/preprocessing.keras",
        ),
        *(
            "tfjs4.22/quantized_float16/model.json",
            "checkpoints/listed.index",
            "tf2.15/global_mixed_float16",
        ),
    )

    def make(self, folder: Path) -> Path:
        return _stored_as(folder, "tf2.15/global_mixed_float16.h5", "float16")

    @pytest.mark.parametrize("dtype", ["float64", "float16"])
    def test_both_directions_are_told(self, dtype: str, tmp_path: Path) -> None:
        """
        Wider values are rounded when they are read, narrower ones have lost their digits already.
        """
        (finding,) = found(self.id, _stored_as(tmp_path, "tf2.15/global_mixed_float16.h5", dtype))
        assert (
            f"declares mixed_float16 with float32 variables, but stores {dtype}" in finding.message
        )

    def test_bfloat16_stored_as_float32_is_right(self, tmp_path: Path) -> None:
        """It is what migrate makes of such files."""

        def declare(config: changed_fixtures.Config) -> None:
            changed_fixtures.layer(config, "dense_a")["dtype"] = "bfloat16"

        assert not found(
            self.id, changed_fixtures.h5(tmp_path, "tf2.15/global_mixed_float16.h5", declare)
        )


class TestTracedDiffers(MadeRuleContract):
    id = "PT402"
    paths = ("mlp/dense_a",)
    silent = (
        "tf2.15/global_mixed_float16",
        "tf2.5/global_mixed_float16",
        "tf2.15/mha_mixed",
        "tf_keras2.21/loops",
        "keras3.15/loops.export",
    )

    def make(self, folder: Path) -> Path:
        target = folder / "saved"
        shutil.copytree(FIXTURES / "tf2.15/global_mixed_float16", target)
        file = target / "keras_metadata.pb"
        before, after = b'{"name": "mixed_float16"}', b'{"name":"mixed_bfloat16"}'
        file.write_bytes(file.read_bytes().replace(before, after))
        return target

    def test_the_graph_is_traced_anew(self, tmp_path: Path) -> None:
        """What is served changes then, so the fix is no safe one."""
        (finding,) = found(self.id, self.make(tmp_path / "again"))
        assert finding.remedy is not None
        assert (finding.remedy.fix, finding.remedy.arguments) == (Fix.UNSAFE, ("--retrace",))


class TestUnreadableBfloat16(RuleContract):
    id = "PT403"
    triggers = dict.fromkeys(
        (
            "tf2.3/global_bfloat16.h5",
            "tf2.15/global_bfloat16.h5",
            "tf2.15/per_layer.keras",
            "keras3.15/per_layer.h5",
        ),
        (None,),
    )
    silent = (
        "keras3.15/global_bfloat16.keras",
        "keras3.15/per_layer.keras",
        "tf2.15/global_mixed_bfloat16.h5",
        "tf1.15/global_bfloat16_with_float32_vars.h5",
    )

    @THOROUGH
    def test_loaders_agree(self) -> None:
        """
        Each release that reads files of this kind refused the fixtures with bfloat16, and takes
        what plain migrate makes of them.
        """
        loads, migrated = (
            json.loads((FIXTURES / name).read_text(encoding="utf-8"))["loads"]
            for name in ("loads.json", "loads_migrated.json")
        )
        named: dict[bool, list[str]] = {True: [], False: []}
        for name in loads:
            if name.endswith((".h5", ".keras")):
                named[_names_bfloat16(FIXTURES / name)].append(name)
        files = [name for name in named[True] if found(self.id, FIXTURES / name)]
        assert len(files) == 15
        for name in sampled("files without bfloat16", named[False], share=20):
            assert not found(self.id, FIXTURES / name), name
        assert [name for name in files if loads[name].get("ok")] == []
        assert [name for name in files if not migrated[name].get("ok")] == []


def _remembered(inputs: dict[str, str], outputs: dict[str, str]) -> AuditOptions:
    signature = Signature(name="serving_default", inputs=inputs, outputs=outputs)
    return AuditOptions(
        signatures={
            f"fixtures/{name}": (signature,)
            for name in ("tf2.15/global_mixed_float16", "tf2.5/global_mixed_float16")
        }
    )


class TestSignatureChanged(RuleContract):
    id = "PT404"
    question = _remembered({"features": "float32"}, {"probabilities": "float16"})
    triggers: ClassVar = {"tf2.15/global_mixed_float16": (None,)}
    silent = ("tf2.15/mha_mixed", "tf2.15/global_mixed_float16.h5")

    def test_each_difference_is_told(self) -> None:
        """Names and dtypes count; what is new breaks nobody."""
        path = FIXTURES / "tf2.15/global_mixed_float16"
        shown = path.relative_to(ROOT).as_posix()
        question = AuditOptions(
            signatures={
                shown: (
                    Signature(name="gone", inputs={}, outputs={}),
                    Signature(name="serving_default", inputs={"old": "float32"}, outputs={}),
                )
            }
        )
        details = {finding.detail for finding in found(self.id, path, question)}
        assert {"gone", "serving_default/input/old"} < details
        question = AuditOptions(
            signatures={shown: (Signature(name="gone", inputs={}, outputs={}),)}
        )
        assert [
            (finding.detail, finding.severity) for finding in found(self.id, path, question)
        ] == [
            ("gone", Severity.ERROR),
            ("serving_default", Severity.NOTE),
        ]


class TestAutocastLost(RuleContract):
    id = "PT405"
    triggers = {"tf2.15/autocast_false": ("net/scale", "net/relu")}
    silent = (
        "tf2.15/autocast_false.h5",
        "tf2.15/global_mixed_float16",
        "tf2.15/loops",
        "tf2.15/string_lookup",
        "tf2.5/global_mixed_float16",
    )


class TestMetadataDiffers(MadeRuleContract):
    id = "PT406"
    paths = (None, None)
    silent = ("tf2.5/global_mixed_float16", "tf2.5/default_float32", "tf2.15/global_mixed_float16")

    def make(self, folder: Path) -> Path:
        target = folder / "saved"
        shutil.copytree(FIXTURES / "tf2.5/global_mixed_float16", target)
        file = target / "keras_metadata.pb"
        message = protobuf_messages.parse("KerasMetadata", file.read_bytes())
        for node in message.nodes:
            node.metadata = node.metadata.replace(
                b'"activation": "softmax"', b'"activation": "sigmoid"'
            )
        file.write_bytes(message.SerializeToString())
        return target


class TestQuantizedUndeclared(MadeRuleContract):
    id = "PT407"
    paths = ("mlp/dense_a",)
    silent = (
        "keras3.15/int8.h5",
        "keras3.15/int4.keras",
        "keras3.3/int8_bf16.json",
        "tfjs4.22/quantized_uint8/model.json",
    )

    def make(self, folder: Path) -> Path:
        weights = folder / "weights.h5"
        with h5py.File(weights, "w") as file:
            file["layers/dense/vars/0"] = np.zeros((6, 2), dtype="int8")
        members = {
            "config.json": json.dumps(sequential()).encode(),
            "metadata.json": b'{"keras_version": "3.15.1"}',
        }
        return keras_zip(
            folder / "model.keras", {**members, "model.weights.h5": weights.read_bytes()}
        )


class TestPolicyNotStored(RuleContract):
    id = "PT408"
    triggers = dict.fromkeys(
        ("tf1.15/default_float32.h5", "tf2.0/global_mixed_float16.json", "tf1.15/default_float32"),
        (None,),
    )
    silent = (
        "keras2.2.4/custom_layer.h5",
        "keras2.3.1/lambda.h5",
        "tf2.1/global_mixed_float16.json",
        "tf2.3/global_mixed_float16.h5",
    )


class TestLoaderDecides(RuleContract):
    id = "PT409"
    triggers = dict.fromkeys(
        (
            "keras3.15/policy_map_no_default.keras",
            "keras3.15/subclassed.keras",
            "tf2.5/mha_mixed.h5",
        ),
        (None,),
    )
    silent = (
        "keras3.15/global_mixed_float16.keras",
        "keras3.15/policy_map.h5",
        "tf2.15/global_mixed_float16.h5",
        "checkpoints/listed.index",
    )
