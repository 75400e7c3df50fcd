"""The code of a Lambda is read as text, for every Python release, and nothing is executed."""

from __future__ import annotations

import base64
import json
import marshal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.releases.lambda_code import expression, source
from tests.helpers.cases import for_each
from tests.helpers.paths import FIXTURES

CODES: Final[dict[str, dict[str, str]]] = json.loads(
    (FIXTURES / "lambda_code.json").read_text(encoding="utf-8")
)
UNREADABLE: Final = {"if", "nested"}
LINEAR: Final = {
    "x / 255.0": (1 / 255, 0.0),
    "(x - 127.5) / 127.5": (1 / 127.5, -1.0),
    "0.5 * (x + 1)": (0.5, 0.5),
    "(-x) + 1": (-1.0, 1.0),
    "(x / 127.5) - 1.0": (1 / 127.5, -1.0),
    "tf.cast(x, tf.float32) / 255.0": (1 / 255, 0.0),
}


def keras2(code: str, closure: Any = None, **arguments: Any) -> dict[str, Any]:
    """Return the config of a Keras 2 Lambda."""
    return {"function": [code, None, closure], "arguments": arguments}


@for_each("release", CODES)
def test_functions_of_every_python_release_are_text(release: str) -> None:
    for text, code in CODES[release].items():
        found = expression(keras2(code))
        if text in UNREADABLE:
            assert found is None
            continue
        assert found is not None
        assert found.text == text
        expected = LINEAR.get(text)
        assert (found.scale, found.offset) == (expected or (None, 0.0))
        assert found.is_cast == (text.startswith("tf.cast"))


def test_code_is_found_in_the_objects_of_keras_3_and_saved_models() -> None:
    code = CODES["3.11"]["x / 255.0"]
    function = {"class_name": "__lambda__", "config": {"code": code}}
    in_saved_model = {"class_name": "__tuple__", "items": [code, None, None]}
    for value in (function, in_saved_model):
        found = expression({"function": value})
        assert found is not None
        assert found.text == "x / 255.0"


def test_code_of_keras_2_0_is_not_base64() -> None:
    """Keras 2.0 and earlier store the bytes as characters."""
    code = base64.b64decode(CODES["3.6"]["x / 255.0"]).decode("raw_unicode_escape")
    found = expression(keras2(code))
    assert found is not None
    assert found.text == "x / 255.0"


def code_of(function: Any) -> str:
    return base64.b64encode(marshal.dumps(function.__code__)).decode()


def test_numbers_of_the_config_are_part_of_the_function() -> None:
    """Numbers of an enclosing function, and the ``arguments`` of the layer."""

    def enclosing(mean: float) -> Any:
        return lambda x, std: (x - mean) / std

    found = expression(keras2(code_of(enclosing(3.0)), [3.0], std=2.0))
    assert found is not None
    assert (found.text, found.scale, found.offset) == ("(x - 3.0) / 2.0", 0.5, -1.5)
    unknown = expression(keras2(code_of(enclosing(3.0)), None, std=2.0))
    assert unknown is None or unknown.scale is None


def test_defaults_are_part_of_the_function_unless_the_layer_has_arguments() -> None:
    """Only the last positional arguments have defaults; a mask comes from Keras."""

    def crop(x: Any, size: Any = (4, 4), mode: str = "CONSTANT") -> Any:
        return resize(x, size[0], mode)  # type: ignore[name-defined]  # noqa: F821

    config = {"function": [code_of(crop), [[4, 4], "CONSTANT"], None]}
    assert source(config) == "lambda x: resize(x, [4, 4][0], 'CONSTANT')"
    changed = {**config, "arguments": {"mode": "REFLECT"}}
    assert source(changed) == "lambda x, mode: resize(x, [4, 4][0], 'REFLECT')"
    tagged = {"class_name": "__tuple__", "items": [{"class_name": "__tuple__", "items": [4]}, "A"]}
    keras3 = {"class_name": "__lambda__", "config": {"code": code_of(crop), "defaults": tagged}}
    assert source({"function": keras3}) == "lambda x: resize(x, (4,)[0], 'A')"
    assert source({"function": [code_of(crop), ["CONSTANT"], None]}) is None
    assert source({**config, "arguments": {"x): print(": 1}}) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda *x: x[0] * 2.0,  # the number of inputs is unknown
        lambda: 2.0,
        lambda x: (x for _ in x),
        lambda x: x + len("a" * 300),  # long text
        lambda x: x * 1e300 * 1e300,
        lambda x: x / 0.0,
    ],
)
def test_other_functions_are_not_linear(function: Any) -> None:
    found = expression(keras2(code_of(function)))
    assert found is None or found.scale is None


ALL: Final = sorted({code for codes in CODES.values() for code in codes.values()})


@given(st.sampled_from(ALL), st.integers(0, 200), st.binary(max_size=60))
def test_damaged_code_is_not_an_error(code: str, place: int, noise: bytes) -> None:
    content = base64.b64decode(code)
    damaged = content[:place] + noise + content[place + len(noise) :]
    for text in (code[:place], *(base64.b64encode(part).decode() for part in (damaged, noise))):
        expression(keras2(text))


def test_nested_constants_are_limited() -> None:
    """A reader that calls itself must not reach the limit of the interpreter."""
    head = marshal.dumps((lambda x: x).__code__)[:21]
    nested = head + b"s\x00\x00\x00\x00" + b")\x01" * 100_000 + b"N"
    assert expression(keras2(base64.b64encode(nested).decode())) is None


@pytest.mark.parametrize("function", [None, 1, "name", [], [1, 2, 3], {"class_name": "__lambda__"}])
def test_other_configs_have_no_code(function: Any) -> None:
    assert expression({"function": function}) is None
