"""
What fuzzing found, each as small as it is: the input that broke the contract, and what is said of
it since.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import struct
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.formats import format_detection
from policytool.migration.planning import propagation
from policytool.migration.planning.decisions import Decisions
from policytool.model import layer_policies, reading
from policytool.releases import generations
from policytool.releases import policy as policies
from policytool.releases.policy import PolicyMap
from policytool.support import limits
from policytool.support.errors import SpellingError
from policytool.support.patterns.matching import Matcher
from tests.conftest import FIXED_SCALE_H5, MIXED_H5, MIXED_JSON, run
from tests.fuzz import oracle, processes, record
from tests.helpers import convertible_models, small_models
from tests.helpers.marks import ALONE, THOROUGH
from tests.helpers.scripts import run_captured
from tests.helpers.small_models import instance, instance3

if TYPE_CHECKING:
    from collections.abc import Callable

_SHELL: Final = """
import sys
def hook(event, _):
    if event in {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"}:
        # A copy of the process to read in is no other program.
        print(event, file=sys.stderr)
        sys.stderr.flush()
        import os
        os._exit(99)
sys.addaudithook(hook)
from policytool.cli import main
main(sys.argv[1:])
"""


def test_each_finding_has_its_test() -> None:
    """Every row of the table of findings names a test that exists."""
    for item in json.loads(record.FINDINGS.read_text(encoding="utf-8")):
        file, _, name = item["test"].partition("::")
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        assert callable(getattr(module, name)), item["test"]


def test_infer_with_float32_variables_is_an_error_of_the_model(tmp_path: Path) -> None:
    """
    The first input decides the dtype of this policy of TF 1.15. The error names the layer, and was
    a usage error before.
    """
    path = tmp_path / "model.json"
    path.write_text(
        json.dumps(
            {
                **small_models.sequential(small_models.dense(dtype="infer_with_float32_vars")),
                "keras_version": "2.2.4-tf",
            }
        ),
        encoding="utf-8",
    )
    for arguments in (
        ("migrate", path, "--preview"),
        ("migrate", path, "--target", "tf2.4", "--preview"),
        ("audit", path, "--target", "tf2.4"),
    ):
        assert oracle.command(*arguments)
    assert "it uses the dtype of its first input" in run("migrate", path, "--preview").out


@pytest.mark.parametrize("mode", ["int8_from_float32", "int8_from_int8", "gptq/4/128_from_float32"])
def test_quantized_policy_name_as_a_mode_is_rejected(mode: str) -> None:
    """
    Mode and source form the name of a policy, and only this name was tested. Rendering then failed
    for a mode that no release has.
    """
    value: Any = {
        "module": "keras",
        "class_name": "QuantizedDTypePolicy",
        "config": {"mode": mode, "source_name": "float32"},
    }
    with pytest.raises(SpellingError):
        generations.parse(value, generations.GENERATIONS[-1])


@pytest.mark.parametrize("character", ["\x7f", "\x9b", "\u202e", "\u2028", "\ufeff", "\ud800"])
def test_json_reports_hold_no_character_that_a_terminal_obeys(
    character: str, tmp_path: Path
) -> None:
    """
    JSON need not escape DEL, the C1 controls and direction overrides, of which terminals obey some;
    the report does, and says the same.
    """
    path = small_models.h5_model(
        tmp_path / "model.h5", small_models.sequential(small_models.dense(name=f"a{character}b"))
    )
    ended = run("inspect", path, "--format", "json")
    assert character not in ended.out
    assert any(layer["name"] == f"a{character}b" for layer in ended.json["models"][0]["layers"])


def _patched(
    change: Callable[[bytearray], None], compression: int = zipfile.ZIP_STORED
) -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        path = small_models.keras_zip(directory / "model.keras", compression=compression)
        data = bytearray(path.read_bytes())
        change(data)
        path.write_bytes(data)
        return path

    return build


def _not_utf8(data: bytearray) -> None:
    """Say of a member's name that it is UTF-8, which it is not."""
    central = data.find(b"PK\x01\x02")
    struct.pack_into("<H", data, central + 8, 0x800)
    data[central + 46] = 0x80


def _before(data: bytearray) -> None:
    """
    Say that the directory begins later than it does, so that members begin earlier than the file.
    """
    end = data.rfind(b"PK\x05\x06")
    (offset,) = struct.unpack_from("<I", data, end + 16)
    struct.pack_into("<I", data, end + 16, offset + 1000)


def _lzma(data: bytearray) -> None:
    """Damage the first member's compressed bytes."""
    name = data.find(b"config.json")
    data[name + 40 : name + 60] = bytes(20)


ARCHIVES: Final = {
    "a name that is no UTF-8": _patched(_not_utf8),
    "a member before the file": _patched(_before),
    "damaged LZMA": _patched(_lzma, zipfile.ZIP_LZMA),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_with_damaged_fields_are_truncated_ones(name: str, tmp_path: Path) -> None:
    """
    Python's zipfile raises errors of other kinds than its own for them; they ended in exit code 70.
    """
    assert oracle.command("inspect", ARCHIVES[name](tmp_path)) == "truncated"


def _plan(change: Callable[[dict[str, Any]], Any]) -> bytes:
    plan = run("migrate", FIXED_SCALE_H5, "--preview", "--format", "json").json
    change(plan)
    return json.dumps(plan).encode()


PLANS: Final = {
    "a plan is null": lambda: _plan(lambda plan: plan["plans"].__setitem__(0, None)),
    "a plan is text": lambda: _plan(lambda plan: plan["plans"].__setitem__(0, "x")),
    "an edit is a list": lambda: _plan(lambda plan: plan["plans"][0]["edits"].__setitem__(0, [])),
    "an edit is text": lambda: _plan(lambda plan: plan["plans"][0]["edits"].__setitem__(0, "kind")),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_without_objects_are_wrong_usage(name: str, tmp_path: Path) -> None:
    """A saved plan with parts that are not objects caused an internal error."""
    path = tmp_path / "plan.json"
    path.write_bytes(PLANS[name]())
    assert (
        oracle.command("migrate", FIXED_SCALE_H5, "--plan", path, "--preview", usage=True)
        == "usage"
    )


def test_plans_with_nan_are_reported_as_json(tmp_path: Path) -> None:
    """Python writes NaN where JSON has none; the report of a plan that sets one says its name."""
    path = tmp_path / "plan.json"

    def change(plan: dict[str, Any]) -> None:
        edits = plan["plans"][0]["edits"]
        edits.append(
            {
                **edits[0],
                "pointer": "/config/layers/1/config/units",
                "before": 3,
                "after": float("nan"),
            }
        )

    path.write_bytes(_plan(change))
    assert (
        oracle.command(
            "migrate", FIXED_SCALE_H5, "--plan", path, "--preview", "--format", "json", usage=True
        )
        == "findings"
    )


SETTINGS: Final = {
    "a NUL in a text": 'baseline = "a\\u0000b"',
    "a NUL in a list": 'select = ["a\\u0000b"]',
    "a NUL in a table": 'suppress = [{rule = "PT1", path = "a\\u0000b", reason = "c"}]',
    "a NUL in a key": '"a\\u0000b" = 1',
    "an infinite number": "jobs = inf",
    "a number that is none": "depth = nan",
    "a half": "jobs = 1.5",
    "a number for a truth": "retrace = 7",
    "lists in lists": f"select = {'[' * 5000}",
    "a number of 5000 digits": f"jobs = {'9' * 5000}",
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    "command", [("inspect",), ("audit",), ("migrate", "--preview")], ids=lambda command: command[0]
)
def test_unknown_settings_are_wrong_usage(
    name: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    """
    A settings file in a parent directory may belong to another user, and any content gives a
    one-line error.
    """
    path = tmp_path / "policytool.toml"
    path.write_text(SETTINGS[name], encoding="utf-8")
    assert oracle.command(*command, MIXED_JSON, "--config", path, usage=True) in {
        "usage",
        "read",
        "findings",
    }


@THOROUGH
@pytest.mark.parametrize("command", ["inspect", "audit"])
def test_no_process_is_started_to_read_a_file(command: str) -> None:
    """
    h5py asks for the machine's name when it is imported, and Python ran ``uname -p``, the first on
    PATH, for a part of the answer.
    """
    done = run_captured(
        [sys.executable, "-c", _SHELL, command, str(MIXED_H5), "--jobs", "1"], check=False
    )
    assert done.returncode in {0, 1}, done.stderr


TRACES: Final = {
    '1 openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 3': True,
    '1 openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = -1 ENOENT (No such file or directory)': False,
    '1 openat(AT_FDCWD, "/models/m.h5", O_RDONLY|O_CLOEXEC) = 3': False,
    '1 openat(AT_FDCWD, "/models/m.h5", O_RDWR|O_CREAT, 0666) = 3': False,
    '1 openat(AT_FDCWD, "/usr/lib/x.so", O_RDONLY|O_CLOEXEC) = 3': False,
    '1 openat(AT_FDCWD, "/usr/lib/x.so", O_RDWR|O_CREAT, 0666) = 3': True,
    '1 unlink("/tmp/x") = 0': True,
    '1 linkat(3, "/proc/self/fd/3", AT_FDCWD, "/models/out.h5", AT_SYMLINK_FOLLOW) = 0': False,
    '1 linkat(3, "/proc/self/fd/3", AT_FDCWD, "/tmp/out.h5", AT_SYMLINK_FOLLOW) = 0': True,
    "1 socket(AF_INET, SOCK_STREAM, IPPROTO_IP) = 3": True,
    '1 execve("/usr/bin/uname", ["uname", "-p"], 0x1 /* 1 vars */) = 0': True,
    '1 execve("/usr/bin/python3.11", ["python", "-m", "policytool"], 0x1 /* 1 vars */) = 0': False,
    "1 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD) = 2": True,
    (
        "1 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, "
        "child_tidptr=0x7f0) = 2"
    ): False,
    "1 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 2": False,
}


@pytest.mark.parametrize("line", TRACES)
def test_forbidden_calls_in_a_trace_are_detected(line: str) -> None:
    """The check of traced runs can fail."""
    assert bool(processes.touched(line, [Path("/models")])) is TRACES[line]


def test_operation_without_calls_is_rejected(tmp_path: Path) -> None:
    """
    The calls of an operation decide its conversion, and planning without calls ended in an
    IndexError.
    """
    x = convertible_models.tensor("x")
    never = {
        **convertible_models.layer3("Add", "never", module="keras.src.ops.numpy"),
        "inbound_nodes": [],
    }
    model = convertible_models.keras3(
        convertible_models.input3("x", 4),
        never,
        convertible_models.layer3("Dense", "dense", x, units=2),
    )
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    ended = run("migrate", path, "--target", "tf2.15", "--preview")
    assert ended.code == 3
    assert "never is an operation that is never called" in " ".join(ended.out.split())


REGULAR: Final = {
    "repeats, searched for": ("a*a*a*a*b", False),
    "repeats, matched in full": ("a*a*a*a*b", True),
    "alternatives": ("(a|aa)" * 40 + "x", True),
    "a repetition beyond numbers": ("a{99999999999999}", True),
    "brackets in brackets": ("(" * 5000 + ")" * 5000, True),
    "a set that warns": ("[[a]", True),
}


@ALONE
@pytest.mark.parametrize("name", REGULAR)
@pytest.mark.filterwarnings("error")
def test_keys_of_policy_maps_are_tried_in_bounded_time(name: str) -> None:
    """
    Four repeats, or alternatives after alternatives, took minutes and hours; what cannot be
    compiled ended in exit code 70, and a warning went to stderr.
    """
    key, full_match = REGULAR[name]
    result = PolicyMap(
        default=policies.policy_from_name("float32"),
        policies=((key, policies.policy_from_name("float16")),),
    )
    began = time.process_time()
    with contextlib.suppress(layer_policies.UnclearPolicyError):
        layer_policies.resolve(result, "a" * 300, Matcher(), full_match=full_match)
    assert time.process_time() - began < oracle.SECONDS / 10


def test_many_keys_of_policy_maps_are_bounded_together(tmp_path: Path) -> None:
    """The keys of all layers have one number of steps between them."""
    spelled = instance3(
        "DTypePolicyMap", "keras", default_policy=None, policy_map={"x.*": "float16"}
    )
    path = tmp_path / "model.json"
    path.write_text(
        json.dumps(
            {**small_models.sequential(small_models.dense(dtype=spelled)), "keras_version": "3.6.0"}
        ),
        encoding="utf-8",
    )
    limit = f"{limits.PATTERN_STEPS.name}=100"
    ended = run("inspect", path, "--format", "json", "--limit", limit)
    result = ended.json["models"][0]["observations"]
    assert any(
        item["code"] == "unclear-policy-map" and limits.PATTERN_STEPS.name in item["message"]
        for item in result
    )


def test_recurrent_layer_called_without_inputs_is_rejected(tmp_path: Path) -> None:
    """
    The states are read from the first input. A call with an empty list ended in a ValueError, and
    then in an IndexError.
    """
    lstm = {**convertible_models.layer2("LSTM", "lstm", units=2), "inbound_nodes": [[]]}
    path = tmp_path / "model.json"
    path.write_text(
        json.dumps(convertible_models.keras2(convertible_models.input2("x", 3, 4), lstm)),
        encoding="utf-8",
    )
    assert oracle.command("migrate", path, "--target", "keras3", "--preview") != "read"


def test_metadata_that_leads_to_no_layer_is_not_migrated(tmp_path: Path) -> None:
    """
    A SavedModel whose root is described in the metadata, and is no Keras object in the graph, has
    nothing to change; it ended in an IndexError.
    """
    root = small_models.keras_object(
        "mlp", "Sequential", identifier="_tf_keras_sequential", config={}
    )
    result = small_models.saved_model(tmp_path / "told", [root], separate=True)
    path = small_models.saved_model(
        tmp_path / "model",
        [small_models.Object(), small_models.Object(variable=("dense_a/kernel", 1, (6, 2)))],
    )
    (path / "keras_metadata.pb").write_bytes((result / "keras_metadata.pb").read_bytes())
    for arguments in (("--to", "bfloat16"), ("--target", "keras3")):
        assert oracle.command("migrate", path, *arguments, "--preview") == "not-migratable"


def test_operations_called_without_arguments_are_rejected(tmp_path: Path) -> None:
    """
    The first argument decides the conversion, and planning without arguments ended in an
    IndexError.
    """
    x = convertible_models.tensor("x")
    model = convertible_models.keras3(
        convertible_models.input3("x", 4),
        convertible_models.layer3("GetItem", "none", module="keras.src.ops.numpy"),
        convertible_models.layer3("Dense", "dense", x, units=2),
    )
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    for target in ("keras3.0", "tf2.15"):
        assert oracle.command("migrate", path, "--target", target, "--preview")


def test_calls_with_a_tensor_as_a_dtype_are_rejected(tmp_path: Path) -> None:
    """
    The dtype of a Cast becomes an argument in Keras 2. A tensor in its place ended in a TypeError
    when the file was written.
    """
    x = convertible_models.tensor("x")
    cast = convertible_models.layer3("Cast", "cast", x, module="keras.src.ops.core", dtype=[x])
    path = tmp_path / "model.json"
    path.write_text(
        json.dumps(
            convertible_models.keras3(
                convertible_models.input3("x", 4),
                cast,
                convertible_models.layer3(
                    "Dense", "dense", convertible_models.tensor("cast"), units=2
                ),
            )
        ),
        encoding="utf-8",
    )
    assert (
        oracle.command("migrate", path, "--target", "tf2.15", "-o", tmp_path / "out.json")
        == "refused"
    )


def test_integers_above_the_float64_range_are_compared(tmp_path: Path) -> None:
    """The test compares them with each other, and with numbers that fit a float32."""
    for name, value in (("one", 10**400), ("same", 10**400), ("other", 10**400 + 1), ("small", 1)):
        config = instance("Dropout", name="d", trainable=True, dtype="float32", rate=value)
        model = {
            "class_name": "Sequential",
            "config": {"name": "m", "layers": [config]},
            "keras_version": "2.15.0",
            "backend": "tensorflow",
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(model))
    first, same, second, small = (
        tmp_path / f"{name}.json" for name in ("one", "same", "other", "small")
    )
    assert [run("diff", first, found).code for found in (same, second, small)] == [0, 1, 1]


def test_model_that_contains_itself_is_planned() -> None:
    """
    Objects of a SavedModel can have such a cycle, which the dtype propagation must not follow.
    """
    loaded = reading.load_model(format_detection.document(MIXED_JSON, str(MIXED_JSON)))
    graph = loaded.graphs[0]
    name = list(graph.nodes)[-1]
    own = replace(graph, nodes={**graph.nodes, name: replace(graph.nodes[name], site=0)})
    loaded.__dict__["graphs"] = {0: own}
    assert propagation.input_dtypes(loaded, Decisions()).keys() >= {0}
