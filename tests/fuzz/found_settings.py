"""
Settings files of a checkout, with patterns that are expensive to match, and models with long names.

policytool loads such a file without being asked, so each of its regular expressions and globs must
be matched in bounded time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests.helpers import small_models

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

_ATOMS: Final = ("a", ".", "[ab]", "[^b]", r"\w", r"\d", "x", "", "é", "(?:a|aa)", "(a|a)", "/")
_REPEATS: Final = ("", "", "*", "+", "?", "*?", "{1,9}", "{2}", "{0,1000}", "{1000}", "{2,}")
_UNSUPPORTED: Final = (r"(a)\1", "(?=a)", "(?<!b)", "(?>a*)", "a*+", "(?i)a", "(?P<n>a)(?P=n)")
_GLOBS: Final = ("*", "**", "?", "[a-z]", "[!b]", "a", "/", ".h5", "[", "]", "\\", "é")
_DEEPEST: Final = 4


def expression(rng: Random, depth: int = 0) -> str:
    """Return a regular expression, with repetitions in repetitions and alternatives."""
    if depth and rng.random() < 0.05:
        return rng.choice(_UNSUPPORTED)
    parts = []
    for _ in range(rng.randint(1, rng.choice((2, 5, 12)))):
        atom = rng.choice(_ATOMS)
        if depth < _DEEPEST and rng.random() < 0.3:
            inner = [expression(rng, depth + 1) for _ in range(rng.choice((1, 1, 2, 8)))]
            atom = f"({'|'.join(inner)})"
        parts.append(atom + (rng.choice(_REPEATS) if atom else ""))
    return "".join(parts)


def glob(rng: Random) -> str:
    """Return a glob with many wildcards."""
    return "".join(rng.choice(_GLOBS) for _ in range(rng.choice((1, 4, 20, 300))))


def settings(rng: Random) -> bytes:
    """Return a settings file."""
    lines = []
    for _ in range(rng.choice((1, 2, 30))):
        how = rng.randrange(4)
        if how == 0:
            entry = f"rule = 'PT101', layer = {_text(expression(rng))}, reason = 'x'"
            lines.append(f"suppress = [{{{entry}}}]")
        elif how == 1:
            lines.append(f"set = [{_text(expression(rng) + '=float32')}]")
        elif how == 2:
            lines.append(f"per-file-ignores = {{{_text(glob(rng))} = ['PT1']}}")
        else:
            lines.append(f"suppress = [{{rule = 'PT3', path = {_text(glob(rng))}, reason = 'x'}}]")
    keys = {line.partition(" = ")[0]: line for line in lines}
    return "\n".join(keys.values()).encode()


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def write_model(path: Path, length: int) -> Path:
    """Write an architecture whose layers have names of so many characters."""
    policy = {"class_name": "Policy", "config": {"name": "mixed_float16", "loss_scale": None}}
    names = ("a" * length, "ab" * (length // 2), f"{'a' * length}!")
    layers = [small_models.dense(name, policy) for name in names]
    config = {**small_models.sequential(*layers), "keras_version": "2.4.0"}
    path.write_text(json.dumps(config), encoding="utf-8")
    return path
