"""Values in a temporary file."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, BinaryIO, Final

import pytest

from policytool.formats.document import Address
from policytool.support import spilled_values
from policytool.support.errors import ReportError
from policytool.support.spilled_values import SpilledValues, spill

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES: Final = tuple(Address(part=f"é{number}", pointer="/a" * number) for number in range(7))


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_values, "FEW", 2)


def test_spilled_values_keep_their_order() -> None:
    """The values can be read repeatedly, one by one or as a slice."""
    result = spill(Address, iter(VALUES))
    assert len(result) == len(VALUES)
    assert [*result] == [*result] == [*VALUES]
    assert (result[0], result[2], result[-1]) == (VALUES[0], VALUES[2], VALUES[-1])
    assert [*result[1:5:2]] == [*VALUES[1:5:2]]
    with pytest.raises(IndexError):
        result[len(VALUES)]


def test_values_can_be_added_after_some_were_read() -> None:
    """Later values do not replace earlier values in the file."""
    result = SpilledValues(Address)
    for number, value in enumerate(VALUES):
        result.append(value)
        assert [*result] == [*VALUES[: number + 1]]


def test_few_values_need_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few values are the same objects in a tuple."""
    monkeypatch.delattr(tempfile, "TemporaryFile")
    result = spill(Address, VALUES[:2])
    assert result == VALUES[:2]
    assert result[0] is VALUES[0]
    assert spill(Address, ()) == ()


class Files:
    """Temporary files that a test replaces or counts."""

    def __init__(self) -> None:
        self.opened: list[BinaryIO] = []

    def opener(self, path: str | os.PathLike[str]) -> Callable[..., BinaryIO]:
        """Return what opens a path in place of a temporary file."""

        def open_path(**_: object) -> BinaryIO:
            self.opened.append(open(path, "wb+", buffering=0))  # noqa: PTH123,SIM115  # as tempfile does
            return self.opened[-1]

        return open_path


def test_temporary_file_is_closed_with_the_last_reference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    files = Files()
    monkeypatch.setattr(tempfile, "TemporaryFile", files.opener(os.path.join(tmp_path, "a")))  # noqa: PTH118
    result = spill(Address, VALUES)
    (file,) = files.opened
    assert not file.closed
    del result
    assert file.closed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_full_disk_gives_a_one_sentence_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the cause and suggests another directory."""
    monkeypatch.setattr(tempfile, "TemporaryFile", Files().opener("/dev/full"))
    with pytest.raises(ReportError) as caught:
        spill(Address, VALUES)
    assert str(caught.value) == (
        "the temporary file for results cannot be written: No space left on device; set TMPDIR to "
        "a directory on a disk with enough space"
    )
