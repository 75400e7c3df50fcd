"""Rules about what a file does to who loads it."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

from policytool.formats import format_detection
from policytool.model import hazards, reading, untrusted_code
from policytool.releases import data
from policytool.releases import symbols as _table
from policytool.rules.base import Severity
from policytool.support.text import jsontext, protobuf_messages
from tests.contracts.made_rule_contract import MadeRuleContract
from tests.contracts.rule_contract import RuleContract, found
from tests.helpers import changed_fixtures
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.polyglots import HARMLESS_H5, hostile_archive

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.rules.base import Finding

    Config = dict[str, Any]

KERAS3 = "keras3.15/global_mixed_float16.keras"
COMPILED = "keras3.15/adam_autowrap_mf16.keras"
OPS = "tf2.15/tf_op_layers.h5"
WORDS = "keras3.15/string_lookup.keras"
SAVED = "tf2.15/global_mixed_float16"
PAYLOAD = {
    "class_name": "__lambda__",
    "config": {"code": "4wEAAAA=", "defaults": None, "closure": None},
}
LAMBDA = {
    "class_name": "Lambda",
    "config": {
        "name": "hidden",
        "trainable": True,
        "function": ["4wEAAAA=", None, None],
        "function_type": "lambda",
    },
}

GADGETS = (
    *(
        "subprocess:Popen",
        "builtins:exec",
        "importlib:import_module",
        "runpy:run_path",
        "ctypes:CDLL",
        "pickle:loads",
        "joblib:load",
    ),
    *(
        "keras.utils:get_file",
        "keras:utils.get_file",
        "keras.src.utils.file_utils:get_file",
        "tensorflow.keras.utils:get_file",
    ),
    *(
        "keras.config:enable_unsafe_deserialization",
        "keras.saving:load_model",
        "keras.src.saving.saving_lib:anything",
        "keras.src.utils.python_utils:func_load",
    ),
    *(
        "tensorflow.python.ops.gen_io_ops:read_file",
        "tensorflow.io:write_file",
        "tensorflow:py_function",
        "tensorflow:load_library",
    ),
    "tensorflow.raw_ops:WriteFile",
    *(
        "keras.src.backend.common.global_state:set_global_attribute",
        "keras.config:set_floatx",
        "keras.src.utils.file_utils:urlretrieve",
    ),
    *(
        "keras.visualization:plot_image_gallery",
        "keras.utils:plot_model",
        "keras.datasets.mnist:load_data",
        "keras:visualization.plot_image_gallery",
    ),
    "tensorflow.python.keras.engine.sequential:Sequential",
)
HARMLESS = (
    *(
        "builtins:relu",
        "builtins:my_function",
        "builtins:type",
        "keras.activations:relu",
        "keras.src.layers.core.dense:Dense",
    ),
    *(
        "tensorflow.python.keras.activations:relu",
        "keras.src.distribution.distribution_lib:LayoutMap",
        "keras.ops:softmax",
    ),
    *(
        "keras.utils:normalize",
        ":relu",
        "tensorflow.nn:relu",
        "tensorflow.raw_ops:MatMul",
        "tensorflow.io:decode_jpeg",
    ),
    *(
        "tensorflow.python.ops.nn_ops:softmax_v2",
        "mypackage.layers:Scale",
        "keras_hub.src.models.backbone:Backbone",
        "test.layers:Scale",
    ),
)
REACHING = (
    *(
        "io.read_file",
        "io.gfile.remove",
        "compat.v1.io.write_file",
        "numpy_function",
        "raw_ops.PyFunc",
        "load_op_library",
        "keras.utils.get_file",
    ),
    "saved_model.load",
)
COMPUTING = ("io.decode_jpeg", "raw_ops.MatMul", "nn.softmax", "math.add", "image.resize")


def placed(folder: Path, name: str, pointer: str, value: object) -> Path:
    """Write a ``.keras`` fixture with a value put somewhere into its config."""

    def put(config: Config) -> None:
        holder, key = jsontext.place(config, pointer)
        if isinstance(holder, list) and key == len(holder):
            holder.append(value)
        else:
            holder[key] = value

    return changed_fixtures.keras_zip(folder, name, put)


def told(path: Path) -> list[str]:
    """Return what is refused where a library would have to load the file."""
    return [
        reason.what
        for reason in untrusted_code.reasons_not_to_run(
            reading.load_model(format_detection.document(path, "model"))
        )
        if not reason.is_custom
    ]


class TestExecutesCode(RuleContract):
    id = "PT601"
    triggers = {
        **dict.fromkeys(
            (
                "keras2.2.4/lambda.json",
                "keras2.3.1/lambda.h5",
                "tf2.3/lambda.h5",
                "tf2.15/lambda.keras",
                "keras3.15/lambda.keras",
            ),
            ("net/double",),
        ),
        "tf1.15/wrappers.yaml": (None,),
    }
    silent = (
        KERAS3,
        "keras3.15/custom_layer.keras",
        "tf2.15/custom_layer",
        OPS,
        "tf2.0/exp_per_layer.yaml",
        "tf2.15/string_lookup",
    )

    @pytest.mark.parametrize(
        ("pointer", "path"),
        [
            ("/config/layers/1/config/kernel_initializer", "mlp/dense_a"),
            ("/config/layers/1/config/activation", "mlp/dense_a"),
            ("/config/layers/1/config/anything", "mlp/dense_a"),
            ("/compile_config/loss", "mlp"),
            ("/compile_config/metrics", "mlp"),
            ("/compile_config/optimizer/config/learning_rate", "mlp"),
        ],
    )
    def test_a_payload_counts_wherever_it_stands(
        self, pointer: str, path: str, tmp_path: Path
    ) -> None:
        """In a layer, and in what the model was compiled with."""
        made = placed(
            tmp_path, COMPILED, pointer, [PAYLOAD] if pointer.endswith("metrics") else PAYLOAD
        )
        assert [finding.path for finding in found(self.id, made)] == [path]
        assert told(made)

    @pytest.mark.parametrize("slot", ["layer", "cell"])
    def test_a_lambda_is_found_in_wrappers(self, slot: str, tmp_path: Path) -> None:
        """Its path leads through what holds it."""
        wrapper = {
            "class_name": "TimeDistributed" if slot == "layer" else "RNN",
            "config": {"name": "outer", "trainable": True, slot: LAMBDA},
        }
        made = placed(tmp_path, KERAS3, "/config/layers/2", wrapper)
        assert [finding.path for finding in found(self.id, made)] == ["mlp/outer/hidden"]

    def test_a_training_config_of_its_own_is_read(self, tmp_path: Path) -> None:
        """HDF5 keeps it beside the model's."""
        made = changed_fixtures.h5(
            tmp_path,
            "tf2.15/adam_autowrap_mf16.h5",
            lambda config: config.update(loss=PAYLOAD),
            attribute="training_config",
        )
        (finding,) = found(self.id, made)
        assert (finding.path, finding.address and finding.address.part) == (None, "training_config")

    def test_yaml_calls_are_a_note(self) -> None:
        """TensorFlow wrote them itself, and they hold a value each."""
        (finding,) = found(self.id, FIXTURES / "tf1.15/wrappers.yaml")
        assert finding.severity is Severity.NOTE

    def test_a_lambda_that_names_a_function_holds_no_code(self, tmp_path: Path) -> None:
        """The function has to be at hand; that is told as a note."""

        def named(config: Config) -> None:
            changed_fixtures.layer(config, "double").update(
                function="double", function_type="function"
            )

        made = changed_fixtures.h5(tmp_path, "tf2.15/lambda.h5", named)
        assert not found(self.id, made)
        assert [finding.path for finding in found("PT603", made)] == ["net/double"]
        assert told(made) == ["net/double is a Lambda that calls the Python function double"]


def _activation(folder: Path, module: str, name: str, *, kind: str = "function") -> Path:
    value = (
        {"module": module, "class_name": kind, "config": name, "registered_name": name}
        if kind == "function"
        else {"module": module, "class_name": name}
    )
    return placed(folder, KERAS3, "/config/layers/2/config/activation", {"config": {}, **value})


class TestNamesForeignCode(MadeRuleContract):
    id = "PT602"
    paths = ("mlp/dense_a",)
    silent = (
        KERAS3,
        COMPILED,
        OPS,
        "keras3.15/lambda.keras",
        "keras3.15/custom_layer.keras",
        "keras3.15/keras_ops.keras",
        "tf2.12/adam_autowrap_mf16.h5",
    )

    def make(self, folder: Path) -> Path:
        return _activation(folder, "os", "system")

    @THOROUGH
    @pytest.mark.parametrize("named", GADGETS)
    def test_gadgets_are_named(self, named: str, tmp_path: Path) -> None:
        """
        Each is what a published attack named, or does the same; Keras 3.0, 3.3 and 3.6 look most of
        them up, 3.12 and 3.15 refuse.
        """
        module, name = named.split(":")
        for kind in ("function", "class"):
            made = _activation(tmp_path, module, name, kind=kind)
            (finding,) = found(self.id, made)
            assert (
                finding.message
                == f"mlp/dense_a refers to {module}.{name}, which does not belong in a model"
            )
            assert told(made) == [finding.message]
            assert not found("PT603", made)

    @pytest.mark.parametrize("named", HARMLESS)
    def test_other_code_is_not(self, named: str, tmp_path: Path) -> None:
        """
        Packages of one's own are a note, what Keras writes itself is nothing, and other functions
        of Keras' are a warning.
        """
        made = _activation(tmp_path, *named.split(":"))
        assert not found(self.id, made)
        assert [finding.message for finding in found("PT612", made)] == told(made)

    def test_all_that_keras_refuses_is_known(self) -> None:
        """Keras' own list, in any of its modules."""
        assert len(data.read("hazards")["refused"]) > 20
        for full in data.read("hazards")["refused"]:
            module, _, name = full.rpartition(".")
            assert _table.is_harmful(module, name)
            assert _table.is_harmful("tf_keras.src.somewhere", name)

    def test_a_lambda_can_name_them_too(self, tmp_path: Path) -> None:
        """Keras 2 looks the function up in the module, if something has loaded that."""

        def named(config: Config) -> None:
            changed_fixtures.layer(config, "double").update(
                function="Popen", function_type="function", module="subprocess"
            )

        (finding,) = found(self.id, changed_fixtures.h5(tmp_path, "tf2.15/lambda.h5", named))
        assert finding.message == (
            "net/double calls subprocess.Popen, which does not belong in a model"
        )

    @pytest.mark.parametrize("function", [*REACHING, *COMPUTING])
    def test_functions_of_tensorflow(self, function: str, tmp_path: Path) -> None:
        """Keras 2 wraps them as layers by their public names."""

        def rename(config: Config) -> None:
            entry = next(
                entry for entry in config["config"]["layers"] if entry["class_name"] == "TFOpLambda"
            )
            entry["config"]["function"] = function

        assert bool(found(self.id, changed_fixtures.h5(tmp_path, OPS, rename))) == (
            function in REACHING
        )


class TestCustomCode(RuleContract):
    id = "PT603"
    triggers = {
        "keras2.3.1/custom_layer.h5": ("net/scale",),
        "keras2.3.1/custom_unregistered.h5": ("net/doubled",),
        "tf2.15/custom_layer.h5": (None, "net/holder", "net/scale"),
        "tf2.15/custom_layer": (None, "net/holder", "net/scale"),
        "keras3.15/custom_layer.keras": (None, "net/holder", "net/scale"),
        "keras3.15/subclassed.keras": ("net",),
    }
    silent = (
        KERAS3,
        OPS,
        "keras3.15/lambda.keras",
        "tf2.12/adam_autowrap_mf16.h5",
        "keras3.15/keras_ops.keras",
        "tf2.15/lso_fixed128.keras",
        "keras3.15/int8.h5",
    )

    def test_objects_in_the_training_config_count(self, tmp_path: Path) -> None:
        """A loss of one's own has to be at hand as well, if the model is to be compiled."""
        loss = {
            "module": "mypackage.losses",
            "class_name": "Focal",
            "config": {},
            "registered_name": "mypackage>Focal",
        }
        made = changed_fixtures.h5(
            tmp_path,
            "tf2.15/adam_autowrap_mf16.h5",
            lambda config: config.update(loss=loss),
            attribute="training_config",
        )
        (finding,) = found(self.id, made)
        assert finding.message.startswith("the training configuration needs mypackage>Focal")


class TestLoadsAnotherFile(MadeRuleContract):
    id = "PT604"
    paths = ("net/lookup",)
    silent = (
        WORDS,
        "tf2.15/string_lookup",
        "tf2.15/integer_lookup.h5",
        "keras3.15/integer_lookup.keras",
        "keras3.0/text_vectorization.json",
        KERAS3,
    )

    def make(self, folder: Path) -> Path:
        def point(config: Config) -> None:
            entry = next(
                entry
                for entry in config["config"]["layers"]
                if entry["class_name"] == "StringLookup"
            )
            entry["config"]["vocabulary"] = "/etc/passwd"

        return changed_fixtures.keras_zip(folder, WORDS, point)

    @pytest.mark.parametrize(
        ("class_name", "config", "part"),
        [
            (
                "TFSMLayer",
                {"filepath": "/srv/evil", "call_endpoint": "serve"},
                "loads the SavedModel at /srv/evil",
            ),
            ("TorchModuleWrapper", {"module": "gAJj...", "output_shape": None}, "unpickled"),
            (
                "KerasLayer",
                {"handle": "https://tfhub.dev/x/1"},
                "loads https://tfhub.dev/x/1 from TensorFlow Hub",
            ),
            (
                "TextVectorization",
                {"vocabulary": "https://example.org/words"},
                "reads its vocabulary from https://example.org/words",
            ),
        ],
    )
    def test_each_class_is_told(
        self, class_name: str, config: Config, part: str, tmp_path: Path
    ) -> None:
        """With what it would open."""
        made = placed(
            tmp_path,
            KERAS3,
            "/config/layers/2",
            {"class_name": class_name, "config": {"name": "x", "trainable": True, **config}},
        )
        (finding,) = found(self.id, made)
        assert part in finding.message
        assert told(made) == [finding.message]

    def test_a_long_name_is_cut(self, tmp_path: Path) -> None:
        """Nobody reads a message of a megabyte."""
        layer = {
            "class_name": "TFSMLayer",
            "config": {"name": "x", "trainable": True, "filepath": "/" + "x" * 10**6},
        }
        (finding,) = found(self.id, placed(tmp_path, KERAS3, "/config/layers/2", layer))
        assert len(finding.message) < 300


class TestGraphTouchesFiles(MadeRuleContract):
    id = "PT605"
    paths = (None,)
    silent = (
        SAVED,
        "tf2.15/string_lookup",
        "tf2.3/string_lookup",
        "keras3.15/loops.export",
        "tf1.15/default_float32",
        KERAS3,
    )

    def make(self, folder: Path) -> Path:
        return changed_fixtures.with_op(folder, SAVED, "WriteFile")

    @pytest.mark.parametrize(
        "op",
        [
            "ReadFile",
            "WriteFile",
            "MatchingFiles",
            "PyFunc",
            "PyFuncStateless",
            "EagerPyFunc",
            "TextLineDataset",
            "SaveDataset",
        ],
    )
    def test_functions_that_nobody_calls_count(self, op: str, tmp_path: Path) -> None:
        """A loader may be asked for any of them."""
        (finding,) = found(self.id, changed_fixtures.with_op(tmp_path, SAVED, op))
        assert (finding.detail, finding.severity) == (op, Severity.ERROR)
        assert told(tmp_path / "saved") == [finding.message]

    @pytest.mark.parametrize("name", ["keras3.15/loops.export", "tf1.15/default_float32"])
    def test_models_without_metadata_count(self, name: str, tmp_path: Path) -> None:
        """A graph alone is a program too."""
        assert [
            finding.detail
            for finding in found(self.id, changed_fixtures.with_op(tmp_path, name, "ReadFile"))
        ] == ["ReadFile"]

    def test_all_graphs_count(self, tmp_path: Path) -> None:
        """Also one that is not reported, because it is not for serving."""
        source = changed_fixtures.with_op(tmp_path, SAVED, "WriteFile")
        other = format_detection.document(source, "x")

        def swap(message: Any) -> None:
            message.meta_graphs.append(message.meta_graphs[0])
            harmful = protobuf_messages.parse(
                "SavedModel", (source / "saved_model.pb").read_bytes()
            )
            message.meta_graphs[1].graph_def[:] = harmful.meta_graphs[0].graph_def
            message.meta_graphs[1].meta_info.ClearField("tags")

        (tmp_path / "two").mkdir()
        made = changed_fixtures.saved_model(tmp_path / "two", SAVED, swap)
        assert "WriteFile" in other.ops
        assert [finding.detail for finding in found(self.id, made)] == ["WriteFile"]
        assert [finding.rule for finding in found("PT609", made)] == ["PT609"]

    def test_printing_is_a_note(self, tmp_path: Path) -> None:
        """It mostly goes to the terminal."""
        (finding,) = found(self.id, changed_fixtures.with_op(tmp_path, SAVED, "PrintV2"))
        assert finding.severity is Severity.NOTE
        assert not told(tmp_path / "saved")

    def test_what_tensorflow_scans_for_is_known(self) -> None:
        """The list of its own scanner is part of ours."""
        assert all(hazards.op(name) is not None for name in data.read("hazards")["scanned"])

    def test_ops_that_open_files_by_other_means_count(self, tmp_path: Path) -> None:
        """Readers get their names from queues, and a data set can hold a graph as text."""
        for number, op in enumerate(("WholeFileReaderV2", "DatasetFromGraph")):
            (tmp_path / str(number)).mkdir()
            (finding,) = found(self.id, changed_fixtures.with_op(tmp_path / str(number), SAVED, op))
            assert (finding.detail, finding.severity) == (op, Severity.ERROR)

    def test_a_saver_with_a_path_of_its_own_counts(self, tmp_path: Path) -> None:
        """
        In the place where TensorFlow puts it, it is none; ``tests/model/test_allow_list.py`` has
        more of them.
        """
        (finding,) = found(self.id, changed_fixtures.with_op(tmp_path, SAVED, "SaveV2"))
        assert finding.severity is Severity.ERROR
        assert told(tmp_path / "saved") == [finding.message]


class TestUnknownSymbol(MadeRuleContract):
    id = "PT612"
    paths = ("model/cast_op",)
    silent = (
        KERAS3,
        COMPILED,
        OPS,
        SAVED,
        WORDS,
        "keras3.15/keras_ops.keras",
        "keras3.15/loops.export",
        "tf2.15/custom_layer.h5",
    )

    def make(self, folder: Path) -> Path:
        def rename(config: Config) -> None:
            entry = next(
                entry for entry in config["config"]["layers"] if entry["class_name"] == "TFOpLambda"
            )
            entry["config"]["function"] = "map_fn"
            type(self).paths = (
                f"{config['config']['name']}/{entry['config']['name'].replace('/', '~1')}",
            )

        return changed_fixtures.h5(folder, OPS, rename)

    def test_it_is_a_warning_and_no_error(self, tmp_path: Path) -> None:
        """It may be harmless: nobody reviewed it."""
        (finding,) = found(self.id, self.make(tmp_path))
        assert finding.severity is Severity.WARNING
        assert "calls tensorflow.map_fn" in finding.message
        assert not found("PT602", tmp_path / "model.h5")

    def test_ops_on_no_list_count(self, tmp_path: Path) -> None:
        """What is known to do harm is PT605 alone."""
        (tmp_path / "other").mkdir()
        assert [
            finding.detail
            for finding in found(
                self.id, changed_fixtures.with_op(tmp_path, SAVED, "XlaCallModule")
            )
        ] == ["XlaCallModule"]
        assert not found(self.id, changed_fixtures.with_op(tmp_path / "other", SAVED, "ReadFile"))


class TestDataOutside(MadeRuleContract):
    id = "PT606"
    paths = (None,) * 4
    silent = (
        "keras3.15/global_mixed_float16.keras",
        "tf2.15/global_mixed_float16.h5",
        "tfjs4.22/quantized_uint8/model.json",
    )

    def make(self, folder: Path) -> Path:
        path = changed_fixtures.h5(folder, "tf2.15/global_mixed_float16.h5", lambda _: None)
        with h5py.File(path, "a") as file:
            layer = file["model_weights/dense_a"]
            layer["soft"] = h5py.SoftLink("/nowhere")
            layer["outside"] = h5py.ExternalLink("canary.h5", "/x")
            layer.create_dataset("elsewhere", (4,), "float32", external=[("canary.bin", 0, 16)])
            layout = h5py.VirtualLayout((4,), "float32")
            layout[:] = h5py.VirtualSource("canary.h5", "x", (4,))
            layer.create_virtual_dataset("virtual", layout)
        return path

    def test_a_soft_link_is_a_warning(self, tmp_path: Path) -> None:
        """It leads nowhere but into the same file."""
        (tmp_path / "again").mkdir()
        severities = {
            finding.detail.partition(":")[0]: finding.severity
            for finding in found(self.id, self.make(tmp_path / "again"))
        }
        assert severities.pop("soft-link") is Severity.WARNING
        assert set(severities.values()) == {Severity.ERROR}
        assert len(severities) == 3


class TestDoubledOrEscapingMember(MadeRuleContract):
    id = "PT607"
    paths = (None, None, None)
    silent = (
        KERAS3,
        "tf2.15/global_mixed_float16.keras",
        "keras3.15/string_lookup.keras",
        "tf1.15/wrappers.yaml",
    )

    def make(self, folder: Path) -> Path:
        path = changed_fixtures.keras_zip(folder, KERAS3, lambda _: None)
        with zipfile.ZipFile(path, "a") as archive:
            text = archive.read("config.json").decode()
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("config.json", text.replace('{"', '{"module": "os", "', 1))
            archive.writestr("../../evil.txt", b"x")
        return path


class TestPathInName(MadeRuleContract):
    id = "PT608"
    paths = ("mlp/dense_a",)
    silent = (KERAS3, "tf2.15/tf_op_layers.h5", "keras3.15/string_lookup.keras", "tf2.15/loops")

    def make(self, folder: Path) -> Path:
        return self._named(folder, "../../evil")

    def _named(self, folder: Path, name: str) -> Path:
        return placed(folder, KERAS3, "/config/layers/2/config/name", name)

    @pytest.mark.parametrize(
        "name", ["/etc/cron.d/x", "..\\x", "a/../../x", "C:\\x", "file://x", "..", "a\0b"]
    )
    def test_names_that_lead_out(self, name: str, tmp_path: Path) -> None:
        """Whatever a system takes for the way up, or for a place of its own."""
        assert len(found(self.id, self._named(tmp_path, name))) == 1

    def test_the_name_in_the_graph_counts_too(self, tmp_path: Path) -> None:
        """
        A layer is built by the name in its config, and placed in the graph by the one beside it.
        """
        assert (
            len(found(self.id, placed(tmp_path, KERAS3, "/config/layers/2/name", "../../evil")))
            == 1
        )

    @pytest.mark.parametrize(
        "name",
        ["conv1/bn", "conv5_block32_concat", "a..b", "...", "tf.nn.softmax", "x:0", "version 1.2"],
    )
    def test_ordinary_names(self, name: str, tmp_path: Path) -> None:
        """Slashes and dots alone lead nowhere."""
        assert not found(self.id, self._named(tmp_path, name))


class TestUnreadLimits(MadeRuleContract):
    id = "PT609"
    paths = (None,)
    silent = (SAVED, "tf1.15/default_float32", "keras3.15/loops.export")

    def make(self, folder: Path) -> Path:
        return changed_fixtures.saved_model(
            folder, SAVED, lambda message: message.meta_graphs.append(message.meta_graphs[0])
        )


class TestClaimsMoreThanItStores(MadeRuleContract):
    id = "PT610"
    paths = (None,)
    silent = (KERAS3, "tf2.15/global_mixed_float16.h5", "keras3.15/int8.h5")

    def make(self, folder: Path) -> Path:
        return self._claiming(folder, (200_000, 200_000), chunks=(1000, 1000))

    def _claiming(self, folder: Path, shape: tuple[int, ...], **how: Any) -> Path:
        path = changed_fixtures.h5(folder, "tf2.15/global_mixed_float16.h5", lambda _: None)
        with h5py.File(path, "a") as file:
            file["model_weights/dense_a"].create_dataset("large", shape, "float32", **how)
        return path

    def test_the_sentence_has_both_numbers(self, tmp_path: Path) -> None:
        """What is claimed, and what is there; and nothing is loaded that claims it."""
        made = self.make(tmp_path)
        (finding,) = found(self.id, made)
        assert finding.message == (
            "model_weights/dense_a/large declares 160,000,000,000 bytes but stores 0; it "
            "was not read"
        )
        assert told(made) == [finding.message]

    @pytest.mark.parametrize(
        "how",
        [{}, {"chunks": (1000, 1000)}, {"chunks": (1000, 1000), "compression": "gzip"}],
        ids=str,
    )
    def test_however_it_is_laid_out(self, how: dict[str, Any], tmp_path: Path) -> None:
        """In chunks or in one block that was never written."""
        assert len(found(self.id, self._claiming(tmp_path, (100_000, 100_000), **how))) == 1

    def test_small_ones_hurt_nobody(self, tmp_path: Path) -> None:
        """A kernel that was never written is no bomb."""
        assert not found(self.id, self._claiming(tmp_path, (1000, 1000), chunks=(1000, 1000)))


def test_findings_stand_once_per_layer() -> None:
    """A SavedModel says each layer twice and more; one finding is enough."""
    for name in ("tf2.15/custom_layer", "tf2.5/mha_mixed"):
        hits: tuple[Finding, ...] = found("PT603", FIXTURES / name)
        assert len({(finding.path, finding.detail) for finding in hits}) == len(hits)


def test_pickled_numbers_are_no_payload(tmp_path: Path) -> None:
    """A list of numbers, or of words, is data."""
    made = placed(
        tmp_path,
        KERAS3,
        "/config/layers/1/config/kernel_initializer",
        {"class_name": "Constant", "config": {"value": np.zeros(3).tolist()}},
    )
    assert not found("PT601", made)


class TestEndlessGraph(MadeRuleContract):
    id = "PT611"
    paths = ("mlp",)
    silent = (
        KERAS3,
        OPS,
        WORDS,
        SAVED,
        "tf2.15/nested_models.h5",
        "keras3.0/nested_models.keras",
        "tf_keras2.21/shared_layer.h5",
    )

    def make(self, folder: Path) -> Path:
        return self._taking(folder, "dropout")

    def _taking(self, folder: Path, layer: str, call: int = 0) -> Path:
        """Write a model whose second layer takes another's output."""
        return placed(
            folder,
            KERAS3,
            "/config/layers/1/inbound_nodes/0/args/0/config/keras_history",
            [layer, call, 0],
        )

    def test_the_layers_are_named(self, tmp_path: Path) -> None:
        """The first of them, and how many more; and nothing is loaded that has them."""
        made = self.make(tmp_path)
        (finding,) = found(self.id, made)
        assert finding.message == (
            "mlp has a circular dependency between layers, or missing calls: norm, "
            "dense_a, dropout and 1 more"
        )
        assert told(made) == [finding.message]

    @pytest.mark.parametrize(("layer", "call"), [("norm", 0), ("features", 1)])
    def test_of_itself_or_of_nothing(self, layer: str, call: int, tmp_path: Path) -> None:
        """
        A layer that takes its own output, and one that takes that of a call which nobody makes.
        """
        assert len(found(self.id, self._taking(tmp_path, layer, call))) == 1

    def test_what_takes_the_first_of_two_calls_is_silent(self, tmp_path: Path) -> None:
        """A reference to the one call that there is."""
        assert not found(self.id, self._taking(tmp_path, "features"))


class TestAmbiguousFormat(MadeRuleContract):
    id = "PT613"
    paths = (None,)
    silent = (KERAS3, "tf2.15/string_lookup", "tf2.15/integer_lookup.h5")

    def make(self, folder: Path) -> Path:
        path = folder / "model.keras"
        path.write_bytes(HARMLESS_H5 + hostile_archive("policytool-marker"))
        return path
