"""``--cache`` for remote models: the second run costs a listing, and every change is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fsspec
import pytest
import s3fs

from policytool.formats import format_detection, input_identity
from policytool.support.files import remote_path
from tests.conftest import run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.range_server import range_server
from tests.helpers.s3_server import BUCKET, SECRET, s3_bucket
from tests.helpers.small_models import dense, h5_model, keras_zip, sequential

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = THOROUGH

PREFIX: Final = "models"
DIRECTORY: Final = FIXTURES / "keras3.15/global_mixed_float16.export"
CHECKPOINT: Final = next((FIXTURES / "checkpoints").glob("*.index"))


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """Start an S3 server."""
    with s3_bucket() as client:
        yield client


@pytest.fixture
def bucket(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put five models of four formats into the bucket; the working directory is empty."""
    monkeypatch.chdir(tmp_path)
    for found in server.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        server.delete_object(Bucket=BUCKET, Key=found["Key"])
    h5_model(tmp_path / "a.h5", sequential(dense()))
    keras_zip(tmp_path / "b.keras")
    for name in ("a.h5", "b.keras"):
        server.upload_file(str(tmp_path / name), BUCKET, f"{PREFIX}/{name}")
        server.upload_file(str(tmp_path / name), BUCKET, f"{PREFIX}/below/{name}")
        (tmp_path / name).unlink()
    for file in DIRECTORY.rglob("*"):
        if file.is_file():
            key = f"{PREFIX}/d/{file.relative_to(DIRECTORY).as_posix()}"
            server.upload_file(str(file), BUCKET, key)
    for part in CHECKPOINT.parent.glob(f"{CHECKPOINT.stem}.*"):
        server.upload_file(str(part), BUCKET, f"{PREFIX}/{part.name}")
    return server


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the requests that are sent, which grows with each."""
    names: list[str] = []
    original = s3fs.S3FileSystem._call_s3  # noqa: SLF001  # every request goes through it

    async def call(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        names.append(method)
        return await original(self, method, *arguments, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", call)
    return names


def came_from_cache(*arguments: str) -> tuple[int, int]:
    """Inspect the bucket with the cache, and return how many results it had, of how many."""
    urls = arguments or (f"s3://{BUCKET}/{PREFIX}",)
    plain = run("inspect", *urls, "--format", "json")
    ended = run("inspect", *urls, "--format", "json", "--cache", "cache", "-v")
    assert (ended.out, ended.code) == (plain.out, plain.code)
    result = re.search(r"(\d+) of (\d+) results", ended.err)
    assert result is not None
    return int(result[1]), int(result[2])


@pytest.mark.parametrize("command", ["inspect", "audit"])
def test_second_run_only_lists_the_prefix(bucket: Any, calls: list[str], command: str) -> None:
    assert bucket
    arguments = (command, f"s3://{BUCKET}/{PREFIX}", "--format", "json", "--cache", "cache")
    first = run(*arguments)
    assert "get_object" in calls
    calls.clear()
    second = run(*arguments, "-v")
    assert second.out == first.out
    assert "6 of 6 results" in second.err
    assert calls[:2] == ["head_object", "list_objects_v2"]
    assert calls[2:] == ["list_objects_v2"] * 4  # the prefix, "below", "d" and "d/variables"


def test_second_run_of_several_prefixes_only_lists_the_prefixes(
    bucket: Any, calls: list[str]
) -> None:
    """Results of the first prefix remain known after all prefixes were listed."""
    assert bucket
    urls = [f"s3://{BUCKET}/{PREFIX}/{name}/" for name in ("below", "d")]
    arguments = ("inspect", *urls, "--cache", "cache", "-v")
    run(*arguments)
    calls.clear()
    assert "3 of 3 results" in run(*arguments).err
    assert calls.count("get_object") == 0
    assert calls.count("head_object") == 2  # of the prefixes themselves


def test_second_run_of_one_file_requests_only_the_status(bucket: Any, calls: list[str]) -> None:
    """The directory of the file is not listed."""
    assert bucket
    url = f"s3://{BUCKET}/{PREFIX}/b.keras"
    assert came_from_cache(url) == (0, 1)
    calls.clear()
    ended = run("inspect", url, "--format", "json", "--cache", "cache", "-v")
    assert ended.err.count("1 of 1 results")
    assert "get_object" not in calls


def _replace(bucket: Any) -> None:
    bucket.copy_object(Bucket=BUCKET, Key=f"{PREFIX}/a.h5", CopySource=f"{BUCKET}/{PREFIX}/b.keras")


def _add(bucket: Any) -> None:
    bucket.put_object(Bucket=BUCKET, Key=f"{PREFIX}/d/assets/words.txt", Body=b"words")


def _remove(bucket: Any) -> None:
    bucket.delete_object(Bucket=BUCKET, Key=f"{PREFIX}/d/fingerprint.pb")


def _replace_part(bucket: Any) -> None:
    key = f"{PREFIX}/d/saved_model.pb"
    data = bucket.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    bucket.put_object(Bucket=BUCKET, Key=key, Body=data + b"\x12\x00")


def _replace_shard(bucket: Any) -> None:
    key = f"{PREFIX}/{CHECKPOINT.stem}.data-00000-of-00001"
    bucket.put_object(Bucket=BUCKET, Key=key, Body=b"0")


def test_model_that_changed_is_read_again(bucket: Any) -> None:
    """An added or removed file of a directory is also a change."""
    assert came_from_cache() == (0, 6)
    assert came_from_cache() == (6, 6)
    for change in (_replace, _add, _remove, _replace_part, _replace_shard):
        change(bucket)
        assert came_from_cache() == (5, 6), change


def test_result_of_content_that_was_replaced_is_not_kept(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is asked again after a model was read."""
    url = f"s3://{BUCKET}/{PREFIX}/a.h5"
    original = format_detection.document

    def read_and_replace(*arguments: Any) -> Any:
        done = original(*arguments)
        _replace(bucket)
        return done

    with monkeypatch.context() as patched:
        patched.setattr(format_detection, "document", read_and_replace)
        run("inspect", url, "--cache", "cache")
    assert not [path for path in Path("cache").rglob("*") if path.is_file()]


def test_time_is_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two contents may have the same time; neither has a member of an archive a version."""
    monkeypatch.chdir(tmp_path)
    fsspec.filesystem("memory").pipe("/kept/model.keras", keras_zip(tmp_path / "m").read_bytes())
    path = remote_path.parse("memory://kept/model.keras")
    assert input_identity.remote_identity(path) is None
    assert came_from_cache("memory://kept/model.keras") == (0, 1)
    assert came_from_cache("memory://kept/model.keras") == (0, 1)
    assert input_identity.remote_identity(remote_path.parse("zip://a::b.zip")) is None


@pytest.mark.parametrize(("etag", "found"), [('"one"', 1), ('W/"one"', 0), ("", 0)])
def test_web_server_needs_an_exact_etag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, etag: str, found: int
) -> None:
    """
    Results are cached only for files with a strong ETag, and no entry contains the query of a URL.
    """
    monkeypatch.chdir(tmp_path)
    keras_zip(tmp_path / "model.keras")
    with range_server(tmp_path) as web:
        web.etag = etag
        url = f"{web.url}/model.keras?signature={SECRET}"
        assert came_from_cache(url) == (0, 1)
        assert came_from_cache(url) == (found, 1)
    for entry in (tmp_path / "cache").rglob("*"):
        assert SECRET not in entry.name
        assert not entry.is_file() or SECRET.encode() not in entry.read_bytes()
