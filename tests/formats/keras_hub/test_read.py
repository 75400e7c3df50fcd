"""KerasHub presets: their layers and policies, their files, and changes to their policies."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.commands import load
from policytool.commands.load import InstalledKeras
from policytool.formats.keras_hub import LEFT_OVER, MISSING
from policytool.model import presets
from policytool.numerics import workers
from policytool.numerics.hand_over import HandOver
from policytool.releases.policy import GLOBAL_SOURCE
from policytool.support.errors import ModelFileError
from tests.conftest import run
from tests.contracts.format_contract import FormatContract
from tests.contracts.mutations import damaged
from tests.helpers.marks import THOROUGH
from tests.helpers.presets import (
    INDEX,
    WEIGHTS,
    Groups,
    add_task,
    backbone,
    decoder_groups,
    policy,
    record,
    split_weights,
    write_preset,
    write_recorded,
)
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policytool.model.model import Layer

GROUPS: Final = decoder_groups(2, 16)
BLOCK: Final = "llama/transformer_layer_1"
QUERY: Final = "transformer_layer_1/self_attention/query"
LOGITS: Final[Groups] = {"layers/dense": ["logits", [16, 3, "float32"]]}
"""The layer of a task."""

LOST: Final = frozenset({"DINOV2", "MiT", "Mixtral", "ViTDet"})
"""
Families whose quantized presets KerasHub 0.32 never loads: layers get other names, or lack
variables.
"""


_HOME: Final = TemporaryDirectory()


class TestKerasHub(FormatContract):
    package = "keras_hub"
    document_format = ("keras-hub",)
    samples = (write_recorded(Path(_HOME.name) / "bert", "Bert", "int8"),)
    # libhdf5 never returns from some damaged names in weights files; the command ends it after
    # call-seconds, but the contract reads in one process without this limit
    parts = ("config.json", "metadata.json")
    mutations = 60


def test_damaged_weights_end_in_a_sentence(tmp_path: Path) -> None:
    """A truncated weights file, and one in which a text never ends, are errors of the command."""
    preset = write_recorded(tmp_path / "bert", "Bert", "int8")
    weights = preset / "model.weights.h5"
    content = weights.read_bytes()
    for number, (_, damaged_content) in enumerate(damaged(content, 1, 6)):
        if number % 6 == 5:
            weights.write_bytes(damaged_content)
            ended = run("inspect", preset, "--limit", "call-seconds=2")
            assert ended.code in {0, 3}, ended.err
            assert ended.err.count("\n") == (1 if ended.code else 0), ended.err


def policy_map(*paths: str, mode: str = "int8") -> dict[str, Any]:
    """Return a map of quantized policies as KerasHub stores it."""
    quantized = {
        "module": "keras.dtype_policies",
        "class_name": "QuantizedDTypePolicy",
        "config": {"mode": mode, "source_name": None},
        "registered_name": None,
    }
    return {
        "module": "keras.dtype_policies",
        "class_name": "DTypePolicyMap",
        "config": {"default_policy": None, "policy_map": dict.fromkeys(paths, quantized)},
        "registered_name": None,
    }


@pytest.fixture(name="preset")
def _preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a preset in the working directory."""
    monkeypatch.chdir(tmp_path)
    return write_preset(tmp_path / "preset", backbone(policy("bfloat16")), GROUPS)


def observations(preset: Path, code: str) -> list[str]:
    """Return the messages of the observations with a code."""
    return [item.message for item in policytool.inspect(preset).observations if item.code == code]


def test_weights_name_the_layers_of_a_backbone(preset: Path) -> None:
    model = policytool.inspect(preset)
    assert model.format == "keras-hub"
    layers = {layer.path: layer for layer in model.layers}
    assert len(layers) == 22
    query = layers[f"llama/{QUERY}"]
    assert (query.class_name, query.policy, query.source) == (None, "bfloat16", "default")
    assert [(item.shape, item.dtype) for item in query.variables] == [((16, 8, 2), "bfloat16")]
    assert layers[BLOCK].variables == ()


def test_layers_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    preset = write_preset(tmp_path, backbone(policy("float32")), decoder_groups(11, 16))
    names = [layer.name for layer in policytool.inspect(preset).layers]
    numbers = [int(name[18:]) for name in names if name.startswith("transformer_layer_")]
    assert numbers == list(range(11))


def test_policy_map_applies_to_the_paths_of_layers(tmp_path: Path) -> None:
    preset = write_preset(tmp_path, backbone(policy_map(QUERY)), GROUPS)
    quantized = [layer.path for layer in policytool.inspect(preset).layers if layer.quantization]
    assert quantized == [f"llama/{QUERY}"]
    assert "1 quantized layer;" in observations(preset, presets.QUANTIZED)[0]
    found = {finding.rule: finding.severity for finding in policytool.audit(preset).findings}
    assert found["PT410"] == "warning"
    add_task(preset, LOGITS)
    found = {finding.rule: finding.severity for finding in policytool.audit(preset).findings}
    assert found["PT410"] == "note"


def test_lost_policy_map_is_reported(tmp_path: Path) -> None:
    groups = decoder_groups(1, 16, "int8")
    preset = write_preset(tmp_path, backbone(policy("float32")), groups)
    assert "PT407" in {finding.rule for finding in policytool.audit(preset).findings}


def test_other_stored_dtype_is_reported(tmp_path: Path) -> None:
    preset = write_preset(tmp_path, backbone(policy("float32")), GROUPS)
    assert "PT401" in {finding.rule for finding in policytool.audit(preset).findings}


def test_stored_policy_is_replaced_when_a_preset_is_loaded(preset: Path) -> None:
    (message,) = observations(preset, presets.REPLACED)
    assert "replace bfloat16 by the global policy" in message
    assert "from_preset" in run("migrate", str(preset), "--to", "float16", "-o", "out").out


def test_effective_policies_are_those_after_loading(tmp_path: Path) -> None:
    """Maps of quantized layers take effect in a preset with a task; other policies do not."""
    quantized = write_preset(tmp_path / "quantized", backbone(policy_map(QUERY)), GROUPS)
    plain = write_preset(tmp_path / "plain", backbone(policy("bfloat16")), GROUPS)
    without_task = policytool.inspect(quantized).layers
    add_task(quantized, LOGITS)
    add_task(plain, LOGITS)
    assert {layer.effective_policy for layer in without_task} == {GLOBAL_SOURCE}
    for layer in policytool.inspect(quantized).layers:
        assert layer.effective_policy == (layer.policy or GLOBAL_SOURCE)
    assert {layer.effective_policy for layer in policytool.inspect(plain).layers} == {GLOBAL_SOURCE}
    table = run("inspect", str(plain), "--format", "markdown").out
    assert re.search(r"policy +\| effective +\| compute", table)
    assert re.search(r"layer .* policy +effective", run("inspect", str(quantized)).out)


def test_shards_give_the_layers_of_one_file(preset: Path) -> None:
    whole = policytool.inspect(preset).layers
    split_weights(preset, GROUPS, 3)
    assert policytool.inspect(preset).layers == whole


def test_migration_changes_both_configs_and_no_weights(preset: Path) -> None:
    add_task(preset, LOGITS)
    ended = run("migrate", str(preset), "--to", "mixed_bfloat16", "-o", "out")
    assert ended.code == 0, ended.err
    out = preset.with_name("out")
    names = sorted(path.name for path in preset.iterdir())
    assert sorted(path.name for path in out.iterdir()) == names
    for name in names:
        same = (out / name).read_bytes() == (preset / name).read_bytes()
        assert same is (name not in {"config.json", "task.json"})
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    task = json.loads((out / "task.json").read_text(encoding="utf-8"))
    assert config == backbone(policy("mixed_bfloat16"))
    assert task["config"]["backbone"] == config
    assert policytool.diff(preset, out).differs
    ended = run("migrate", str(out), "--to", "float32", "--in-place")
    assert ended.code == 0, ended.err
    assert {layer.policy for layer in policytool.inspect(out).layers} == {"float32", None}


def test_classes_of_keras_hub_are_named(preset: Path) -> None:
    """An unknown class may be one of another release."""
    add_task(preset, LOGITS)
    text = run("audit", preset).out
    assert "llama needs keras_hub>LlamaBackbone, a class of KerasHub" in " ".join(text.split())
    set_config(preset, class_name="FooBackbone", registered_name="keras_hub>FooBackbone")
    text = " ".join(run("audit", preset).out.split())
    assert "keras_hub>FooBackbone, a class that is not among the reviewed ones" in text


def test_layers_of_a_task_have_no_stored_policy(preset: Path) -> None:
    add_task(preset, LOGITS)
    (logits,) = (layer for layer in policytool.inspect(preset).layers if layer.name == "logits")
    assert (logits.path, logits.source) == ("llama/llama_causal_lm/logits", "global")
    assert not policytool.diff(preset, shutil.copytree(preset, "copy")).differs


def test_only_keras_hub_has_the_layers_of_a_conversion(preset: Path) -> None:
    ended = run("migrate", str(preset), "--target", "keras3", "-o", "out.keras")
    assert ended.code == 3
    assert "a KerasHub preset, which " in ended.err


def set_config(preset: Path, **changes: Any) -> None:
    """Change the object of the backbone in the config of a preset."""
    path = preset / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(config), encoding="utf-8")


def run_codes(preset: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the codes of the errors of ``check`` and ``load``, which are one sentence each."""
    ended = run("check", str(preset), "--to", "float16", "--python", "none")
    assert (ended.code, ended.err.count("\n")) == (3, 1)
    # KerasHub may be imported already, with all of its classes
    keras = SimpleNamespace(utils=SimpleNamespace(get_registered_object=str))
    installed = InstalledKeras(module=keras, release="keras3.15")
    monkeypatch.setattr(load, "installed_keras", lambda: installed)
    with pytest.raises(ModelFileError) as error:
        policytool.load(preset)
    (code,) = re.findall(r"\[([a-z0-9-]+)\]$", ended.err.strip())
    return {code, error.value.code} - {"no-python"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"module": "os", "class_name": "system", "registered_name": None}, "runs-code"),
        ({"module": "evil.models"}, "runs-code"),
        ({"module": "keras_hub_evil.models"}, "runs-code"),
        ({"registered_name": "keras_hub>BytePairTokenizer"}, "runs-code"),
        ({"registered_name": None}, "runs-code"),
        ({"class_name": "BytePairTokenizer"}, "runs-code"),
        ({"config": {"vision": {"module": "evil", "class_name": "A", "config": {}}}}, "runs-code"),
        ({"config": {"activation": "evil"}}, "runs-code"),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_preset_with_other_code_does_not_run(
    preset: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], code: str
) -> None:
    """Keras looks up the registered name first, so it has to be that of a reviewed class."""
    set_config(preset, **changes)
    assert run_codes(preset, monkeypatch) == {code}


def split(preset: Path) -> Path:
    """Split the weights of a preset into two shards, and return the preset."""
    split_weights(preset, GROUPS, 2)
    return preset


def link_out(path: Path) -> None:
    """Replace a file by a link out of its directory."""
    path.symlink_to(path.rename(path.parent.with_name("moved")))


def duplicate_shard(preset: Path) -> None:
    """Store and list the variables of the first shard twice."""
    mapped = split_weights(preset, GROUPS, 2)
    first, last = sorted(set(mapped.values()))
    shutil.copy(preset / first, preset / last)
    write_index(preset, {group: [first, last] for group in mapped})


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda preset: link_out(preset / "config.json"), "escaping-link"),
        (lambda preset: link_out(preset / WEIGHTS), "escaping-link"),
        (lambda preset: link_out(split(preset) / INDEX), "escaping-link"),
        (lambda preset: link_out(split(preset) / "model_00001.weights.h5"), "escaping-link"),
        (lambda preset: (split(preset) / "model_00001.weights.h5").unlink(), "shard-missing"),
        (lambda preset: write_index(split(preset), {"/a": "../b.weights.h5"}), "escaping-link"),
        (
            lambda preset: write_index(
                split(preset), {f"/{n}": f"model_{n:05}.weights.h5" for n in range(10_001)}
            ),
            "h5-limit",
        ),
        (duplicate_shard, "shard-duplicate"),
        (lambda preset: (preset / WEIGHTS).unlink(), "not-runnable"),
    ],
    ids=["config", "weights", "index", "shard", "missing", "outside", "bomb", "duplicate", "none"],
)
def test_damaged_preset_does_not_run(
    preset: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], code: str
) -> None:
    damage(preset)
    assert run_codes(preset, monkeypatch) == {code}


def test_only_the_backbone_is_copied_to_run(preset: Path) -> None:
    """Not its tokenizer, and not the task, whose classes may be custom."""
    add_task(preset, LOGITS)
    (preset / "tokenizer.json").write_text("{}", encoding="utf-8")
    with HandOver() as hand_over:
        copy = hand_over.take(preset, "preset")
        assert [path.name for path in copy.files] == ["config.json", "metadata.json", WEIGHTS]


@pytest.mark.parametrize("to", ["float32", "bfloat16"])
def test_preset_that_is_larger_than_the_memory_does_not_run(
    preset: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """The reference in float32, and the candidate."""
    stored = policytool.inspect(preset).summary.bytes  # bfloat16
    needed = stored * (4 if to == "float32" else 3)
    monkeypatch.setattr(workers, "machine_memory", lambda: needed - 1)
    ended = run("check", str(preset), "--to", to, "--python", "none")
    assert (ended.code, ended.err.count("\n")) == (3, 1)
    assert "GiB of memory for its weights" in ended.err
    monkeypatch.setattr(workers, "machine_memory", lambda: needed)
    assert "[no-python]" in run("check", str(preset), "--to", to, "--python", "none").err
    monkeypatch.setattr(workers, "machine_memory", lambda: stored - 1)
    assert "memory" in run_codes(preset, monkeypatch)


def test_keras_hub_has_to_be_installed(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras = SimpleNamespace(__name__="keras", utils=None, models=None)
    installed = InstalledKeras(module=keras, release="keras3.15")
    monkeypatch.setattr(load, "installed_keras", lambda: installed)
    with pytest.raises(policytool.Error, match=r"policytool\[hub\]"):
        policytool.load(preset)


def test_files_that_are_not_read_are_named(preset: Path) -> None:
    shutil.copy(preset / WEIGHTS, preset / "model_00000.weights.h5")
    shutil.copy(preset / WEIGHTS, preset / "task.weights.h5")
    (preset / INDEX).write_text("{}", encoding="utf-8")
    (preset / "metadata.json").unlink()
    (preset / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert [message.split()[0] for message in observations(preset, LEFT_OVER)] == [
        INDEX,
        "model_00000.weights.h5",
        "task.weights.h5",
    ]
    assert len(observations(preset, MISSING)) == 2
    found = [finding.rule for finding in policytool.audit(preset).findings]
    assert found.count("PT411") == 5
    (preset / WEIGHTS).unlink()
    (preset / INDEX).unlink()
    assert observations(preset, "no-weights")


def test_index_that_names_another_shard_is_reported(preset: Path) -> None:
    mapped = split_weights(preset, GROUPS, 2)
    first, last = sorted(set(mapped.values()))
    group = next(group for group, name in mapped.items() if name == last)
    write_index(preset, mapped | {group: first})
    for code, name in ((LEFT_OVER, last), (MISSING, first)):
        (message,) = observations(preset, code)
        assert f"({group.strip('/')} in {name})" in message
    shutil.copy(preset / first, preset / last)
    write_index(preset, mapped)
    assert len(observations(preset, LEFT_OVER)) == len(observations(preset, MISSING)) == 1


def test_variable_in_two_shards_ends_in_a_sentence(preset: Path) -> None:
    """Keras counts the variable twice, and fails to load the layer."""
    duplicate_shard(preset)
    ended = run("inspect", str(preset))
    assert (ended.code, ended.err.count("\n")) == (3, 1)
    assert "[shard-duplicate]" in ended.err


def write_index(preset: Path, mapped: object) -> None:
    """Replace the index of shards."""
    (preset / INDEX).write_text(json.dumps({"weight_map": mapped}), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "code"),
    [("config.json", "escaping-link"), (WEIGHTS, "escaping-link"), (INDEX, "escaping-link")],
)
def test_links_out_of_a_preset_are_not_followed(preset: Path, name: str, code: str) -> None:
    if name == INDEX:
        split_weights(preset, GROUPS, 2)
    link_out(preset / name)
    ended = run("inspect", str(preset))
    assert (ended.code, ended.err.count("\n")) == (3, 1)
    assert f"[{code}]" in ended.err


def cached(preset: Path, repository: Path) -> Path:
    """Move a preset to a directory, as in the cache of the Hub's client, and return its links."""
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, path in enumerate(sorted(preset.iterdir())):
        blob = path.rename(repository / "blobs" / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{blob.name}")
    return snapshot


@pytest.mark.parametrize("shards", [1, 2])
def test_preset_in_the_cache_of_the_hub_is_read(preset: Path, shards: int) -> None:
    if shards > 1:
        split_weights(preset, GROUPS, shards)
    whole = policytool.inspect(preset).layers
    assert policytool.inspect(cached(preset, Path("models--a--b"))).layers == whole


@pytest.mark.parametrize(
    ("repository", "blob"),
    [("a", "0" * 40), ("models--a", "weights"), ("models--a", "../../other/" + "0" * 40)],
    ids=["directory", "name", "link"],
)
def test_only_blobs_of_the_same_repository_are_read(
    preset: Path, repository: str, blob: str
) -> None:
    snapshot = cached(preset, Path(repository))
    home = Path(repository).absolute() / "blobs"
    moved = (snapshot / WEIGHTS).resolve()
    (home / blob).parent.mkdir(parents=True, exist_ok=True)
    moved.rename(home / blob)
    (snapshot / WEIGHTS).unlink()
    if "other" in blob:  # a link in the place of a blob
        moved.symlink_to(home / blob)
        (snapshot / WEIGHTS).symlink_to(moved)
    else:
        (snapshot / WEIGHTS).symlink_to(home / blob)
    ended = run("inspect", str(snapshot))
    assert ended.code == 3
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("mapped", "code"),
    [
        ({"/layers/a/vars": "../model_00000.weights.h5"}, "escaping-link"),
        ({"/layers/a/vars": "model_00009.weights.h5"}, "shard-missing"),
        ({f"/{number}": f"model_{number:05}.weights.h5" for number in range(10_001)}, "h5-limit"),
        ({"/layers/a/vars": ["model_00000.weights.h5", 1]}, "json-not-keras"),
        ([], "json-not-keras"),
    ],
    ids=["outside", "missing", "bomb", "number", "list"],
)
def test_invalid_index_ends_in_a_sentence(preset: Path, mapped: object, code: str) -> None:
    (preset / WEIGHTS).rename(preset / "model_00000.weights.h5")
    write_index(preset, mapped)
    ended = run("inspect", str(preset))
    assert (ended.code, ended.err.count("\n")) == (3, 1)
    assert f"[{code}]" in ended.err


def test_part_of_a_preset_stands_for_it(preset: Path) -> None:
    add_task(preset, LOGITS)
    for name in ("config.json", "task.json", WEIGHTS):
        assert policytool.inspect(preset / name).format == "keras-hub"
    listed = json.loads(run("inspect", ".", "--format", "json").out)["models"]
    assert [model["path"] for model in listed] == ["preset"]


@THOROUGH
@pytest.mark.parametrize("stored", ["float32", "bfloat16", "mixed_bfloat16", "int8", "int4"])
def test_layers_are_those_that_keras_hub_loads(tmp_path: Path, stored: str) -> None:
    """The policies of layers follow from the stored policy and the global policy."""
    for family, policies in sampled("presets", record().items(), share=3):
        if "unsupported" in policies[stored]:
            continue
        model = policytool.inspect(write_recorded(tmp_path / family, family, stored))
        layers = [layer for layer in model.layers if layer.variables]
        for used, loaded in policies[stored].get("quantized", policies[stored]["loaded"]).items():
            if isinstance(loaded, str):
                assert family in LOST
                continue
            check_effective((family, used), layers, dict(loaded["layers"]))
        if "quantized" not in policies[stored]:
            continue
        failures = [type(value) is str for value in policies[stored]["loaded"].values()]
        assert (
            all(failures)
            if observations(tmp_path / family, presets.QUANTIZED)
            else not any(failures)
        ), family


@THOROUGH
@pytest.mark.parametrize("stored", ["float32", "bfloat16", "mixed_bfloat16", "int8", "int4"])
def test_layers_of_tasks_are_those_that_keras_hub_loads(tmp_path: Path, stored: str) -> None:
    """A task fails to load if, and only if, PT412 reports it."""
    tasks = ((family, item["task"][stored]) for family, item in record().items() if "task" in item)
    for family, saved in sampled("tasks of presets", tasks, share=2):
        preset = write_preset(tmp_path / family, saved["config"], saved["groups"])
        add_task(preset, saved["task_groups"], saved["task"])
        fails = bool(observations(preset, presets.TASK_FAILS))
        layers = [layer for layer in policytool.inspect(preset).layers if layer.variables]
        for used, loaded in saved["loaded"].items():
            assert isinstance(loaded, str) is fails, family
            if not fails:
                check_effective((family, used), layers, dict(loaded["layers"]))


def check_effective(
    case: tuple[str, str], layers: Sequence[Layer], loaded: dict[str, list[Any]]
) -> None:
    """
    Check the policies of layers against those that KerasHub loaded. Layers that get another name
    when they are loaded, such as the next number, are compared together.
    """
    family, used = case
    assert len(loaded) == len(layers)
    renamed: Counter[str] = Counter()
    for layer in layers:
        effective = str(layer.effective_policy).replace(GLOBAL_SOURCE, used).split(" or ")
        path = next((end for end in ends(layer.path) if end in loaded), None)
        if path is None:
            renamed.update(effective)
            continue
        _, name, _, _, dtypes = loaded.pop(path)
        if layer.quantization is not None:
            assert name.partition("_")[0] == str(layer.policy).partition("_")[0], (case, path)
            assert "int8" in dtypes, (case, path)
            continue
        assert name in effective, (case, path)
        assert len(effective) == 1 or family in {"CLIP", "SAM", "SigLIP"}, (case, path)
    assert renamed == Counter(name for _, name, *_ in loaded.values()), case


def ends(path: str) -> list[str]:
    """Return the ends of a path, the longest first."""
    parts = path.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]
