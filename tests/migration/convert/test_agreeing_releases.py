"""Which releases predict the same as the target release of a conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.migration.convert.conversion_plan import agreeing_releases
from policytool.model.model import Verdict
from policytool.numerics.verification import disagreeing_release, not_failing
from policytool.releases import behaviour
from policytool.releases.releases import LOADERS
from tests.helpers.convertible_models import converted, input2, keras2, layer2

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit

RELEASES: Final = ["tf2.15", "tf_keras2.21", *(f"keras3.{minor}" for minor in range(16))]
TABLE: Final[dict[str, Any]] = {
    "releases": RELEASES,
    "classes": {
        "Dense": {
            "Dense[relu]": {"arguments": {"activation": "relu"}, "releases": {"keras3.5": 9}},
            "Dense[elu]": {
                "arguments": {"activation": "elu"},
                "releases": {"keras3.2": 9, "keras3.12": "ValueError: no"},
            },
        },
        "Flatten": {"Flatten": {"arguments": {}, "releases": {"keras3.15": 9}}},
    },
}


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behaviour, "_table", lambda: TABLE)


def keras3(*layers: dict[str, Any]) -> Unit:
    """Return a model after conversion to Keras 3.15."""
    return converted(keras2(input2("x", 3, 4), *layers), "keras3.15")[1]


def dense(activation: str) -> dict[str, Any]:
    """Return a Dense layer of Keras 2."""
    return layer2("Dense", "dense", [["x", 0, 0, {}]], units=2, activation=activation)


class TestLayers:
    def test_all_releases_agree_on_an_unchanged_layer(self) -> None:
        found = agreeing_releases(keras3(dense("tanh")), "keras3.15")
        assert found == tuple(RELEASES[2:])

    def test_releases_before_a_change_do_not_agree(self) -> None:
        found = agreeing_releases(keras3(dense("relu")), "keras3.15")
        assert found == tuple(f"keras3.{minor}" for minor in range(5, 16))

    def test_releases_agree_only_between_the_changes_around_the_target(self) -> None:
        model = keras3(dense("elu"))
        middle = tuple(f"keras3.{minor}" for minor in range(2, 12))
        assert agreeing_releases(model, "keras3.6") == middle
        assert agreeing_releases(model, "keras3.1") == ("keras3.0", "keras3.1")

    def test_only_the_target_agrees_on_a_layer_that_it_changed(self) -> None:
        model = keras3(layer2("Flatten", "flatten", [["x", 0, 0, {}]]))
        assert agreeing_releases(model, "keras3.15") == ("keras3.15",)

    def test_no_release_agrees_on_a_layer_that_was_not_measured(self) -> None:
        wrapped = layer2("Dense", "dense", [["x", 0, 0, {}]], units=2)
        model = keras3(wrapped | {"class_name": "Discretization"})
        assert behaviour.changing_releases("NoSuchLayer", {}, "keras3") is None
        assert agreeing_releases(model, "tf2.3") == ()

    def test_incompatible_releases_are_not_among_the_agreeing(self) -> None:
        verdicts = tuple(
            Verdict(loader=name, reason="too old" if name == "keras3.0" else None)
            for name in LOADERS
        )
        agreeing = agreeing_releases(keras3(dense("tanh")), "keras3.15")
        found = not_failing(agreeing, verdicts)
        assert found == tuple(f"keras3.{minor}" for minor in range(3, 16))


class TestMasks:
    def test_releases_that_propagate_another_mask_do_not_agree(self) -> None:
        """
        A release that propagates another mask is left out: up to Keras 3.3 merging layers return no
        mask, so the result of the following layer differs.
        """
        layers = [
            layer2("Masking", "masking", [["x", 0, 0, {}]], mask_value=0.0),
            layer2("Add", "add", [["masking", 0, 0, {}], ["masking", 0, 0, {}]]),
            layer2("GlobalAveragePooling1D", "pool", [["add", 0, 0, {}]]),
        ]
        found = agreeing_releases(keras3(*layers), "keras3.15")
        assert found[-1] == "keras3.15"
        assert "keras3.3" not in found


class TestReleasesThatRan:
    AGREEING: Final = ("keras3.0", "keras3.1", "keras3.2", "keras3.3")

    def test_release_with_other_results_is_reported(self) -> None:
        found = disagreeing_release(
            {"library": "keras", "keras": "3.15.1"}, self.AGREEING, side="target"
        )
        assert found is not None
        assert "Keras 3.15 was used for the target" in found
        assert "--python target=PYTHON" in found

    @pytest.mark.parametrize(
        "versions",
        [
            {"library": "keras", "keras": "3.3.3"},
            {"library": "keras", "keras": "4.0.0"},
            {"library": "keras", "keras": "unknown"},
            {},
        ],
    )
    def test_agreeing_and_unmeasured_releases_are_not_reported(
        self, versions: dict[str, str]
    ) -> None:
        assert disagreeing_release(versions, self.AGREEING, side="target") is None

    def test_no_release_is_reported_without_measured_layers(self) -> None:
        versions = {"library": "keras", "keras": "3.15.1"}
        assert disagreeing_release(versions, (), side="source") is None

    @pytest.mark.parametrize(
        ("versions", "name"),
        [
            ({"library": "tf_keras.src", "keras": "2.21.0"}, "tf_keras 2.21"),
            ({"library": "keras.api._v2.keras", "tensorflow": "2.15.1"}, "TF 2.15"),
        ],
    )
    def test_releases_of_keras2_are_named_by_display_name(
        self, versions: dict[str, str], name: str
    ) -> None:
        found = disagreeing_release(versions, ("tf2.4",), side="source")
        assert found is not None
        assert found.startswith(f"{name} was used for the source")


def test_releases_that_read_the_variables_in_another_order_do_not_agree() -> None:
    """Keras 3.5 to 3.9 count the casts around ``b``, and exchange its variables."""
    mixed = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    layers = [
        layer2("Dense", "a", [["x", 0, 0, {}]], units=4, activation="tanh"),
        layer2("Dense", "b", [["a", 0, 0, {}]], units=4, activation="tanh", dtype=mixed),
        layer2("Dense", "c", [["x", 0, 0, {}]], units=4, activation="tanh"),
        layer2("Dense", "d", [["c", 0, 0, {}]], units=4, activation="tanh"),
        layer2("Dense", "e", [["b", 0, 0, {}]], units=4, activation="tanh"),
        layer2("Dense", "f", [["d", 0, 0, {}]], units=4, activation="tanh"),
    ]
    model = converted(keras2(input2("x", 4), *layers, outputs=("e", "f")), "keras3.15")[1]
    found = agreeing_releases(model, "keras3.15")
    assert found == tuple(f"keras3.{minor}" for minor in range(16) if minor not in range(5, 10))
