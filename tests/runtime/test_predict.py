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


class OpError(Exception):
    """Stands for the error of an op."""


class ResourceExhaustedError(OpError):
    """Stands for the lack of memory."""


class Tensor(SimpleNamespace):
    """Stands for a tensor."""


def compiling_predictor(
    error: Exception | None, *, rows: int | None = None, **attributes: Any
) -> tuple[Any, list[Any]]:
    """Return a loaded file whose graph raises an error, and the signatures that are compiled."""
    signatures: list[Any] = []

    def function(_call: Any, input_signature: Any) -> Any:
        signatures.append(input_signature)

        def run(_tensors: Any) -> None:
            if error is not None:
                raise error

        return run

    nest = SimpleNamespace(
        flatten=lambda value: [value], map_structure=lambda change, value: change(value)
    )
    found: Any = object.__new__(predict._Predictor)  # noqa: SLF001  # what a job makes first
    found.which = "the result"
    found.library = SimpleNamespace(
        traces=True,
        tf=SimpleNamespace(
            function=function,
            nest=nest,
            Tensor=Tensor,
            TensorSpec=lambda shape, dtype: (shape, dtype),
            errors=SimpleNamespace(OpError=OpError, ResourceExhaustedError=ResourceExhaustedError),
        ),
    )
    found.model = SimpleNamespace(inputs=[SimpleNamespace(shape=(rows, 4))], **attributes)
    return found, signatures


class Shape(tuple[int, ...]):
    """Stands for the shape of a tensor."""

    __slots__ = ()

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)


BATCH = Tensor(shape=Shape((2, 4)), dtype="float32")


@pytest.mark.parametrize(
    ("rows", "expected"), [(None, [([None, 4], "float32")]), (2, None)], ids=["any", "fixed"]
)
def test_graph_is_compiled_for_the_declared_number_of_rows(rows: int | None, expected: Any) -> None:
    """TF 2.15 fuses some layers only if the number of rows is unknown."""
    found, signatures = compiling_predictor(None, rows=rows)
    found._call_compiled(BATCH)  # noqa: SLF001  # as above
    assert signatures == [expected]


@pytest.mark.parametrize(
    ("error", "code"),
    [(OpError("no kernel"), "not-computable"), (ValueError("no graph"), "not-callable")],
    ids=["kernel", "graph"],
)
def test_result_that_fails_only_as_a_graph_is_rejected(error: Exception, code: str) -> None:
    found, _ = compiling_predictor(error)
    with pytest.raises(Refused, match=f"^model.predict of the result .*{error}") as refused:
        found._call_compiled(BATCH)  # noqa: SLF001  # as above
    assert refused.value.code == code


def test_lack_of_memory_in_a_graph_keeps_its_class() -> None:
    """The job then runs again with fewer rows."""
    found, _ = compiling_predictor(ResourceExhaustedError("memory"))
    with pytest.raises(ResourceExhaustedError):
        found._call_compiled(BATCH)  # noqa: SLF001  # as above


def test_model_that_runs_eagerly_is_not_compiled() -> None:
    found, signatures = compiling_predictor(OpError("no graph"), run_eagerly=True)
    found._call_compiled(BATCH)  # noqa: SLF001  # as above
    assert signatures == []
