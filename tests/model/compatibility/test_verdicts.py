"""
Verdicts agree with the results of the real releases for every fixture.

``fixtures/loads.py`` measured these results and wrote them to ``fixtures/loads.json``. Each release
that a report calls compatible loaded the file, and each incompatible release failed. If a file
contains too little information, the report has no verdict.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.formats import format_detection
from policytool.migration import planning
from policytool.migration.plan import apply_edits
from policytool.model import reading, writer_version
from policytool.model.compatibility.evidence import Evidence
from policytool.model.compatibility.incompatibilities import REFUSALS, UNICODE_TEXT
from policytool.model.compatibility.serialized_objects import shared_layers
from policytool.model.model import Cause, Obstacle, Verdict
from policytool.releases.releases import LOADERS
from policytool.reports.words import loader_lines
from tests.conftest import MIXED_SAVEDMODEL, run
from tests.helpers.marks import INSPECTING, THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.model.compatibility.test_configs import (
    COUNTED,
    GLOBAL,
    MIXED_ATTENTION,
    NETWORK,
    REFUSED_CONFIGS,
    TABLE,
)
from tests.model.test_truth import report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

pytestmark = INSPECTING

MEASURED: Final = json.loads((FIXTURES / "loads.json").read_text(encoding="utf-8"))

MIGRATED: Final = json.loads((FIXTURES / "loads_migrated.json").read_text(encoding="utf-8"))
BARE: Final = (
    "tf2.5",
    "tf2.9",
    "tf2.12",
    "tf2.15",
    "tf_keras2.21",
    "keras3.0",
    "keras3.3",
    "keras3.6",
    "keras3.15",
)
"""Loaders that read a bare policy name."""

ORBAX: Final = frozenset(row.reason for row in REFUSALS if row.formats == {"orbax"})
"""The rows about Orbax checkpoints, which tests/formats/orbax compares with its fixtures."""

EDITED: Final = (
    "a cropping layer leaves nothing of its input",
    "a layer class has a module of TensorFlow, which Keras 3.9 and later do not import",
    "a layer class of Keras has a module that does not contain it; Keras writes keras.layers",
    "an InputLayer has a mixed policy instead of a dtype",
    "an InputLayer has a policy instead of a dtype",
    "an InputLayer has a policy object instead of a dtype",
    UNICODE_TEXT,
    "the module of a layer is null",
    "the module of an initializer, regularizer or constraint is null",
    "the module of the model class is null",
    "the archive does not specify the module of the model class",
    "a Normalization has an axis that its input does not have, or whose size is unknown",
    "an activation is a function in a dict, which needs TF 2.13 or later",
    "an activation is a function in a dict, which Keras 2 reads only in archives and JSON",
    "an activation is a function in a module that does not contain it",
    "an InputLayer has a `type_spec` beside other arguments",
    "a StackedRNNCells in a StackedRNNCells has a cell of several states",
    "Keras 3.0 does not build a Dot for stored shapes",
    "a Discretization has an input in float16, which the op Bucketize does not support",
)
"""Reasons that ``test_files.py`` tests."""

CLAIMED: Final = (
    "Keras 3.6 cannot call a Pipeline, which lacks `compute_output_shape`",
    "Keras 3.6 joins the masks of a Concatenate in an operation with the name of a layer",
    (
        "MultiHeadAttention stores kernels in another dtype than float32, in which TF 2.12 and "
        "older build them"
    ),
    (
        "MultiHeadAttention with a pure policy stores kernels in float32, as TF 2.12 and older "
        "build them, and not in the dtype of its policy"
    ),
    "MultiHeadAttention has an `output_shape`, which is not read before Keras 3.7",
    "TF 2.12 does not restore the lookup tables of later releases",
    "a FeatureSpace is not a Keras model",
    "a Normalization has one mean for several values, which Keras 3.0 to 3.6 do not repeat",
    "a Normalization of TF 2.5 has statistics in the dtype of its policy, not in float32",
    "a layer counts the words of a vocabulary that JSON does not contain",
    "a layer pads counts of words to a maximum number that its config does not have",
    "a tf-idf layer pads its weights to a number of words that its vocabulary does not have",
    "a nested Sequential model has no layers",
    "an argument is an array in the format of TF 2.13 and later",
    "an argument of a layer is an array, which Keras 2 reads only in the config of an initializer",
    "TF 2.4 and older mask the scores of an attention layer only in float32",
    "tf.einsum is stored without its inputs, because Keras 2 stores only the first argument",
    "an index contains an ellipsis, which TF 2.4 does not read from JSON",
    "an initializer has an array, which Keras 2 does not read from HDF5",
    "an operation, whose name is not stored, gets the name of a layer",
    "the weights of a tf-idf layer are not in its config",
    (
        "the weights of a tf-idf layer are stored as a variable, which the layer does not have in "
        "Keras 3"
    ),
)
"""Reasons of the files in ``claims.zip``, or of similar files."""

NPZ: Final = frozenset(row.reason for row in REFUSALS if "model.weights.npz" in row.reason)
"""
Rows that no fixture shows: tests/formats/keras_archive/test_npz.py has the files that releases were
given.
"""

STUCK: Final = "circular dependency between layers"

PRESET: Final = "KerasHub presets need Keras 3"
"""Presets are written by their tests (tests/formats/keras_hub)."""

INCOMPLETE: Final = (
    "Keras 3.0 reads the training configuration even with compile=False, and that of the file is "
    "incomplete"
)
"""Keras 3.0.5 raises a KeyError without `optimizer_config` and without `loss_weights`."""

RANDOM: Final = (
    "random image layers cannot be built, because TF 2.5 and older do not store their input shapes"
)
"""Eight classes that TF 2.5 saved, loaded in 2.9 and 2.12 (``fixtures/verdict_models.py``)."""

MASKS: Final = (
    "a layer receives a list of masks as an argument, which Keras 3 does not read from Keras 2 "
    "HDF5 files"
)
"""AdditiveAttention that TF 2.15 saved, loaded in Keras 3.15.1."""

DISCRETIZED: Final = "Discretization of TF 2.4 cannot be rebuilt from its config, and has no traces"
"""Saved by TF 2.4 with three dtypes, loaded in TF 2.4 to 2.15 and tf_keras 2.21."""

CALLS: Final = (
    (
        "a recurrent layer receives constants as its states or mask, which Keras 2 stores as "
        "numbers and does not read"
    ),
    "the query of an attention layer has a mask, which Keras 3.6 cannot pass on",
    "an output is the output of a nested functional model, which Keras 3.0 does not find",
    "an attention layer is called with `use_causal_mask`, which needs TF 2.10 or later",
    ("a call or an output uses the result of a layer that its model does not have"),
    (
        "a layer is shared with a nested model, whose call of it Keras 3.14 and later take for the "
        "call of the outer model"
    ),
    (
        "a convolution has another number of input channels than its kernel, which Keras 3.12 does "
        "not check"
    ),
    "a Hashing layer has a policy in a dict, and Keras 3.0 to 3.3 require the name of a dtype",
    (
        "the inputs or outputs of a model are lists or dicts in a list or dict, which Keras 3.0 to "
        "3.3 do not read"
    ),
    "the model uses the scores of a MultiHeadAttention, which Keras 3.0 does not return",
    (
        "the model uses the scores of an Attention or AdditiveAttention, which Keras 3.0 to 3.6 do "
        "not return"
    ),
    "an RNN returns the states of a StackedRNNCells with an LSTM cell",
    "TF 2.1 does not restore an op layer with a single input from its traces",
    "a stateful recurrent layer has its states in float32, and computes in another dtype",
    "a Discretization casts its input to 16 bits, which the op Bucketize does not support",
    "only TF 2.5 stores the boundaries of a Discretization in a variable",
    (
        "a layer is shared between models; Keras 2 stores its variables once, but they are read "
        "for each model"
    ),
)
"""Reasons that tests of configs and of quantized layers cover."""

NORMALIZED: Final = (
    "SpectralNormalization cannot normalize the kernel of a layer quantized to int8 or int4"
)
"""``test_quantized.py`` has the configs."""

SHAPE_OBJECTS = "its Sequential models store input shapes in the format of a later release"
IOU = (
    "TF 2.4 and older create the variable of a MeanIoU only in float64",
    "TF 2.5 and later create the variable of a MeanIoU in the dtype of the metric",
)
AXES: Final = (
    "an operation has an axis that its tensor does not have, which Keras 3.12 does not check"
)
"""``test_operations.py`` has the configs."""

DISTRIBUTED: Final = (
    "TimeDistributed cannot determine the output shape of a model with a list of outputs, as "
    "releases before Keras 3.11 write it"
)
"""``test_configs.py`` has the config."""

LATER: Final = "a shared layer is called on the result of a layer that is listed later"
NUMBERS: Final = (
    "an op layer combines a number with a tensor of another dtype (`1.0 + x`), because Keras 2 "
    "converts numbers to float32 or int32"
)
"""Of 40 models that TF 2.15.1 saved; ``test_configs.py`` has their configs."""

DILATED: Final = frozenset(
    row.reason for row in REFUSALS if "a dilation rate above 1" in row.reason
)
"""Measured for each class in TF 2.3, 2.9, 2.12, tf_keras 2.21 and Keras 3.0 to 3.15."""

LISTED: Final = (
    "a functional model in a Sequential model returns a list, as releases before Keras 3.11 write "
    "it, which a later layer does not accept"
)
"""``test_inbound_nodes.py`` has the configs, and tests/compat/verdict_models.py the files."""

WEIGHTED: Final = "a CategoryEncoding receives `count_weights`, which Keras 3.0 does not support"

OPTIONAL: Final = (
    "the InputLayer of a Sequential model has an argument `optional`, which needs tf_keras"
)
"""``test_configs.py`` has the config."""

COLUMNS: Final = (
    "DenseFeatures under a mixed policy joins an embedding in 16 bits with columns in float32"
)
"""``test_configs.py`` has the config."""

GROUPS: Final = "TF 2.9 does not build a convolution with groups under a mixed policy"
"""Of three models that TF 2.9 built and read from JSON; ``test_configs.py`` has a config."""

JUDGED: Final = 0.93
"""
The least share of all pairs of a file and a loader that the report judges.

What it leaves open are custom classes, Lambda and op layers, in the main.
"""

BYTECODE: Final = (
    "an activation, initializer, regularizer or constraint is Python bytecode, which is not rebuilt"
)
"""Models of Keras 3.0, 3.15 and TF 2.15 with lambdas in each place, loaded in six releases."""

"""The row that no fixture shows: a test takes the files away."""

PUBLISHED: Final = ROOT.parent / "shared" / "reference" / "load-matrix.md"
"""The published matrix beside the checkout, where there is one."""


def actual(path: str) -> dict[str, bool]:
    """Return for each release whether it loaded the file."""
    found = {}
    for result, loaders in MEASURED["loads"][path].items():
        if result != "compiled":
            found.update(dict.fromkeys(loaders.split(), result == "ok"))
    return found


FILES: Final = sorted(path for path in MEASURED["loads"] if (FIXTURES / path).exists())


def verdicts(path: str) -> Mapping[str, Verdict]:
    """Return the verdicts on a fixture, by release."""
    return report(str(FIXTURES / path)).releases


def disagreements(path: str, found: Iterable[Verdict], said: Mapping[str, bool]) -> list[str]:
    """Return the releases whose verdict is known and differs from the measured result."""
    return [
        (
            f"{path} in {verdict.loader}: {verdict.reason or 'loads'}, but really "
            f"{'loads' if said[verdict.loader] else 'refuses'}"
        )
        for verdict in found
        if verdict.loader in said
        and verdict.not_judged is None
        and said[verdict.loader] != verdict.loads
    ]


@THOROUGH
def test_verdicts_agree_with_the_measured_loads() -> None:
    """No known verdict differs from the measured result, for all pairs of a file and a release."""
    wrong = [
        text
        for path in FILES
        for text in disagreements(path, verdicts(path).values(), actual(path))
    ]
    assert not wrong, "\n".join(wrong)


@THOROUGH
def test_most_verdicts_are_known() -> None:
    """``unknown`` is rare and cannot hide errors of the other tests."""
    pairs = [
        verdicts(path)[loader]
        for path in FILES
        for loader in actual(path)
        if loader in verdicts(path)
    ]
    assert sum(verdict.not_judged is None for verdict in pairs) / len(pairs) >= JUDGED


def _said_of_migrated(path: str) -> tuple[list[str], list[str]]:
    """
    Return the verdicts on a migrated file that differ from the measured results, and the releases
    that fail on its policies.
    """
    made = planning.plan(
        reading.load_model(format_detection.document(FIXTURES / path, path)), planning.Options()
    )
    said = {
        loader: result == "ok"
        for result, loaders in MIGRATED["loads"][path].items()
        if result != "compiled"
        for loader in loaders.split()
    }
    policies = [
        f"{path} in {verdict.loader}: {cause.reason}"
        for verdict in made.loaders_after
        if verdict.loader in BARE
        for cause in verdict.causes[:1]
        if cause.kind is Obstacle.POLICY
    ]
    return disagreements(path, made.loaders_after, said), policies


@THOROUGH
def test_newer_releases_load_the_policies_of_migrated_files() -> None:
    """
    After migration no newer release fails on the policies of a file, and other failures agree with
    the verdicts. The measured results of the migrated fixtures are in
    ``fixtures/loads_migrated.json``.
    """
    found = [_said_of_migrated(path) for path in MIGRATED["loads"]]
    assert len(found) > 200
    assert not [text for wrong, _ in found for text in wrong]
    assert not [text for _, policies in found for text in policies]


def _published() -> Iterator[tuple[str, str, bool]]:
    """
    Yield the published results that a fixture represents: file, release, and whether the model
    loads without its training configuration.
    """
    suffix, loaders = "", []
    for line in PUBLISHED.read_text(encoding="utf-8").splitlines():
        if line.startswith("### "):
            suffix = next((ending for words, ending in _SECTIONS if words in line), "")
        cells = (
            [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        )
        if cells[:2] == ["case", "written by"]:
            loaders = [_release(cell) for cell in cells[2:]]
        elif len(cells) == len(loaders) + 2 and loaders:
            for writer in cells[1].split(", "):
                for loader, cell in zip(loaders, cells[2:], strict=True):
                    if cell != "·":
                        yield (
                            f"{_release(writer)}/{cells[0]}{suffix}",
                            loader,
                            not cell.rpartition(" / ")[2].startswith("e"),
                        )


OTHER_FILES: Final = {
    **dict.fromkeys(
        (f"{release}/default_float32_compiled.h5" for release in ("tf2.3", "tf2.5", "tf2.15")),
        "keras3.0",
    ),  # compiled with another loss
    "keras3.3/nested_models.h5": "keras3.0 keras3.3 keras3.6",  # another inner model
    # the published model has a Dropout, which these do not rebuild without traces
    "tf2.4/exp_mf16_fixed128": "tf2.9 tf2.12 tf2.15 tf_keras2.21",
    "tf2.5/exp_mf16_fixed128": "tf2.9 tf2.12 tf2.15 tf_keras2.21",
}
"""
Published cases whose file is another than ours of the same name, and the loaders that make a
difference between them.
"""

_SECTIONS: Final = (("HDF5", ".h5"), (".keras", ".keras"), ("SavedModel", ""))


def _release(version: str) -> str:
    return (
        f"tf_keras{version.removeprefix('tk')}"
        if version.startswith("tk")
        else f"keras{version}"
        if version.startswith("3.")
        else f"tf{version}"
    )


@THOROUGH
@pytest.mark.skipif(
    not PUBLISHED.exists(), reason="the published matrix is not beside the checkout"
)
def test_verdicts_agree_with_the_published_matrix() -> None:
    """Known verdicts agree with published results on files of the same release and case."""
    cells = [
        (path, loader, loads)
        for path, loader, loads in _published()
        if path in FILES and loader in LOADERS
    ]
    wrong = [
        text
        for path, loader, loads in cells
        if loader not in OTHER_FILES.get(path, "").split()
        for text in disagreements(path, [verdicts(path)[loader]], {loader: loads})
    ]
    assert len(cells) > 500
    assert not wrong, "\n".join(wrong)


@THOROUGH
def test_every_row_applies_to_some_fixture() -> None:
    """A row without a fixture was not measured; test_missing_keys.py tests those about keys."""
    unseen = list(REFUSALS)
    for path, migrated in [
        *((path, False) for path in MEASURED["loads"]),
        *((path, True) for path in MIGRATED["loads"]),
    ]:
        if (FIXTURES / path).exists():
            document = format_detection.document(FIXTURES / path, path)
            if migrated:
                document = apply_edits(
                    document,
                    planning.plan(reading.load_model(document), planning.Options()).edits,
                    (),
                )
            part = document.parts.get(document.config_part or "")
            marks = writer_version.of(
                part,
                document.parts.get(document.training_part or ""),
                document.parts.values() if document.nodes else (),
            )
            origins, _ = writer_version.candidates(document.writer, marks)
            sites = reading.load_model(document).sites if marks.nested_models else ()
            found = Evidence(
                document=document,
                traits=marks,
                releases=frozenset(release.id for release in origins),
                shared=shared_layers(document, sites, is_marked=True),
            )
            unseen = [
                row for row in unseen if document.format not in row.formats or not row.shows(found)
            ]
    assert {row.reason for row in unseen if row.kind is not Obstacle.CONFIG} == {
        BYTECODE,
        MASKS,
        DISCRETIZED,
        STUCK,
        PRESET,
        LISTED,
        OPTIONAL,
        WEIGHTED,
        COLUMNS,
        GROUPS,
        NETWORK,
        NUMBERS,
        LATER,
        AXES,
        DISTRIBUTED,
        *CALLS,
        NORMALIZED,
        INCOMPLETE,
        RANDOM,
        *NPZ,
        *EDITED,
        *CLAIMED,
        *DILATED,
        *ORBAX,
        TABLE,
        COUNTED,
        SHAPE_OBJECTS,
        *IOU,
        *GLOBAL,
        MIXED_ATTENTION,
        *(reason for _, reason in REFUSED_CONFIGS),
    }


@pytest.mark.parametrize("missing", ["variables.index", "variables.data-00000-of-00001", ""])
def test_savedmodel_without_its_checkpoint_loads_in_no_release(
    tmp_path: Path, missing: str
) -> None:
    """
    A SavedModel loads in no release if a file of its checkpoint or the whole checkpoint is missing,
    as after an incomplete download (measured with TF 2.3, 2.9 and tf_keras 2.21).
    """
    model = tmp_path / "model"
    shutil.copytree(MIXED_SAVEDMODEL, model)
    if missing:
        (model / "variables" / missing).unlink()
    else:
        shutil.rmtree(model / "variables")
    found = policytool.inspect(str(model))
    verdicts = found.releases.values()
    assert not [verdict.loader for verdict in verdicts if verdict.loads]
    named = f"variables/{missing or 'variables.data-00000-of-00001'} is missing"
    assert named in {cause.reason for verdict in verdicts for cause in verdict.causes}
    (told,) = [
        observation.message
        for observation in found.observations
        if observation.code == "missing-shard"
    ]
    assert told.startswith(named)


@pytest.mark.parametrize("name", ["endless_graph.h5", "endless_graph.keras"])
def test_model_with_a_circular_dependency_loads_in_no_release(name: str) -> None:
    measured = json.loads((FIXTURES / "attacks.json").read_text(encoding="utf-8"))["attacks"][name][
        "outcomes"
    ]["load"]
    assert "loaded" not in measured
    found = policytool.inspect(str(FIXTURES / "attacks" / "models" / name))
    assert all(
        STUCK in {cause.reason for cause in verdict.causes} for verdict in found.releases.values()
    )


def test_each_row_applies_to_a_measured_release() -> None:
    for row in REFUSALS:
        assert row.releases.intersection(LOADERS), row.reason


def test_consecutive_releases_are_printed_as_a_range() -> None:
    """
    The text on verdicts joins consecutive releases of one library into a range, and does not join
    releases of different libraries.
    """
    verdicts = [
        Verdict(
            loader=loader,
            reason=None
            if loader in {"tf2.4", "tf2.5", "tf2.9", "tf_keras2.21", "keras3.15"}
            else "no",
        )
        for loader in LOADERS
    ]
    assert loader_lines(verdicts)[0] == ("loads in", "TF 2.4 to 2.9, tf_keras 2.21, Keras 3.15")
    assert loader_lines([]) == []


def test_unknown_verdict_counts_neither_as_loading_nor_as_failing() -> None:
    """
    A verdict with a doubt counts neither as loading nor as failing and has its own line, but a
    failure stays a failure despite other doubts.
    """
    doubt = Cause(
        kind=Obstacle.CLASS, reason="Pair is a custom class, so the result depends on its code"
    )
    left = Verdict(loader="tf2.4", reason=None, doubts=(doubt,))
    refused = Verdict(
        loader="tf2.5",
        reason="no",
        causes=(Cause(kind=Obstacle.KEY, reason="no"),),
        doubts=(doubt,),
    )
    assert (left.loads, left.not_judged, refused.loads, refused.not_judged) == (
        False,
        doubt.reason,
        False,
        None,
    )
    assert loader_lines([left, refused]) == [
        ("unknown in", f"TF 2.4: {doubt.reason}"),
        ("fails in", "TF 2.5: no"),
    ]


@pytest.mark.parametrize("name", ["default_float32.json", "global_mixed_float16.json"])
def test_converted_json_is_recognized_as_a_keras3_config(name: str, tmp_path: Path) -> None:
    """
    A JSON config that was converted for Keras 3 is recognized as a Keras 3 config, although it has
    no version and lacks keys, and not as a mixture of formats.
    """
    assert (
        run(
            "migrate", FIXTURES / "tf2.15" / name, "--target", "keras3.15", "-o", tmp_path / name
        ).code
        == 0
    )
    found = policytool.inspect(str(tmp_path / name))
    assert found.written_by is not None
    assert found.written_by.startswith("keras3")
    assert found.releases["keras3.15"].loads
    assert not [one for one in found.observations if one.code == "mixed-policy-formats"]
