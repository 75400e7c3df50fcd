"""``policytool diff`` of fixtures with themselves, other formats, and results of ``migrate``."""

from __future__ import annotations

import itertools
import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

import policytool
from policytool import comparison as comparing
from policytool.cli.exit_codes import Exit
from policytool.comparison.result import POLICIES, Aspect, ComparisonVerdict, Pairing, Presence
from policytool.comparison.variables import Opened
from policytool.formats.document import Document, GraphOp, Layout, Signature, Tensor, Trace
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.text.jsontext import ABSENT
from tests.conftest import MIXED_H5, MIXED_JSON, MIXED_KERAS, MIXED_SAVEDMODEL, run
from tests.contracts.mutations import damaged
from tests.helpers import small_models
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

RELEASES: Final = sorted(truth.parent.name for truth in FIXTURES.glob("*/truth.json"))
SHARE: Final = 10
"""Of so many comparisons within a release, each commit makes one."""

UNREADABLE: Final = "tfjs-graph"
"""A kind of fixture that has no layers, and is refused."""

QUANTISED: Final = "its values are stored quantized"
NOT_THE_SAME: Final = "adam_autowrap_mf16"
"""
``.keras`` leaves out the loss scaling that compile() adds by itself; HDF5 and SavedModels write it.
"""


def cases(release: str) -> dict[str, dict[str, Path]]:
    """Return a release's cases, each with its files by format."""
    truth = json.loads((FIXTURES / release / "truth.json").read_text(encoding="utf-8"))
    return {
        name: {
            kind: FIXTURES / release / file
            for kind, file in case["files"].items()
            if kind != UNREADABLE
        }
        for name, case in truth["cases"].items()
        if case["files"]
    }


def files(release: str) -> list[Path]:
    """Return every model of a release."""
    return [path for found in cases(release).values() for path in found.values()]


def differences(found: policytool.Comparison) -> set[tuple[str, Aspect]]:
    """Return what differs beyond spelling, by layer path."""
    return {(layer.path, change.aspect) for layer in found.layers for change in layer.differences}


def verdicts(found: policytool.Comparison) -> set[ComparisonVerdict]:
    """Return how the values of variables that both have compare."""
    return {
        variable.values.verdict
        for variable in found.variables
        if variable.presence is Presence.BOTH
    }


@THOROUGH
@pytest.mark.parametrize("release", RELEASES)
def test_a_model_is_the_same_as_itself(release: str) -> None:
    """Sampled fixtures equal themselves, and all values are read except quantized ones."""
    for path in sampled(f"itself in {release}", files(release), share=SHARE):
        is_itself(path)


@pytest.mark.parametrize("name", ["listed", "saver", "training"])
def test_every_checkpoint_is_the_same_as_itself(name: str) -> None:
    """Checkpoints of layers, with the names of TF 1, and of a training loop equal themselves."""
    result = is_itself(FIXTURES / "checkpoints" / f"{name}.index")
    assert verdicts(result) == {ComparisonVerdict.EQUAL}


def test_keras_metadata_file_equals_its_savedmodel(tmp_path: Path) -> None:
    """``keras_metadata.pb`` has layers without variables, and equals its directory."""
    alone = tmp_path / "keras_metadata.pb"
    shutil.copy(MIXED_SAVEDMODEL / alone.name, alone)
    assert not is_itself(alone).variables
    comparison = policytool.diff(alone, MIXED_SAVEDMODEL)
    assert not comparison.differs
    assert {note.code for note in comparison.notes} >= {"no-variables", "no-signatures"}


def is_itself(path: Path) -> policytool.Comparison:
    """Compare a model with itself."""
    comparison = policytool.diff(path, path)
    assert not comparison.differs, path
    assert not comparison.format_only, path
    assert {
        pair.values.reason
        for pair in comparison.variables
        if pair.values.verdict is not ComparisonVerdict.EQUAL
    } <= {QUANTISED}, path
    assert all(
        layer.presence is Presence.BOTH and layer.paired in {Pairing.ROOT, Pairing.PATH}
        for layer in comparison.layers
    ), path
    return comparison


@pytest.mark.parametrize(
    "case",
    [
        "default_float32",
        "default_float32_compiled",
        "global_mixed_float16",
        "nested_models",
        "sequential",
        "wrappers",
    ],
)
def test_tensorflow_js_model_equals_its_source(case: str) -> None:
    """The configs and the bytes of variables are equal."""
    comparison = policytool.diff(
        FIXTURES / f"tf2.15/{case}.h5", FIXTURES / f"tfjs4.22/{case}/model.json"
    )
    assert not comparison.differs
    assert verdicts(comparison) == {ComparisonVerdict.EQUAL}
    assert (comparison.optimizer is not None) == (case == "default_float32_compiled")


def test_quantized_values_are_reported_and_never_called_equal() -> None:
    """The report contains their stored dtype."""
    comparison = policytool.diff(
        FIXTURES / "tf2.15/default_float32.h5", FIXTURES / "tfjs4.22/quantized_float16/model.json"
    )
    assert {
        (pair.b.dtype if pair.b else "", pair.values.reason) for pair in comparison.variables
    } == {("float16", QUANTISED)}


@THOROUGH
@pytest.mark.parametrize("release", RELEASES)
def test_one_model_in_two_formats_is_the_same(release: str) -> None:
    """HDF5, .keras, SavedModel, export and JSON of a model are equal."""
    pairs = [
        (name, pair)
        for name, found in cases(release).items()
        if name != NOT_THE_SAME
        for pair in itertools.combinations(found.values(), 2)
    ]
    for name, (a, b) in sampled(f"two formats of {release}", pairs, share=SHARE):
        found = policytool.diff(a, b)
        assert not found.differs, (name, a, b, differences(found))
        assert verdicts(found) <= {ComparisonVerdict.EQUAL}, (name, a, b)


@pytest.mark.parametrize("release", ["tf2.15", "keras3.6"])
def test_loss_scale_missing_from_keras_archives_is_a_difference(release: str) -> None:
    """Only in this case, two formats of one model differ."""
    comparison = policytool.diff(
        FIXTURES / release / f"{NOT_THE_SAME}.keras", FIXTURES / release / f"{NOT_THE_SAME}.h5"
    )
    assert comparison.optimizer is not None
    assert {change.aspect for change in comparison.optimizer.differences} == {Aspect.LOSS_SCALE}
    assert not any(layer.differs for layer in comparison.layers)


@THOROUGH
@pytest.mark.parametrize("release", RELEASES)
def test_the_other_way_round_mirrors(release: str) -> None:
    """Swapped models have swapped differences, also between models with little in common."""
    paths = sorted(files(release))
    pairs = [
        *itertools.pairwise(paths[:12]),
        *zip(paths[:6], sorted(files("tf2.15")), strict=False),
    ]
    for a, b in sampled(f"mirrors in {release}", pairs, share=SHARE):
        there, back = policytool.diff(a, b), policytool.diff(b, a)
        assert there.differs == back.differs
        assert {seen(layer, "a", "b") for layer in there.layers} == {
            seen(layer, "b", "a") for layer in back.layers
        }, (a, b)
        assert (there.optimizer is None) == (back.optimizer is None)


def seen(layer: Any, one: str, other: str) -> tuple[Any, ...]:
    """Return a layer as it is seen with ``one`` for A."""
    changes = frozenset(
        (
            change.aspect,
            change.key,
            repr(getattr(change, one)),
            repr(getattr(change, other)),
            change.is_format_only,
        )
        for change in layer.changes
    )
    variables = sorted(
        repr(
            (
                getattr(pair, one),
                getattr(pair, other),
                pair.values.verdict,
                pair.values.differing,
                pair.values.largest,
            )
        )
        for pair in layer.variables
    )
    return (
        getattr(layer, one),
        getattr(layer, other),
        layer.paired,
        layer.listed,
        changes,
        tuple(variables),
    )


@pytest.mark.parametrize(
    "name", ["exp_mf16_fixed128.h5", "global_mixed_float16.h5", "global_mixed_float16.json"]
)
def test_migrated_model_differs_at_most_in_the_loss_scale(tmp_path: Path, name: str) -> None:
    """The policy format changes, and the bytes of variables are equal."""
    source = FIXTURES / "tf2.3" / name
    migrated = policytool.migrate(source, output=tmp_path / name).output
    assert migrated is not None
    comparison = policytool.diff(source, migrated)
    assert {aspect for _, aspect in differences(comparison)} <= {Aspect.LOSS_SCALE}
    assert verdicts(comparison) <= {ComparisonVerdict.EQUAL}
    assert comparison.format_only or differences(comparison)


def test_migration_to_another_policy_changes_only_policies(tmp_path: Path) -> None:
    """With ``--to``, migrate changes policies and their consequences, and no byte of a variable."""
    target = policytool.migrate(MIXED_H5, to="mixed_bfloat16", output=tmp_path / "model.h5").output
    assert target is not None
    comparison = policytool.diff(MIXED_H5, target)
    assert comparison.differs
    assert {aspect for _, aspect in differences(comparison)} <= POLICIES
    assert verdicts(comparison) == {ComparisonVerdict.EQUAL}


@pytest.mark.parametrize("policy", ["float16", "float64"])
def test_cast_variables_are_reported_as_cast(tmp_path: Path, policy: str) -> None:
    """If ``migrate`` casts variables, the difference says whether B is A rounded or lossless."""
    source = FIXTURES / "tf2.15/global_float32.h5"
    target = policytool.migrate(
        source, to=policy, include=["outputs"], output=tmp_path / "model.h5"
    ).output
    assert target is not None
    comparison = policytool.diff(source, target)
    changed = [
        pair.values
        for pair in comparison.variables
        if pair.a and pair.b and pair.a.dtype != pair.b.dtype
    ]
    assert changed
    assert {values.verdict for values in changed} == {ComparisonVerdict.ROUNDED}
    assert {values.rounded for values in changed} <= (
        {Presence.B, Presence.BOTH} if policy == "float16" else {Presence.BOTH, Presence.A}
    )


def test_the_same_model_of_keras_2_and_3() -> None:
    """A model that both libraries build has no difference, although Keras 2 resolves an axis."""
    comparison = policytool.diff(
        FIXTURES / "tf2.15/global_mixed_float16.h5",
        FIXTURES / "keras3.15/global_mixed_float16.keras",
    )
    assert not comparison.differs
    assert [
        (layer.path, change.a, change.b)
        for layer in comparison.layers
        for change in layer.changes
        if change.key == "axis"
    ] == [("mlp/norm", [1], -1)]
    assert comparison.format_only > 5
    assert {layer.paired for layer in comparison.layers} == {Pairing.ROOT, Pairing.PATH}


def test_default_names_of_keras2_and_keras3_pair_by_position() -> None:
    """The names ``input_1`` and ``input_layer`` are reported as a renamed layer."""
    comparison = policytool.diff(
        FIXTURES / "tf2.15/default_float32.h5", FIXTURES / "keras3.15/default_float32.keras"
    )
    renamed = {
        (layer.a, layer.b, layer.paired) for layer in comparison.layers if layer.a != layer.b
    }
    assert ("model/input_1", "functional/input_layer", Pairing.POSITION) in renamed
    assert {aspect for _, aspect in differences(comparison)} == {Aspect.NAME}


@pytest.mark.parametrize("weights", ["weights_only.h5", "weights_only.weights.h5"])
def test_weights_only_file_is_compared_without_policies(weights: str) -> None:
    """Groups of weights are layers, as releases read them, and their policies are not compared."""
    comparison = policytool.diff(
        FIXTURES / "tf2.15" / weights, FIXTURES / "tf2.15/adam_autowrap_mf16.h5"
    )
    dense = next(layer for layer in comparison.layers if layer.path.endswith("dense_a"))
    assert [pair.presence for pair in dense.variables] == [Presence.BOTH, Presence.BOTH]
    assert "variables-only" in {note.code for note in comparison.notes}
    assert not differences(comparison)


def test_variables_of_one_name_are_all_compared() -> None:
    """``tf.Module`` names all variables ``Variable`` by default; each is compared."""

    def module(*shapes: tuple[int, ...]) -> comparing.ComparedModel:
        tensors = tuple(
            Tensor(path=("Variable",), shape=shape, dtype="float32", node=index)
            for index, shape in enumerate(shapes)
        )
        return comparing.compared_model(
            Document(path="module", format="savedmodel", layout=Layout.SCOPES, tensors=tensors)
        )

    same = comparing.compare_models(module((2,), (3,)), module((2,), (3,)), Opened())
    assert (same.differs, [len(layer.variables) for layer in same.layers]) == (False, [2])
    assert comparing.compare_models(module((2,), (3,)), module((2,), (4,)), Opened()).differs


def test_weights_only_files_pair_by_the_layer_names_in_the_file() -> None:
    """Keras 3 stores the names of layers next to weights, and Keras 2 names groups by them."""
    comparison = policytool.diff(
        FIXTURES / "tf2.15/weights_only.h5", FIXTURES / "keras3.15/weights_only.weights.h5"
    )
    assert [(layer.a, layer.b, layer.paired) for layer in comparison.layers] == [
        ("dense_a", "layers/dense", Pairing.NAME)
    ]


def test_missing_variables_of_an_architecture_are_not_a_difference() -> None:
    """A note reports that the file has no variables."""
    comparison = policytool.diff(MIXED_H5, MIXED_JSON)
    assert not comparison.differs
    assert {note.code for note in comparison.notes} == {"no-variables"}
    assert {pair.presence for pair in comparison.variables} == {Presence.A}
    assert {pair.values.verdict for pair in comparison.variables} == {
        ComparisonVerdict.NOT_COMPARED
    }


def test_missing_variable_is_a_difference(tmp_path: Path) -> None:
    """The formats of both models store variables."""
    source, other = (
        small_models.h5_model(tmp_path / "a.h5", small_models.sequential()),
        small_models.h5_model(tmp_path / "b.h5", small_models.sequential()),
    )
    with h5py.File(other, "a") as file:
        del file["model_weights/dense_a/dense_a/bias:0"]
    comparison = policytool.diff(source, other)
    assert [
        (pair.a.name if pair.a else None, pair.presence)
        for pair in comparison.variables
        if pair.differs
    ] == [("bias", Presence.A)]


def test_changed_element_is_counted_and_measured(tmp_path: Path) -> None:
    """The exit code is then 1."""
    source, other = (
        small_models.h5_model(tmp_path / "a.h5", small_models.sequential()),
        small_models.h5_model(tmp_path / "b.h5", small_models.sequential()),
    )
    with h5py.File(other, "a") as file:
        file["model_weights/dense_a/dense_a/kernel:0"][3, 1] = 0.25
    (values,) = (pair.values for pair in policytool.diff(source, other).variables if pair.differs)
    assert (values.verdict, values.elements, values.differing, values.largest) == (
        ComparisonVerdict.DIFFERENT,
        12,
        1,
        0.25,
    )
    ended = run("diff", source, other)
    assert ended.code == Exit.FINDINGS
    assert "1/12 differ, up to 0.25" in ended.out


def test_values_in_external_files_are_not_compared(tmp_path: Path) -> None:
    """The report contains the reason."""
    source, other = (
        small_models.h5_model(tmp_path / "a.h5", small_models.sequential()),
        small_models.h5_model(tmp_path / "b.h5", small_models.sequential()),
    )
    (tmp_path / "elsewhere").write_bytes(bytes(48))
    with h5py.File(other, "a") as file:
        del file["model_weights/dense_a/dense_a/kernel:0"]
        file.create_dataset(
            "model_weights/dense_a/dense_a/kernel:0",
            (6, 2),
            "f4",
            external=[(str(tmp_path / "elsewhere"), 0, 48)],
        )
    comparison = policytool.diff(source, other)
    assert [
        (pair.a.name if pair.a else "", pair.values.verdict) for pair in comparison.variables
    ] == [
        ("kernel", ComparisonVerdict.NOT_COMPARED),
        ("bias", ComparisonVerdict.EQUAL),
    ]
    assert any("another file" in note.message for note in comparison.notes)
    assert "were not compared" in " ".join(run("diff", source, other).out.split())


def test_optimizer_state_is_compared_within_a_format(tmp_path: Path) -> None:
    """Variables of the optimizer by their names, and its hyperparameters."""
    source = FIXTURES / "tf2.15/adam_autowrap_mf16.h5"
    other = tmp_path / "model.h5"
    other.write_bytes(source.read_bytes())
    with h5py.File(other, "a") as file:
        config = json.loads(file.attrs["training_config"])
        config["optimizer_config"]["config"]["inner_optimizer"]["config"]["learning_rate"] = 0.5
        file.attrs["training_config"] = json.dumps(config)
        file["optimizer_weights/m/dense_a/kernel:0"][0, 0] += 1
    section = policytool.diff(source, other).optimizer
    assert section is not None
    assert [(change.key, change.b) for change in section.differences] == [("learning_rate", 0.5)]
    assert [pair.a.name for pair in section.variables if pair.differs and pair.a] == [
        "m/dense_a/kernel"
    ]


def test_missing_optimizer_is_a_difference() -> None:
    """Only one of the models is compiled."""
    comparison = policytool.diff(
        FIXTURES / "tf2.15/default_float32_compiled.h5", FIXTURES / "tf2.15/default_float32.h5"
    )
    assert comparison.optimizer is not None
    assert comparison.optimizer.presence is Presence.A


def test_signatures_are_compared_between_savedmodels() -> None:
    """Names, arguments and dtypes are compared; a note says that other formats have none."""

    def exported(dtype: str, *signatures: Signature) -> comparing.ComparedModel:
        trace = Trace(
            entry="serve",
            signature=True,
            ops=((GraphOp(scope=(), op="MatMul", dtypes=(dtype,)), 1),),
            reads={},
        )
        return comparing.compared_model(
            Document(
                path="export",
                format="savedmodel",
                layout=Layout.SCOPES,
                tensors=(),
                signatures=signatures,
                traces=(trace,),
            )
        )

    serve = Signature(name="serve", inputs={"x": "float32"}, outputs={"y": "float32"})
    half = Signature(
        name="serve", inputs={"x": "float16", "z": "float32"}, outputs={"y": "float32"}
    )
    other = Signature(name="other", inputs={}, outputs={})
    result = comparing.compare_models(
        exported("float32", serve, other), exported("float16", half), Opened()
    )
    assert [(section.name, section.presence) for section in result.signatures] == [
        ("other", Presence.A),
        ("serve", Presence.BOTH),
    ]
    assert [(change.key, change.a, change.b) for change in result.signatures[1].changes] == [
        ("input x", "float32", "float16"),
        ("input z", ABSENT, "float32"),
        (None, ["float32"], ["float16"]),
    ]
    assert not comparing.compare_models(
        exported("float32", serve), exported("float32", serve), Opened()
    ).differs
    assert "no-signatures" in {
        note.code
        for note in policytool.diff(FIXTURES / "tf2.3/global_mixed_float16", MIXED_H5).notes
    }


def test_migrated_policies_do_not_change_traced_graphs(tmp_path: Path) -> None:
    """The policies differ, and a note explains the equal graphs."""
    target = policytool.migrate(
        MIXED_SAVEDMODEL, to="mixed_bfloat16", output=tmp_path / "model"
    ).output
    assert target is not None
    comparison = policytool.diff(MIXED_SAVEDMODEL, target)
    assert {aspect for _, aspect in differences(comparison)} == {Aspect.POLICY, Aspect.COMPUTE}
    assert not any(section.differs for section in comparison.signatures)
    assert [note.code for note in comparison.notes] == ["traced-alike"]


def test_savedmodels_of_two_releases_have_equal_graphs() -> None:
    """Equal graphs of two releases are equal; one kernel has other random values."""
    assert not policytool.diff(
        FIXTURES / "tf2.15/global_mixed_float16", FIXTURES / "tf_keras2.21/global_mixed_float16"
    ).differs
    older = policytool.diff(
        FIXTURES / "tf2.9/global_mixed_float16", FIXTURES / "tf2.15/global_mixed_float16"
    )
    assert not differences(older)
    assert not any(section.differs for section in older.signatures)
    assert [pair.a.name for pair in older.variables if pair.differs and pair.a] == ["kernel"]


def test_another_trace_is_a_difference() -> None:
    """TF 2.4 traces the softmax in float32, TF 2.5 casts before it; policies are the same."""
    comparison = policytool.diff(
        FIXTURES / "tf2.4/global_mixed_float16",
        FIXTURES / "tf2.5/global_mixed_float16",
        values=False,
    )
    traced = [
        (layer.path, change.a, change.b)
        for layer in comparison.layers
        for change in layer.differences
        if change.aspect is Aspect.TRACED
    ]
    assert traced == [("mlp/probabilities", ["float32"], ["float16", "float32"])]


def test_exports_of_keras3_and_tf1_are_compared_by_traced_dtypes() -> None:
    """Exports have no policies, so the difference is the traced dtype of a signature."""
    comparison = policytool.diff(
        FIXTURES / "keras3.15/global_mixed_float16.export",
        FIXTURES / "tf1.15/global_mixed_float16.export",
        values=False,
    )
    section = next(
        section for section in comparison.signatures if section.name == "serving_default"
    )
    assert [
        (change.a, change.b) for change in section.changes if change.aspect is Aspect.TRACED
    ] == [(["float16", "float32"], ["float32"])]
    assert ("dense_a", Aspect.TRACED) in differences(comparison)


def test_a_graph_that_one_file_lacks_is_a_note() -> None:
    """HDF5 has none, which makes no difference."""
    comparison = policytool.diff(
        FIXTURES / "tf2.15/global_mixed_float16", FIXTURES / "tf2.15/global_mixed_float16.h5"
    )
    assert not comparison.differs
    assert [note.code for note in comparison.notes] == ["no-signatures"]
    assert "traced dtypes" in comparison.notes[0].message


def test_a_graph_that_was_not_read_is_a_note() -> None:
    """If the graph of one file exceeds a limit, the graph of the other file is not compared."""
    trace = Trace(entry="serve", signature=True, ops=(), reads={})
    first, second = (
        comparing.compared_model(
            Document(path="x", format="savedmodel", layout=Layout.SCOPES, tensors=(), traces=traces)
        )
        for traces in ((trace,), ())
    )
    result = comparing.compare_models(first, second, Opened())
    assert not result.differs
    assert [note.message for note in result.notes if note.code == "no-graph"] == [
        ("B has no readable graph, so the traced dtypes of the other file are not compared")
    ]


def test_a_layer_may_be_picked(tmp_path: Path) -> None:
    """A path or pattern selects layers; other differences are left out."""
    target = policytool.migrate(
        MIXED_H5, set={"mlp/dense_a": "float64"}, output=tmp_path / "model.h5"
    ).output
    assert target is not None
    assert [
        layer.path for layer in policytool.diff(MIXED_H5, target, layer="mlp/dense_a").layers
    ] == ["mlp/dense_a"]
    assert run("diff", MIXED_H5, target, "--layer", "mlp/n.*").code == Exit.CLEAN
    assert run("diff", MIXED_H5, target, "--layer", "mlp/d.*").code == Exit.FINDINGS


@pytest.mark.parametrize("pattern", ["mlp/(", "nothing"])
def test_a_pattern_that_picks_nothing_is_wrong_usage(pattern: str) -> None:
    """A gate that compares nothing would pass for ever."""
    with pytest.raises(UsageError):
        policytool.diff(MIXED_H5, MIXED_H5, layer=pattern)
    assert run("diff", MIXED_H5, MIXED_H5, "--layer", pattern).code == Exit.USAGE


def test_values_are_not_read_on_request(tmp_path: Path) -> None:
    """No values are then called equal, and a damaged tensor causes no failure."""
    source, other = (
        small_models.h5_model(tmp_path / "a.h5", small_models.sequential()),
        small_models.h5_model(tmp_path / "b.h5", small_models.sequential()),
    )
    with h5py.File(other, "a") as file:
        file["model_weights/dense_a/dense_a/kernel:0"][:] = np.nan
    comparison = policytool.diff(source, other, values=False)
    assert not comparison.differs
    assert verdicts(comparison) == {ComparisonVerdict.NOT_COMPARED}
    assert "equal" not in run("diff", source, other, "--no-values").out


def test_all_unreadable_files_are_reported(tmp_path: Path) -> None:
    """The exit code is 3, and JSON contains each file with its code."""
    (tmp_path / "page.h5").write_text("<!DOCTYPE html><html></html>")
    ended = run("diff", tmp_path / "page.h5", tmp_path / "gone.h5", "--format", "json")
    assert ended.code == Exit.FAILURE
    assert ended.json["comparison"] is None
    assert [failure["code"] for failure in ended.json["failures"]] == ["html-page", "not-found"]
    assert "page.h5" in ended.err
    assert "gone.h5" in ended.err
    with pytest.raises(ModelFileError, match="does not exist"):
        policytool.diff(MIXED_H5, tmp_path / "gone.h5")


def test_unreadable_file_prevents_the_comparison() -> None:
    """Stdout is then empty."""
    ended = run("diff", MIXED_KERAS, FIXTURES / "manifest.json")
    assert ended.code == Exit.FAILURE
    assert not ended.out.strip()


def test_directory_of_models_is_rejected() -> None:
    """The error names one model in the directory."""
    ended = run("diff", FIXTURES / "tf2.15", MIXED_H5)
    assert ended.code == Exit.FAILURE
    assert "Specify one model in it, such as fixtures/tf2.15/" in ended.err


@pytest.mark.parametrize("file", ["keras_metadata.pb", "variables/variables.index"])
def test_file_of_a_savedmodel_selects_the_savedmodel(file: str) -> None:
    assert run("diff", MIXED_SAVEDMODEL / file, MIXED_SAVEDMODEL).code == Exit.CLEAN


def test_identical_models_print_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 0."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    ended = run(
        "diff", "fixtures/tf2.15/default_float32.h5", "fixtures/tf2.15/default_float32.keras"
    )
    assert ended.code == Exit.CLEAN
    assert ended.out == (
        "fixtures/tf2.15/default_float32.h5 and fixtures/tf2.15/default_float32.keras do not "
        "differ: 5 layers; all 4 variables are byte-identical\n"
    )


@THOROUGH
@pytest.mark.parametrize(
    "name", ["tf2.15/adam_autowrap_mf16.h5", "keras3.15/nested_models.keras", "tf2.15/mha_mixed"]
)
def test_damaged_files_end_in_sentences(tmp_path: Path, name: str) -> None:
    """A damaged file is an error with a code, or different; it is never equal."""
    source, copy = FIXTURES / name, tmp_path / f"copy{(FIXTURES / name).suffix}"
    part = "variables/variables.index" if source.is_dir() else ""
    if source.is_dir():
        shutil.copytree(source, copy)
    data = (source / part).read_bytes()
    for number, (_, changed) in enumerate(damaged(data, seed=5, count=60)):
        (copy / part).write_bytes(changed)
        try:
            comparison = policytool.diff(source, copy)
        except ModelFileError as error:
            assert error.code, number
        else:
            assert all(
                pair.values.reason
                for pair in comparison.variables
                if pair.values.verdict is ComparisonVerdict.NOT_COMPARED
            )


@pytest.mark.parametrize("name", ["wrappers", "nested_models", "global_mixed_float16", "mha"])
def test_numbered_variables_have_the_names_of_their_layers(name: str) -> None:
    """An archive numbers the variables of each layer, and HDF5 names them."""
    archive, named = (FIXTURES / "keras3.15" / f"{name}.{suffix}" for suffix in ("keras", "h5"))
    if not named.exists():
        named = archive
    in_archive, in_both = policytool.diff(archive, archive), policytool.diff(archive, named)
    names = [[pair.name for pair in layer.variables] for layer in in_archive.layers]
    expected = [[pair.b.name for pair in layer.variables if pair.b] for layer in in_both.layers]
    assert not any(name.isdecimal() for layer in names for name in layer)
    if named != archive:
        assert [[name.rpartition("/")[2] for name in layer] for layer in expected] == names


def test_numbered_variables_of_a_custom_class_keep_their_numbers() -> None:
    path = FIXTURES / "keras3.15" / "custom_layer.keras"
    layers = {layer.class_name: layer for layer in policytool.diff(path, path).layers}
    assert [pair.name for pair in layers["Scale"].variables] == ["0"]


def test_the_reason_not_to_compare_values_is_given_once() -> None:
    """A note has it, so that the cells of variables need not repeat it."""
    models = [FIXTURES / f"keras3.15/global_{policy}.keras" for policy in ("float16", "float32")]
    report = run("diff", "--no-values", "--format", "markdown", *models).out
    assert report.count("not compared") > 2
    assert report.count("--no-values is set") == 1


def test_bytecode_is_shown_as_what_it_computes(tmp_path: Path) -> None:
    """The bytes themselves say nothing to a reader."""
    model = FIXTURES / "keras3.15" / "lambda.keras"
    converted = tmp_path / "converted.keras"
    run("migrate", model, "--target", "keras3.3", "-o", converted, "--no-verify")
    assert "function bytecode (values * 2.0) not set" in " ".join(
        run("diff", model, converted).out.split()
    )
