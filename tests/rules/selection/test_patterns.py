"""Which files a glob means."""

from __future__ import annotations

import pytest

from policytool.rules.selection.suppressions import PathPattern
from policytool.support.patterns.matching import Matcher
from tests.helpers.cases import for_each


@for_each(
    ("glob", "path"),
    [
        ("a.h5", "/p/a.h5"),
        ("a.h5", "/p/deep/er/a.h5"),
        ("*.h5", "/p/deep/a.h5"),
        ("old", "/p/x/old/a.h5"),
        ("old/", "/p/x/old/a.h5"),
        ("./a.h5", "/p/a.h5"),
        ("old/*.h5", "/p/old/a.h5"),
        ("old/**", "/p/old/x/y/a.h5"),
        ("old/**/a.h5", "/p/old/a.h5"),
        ("old/**/a.h5", "/p/old/x/y/a.h5"),
        ("**/a.h5", "/p/a.h5"),
        ("old/x", "/p/old/x/y/a.h5"),
        ("model?.h5", "/p/model1.h5"),
        ("model[12].h5", "/p/model2.h5"),
        ("model[!3-9].h5", "/p/model2.h5"),
        ("model[.h5", "/p/model[.h5"),
        ("a+(b).h5", "/p/a+(b).h5"),
        ("../q/*.h5", "/q/a.h5"),
        ("../*.h5", "/a.h5"),
        ("/q/**/*.h5", "/q/a.h5"),
        ("**", "/p/any/thing"),
        ("lin\ne.h5", "/p/lin\ne.h5"),
        ("*.h5", "/p/lin\ne.h5"),
    ],
)
def test_glob_matches_paths(glob: str, path: str) -> None:
    """
    A glob is relative to its directory, matches names at any depth without a slash, and selects
    complete directories.
    """
    assert PathPattern(glob=glob, base="/p").matches(path, Matcher())


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("a.h5", "/p/ba.h5"),
        ("a.h5", "/p/a.h5x"),
        ("a.h5", "/q/a.h5"),
        ("./a.h5", "/p/deep/a.h5"),
        ("old/*.h5", "/p/old/x/a.h5"),
        ("old/*.h5", "/p/x/old/a.h5"),
        ("old/x", "/p/old/xy/a.h5"),
        ("model?.h5", "/p/model/.h5"),
        ("model[12].h5", "/p/model3.h5"),
        ("model[!1].h5", "/p/model1.h5"),
        ("model[!1]h5", "/p/model/h5"),
        ("a.h5", "/p/aXh5"),
        ("../*.h5", "/p/a.h5"),
        ("/q/*.h5", "/p/q/a.h5"),
    ],
)
def test_glob_does_not_match_similar_paths(glob: str, path: str) -> None:
    assert not PathPattern(glob=glob, base="/p").matches(path, Matcher())


def test_special_characters_in_the_base_directory_are_literal() -> None:
    """The directory itself is not a pattern."""
    assert PathPattern(glob="*.h5", base="/p[1]").matches("/p[1]/a.h5", Matcher())
    assert not PathPattern(glob="*.h5", base="/p[1]").matches("/p1/a.h5", Matcher())
    assert PathPattern(glob="*.h5", base="/").matches("/a.h5", Matcher())
