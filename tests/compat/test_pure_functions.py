"""
Functions that a config may name reach nothing beyond their arguments: each is called while the
kernel is watched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pytest

from tests.compat.asking import ENVIRONMENT
from tests.helpers import attacks
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.attacks import Traced

DATA: Final = json.loads(
    (ROOT / "policytool" / "releases" / "data" / "pure_functions.json").read_text(encoding="utf-8")
)
NAMES: Final = tuple(name for names in DATA["functions"].values() for name in names)

DRIVER: Final = f"""
import contextlib
from tests.compat.function_driver import main
with contextlib.suppress(OSError):
    open({attacks.BEGIN!r})
main()
"""

GENERATED: Final = "/__autograph_generated_file"
"""
What TensorFlow calls a temporary file with Python code of its own, which it imports and removes.

``image.non_max_suppression_padded`` has one, whatever its arguments are.
"""

OLDER: Final = frozenset(
    {"quantize_and_dequantize_v4", "keras.backend.binary_weighted_focal_crossentropy"}
)
"""
Functions that TF 2.21 does not have; older releases do, and newer ones have others of their kind,
which are called.
"""

PLACES: Final = frozenset(
    {
        *(
            "filename",
            "filenames",
            "file_pattern",
            "pattern_or_path",
            "path",
            "filepath",
            "directory",
            "vocab_file",
            "output_stream",
            "address",
            "device",
        ),
        *("descriptor_source", "prefix", "container", "shared_name"),
    }
)
"""Parameters that say where something is."""

CALLABLES: Final = frozenset(
    {
        "fn",
        "func",
        "function",
        "body",
        "cond",
        "true_fn",
        "false_fn",
        "op",
        "cell",
        "step_function",
        "then_expression",
    }
)
"""
Parameters that are called.

``window_fn`` is called too, but no JSON value is a function, and the default is TensorFlow's.
"""

pytestmark = pytest.mark.compat


Watch = Callable[[Sequence[Sequence[str]]], "Traced"]


@pytest.fixture(scope="module")
def watch(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """Yield a function that calls functions and tells what the process did."""

    def watched(calls: Sequence[Sequence[str]]) -> Traced:
        folder = tmp_path_factory.mktemp("watched") / "work"
        folder.mkdir()
        return attacks.traced(calls, folder, driver=DRIVER, python=compat_python)

    with pytest.MonkeyPatch.context() as patched:
        for name, value in {
            **ENVIRONMENT,
            "KERAS_HOME": str(tmp_path_factory.mktemp("home")),
        }.items():
            patched.setenv(name, value)
        yield watched


@pytest.fixture(scope="module")
def called(watch: Watch) -> Traced:
    """Return what the process did that called every function of the list."""
    return watch([[name] for name in NAMES])


def _reached(done: Traced) -> list[str]:
    """
    Return the files, processes and connections that the calls reached, without TensorFlow's own
    code as it rewrites it.
    """
    return [path for path in (*done.opened, *done.changed) if GENERATED not in path] + [
        *done.started,
        *done.network,
    ]


def test_listed_functions_reach_nothing(called: Traced) -> None:
    """
    Each succeeds with small tensors, opens no file, writes none, connects nowhere and starts
    nothing.
    """
    assert {end.arguments[0]: end.out for end in called.ended if end.code == 1} == {}
    assert {end.arguments[0] for end in called.ended if end.code == 2} == OLDER
    assert _reached(called) == []


def test_listed_functions_have_no_parameter_for_a_place_or_a_function(called: Traced) -> None:
    """No argument of theirs names a file, an address or a device, or is called."""
    actual = {
        end.arguments[0]: sorted((PLACES | CALLABLES) & set(end.out.split()))
        for end in called.ended
    }
    assert {name: parameters for name, parameters in actual.items() if parameters} == {}


@pytest.mark.parametrize(
    "planted",
    [
        ("io.write_file", "victim", "text"),
        ("io.read_file", "victim"),
        ("io.gfile.rmtree", "folder"),
        ("experimental.register_filesystem_plugin", "victim"),
    ],
)
def test_planted_function_with_a_path_is_detected(
    planted: tuple[str, ...], watch: Watch, tmp_path: Path
) -> None:
    """The function opens the file in its argument."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "victim").write_text("text", encoding="utf-8")
    name, path, *texts = planted
    done = watch([["math.add"], [name, str(tmp_path / path), *texts]])
    assert done.ended[0].code == 0
    assert str(tmp_path / path) in _reached(done)


def test_planted_name_is_seen(watch: Watch) -> None:
    """
    A function that writes files and is on the list by mistake is called as the others are, and
    reaches a file.
    """
    done = watch([["math.add"], ["io.write_file"]])
    assert [end.code for end in done.ended] == [0, 0]
    assert {path.rpartition("/")[2] for path in _reached(done)} == {"ab"}
