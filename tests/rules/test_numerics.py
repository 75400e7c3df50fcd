"""Rules about what is computed wrongly."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import h5py
import numpy as np
import pytest

from policytool.commands import audit as auditing
from policytool.commands.inspect import Failure
from policytool.formats import casting, format_detection
from policytool.formats.discovery import Input
from policytool.formats.document import GraphOp, Trace
from policytool.model import optimizer_config, reading
from policytool.releases import dtype_support
from policytool.releases.layer_classes import known_classes, layer_facts
from policytool.rules import BY_ID, AuditOptions, Device, RuleInput
from policytool.rules.base import Fix, Remedy, Severity
from policytool.support.errors import SpellingError
from policytool.support.text import protobuf_messages
from tests.contracts.rule_contract import RuleContract, found
from tests.helpers import changed_fixtures
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Config = dict[str, Any]

DT_HALF: Final = 19
"""TensorFlow's number of float16."""

WEIGHTS: Final = AuditOptions(weights=True)
ON_CPU: Final = AuditOptions(device=Device.CPU)
ON_GPU: Final = AuditOptions(device=Device.GPU)
MIXED: Final = "tf2.15/global_mixed_float16.h5"
COMPILED: Final = "tf2.15/adam_autowrap_mf16.h5"
NORMALISED: Final = "tf2.15/preprocessing.h5"
CHAIN: Final = "tf2.15/sequential.h5"
KERNEL: Final = "dense_a/dense_a/kernel:0"
GAMMA: Final = "norm/norm/gamma:0"


def edited(
    to: Path,
    fixture: str,
    change: Callable[[Config], None] | None = None,
    values: Mapping[str, object] | None = None,
) -> Path:
    """
    Return a copy of an H5 fixture with another config, or with other values; a number fills a
    variable, a pair replaces its first value.
    """
    path = to / fixture.replace("/", "-")
    shutil.copyfile(FIXTURES / fixture, path)
    with h5py.File(path, "r+") as file:
        if change is not None:
            config = json.loads(file.attrs["model_config"])
            change(config)
            file.attrs["model_config"] = json.dumps(config)
        for name, value in (values or {}).items():
            stored = file[f"model_weights/{name}"]
            new = (
                np.full(stored.shape, value, stored.dtype)
                if isinstance(value, float)
                else np.array(stored)
            )
            if isinstance(value, tuple):
                new.flat[0] = value[0]
            stored[...] = new
    return path


def layers(config: Config) -> dict[str, Config]:
    """Return the configs of a model's layers by their names."""
    return {layer["config"]["name"]: layer["config"] for layer in config["config"]["layers"]}


def chained(*entries: tuple[str, Config]) -> Callable[[Config], None]:
    """Return a change that leaves of a Sequential its input, and puts these layers behind it."""

    def change(config: Config) -> None:
        listed = config["config"]["layers"]
        made = [
            {
                "class_name": name,
                "config": {
                    "name": name.lower(),
                    "trainable": True,
                    "dtype": "mixed_float16",
                    **more,
                },
            }
            for name, more in entries
        ]
        config["config"]["layers"] = [listed[0], *made]

    return change


class MadeContract(RuleContract):
    """
    For a rule whose fault no release's fixture shows: the file that triggers it is made from one.
    """

    paths: ClassVar[tuple[str | None, ...]]

    def made(self, to: Path) -> Path:
        """Make the file."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _make(self, tmp_path: Path) -> None:
        type(self).triggers = {str(self.made(tmp_path)): self.paths}


class TestOutputNotFloat32(RuleContract):
    id = "PT301"
    triggers = {
        "tf2.15/floatx_float16.h5": ("mlp/probabilities",),
        "tf2.3/wrappers_mixed.h5": ("net/out_float32/in_float32",),
        "tf2.3/bidirectional_mixed.h5": ("net/both/forward_lstm",),
        "keras3.15/policy_map_mha.keras": ("net/mha",),
        "keras3.15/string_lookup.keras": ("net/embedding",),
    }
    silent = (
        MIXED,
        "keras3.15/global_mixed_float16.keras",
        "keras3.15/wrappers_mixed.keras",
        "keras3.15/bidirectional_mixed.keras",
        "keras3.15/weights_only.weights.h5",
        "tf2.3/subclassed",
        "tfjs4.22/global_mixed_float16/model.json",
    )

    @THOROUGH
    @pytest.mark.parametrize("release", ["tf2.3", "tf2.15", "tf_keras2.21", "keras3.15"])
    def test_it_agrees_with_what_live_models_gave(self, release: str) -> None:
        """A file has a finding just where the model that it was saved from gave 16 bits."""
        cases = json.loads((FIXTURES / release / "truth.json").read_text(encoding="utf-8"))["cases"]
        for case in cases.values():
            gave = any(
                output["dtype"] in {"float16", "bfloat16"} for output in case.get("outputs") or ()
            )
            for file in case["files"].values() if case.get("outputs") else ():
                path = FIXTURES / release / file.rpartition("/")[2]
                if path.suffix in {".h5", ".keras", ".json"}:
                    assert bool(found(self.id, path)) is gave, path

    def test_a_signature_is_told_where_no_layer_is(self, tmp_path: Path) -> None:
        """A SavedModel without Keras' metadata has signatures alone."""
        copy = tmp_path / "exported"
        shutil.copytree(FIXTURES / "keras3.15/global_mixed_float16.export", copy)
        assert found(self.id, copy) == ()
        saved = protobuf_messages.parse("SavedModel", (copy / "saved_model.pb").read_bytes())
        for signature in saved.meta_graphs[0].signatures:
            for output in signature.value.outputs:
                output.value.dtype = DT_HALF
        (copy / "saved_model.pb").write_bytes(saved.SerializeToString())
        assert {one.detail for one in found(self.id, copy)} == {
            "signature serve",
            "signature serving_default",
        }

    def test_the_remedy_names_all_that_the_layer_is_made_of(self) -> None:
        """An RNN and its cells are set together."""
        (first, *_) = found(self.id, FIXTURES / "tf2.15/rnn_mixed.h5")
        assert first.remedy is not None
        assert first.remedy.fix is Fix.UNSAFE
        assert [path for path, _ in first.remedy.assignments][:2] == [
            "net/rnn_1",
            "net/rnn_1/stacked_rnn_cells",
        ]

    def test_a_checkpoint_in_16_bits_takes_retracing(self) -> None:
        """
        A SavedModel without signatures keeps its checkpoint: migrate refuses what would make other
        variables, unless it traces anew.
        """
        remedies = [
            (one.path, one.remedy.retrace)
            for one in found(self.id, FIXTURES / "tf2.15/per_layer")
            if one.remedy is not None
        ]
        assert remedies == [
            ("mlp/dense_float16", True),
            ("mlp/dense_bfloat16", True),
            ("mlp/dense_mixed_float16", False),
            ("mlp/dense_mixed_bfloat16", False),
        ]


class TestSoftmaxNotFloat32(MadeContract):
    id = "PT302"
    paths = ("net/probabilities",)
    silent = (
        MIXED,
        "tf2.15/floatx_float16.h5",
        "keras3.15/mha_mixed.keras",
        "tf2.3/activation_layer.h5",
    )

    def made(self, to: Path) -> Path:
        """Put a float32 layer behind a float16 softmax."""

        def change(config: Config) -> None:
            config["config"]["name"] = "net"
            layers(config)["probabilities"]["dtype"] = "mixed_float16"
            shown = {"name": "shown", "trainable": True, "dtype": "float32", "activation": "linear"}
            entry = {
                "class_name": "Activation",
                "config": shown,
                "name": "shown",
                "inbound_nodes": [[["probabilities", 0, 0, {}]]],
            }
            config["config"]["layers"].append(entry)
            config["config"]["output_layers"] = [["shown", 0, 0]]

        return edited(to, COMPILED, change)

    def test_a_layer_has_one_of_the_two_findings(self, tmp_path: Path) -> None:
        """What is an output is told as such."""
        assert found("PT301", self.made(tmp_path)) == ()


class TestWrongIn16Bits(RuleContract):
    id = "PT303"
    triggers = {NORMALISED: ("net/group_norm",), "tf2.15/preprocessing.keras": ("net/group_norm",)}
    silent = (
        "keras3.15/preprocessing.keras",
        MIXED,
        "tf2.15/global_mixed_bfloat16.h5",
        "tf2.3/preprocessing.h5",
    )

    def test_the_library_of_a_target_counts(self) -> None:
        """Keras 3 upcasts where tf_keras does not."""
        (one,) = found(
            self.id, FIXTURES / "keras3.15/preprocessing.keras", AuditOptions(targets=("tf2.15",))
        )
        assert "tf_keras" in one.message

    def test_a_class_of_the_same_name_from_elsewhere_is_not_judged(self, tmp_path: Path) -> None:
        """Its module says whose it is."""

        def foreign(config: Config) -> None:
            entry = next(
                entry
                for entry in config["config"]["layers"]
                if entry["class_name"] == "GroupNormalization"
            )
            entry["module"] = "mypackage.layers"

        assert not found(
            self.id, changed_fixtures.keras_zip(tmp_path, "tf2.15/preprocessing.keras", foreign)
        )

    def test_sizes_and_numbers_that_are_not_in_the_config_make_a_note(self, tmp_path: Path) -> None:
        """
        How large an image is where it is averaged, a config does not say; a window's size it does.
        """
        path = edited(
            tmp_path,
            CHAIN,
            chained(("GlobalAveragePooling2D", {}), ("AveragePooling2D", {"pool_size": [64, 64]})),
        )
        assert [one.severity for one in found(self.id, path)] == [Severity.NOTE, Severity.WARNING]

    @pytest.mark.parametrize(
        ("numbers", "severity"),
        [
            ({"mean": 0.5, "variance": 2.0}, None),
            ({"mean": [[0.5, 100.0]], "variance": [[2.0, 1.0]]}, Severity.WARNING),
            ({"mean": 1e6, "variance": 1e12}, None),  # constant-out-of-range
            ({"mean": None, "variance": None}, Severity.NOTE),
        ],
        ids=["fine", "many deviations", "not held", "learnt"],
    )
    def test_a_normalization_is_judged_by_its_numbers(
        self, tmp_path: Path, numbers: Config, severity: Severity | None
    ) -> None:
        """Where its config holds them."""
        path = edited(tmp_path, CHAIN, chained(("Normalization", numbers)))
        assert [one.severity for one in found(self.id, path)] == ([severity] if severity else [])


class TestEpsilonUnderflow(MadeContract):
    id = "PT304"
    paths = ("net/group_norm",)
    silent = (
        NORMALISED,
        "keras3.15/preprocessing.keras",
        COMPILED,
        "tf2.15/global_float16.h5",
        "keras3.15/custom_layer.keras",
    )

    def made(self, to: Path) -> Path:
        """Give a GroupNormalization an epsilon that float16 makes 0."""
        return edited(
            to, NORMALISED, lambda config: layers(config)["group_norm"].update(epsilon=1e-12)
        )

    def test_a_subnormal_one_is_a_note(self, tmp_path: Path) -> None:
        """It still keeps the division from being one by zero."""
        (one,) = found(
            self.id,
            edited(
                tmp_path,
                NORMALISED,
                lambda config: layers(config)["group_norm"].update(epsilon=1e-5),
            ),
        )
        assert one.severity is Severity.NOTE

    def test_what_goes_to_float32_and_back_is_silent(self, tmp_path: Path) -> None:
        """BatchNormalization does in both libraries."""
        assert (
            found(
                self.id,
                edited(
                    tmp_path,
                    NORMALISED,
                    lambda config: layers(config)["batch_norm"].update(epsilon=1e-12),
                ),
            )
            == ()
        )

    def test_a_custom_layer_declares_one(self, tmp_path: Path) -> None:
        """What it does with it is not in the file."""

        def change(config: Config) -> None:
            chained(("Theirs", {"epsilon": 1e-12}))(config)

        (one,) = found(self.id, edited(tmp_path, CHAIN, change))
        assert one.severity is Severity.NOTE
        assert "has an epsilon of 1e-12" in one.message

    def test_an_optimizer_has_its_epsilon_in_the_variables_dtype(self, tmp_path: Path) -> None:
        """Adam's 1e-7 in float16."""
        (one,) = found(
            self.id,
            edited(
                tmp_path, COMPILED, lambda config: layers(config)["dense_a"].update(dtype="float16")
            ),
        )
        assert one.path is None
        assert "Adam" in one.message


class TestWeightsOverflow(MadeContract):
    id = "PT305"
    question = WEIGHTS
    paths = ("mlp/dense_a",)
    silent = (
        MIXED,
        COMPILED,
        "tf2.15/default_float32.h5",
        "keras3.15/global_mixed_float16.keras",
        "tf2.5/global_mixed_float16",
    )

    def made(self, to: Path) -> Path:
        """Store a weight that float16 does not hold."""
        return edited(to, MIXED, values={KERNEL: (70000.0,)})

    def test_what_is_not_rounded_does_not_count(self, tmp_path: Path) -> None:
        """
        A BatchNormalization computes with its variables as they are; and 65519 rounds to 65504.
        """
        assert (
            found(
                self.id, edited(tmp_path, MIXED, values={GAMMA: 70000.0, KERNEL: 65519.0}), WEIGHTS
            )
            == ()
        )

    def test_weights_of_custom_classes_are_not_judged(self, tmp_path: Path) -> None:
        """The file does not say in which dtype a custom class uses its variables."""

        def change(config: Config) -> None:
            next(
                layer
                for layer in config["config"]["layers"]
                if layer["config"]["name"] == "dense_a"
            )["class_name"] = "Mine>Dense"

        assert found(self.id, edited(tmp_path, MIXED, change, {KERNEL: (70000.0,)}), WEIGHTS) == ()

    def test_under_a_pure_policy_values_are_rounded_as_they_are_loaded(
        self, tmp_path: Path
    ) -> None:
        """Those of a BatchNormalization of Keras 2, which keeps float32, are not."""

        def change(config: Config) -> None:
            for layer in layers(config).values():
                layer["dtype"] = "float16"

        (one,) = found(
            self.id, edited(tmp_path, MIXED, change, {KERNEL: (70000.0,), GAMMA: 70000.0}), WEIGHTS
        )
        assert one.path == "mlp/dense_a"

    def test_values_are_read_on_demand_alone(self, tmp_path: Path) -> None:
        """Without --weights nothing is said."""
        assert found(self.id, self.made(tmp_path)) == ()


class TestWeightsFlushed(MadeContract):
    id = "PT306"
    question = WEIGHTS
    paths = ("mlp/dense_a",)
    silent = TestWeightsOverflow.silent

    def made(self, to: Path) -> Path:
        """Store a kernel that float16 makes 0."""
        return edited(to, MIXED, values={KERNEL: 1e-9})

    @pytest.mark.parametrize(
        ("value", "severity"),
        [(1e-9, Severity.WARNING), (1e-6, Severity.NOTE), (1e-4, None), (0.0, None)],
    )
    def test_severity_is_by_what_is_left(
        self, tmp_path: Path, value: float, severity: Severity | None
    ) -> None:
        """Zeros that are exact are no loss."""
        assert [
            one.severity
            for one in found(self.id, edited(tmp_path, MIXED, values={KERNEL: value}), WEIGHTS)
        ] == ([severity] if severity else [])

    def test_a_few_tiny_values_are_nothing(self, tmp_path: Path) -> None:
        """Beside larger ones they add nothing to a sum."""
        assert found(self.id, edited(tmp_path, MIXED, values={KERNEL: (1e-9,)}), WEIGHTS) == ()


class TestNonfiniteWeights(MadeContract):
    id = "PT307"
    question = WEIGHTS
    paths = ("mlp/dense_a",)
    silent = (
        *TestWeightsOverflow.silent,
        "tf2.3/weights_only.weights.h5",
        "keras3.15/adam_autowrap_mf16.keras",
    )

    def made(self, to: Path) -> Path:
        """Store a NaN."""
        return edited(to, MIXED, values={KERNEL: (float("nan"),)})

    def test_a_file_of_weights_alone_is_read_too(self, tmp_path: Path) -> None:
        """What holds no config still holds values."""
        path = tmp_path / "only.weights.h5"
        shutil.copyfile(FIXTURES / "keras3.15/weights_only.weights.h5", path)
        with h5py.File(path, "r+") as file:
            file["layers/dense/vars/0"][...] = np.inf
        (one,) = found(self.id, path, WEIGHTS)
        assert one.path is None
        assert one.detail == "layers/dense/vars/0"

    def test_what_is_not_read_is_told(self) -> None:
        """Quantised values of TensorFlow.js are not."""
        (one,) = found(self.id, FIXTURES / "tfjs4.22/quantized_float16/model.json", WEIGHTS)
        assert one.severity is Severity.NOTE


class TestFloatIds(MadeContract):
    id = "PT308"
    paths = ("sequential/reshape",)
    silent = (
        NORMALISED,
        "tf2.15/string_lookup.h5",
        "keras3.15/string_lookup.keras",
        "keras3.15/text_vectorization.keras",
    )

    def made(self, to: Path) -> Path:
        """Reshape ids on their way to an Embedding."""
        return self._embedding(to, 30000)

    def test_an_input_of_16_bits_rounds_them_too(self, tmp_path: Path) -> None:
        """It is what a Keras with floatx float16 makes of an input whose dtype is not said."""

        def change(config: Config) -> None:
            config["config"]["layers"][0]["config"]["dtype"] = "float16"
            chained(("Embedding", {"input_dim": 30000, "output_dim": 2}))(config)

        (one,) = found(self.id, edited(tmp_path, CHAIN, change))
        assert one.path == "stack/dense_a_input"
        assert one.remedy is not None

    def test_few_ids_are_told_apart(self, tmp_path: Path) -> None:
        """float16 holds the integers up to 2048."""
        assert found(self.id, self._embedding(tmp_path, 2048)) == ()

    def _embedding(self, to: Path, rows: int) -> Path:
        def change(config: Config) -> None:
            config["config"]["name"] = "sequential"
            chained(
                ("Reshape", {"target_shape": [6, 1]}),
                ("Embedding", {"input_dim": rows, "output_dim": 2}),
            )(config)

        return edited(to, CHAIN, change)


class TestHalfVariables(MadeContract):
    id = "PT309"
    paths = (None,)
    silent = (
        COMPILED,
        "tf2.15/global_float16.h5",
        "keras3.15/global_bfloat16.keras",
        "keras3.15/adam_autowrap_mf16.keras",
    )

    def made(self, to: Path) -> Path:
        """Store the policy float16 in a model that was compiled."""
        return edited(
            to, COMPILED, lambda config: layers(config)["dense_a"].update(dtype="float16")
        )

    def test_the_mixed_policy_fixes_it(self, tmp_path: Path) -> None:
        """It computes in the same dtype."""
        (one,) = found(self.id, self.made(tmp_path))
        assert one.remedy == Remedy(fix=Fix.UNSAFE, to="mixed_float16")

    def test_a_layer_apart_from_the_others_is_set_by_itself(self, tmp_path: Path) -> None:
        """The model's policy is another."""
        path = edited(
            tmp_path,
            "tf2.3/exp_per_layer.h5",
            lambda config: layers(config)["dense_none"].update(dtype="float16"),
        )
        (one,) = found(self.id, path)
        assert one.remedy == Remedy(
            fix=Fix.UNSAFE, assignments=(("mlp/dense_none", "mixed_float16"),)
        )


class TestNoKernel(MadeContract):
    id = "PT310"
    question = ON_CPU
    paths = ("sequential/maxpooling3d",)
    silent = (
        MIXED,
        NORMALISED,
        "tf2.15/rnn.h5",
        "keras3.15/global_mixed_float16.export",
        "tf2.5/global_mixed_float16",
    )

    def made(self, to: Path) -> Path:
        """Pool in float16."""

        def change(config: Config) -> None:
            config["config"]["name"] = "sequential"
            chained(("MaxPooling3D", {"pool_size": [2, 2, 2]}))(config)

        return edited(to, CHAIN, change)

    def test_a_device_has_to_be_named(self, tmp_path: Path) -> None:
        """The GPU has that kernel."""
        path = self.made(tmp_path)
        assert found(self.id, path) == ()
        assert found(self.id, path, ON_GPU) == ()

    def test_what_falls_back_on_the_cpu_is_a_warning(self, tmp_path: Path) -> None:
        """Softplus has no bfloat16 kernel on GPUs."""
        path = edited(
            tmp_path,
            CHAIN,
            chained(("Dense", {"units": 2, "activation": "softplus", "dtype": "mixed_bfloat16"})),
        )
        (one,) = found(self.id, path, ON_GPU)
        assert one.severity is Severity.WARNING
        assert found(self.id, path, ON_CPU) == ()

    @pytest.mark.parametrize("library", ["tf_keras2.21", "keras3.15"])
    def test_the_registry_agrees_with_what_failed_on_the_cpu(self, library: str) -> None:
        """
        The cases that found no device when they were called are those whose ops have no kernel.
        """
        failed = {
            (case, policy, facts["message"].rpartition(" ")[2])
            for case, policies in dtype_support.measurements()[library].items()
            for policy, facts in policies.items()
            if policy not in {"float32", "integers"}
            and "Could not find device" in facts.get("message", "")
            and facts.get("onednn") != "ok"
        }
        data = json.loads(
            (FIXTURES.parent / "policytool/releases/data/kernels.json").read_text(encoding="utf-8")
        )
        lacking = {
            (case, policy, op)
            for case, policies in data["layers"][library].items()
            for policy, devices in policies.items()
            for op in devices.get("cpu", ())
        }
        assert lacking == failed
        assert failed

    @pytest.mark.parametrize(
        ("op", "device", "severity"),
        [
            ("MaxPool3D", Device.CPU, Severity.ERROR),
            ("MaxPool3D", Device.GPU, None),
            ("LRN", Device.GPU, Severity.WARNING),
            ("Zeta", Device.GPU, Severity.ERROR),
        ],
    )
    def test_a_graph_is_judged_by_its_ops(
        self, op: str, device: Device, severity: Severity | None
    ) -> None:
        """What a signature computes needs no config to be judged."""
        document = format_detection.document(
            FIXTURES / "keras3.15/global_mixed_float16.export", "exported"
        )
        ops = (
            (GraphOp(scope=("net",), op=op, dtypes=("float16",)), 2),
            (GraphOp(scope=("net",), op="MatMul", dtypes=("float16",)), 1),
        )
        traces = tuple(
            Trace(entry=name, signature=True, ops=ops, reads={})
            for name in ("serve", "serving_default")
        )
        case = RuleInput(
            model=reading.model_of(document),
            document=replace(document, traces=traces),
            loaded=None,
        )
        findings = list(self.rule.check(case, AuditOptions(device=device)))
        assert [one.severity for one in findings] == ([severity] if severity else [])
        assert all("2 times" in one.message for one in findings)

    def test_ops_by_themselves(self) -> None:
        """A graph's ops are judged by name."""
        assert dtype_support.lacks("MaxPool3DGradGrad", "float16", "cpu")
        assert not dtype_support.lacks("MatMul", "float16", "cpu")
        assert not dtype_support.lacks("MatMul", "bfloat16", "gpu")
        assert dtype_support.lacks("LRN", "float16", "gpu")


class TestHalfOnCpu(RuleContract):
    id = "PT311"
    question = ON_CPU
    triggers = {
        MIXED: (None,),
        "keras3.15/global_float16.keras": (None,),
        "keras3.15/global_mixed_float16.export": (None,),
    }
    silent = (
        "tf2.15/default_float32.h5",
        "tf2.15/global_mixed_bfloat16.h5",
        "keras3.15/weights_only.weights.h5",
    )

    def test_it_is_asked_about_a_cpu(self) -> None:
        """Without a device, or with a GPU, nothing is said."""
        assert found(self.id, FIXTURES / MIXED) == found(self.id, FIXTURES / MIXED, ON_GPU) == ()

    def test_layers_apart_from_the_others_are_set_by_themselves(self) -> None:
        """``--to`` changes those that follow the model's policy, and none of them does."""
        (one,) = found(self.id, FIXTURES / "keras3.15/per_layer.keras", ON_CPU)
        assert one.remedy == Remedy(
            fix=Fix.UNSAFE,
            assignments=(("mlp/dense_float16", "float32"), ("mlp/dense_mixed_float16", "float32")),
        )
        (inner,) = found(
            self.id, FIXTURES / "keras3.0/wrappers_mixed.json", ON_CPU
        )  # which computes as its TimeDistributed does
        assert inner.remedy == Remedy(fix=Fix.UNSAFE, assignments=(("net/out_mixed", "float32"),))
        (all_alike,) = found(self.id, FIXTURES / MIXED, ON_CPU)
        assert all_alike.remedy == Remedy(fix=Fix.UNSAFE, to="float32")


class TestConstantOutOfRange(MadeContract):
    id = "PT312"
    paths = ("net/rescaling",)
    silent = (NORMALISED, "keras3.15/preprocessing.keras", "tf2.3/preprocessing.h5")

    def made(self, to: Path) -> Path:
        """Scale by a number that float16 does not hold."""
        return edited(to, NORMALISED, lambda config: layers(config)["rescaling"].update(scale=1e6))

    @pytest.mark.parametrize(
        ("class_name", "config", "detail"),
        [
            ("Masking", {"mask_value": -1e9}, "mask_value"),
            ("Masking", {"mask_value": 1e-9}, "mask_value"),
            ("Rescaling", {"scale": 1.0, "offset": 1e-9}, None),
            ("Rescaling", {"scale": [1.0, 1e-9]}, "scale"),
            ("ReLU", {"max_value": 1e6}, None),
            ("ReLU", {"negative_slope": 1e6}, "negative_slope"),
            ("LeakyReLU", {"alpha": 65519.0}, None),
            ("Masking", {"mask_value": 0.0}, None),
        ],
    )
    def test_only_keys_count_that_change_what_comes_out(
        self, tmp_path: Path, class_name: str, config: Config, detail: str | None
    ) -> None:
        """
        An offset that becomes 0 was next to nothing; a bound that becomes infinite bounds nothing.
        """
        for dtype in ("mixed_float16", "mixed_bfloat16", "float32"):
            path = edited(tmp_path, CHAIN, chained((class_name, {**config, "dtype": dtype})))
            assert [one.detail for one in found(self.id, path)] == (
                [detail] if detail and dtype == "mixed_float16" else []
            )


@pytest.mark.parametrize("name", ["PT305", "PT306", "PT307", "PT310", "PT311"])
def test_a_rule_without_what_it_needs_says_nothing(name: str) -> None:
    """Values that were not read, and a device that was not named, are no reason for a finding."""
    document = format_detection.document(FIXTURES / MIXED, MIXED)
    loaded = reading.load_model(document)
    case = RuleInput(model=loaded.model, document=document, loaded=loaded)
    assert not list(BY_ID[name].check(case, AuditOptions()))


@pytest.mark.parametrize(
    ("config", "innermost"),
    [
        (None, None),
        ("adam", ("Adam", {})),
        ({"class_name": "Adam", "config": {"epsilon": 1e-7}}, ("Adam", {"epsilon": 1e-7})),
        (
            {
                "class_name": "LossScaleOptimizer",
                "config": {"inner_optimizer": {"class_name": "SGD", "config": {}}},
            },
            ("SGD", {}),
        ),
        (
            {"class_name": "Custom>LossScaleOptimizerV3", "config": {"optimizer": "rmsprop"}},
            ("RMSprop", {}),
        ),
    ],
)
def test_the_optimizer_in_its_wrappers(config: Any, innermost: tuple[str, Config] | None) -> None:
    """The loss-scaling wrapper has no epsilon."""
    assert optimizer_config.innermost(config) == innermost


def test_an_optimizer_that_no_release_writes_has_no_epsilon(tmp_path: Path) -> None:
    """Wrappers without end are refused where they are read, and are no reason for a finding."""
    endless: Config = {"class_name": "Adam", "config": {}}
    for _ in range(20):
        endless = {"class_name": "LossScaleOptimizer", "config": {"optimizer": endless}}
    with pytest.raises(SpellingError):
        optimizer_config.innermost(endless)
    path = edited(
        tmp_path, COMPILED, lambda config: layers(config)["dense_a"].update(dtype="float16")
    )
    with h5py.File(path, "r+") as file:
        file.attrs["training_config"] = json.dumps({"optimizer_config": endless})
    assert found("PT304", path) == ()


def test_constants_are_keys_of_keras_own_classes() -> None:
    """The table of constants names classes that are there."""
    cast = {name for name in known_classes() if layer_facts(name).cast_arguments}
    assert {"Rescaling", "Masking"} <= cast


@pytest.mark.parametrize(
    ("dtype", "narrow"),
    [("float32", "float16"), ("float64", "bfloat16"), ("bfloat16", "float16"), ("float32", None)],
)
def test_counted_is_what_cast_counts_and_more(dtype: str, narrow: str | None) -> None:
    """Zeros and what is not finite are counted beside what a cast does."""
    array = np.array([0.0, 1.0, 1e-9, 1e-5, 7e4, np.nan, np.inf, -0.0]).astype(
        casting.DTYPES[dtype]
    )
    counts = casting.count(array, dtype, narrow)
    assert (counts.zero, counts.nonfinite, counts.values) == (2, 2, 8)
    if narrow:
        _, expected = casting.cast(array, dtype, narrow)
        assert (counts.overflow, counts.flushed, counts.subnormal) == (
            expected.overflow,
            expected.flushed,
            expected.subnormal,
        )


def test_variables_that_are_not_rounded() -> None:
    """
    BatchNormalization's are not in either library, a Dense's are; a number stands for any variable.
    """
    for library in ("tf_keras2.21", "keras3.15"):
        assert dtype_support.computes_as_stored(library, "BatchNormalization", "gamma")
        assert dtype_support.computes_as_stored(library, "BatchNormalization", "0")
        assert not dtype_support.computes_as_stored(library, "Dense", "kernel")
        assert not dtype_support.computes_as_stored(library, "Dense", "0")


def test_a_damaged_file_is_a_failure_of_its_own(tmp_path: Path) -> None:
    """Reading values does not hide what is wrong with a file."""
    path = tmp_path / "cut.h5"
    path.write_bytes((FIXTURES / MIXED).read_bytes()[:3000])
    one = auditing.attempt(Input(path=path, exact=True), WEIGHTS)
    assert isinstance(one, Failure)
