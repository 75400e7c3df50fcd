"""
What a check feeds: every fixture of a sample that the newest libraries load can be fed and called,
and small models get what their layers take.
"""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.compat.cases import CASES
from tests.helpers.sampling import EVERY_CASE, LIBRARY_SHARE, sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.compat

CHILD: Final = Path(__file__).with_name("feeding.py")
FAMILIES: Final = ("keras2", "keras3")
FILES: Final = sampled(
    "fed files",
    (case.path for case in CASES if case.format in {"h5", "keras", "savedmodel"}),
    share=LIBRARY_SHARE,
)
MODELS: Final = (
    "nested",
    "operations",
    "prepared",
    "stateful",
    "half",
    "sparse",
    "wide",
    "subclassed",
    "unsaid",
    "scaled",
    "masked",
    "learnt",
)
LEAST: Final = {"keras2": 290, "keras3": 180}
"""Fixtures that a library loads, at least: fewer, and the tests below are about nothing."""

BATCHES: Final = 2
ROWS: Final = 20
"""Rows of the given files: two batches of 8, and one of 4."""

RANDOM: Final = np.random.default_rng(7)
GIVEN: Final[dict[str, Any]] = {
    "tokens": RANDOM.integers(0, 50, (ROWS, 12)),
    "segments": RANDOM.integers(0, 2, (ROWS, 12)),
    "series": RANDOM.normal(size=(ROWS, 5, 4)),
}
"""What the model ``nested`` takes, in dtypes that have to be cast."""

WRONG: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "missing": (
        {"tokens": GIVEN["tokens"]},
        "contains tokens, but the model expects segments, series, tokens",
    ),
    "extra": (
        {**GIVEN, "more": GIVEN["tokens"]},
        "contains more, segments, series, tokens, but the model expects segments, series, tokens",
    ),
    "labels": (
        {**GIVEN, "y": np.zeros(ROWS)},
        "contains segments, series, tokens, y, but the model expects segments, series, tokens",
    ),
    "empty": (
        {name: array[:0] for name, array in GIVEN.items()},
        "empty array of the shape (0, 12) for input segments; the model expects segments, series,",
    ),
    "rank": (
        {**GIVEN, "series": GIVEN["series"][:, 0]},
        "input series expects the shape (any, any, 4), but the file has (20, 4)",
    ),
    "shape": (
        {**GIVEN, "tokens": GIVEN["tokens"][:, :3]},
        "input tokens expects the shape (any, 12), but the file has (20, 3)",
    ),
    "dtype": (
        {**GIVEN, "segments": GIVEN["segments"] + 0.5},
        "input segments expects int32, but the file has float64",
    ),
    "range": (
        {**GIVEN, "tokens": GIVEN["tokens"] + 1},
        (
            "input tokens is passed to words, which accepts IDs from 0 to 49, but the file has "
            "IDs from 1 to 50"
        ),
    ),
    "negative": (
        {**GIVEN, "segments": GIVEN["segments"] - 1},
        (
            "input segments is passed to kinds, which accepts IDs from 0 to 1, but the file has "
            "IDs from -1 to 0"
        ),
    ),
    "rows": (
        {**GIVEN, "segments": GIVEN["segments"][:7]},
        "different numbers of rows: 7 of segments, 20 of series, 20 of tokens",
    ),
}
"""Arrays for the model ``nested`` that it does not take, and what the refusal says."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The results of one library for each job."""

    results: Mapping[tuple[str, str], Mapping[str, Any]]
    """By model, and by the name of the request."""

    folder: Path

    def saved(self, model: str, what: str) -> dict[str, Any]:
        """Return what was fed."""
        with np.load(_npz(self.folder, model, what), allow_pickle=False) as held:
            return dict(held)


def _npz(folder: Path, model: str, what: str) -> Path:
    return folder / f"{zlib.crc32(model.encode())}-{what}.npz"


def _jobs(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what the child is asked for, by model and kind of question."""
    plain = {"file": None, "batches": BATCHES, "batch_size": None, "seed": 3, "save": None}
    jobs: dict[tuple[str, str], dict[str, Any]] = {}
    for model in (*FILES, *MODELS):
        first, again = (str(_npz(folder, model, what)) for what in ("drawn", "again"))
        jobs[model, "drawn"] = {**plain, "save": first}
        jobs[model, "again"] = {**plain, "file": first, "batches": 1, "seed": 9, "save": again}
    for name, (arrays, _) in WRONG.items():
        np.savez(folder / f"{name}.npz", **arrays)
        jobs["nested", name] = {**plain, "file": str(folder / f"{name}.npz")}
    np.savez(folder / "given.npz", **GIVEN)
    np.save(folder / "six.npy", np.zeros((6, 3, 2)))
    jobs["nested", "given"] = {
        **plain,
        "file": str(folder / "given.npz"),
        "save": str(_npz(folder, "nested", "given")),
    }
    jobs["stateful", "six"] = {**plain, "file": str(folder / "six.npy")}
    jobs["stateful", "asked"] = {**plain, "batch_size": 6}
    jobs["nested", "other"] = {
        **plain,
        "seed": 4,
        "batch_size": 3,
        "save": str(_npz(folder, "nested", "other")),
    }
    return dict(sorted(jobs.items(), key=lambda item: item[0][0]))  # the child keeps one model


@pytest.fixture(scope="module")
def asked(
    compat_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Answers]:
    """Return a function that gives a library's answers, asking it the first time."""
    found: dict[str, Answers] = {}

    def ask(family: str) -> Answers:
        if family not in found:
            folder = tmp_path_factory.mktemp(family)
            jobs = _jobs(folder)
            listed, results = folder / "jobs.json", folder / "results.json"
            listed.write_text(
                json.dumps([[model, wanted] for (model, _), wanted in jobs.items()]),
                encoding="utf-8",
            )
            environment = {**os.environ, **ENVIRONMENT, "KERAS_HOME": str(folder)}
            done = subprocess.run(
                [compat_python, CHILD, family, listed, results],
                capture_output=True,
                check=False,
                timeout=SECONDS,
                env=environment,
            )
            assert done.returncode == 0, done.stderr.decode()[-3000:]
            actual = dict(zip(jobs, json.loads(results.read_text(encoding="utf-8")), strict=True))
            found[family] = Answers(results=actual, folder=folder)
        return found[family]

    return ask


@pytest.mark.parametrize("family", FAMILIES)
def test_every_fixture_that_loads_is_fed_and_called(
    asked: Callable[[str], Answers], family: str, count: Callable[..., None]
) -> None:
    """All inputs are finite and within range; a call on a CPU fails for ids out of range."""
    result = asked(family).results
    loaded = [path for path in FILES if result[path, "drawn"]["loaded"]]
    wrong = {
        path: result[path, "drawn"].get("refused", "not finite")
        for path in loaded
        if not result[path, "drawn"].get("finite")
    }
    count(
        {"keras2": "tf_keras2.21", "keras3": "keras3.15"}[family],
        "fed",
        files=len(FILES),
        load=len(loaded),
        agree=len(loaded) - len(wrong),
    )
    assert not wrong
    # Of the few of a sample, fewer can be among those that load.
    least = LEAST[family] if EVERY_CASE else LEAST[family] // (2 * LIBRARY_SHARE)
    assert len(loaded) >= least


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_inputs_are_the_same_check(asked: Callable[[str], Answers], family: str) -> None:
    """
    Saved inputs have the same values in the same batches for every fixture and model, also in
    dtypes that NumPy's files do not support.
    """
    answers = asked(family)
    fed = [
        model
        for (model, what), result in answers.results.items()
        if what == "drawn" and result.get("finite")
    ]
    for model in fed:
        first, again = answers.saved(model, "drawn"), answers.saved(model, "again")
        assert list(first) == list(again), model
        assert all(
            first[name].dtype == again[name].dtype and np.array_equal(first[name], again[name])
            for name in first
        ), model
        drawn_result, repeated = (answers.results[model, what] for what in ("drawn", "again"))
        assert drawn_result["specs"] == repeated["specs"], model
        assert repeated["report"]["kind"] == "given"
        assert repeated["report"]["seed"] is None
        assert drawn_result["report"]["batches"] == repeated["report"]["batches"] == BATCHES
    assert "half" in fed


@pytest.mark.parametrize("model", [model for model in MODELS if model != "unsaid"])
def test_both_libraries_are_fed_the_same(asked: Callable[[str], Answers], model: str) -> None:
    """
    The same seed and the same model give the same values, in another process and under the other
    library.
    """
    first, second = (asked(family).saved(model, "drawn") for family in FAMILIES)
    assert sorted(first) == sorted(second)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    actual = [asked(family).results[model, "drawn"]["report"]["inputs"] for family in FAMILIES]
    assert [{**entry, "how": None} for entry in actual[0]] == [
        {**entry, "how": None} for entry in actual[1]
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_stay_below_the_vocabulary_size_of_each_input(
    asked: Callable[[str], Answers], family: str
) -> None:
    """The bounds follow casts, shapes, slices, nested models and offsets."""
    answers = asked(family)
    nested, operations = answers.saved("nested", "drawn"), answers.saved("operations", "drawn")
    largest = {
        name: int(array.max()) for name, array in (nested | operations).items() if name != "series"
    }
    bounds = {"tokens": 50, "segments": 2, "whole": 7, "columns": 9, "offset": 19, "hot": 6}
    assert {name for name in largest if largest[name] >= bounds[name]} == set()
    assert largest["tokens"] > 2 * 20  # and are not those of the smallest table
    how = {
        entry["name"]: entry["how"]
        for entry in answers.results["operations", "drawn"]["report"]["inputs"]
    }
    assert how["whole"] == "IDs below 7, for cast"
    assert all(
        array.min() >= 0 for name, array in (nested | operations).items() if name != "series"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_pass_through_floats(asked: Callable[[str], Answers], family: str) -> None:
    """Through a Rescaling, which may change them, and through casts to a float and back."""
    answers = asked(family)
    fed = answers.saved("scaled", "drawn")
    how = {
        input_value["name"]: input_value["how"]
        for input_value in answers.results["scaled", "drawn"]["report"]["inputs"]
    }
    assert how["same"] == "IDs below 40, for same_words"
    assert how["through"] == "IDs below 60, for through_words"
    for name, count in (("half", 30), ("moved", 50)):
        text = f"values that a Rescaling layer converts to IDs below {count}, for {name}_words"
        assert how[name] == text
    assert how["image"] == "pixel values from 0 to 255"
    assert 40 < fed["half"].max() <= 58
    assert 1 <= fed["moved"].min() < fed["moved"].max() <= 50


@pytest.mark.parametrize("family", FAMILIES)
def test_values_have_the_statistics_of_their_normalization_layers(
    asked: Callable[[str], Answers], family: str
) -> None:
    """
    Each element has the statistics of its position in the layer. Elements without such a layer are
    around 0.
    """
    answers = asked(family)
    fed = answers.saved("learnt", "drawn")
    how = {
        input_value["name"]: input_value["how"]
        for input_value in answers.results["learnt", "drawn"]["report"]["inputs"]
    }
    text = "normally distributed values with the mean and variance of {}"
    layers = {
        "plain": "plain_norm",
        "columns": "cut_norm",
        "grid": "moved_norm",
        "one": "joined_norm",
        "other": "joined_norm",
        "scaled": "scaled_norm",
    }
    assert {name: how[name] for name in layers} == {
        name: text.format(layer) for name, layer in layers.items()
    }
    assert how["series"] == text.format("masked_norm") + ", padded with -1"
    assert how["unit"] == "values that thousandth maps to at most 1"
    statistics: dict[str, tuple[Any, Any]] = {
        "plain": ([50, -200], [0.1, 20]),
        "columns": ([0, 8, 80, 0], 1),
        "one": (5, 1),
        "other": ([-60, 700], [2, 3]),
        "grid": ([[200, 400, 600], [300, 500, 700]], 1),
        "scaled": ([22, 42], 4),
    }
    for name, (mean, spread) in statistics.items():
        apart = (fed[name] - np.array(mean)) / np.array(spread)
        assert np.abs(apart.mean(axis=0)).max() < 1, name
        assert 0.5 < apart.std() < 1.5, name
        assert apart.std(axis=0).min() > 0.3, name
    real = fed["series"][(fed["series"] != -1).all(axis=-1)]
    assert np.allclose(real.mean(axis=0), [30, 86000], atol=2)
    assert np.allclose(fed["steps"].mean(axis=(0, 1)), [3, 90], atol=1)
    assert 0 <= fed["unit"].min() < 300
    assert 700 < fed["unit"].max() <= 1000


@pytest.mark.parametrize("family", FAMILIES)
def test_masks_are_recognized_by_the_layer_argument(
    asked: Callable[[str], Answers], family: str
) -> None:
    """The name of the input does not matter, and masked values are not masks."""
    answers = asked(family)
    fed = answers.saved("masked", "drawn")
    assert set(fed["keep"].ravel().tolist()) == {True, False}
    assert all(row[0] for row in fed["keep"])
    assert set(fed["square"].ravel().tolist()) == {1.0}
    assert len(set(fed["values"].ravel().tolist())) > 9
    ranges = {
        input_value["name"]: input_value["range"]
        for input_value in answers.results["masked", "drawn"]["report"]["inputs"]
    }
    assert ranges == {"values": [-3.0, 3.0], "keep": [0.0, 1.0], "square": [0.0, 1.0]}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_second_row_ends_with_masked_steps(
    asked: Callable[[str], Answers], family: str
) -> None:
    """
    Masked steps are 0 before an Embedding, and the mask value before a Masking layer. The lengths
    of rows differ.
    """
    fed = asked(family).saved("nested", "drawn")
    ended = (fed["series"] == -1.0).all(axis=-1)
    assert ended.any(axis=1).tolist() == [False, True] * (len(ended) // 2)
    assert all(np.array_equal(row, np.sort(row)) and not row[0] for row in ended)
    lengths = [int(np.flatnonzero(row)[-1]) + 1 for row in fed["tokens"][1::2]]
    assert len(set(lengths)) > 2
    assert max(lengths) < fed["tokens"].shape[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_preprocessing_layers_get_values_in_range(
    asked: Callable[[str], Answers], family: str
) -> None:
    """
    Synthetic inputs are pixels for Rescaling, values around the mean of a Normalization, values on
    both sides of the boundaries of a Discretization, entries of vocabularies, and padding masks.
    """
    fed = asked(family).saved("prepared", "drawn")
    assert fed["image"].min() >= 0
    assert fed["image"].max() > 200
    assert np.array_equal(fed["image"], np.round(fed["image"]))
    assert np.allclose(fed["features"].mean(axis=0), [1, 200], atol=25)
    assert fed["features"][:, 1].std() > 5 > fed["features"][:, 0].std()
    assert len({int(place) for place in np.digitize(fed["amounts"].ravel(), [10, 20, 50])}) >= 3
    assert set(fed["numbers"].ravel().tolist()) <= {-1, 10, 20, 21}
    assert set(fed["words"].ravel().tolist()) == {"a", "b"}
    assert any("red" in text.split() for text in fed["text"].ravel().tolist())
    assert set(fed["flags"].ravel().tolist()) == {False, True}
    assert all(np.array_equal(row, -np.sort(-row)) and row[0] == 1 for row in fed["padding_mask"])


@pytest.mark.parametrize("family", FAMILIES)
def test_open_dimensions_get_the_smallest_size_that_works(
    asked: Callable[[str], Answers], family: str
) -> None:
    """An image of unknown size has 32 x 32 pixels, and a series has 8 steps."""
    result = asked(family).results
    assert result["wide", "drawn"]["specs"] == [[8, 32, 32, 3]]
    assert result["nested", "drawn"]["report"]["inputs"][1] == {
        "name": "series",
        "shape": [8, 8, 4],
        "dtype": "float32",
        "how": "normally distributed values, padded with -1",
        "range": [-3.0, 3.0],
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_with_a_fixed_batch_size_gets_batches_of_this_size(
    asked: Callable[[str], Answers], family: str
) -> None:
    """A note names another requested size; a file with an incomplete batch is an error."""
    result = asked(family).results
    assert result["stateful", "drawn"]["batch_size"] == 4
    assert result["stateful", "drawn"]["report"]["notes"] == []
    assert result["stateful", "asked"]["report"]["notes"] == [
        "the model accepts only batch size 4, not 6"
    ]
    assert result["stateful", "six"]["refused"] == [
        "inputs-file",
        ("the model accepts only batches of 4 rows, but the file has 6 rows for input series"),
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_given_rows_are_all_fed(asked: Callable[[str], Answers], family: str) -> None:
    """
    A short batch is the last one, and floats are cast.
    """
    answers = asked(family)
    result = answers.results["nested", "given"]
    assert result["batches"] == [8, 8, 4]
    assert result["specs"] == [[None, 12], [None, 5, 4], [None, 12]]
    assert result["report"]["notes"] == []
    assert [entry["how"] for entry in result["report"]["inputs"]] == [
        "given, cast from int64",
        "given, cast from float64",
        "given, cast from int64",
    ]
    fed = answers.saved("nested", "given")
    assert all(np.array_equal(fed[name], GIVEN[name].astype(fed[name].dtype)) for name in GIVEN)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", WRONG)
def test_arrays_of_the_user_that_do_not_fit_are_rejected(
    asked: Callable[[str], Answers], family: str, name: str
) -> None:
    """The error contains the expected and the actual shape, and the name of the input."""
    code, message = asked(family).results["nested", name]["refused"]
    assert code == "inputs-file"
    assert WRONG[name][1] in message


@pytest.mark.parametrize("family", FAMILIES)
def test_inputs_of_subclassed_models_follow_from_built_layers(
    asked: Callable[[str], Answers], family: str
) -> None:
    """A model that was never called has no known inputs and is rejected."""
    answers = asked(family)
    fed = answers.saved("subclassed", "drawn")
    assert fed["ids"].max() < 5
    assert fed["values"].dtype == np.float32
    assert not np.array_equal(fed["values"], np.round(fed["values"]))
    assert answers.results["unsaid", "drawn"]["refused"][0] == "no-inputs"


@pytest.mark.parametrize("family", FAMILIES)
def test_another_seed_gives_other_values(asked: Callable[[str], Answers], family: str) -> None:
    """Another batch also has other values."""
    answers = asked(family)
    first, second = (answers.saved("nested", what)["tokens"] for what in ("drawn", "other"))
    assert len(second) == 3 * BATCHES
    assert not np.array_equal(first[:3], second[:3])
    assert not np.array_equal(first[:8], first[8:])


@pytest.mark.parametrize("family", FAMILIES)
def test_sparse_inputs_are_mostly_zero(asked: Callable[[str], Answers], family: str) -> None:
    fed = asked(family).saved("sparse", "drawn")["values"]
    assert 0 < np.count_nonzero(fed) < fed.size / 2
