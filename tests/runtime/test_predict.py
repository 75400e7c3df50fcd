"""Inputs of a model without declared inputs, with replacements for models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from policytool.runtime import predict
from policytool.runtime.library import Refused


def signature(*specs: str) -> Any:
    """Return a replacement for a signature with these inputs."""
    return SimpleNamespace(structured_input_signature=((), {spec: spec for spec in specs}))


@pytest.fixture
def predictor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the loaded file of a model that has inputs only if Keras recorded them."""

    def feed(_library: Any, model: Any, _options: Any) -> Any:
        spec = getattr(model, "_saved_model_inputs_spec", None)
        if spec is None:
            raise Refused("no-inputs", "says nothing")
        return spec

    monkeypatch.setattr(predict, "feed_model", feed)
    found: Any = object.__new__(predict._Predictor)  # noqa: SLF001  # what a job makes first
    found.library = found.model = SimpleNamespace()
    return found


def test_model_without_declared_inputs_has_the_input_of_its_only_signature(predictor: Any) -> None:
    """Keras 2 does not declare inputs of models that were never called."""
    predictor.signatures = {"serving_default": signature("x")}
    assert predictor._feed_model({}) == "x"  # noqa: SLF001  # as above


@pytest.mark.parametrize(
    "signatures",
    [{}, {"a": signature("x"), "b": signature("x")}, {"a": signature("x", "y")}],
    ids=["none", "two", "two inputs"],
)
def test_model_without_declared_inputs_and_with_several_inputs_is_rejected(
    predictor: Any, signatures: dict[str, Any]
) -> None:
    predictor.signatures = signatures
    with pytest.raises(Refused, match="says nothing"):
        predictor._feed_model({})  # noqa: SLF001  # as above
