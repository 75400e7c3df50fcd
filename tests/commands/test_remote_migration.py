"""Remote models are migrated like local ones, and outputs on servers are complete or missing."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import pytest

import policytool
from policytool.commands import remote_migration
from policytool.support.files import opening, remote_requests, transfers
from policytool.support.files.remote_path import parse
from tests.conftest import Ended, run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.range_server import range_server
from tests.helpers.s3_server import BUCKET, SECRET, contents, put, s3_bucket
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Bounded

MODEL: Final = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
DIRECTORY: Final = FIXTURES / "tf2.15/global_mixed_float16"
HOME: Final = f"s3://{BUCKET}"
REQUEST: Final = "policytool.support.files.transfers.request"
"""What uploads ask servers with."""

pytestmark = THOROUGH


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """Start an S3 server on this machine, and return its client."""
    with s3_bucket() as client:
        yield client


@pytest.fixture
def bucket(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """
    Return the client of an empty bucket, and check at the end that no temporary directory is left.
    """
    for key in contents(server):
        server.delete_object(Bucket=BUCKET, Key=key)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    opening.forget()
    yield server
    assert list(scratch.iterdir()) == []


def files(path: Path) -> dict[str, bytes]:
    """Return the content of a file, or of each file below a directory."""
    result = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {
        file.relative_to(path.parent).as_posix(): file.read_bytes()
        for file in result
        if file.is_file()
    }


@pytest.mark.parametrize(
    ("fixture", "options"),
    [
        ("tf2.3/exp_mf16_fixed128.h5", ()),
        ("tf2.3/exp_mf16_fixed128.h5", ("--to", "mixed_bfloat16")),
        ("tf2.3/exp_mf16_fixed128.h5", ("--to", "float64")),
        ("tf2.15/global_mixed_float16", ("--to", "mixed_bfloat16")),
        ("keras3.15/unpacked.keras.d", ("--to", "mixed_bfloat16", "--include", "outputs")),
        ("keras3.15/global_mixed_float16.json", ("--to", "float32")),
        ("tfjs4.22/global_mixed_float16/model.json", ("--to", "float32")),
    ],
)
def test_migrated_remote_model_equals_the_local_one(
    bucket: Any, tmp_path: Path, fixture: str, options: tuple[str, ...]
) -> None:
    """
    A migrated remote model has the same bytes as the local one, including all files that the output
    needs.
    """
    source = FIXTURES / fixture
    home = source.parent if fixture.startswith("tfjs") else source
    put(bucket, home, f"in/{home.name}")
    url = f"{HOME}/in/{source.relative_to(home.parent).as_posix()}"
    (tmp_path / "local").mkdir()
    assert run("migrate", source, *options, "-o", tmp_path / "local").code == 0
    assert run("migrate", url, *options, "-o", f"{HOME}/out/").code == 0
    expected = {
        f"out/{file.relative_to(tmp_path / 'local').as_posix()}": file.read_bytes()
        for file in (tmp_path / "local").rglob("*")
        if file.is_file()
    }
    assert expected
    assert contents(bucket, "out/") == expected
    (tmp_path / "copied").mkdir()
    assert run("migrate", url, *options, "-o", tmp_path / "copied").code == 0
    assert files(tmp_path / "copied") == {
        name.replace("out/", "copied/", 1): data for name, data in expected.items()
    }


def test_conversion_is_written_next_to_its_remote_source(bucket: Any, tmp_path: Path) -> None:
    """The report contains no local path."""
    url = put(bucket, FIXTURES / "keras3.15/default_float32.h5", "a/model.h5")
    ended = run("migrate", url, "--target", "tf_keras", "--no-verify", "--format", "json")
    (result,) = ended.json["plans"]
    assert (ended.code, result["output"]) == (0, f"{HOME}/a/model.tf_keras.h5")
    assert str(tmp_path) not in ended.out + ended.err
    assert run("audit", result["output"], "--target", "tf_keras").code == 0


def test_tensorflow_js_model_shares_the_shards_of_its_source(bucket: Any) -> None:
    """
    A TensorFlow.js model that is written next to its source shares the shards, which are neither
    copied nor written again.
    """
    source = FIXTURES / "tfjs4.22/global_mixed_float16"
    put(bucket, source, "web")
    before = contents(bucket)
    with mock.patch.object(transfers, "download", wraps=transfers.download) as download:
        assert run("migrate", f"{HOME}/web/model.json", "--to", "float32").code == 0
    assert [list(call.args[0]) for call in download.call_args_list] == [["model.json"]]
    after = contents(bucket)
    assert after.keys() - before.keys() == {"web/model.float32.json"}
    assert {key: after[key] for key in before} == before


@pytest.mark.parametrize(
    "options",
    [
        ("--preview",),
        ("--preview", "--format", "diff"),
        ("--target", "keras3.15", "--preview"),
    ],
)
def test_a_plan_reads_only_ranges(bucket: Any, options: tuple[str, ...]) -> None:
    url = put(bucket, MODEL, "model.h5")
    with mock.patch.object(transfers, "download", side_effect=AssertionError):
        local = run("migrate", MODEL, *options)
        ended = run("migrate", url, *options)
    assert ended.code == local.code
    assert list(contents(bucket)) == ["model.h5"]


def test_a_plan_with_casts_counts_the_values_of_a_copy(bucket: Any) -> None:
    url = put(bucket, MODEL, "model.h5")
    options = ("--to", "float16", "--include", "outputs", "--preview", "--format", "json")
    remote, local = run("migrate", url, *options).json, run("migrate", MODEL, *options).json
    assert remote["plans"][0]["casts"]
    assert remote["plans"][0]["casts"] == local["plans"][0]["casts"]


def test_a_model_that_needs_nothing_is_not_copied(bucket: Any) -> None:
    url = put(bucket, FIXTURES / "keras3.15/default_float32.h5", "model.h5")
    with mock.patch.object(transfers, "download", side_effect=AssertionError):
        ended = run("migrate", url, "--format", "json")
    assert ended.json["plans"][0]["status"] == "unchanged"


def test_an_existing_object_stays(bucket: Any) -> None:
    """
    An existing object is kept without --existing replace, and with skip no other file is read.
    """
    url = put(bucket, MODEL, "model.h5")
    put(bucket, FIXTURES / "keras3.15/default_float32.h5", "other.h5")
    before = contents(bucket)
    with mock.patch.object(transfers, "download", side_effect=AssertionError):
        ended = run("migrate", url, "-o", f"{HOME}/other.h5", "--format", "json")
        assert (ended.code, ended.json["failures"][0]["code"]) == (3, "target-exists")
        skipped = run("migrate", url, "-o", f"{HOME}/other.h5", "--existing=skip")
        assert skipped.code == 0
    assert contents(bucket) == before
    assert run("migrate", url, "-o", f"{HOME}/other.h5", "--existing=replace").code == 0
    assert contents(bucket)["other.h5"] != before["other.h5"]


def test_a_remote_directory_is_never_replaced(bucket: Any) -> None:
    """Its objects cannot change together."""
    url = put(bucket, DIRECTORY, "a/model")
    put(bucket, DIRECTORY, "b/model")
    before = contents(bucket)
    options = ("--to", "mixed_bfloat16", "-o", f"{HOME}/b/")
    ended = run("migrate", url, *options, "--existing=replace", "--format", "json")
    assert (ended.code, ended.json["failures"][0]["code"]) == (3, "target-exists")
    assert "Remove it" in ended.err
    assert contents(bucket) == before


def test_another_writer_wins(bucket: Any) -> None:
    """An object that another process created after the model was read is not replaced."""
    url = put(bucket, MODEL, "model.h5")
    ask = remote_requests.request

    def create(path: Any, act: Callable[[], Any], *, writes: bool) -> Any:
        if writes:
            bucket.put_object(Bucket=BUCKET, Key="model.migrated.h5", Body=b"another")
        return ask(path, act, writes=writes)

    with mock.patch(REQUEST, create):
        ended = run("migrate", url, "--format", "json")
    assert (ended.code, ended.json["failures"][0]["code"]) == (3, "target-exists")
    assert contents(bucket)["model.migrated.h5"] == b"another"


@pytest.mark.parametrize("source", [MODEL, DIRECTORY], ids=["file", "directory"])
@pytest.mark.parametrize("error", [ConnectionResetError, KeyboardInterrupt])
def test_a_fault_at_any_write_leaves_nothing(
    bucket: Any, source: Path, error: type[BaseException]
) -> None:
    """A failure of any request leaves neither an object nor a part of one."""
    url = put(bucket, source, f"in/{source.name}")
    before = contents(bucket)
    ask = remote_requests.request
    count = 0

    def run_failing(at: int | None) -> Ended:
        nonlocal count
        count = 0

        def fail(path: Any, act: Callable[[], Any], *, writes: bool) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise error
            return ask(path, act, writes=writes)

        with mock.patch(REQUEST, fail):
            return run("migrate", url, "--to", "mixed_bfloat16", "-o", f"{HOME}/out/")

    assert run_failing(None).code == 0
    assert count >= len(files(source))
    for key in contents(bucket).keys() - before.keys():
        bucket.delete_object(Bucket=BUCKET, Key=key)
    opening.forget()
    requests = range(1, count + 1)
    name = f"failing requests of {source.name} with {error.__name__}"
    for number in sampled(name, requests, share=12):
        ended = run_failing(number)
        assert ended.code == (130 if error is KeyboardInterrupt else 3)
        assert count >= number
        assert contents(bucket) == before
        assert not bucket.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def test_objects_that_cannot_be_removed_are_listed(bucket: Any) -> None:
    """
    If the server stops working after the first object, the error names the objects that could not
    be removed.
    """
    url = put(bucket, DIRECTORY, "in/model")
    ask = remote_requests.request
    count = 0

    def fail(path: Any, act: Callable[[], Any], *, writes: bool = False) -> Any:
        nonlocal count
        count += writes
        if writes and count > 6:
            raise ConnectionResetError
        return ask(path, act, writes=writes)

    with mock.patch(REQUEST, fail):
        ended = run("migrate", url, "--to", "float32", "-o", f"{HOME}/out", "--format", "json")
    (left,) = contents(bucket, "out/")
    assert (ended.code, ended.json["failures"][0]["code"]) == (3, "write-failed")
    assert f"s3://{BUCKET}/{left} could not be removed" in ended.err


def test_an_interrupted_upload_of_a_directory_leaves_no_model(bucket: Any) -> None:
    """The file that makes it a model is written last."""
    url = put(bucket, DIRECTORY, "in/model")
    placed: list[str] = []

    def note(file: Path, target: Any, *, overwrite: bool) -> None:
        placed.append(target.shown)
        upload(file, target, overwrite=overwrite)

    upload = transfers.upload
    with mock.patch.object(transfers, "upload", note):
        assert run("migrate", url, "--to", "float32", "-o", f"{HOME}/out").code == 0
    assert len(placed) == len(files(DIRECTORY))
    assert placed[-1] == f"{HOME}/out/saved_model.pb"


def test_large_objects_are_sent_in_parts(bucket: Any, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(2**20) * 20)
    target = parse(f"{HOME}/large")
    transfers.upload(path, target, overwrite=False)
    assert contents(bucket)["large"] == path.read_bytes()
    with pytest.raises(FileExistsError):
        transfers.upload(path, target, overwrite=False)
    transfers.upload(MODEL, target, overwrite=True)
    assert contents(bucket)["large"] == MODEL.read_bytes()


def test_a_source_that_changes_meanwhile_is_not_migrated(bucket: Any) -> None:
    """A source that changes during its copy is an error, because the copy may be a mixture."""
    url = put(bucket, MODEL, "model.h5")
    steps = transfers._steps  # noqa: SLF001  # the last thing before the copy is complete

    @contextmanager
    def change(*arguments: Any) -> Iterator[Any]:
        with steps(*arguments) as moved:
            yield moved
        put(bucket, FIXTURES / "keras3.15/default_float32.h5", "model.h5")

    with mock.patch.object(transfers, "_steps", change):
        ended = run("migrate", url, "--format", "json")
    assert (ended.code, ended.json["failures"][0]["code"]) == (3, "changed")
    assert list(contents(bucket)) == ["model.h5"]


def test_a_source_that_vanishes_meanwhile_is_not_migrated(bucket: Any) -> None:
    """A source that disappears after planning is an error."""
    url = put(bucket, MODEL, "model.h5")
    download = transfers.download

    def vanish(*arguments: Any) -> None:
        bucket.delete_object(Bucket=BUCKET, Key="model.h5")
        opening.forget()
        download(*arguments)

    with mock.patch.object(transfers, "download", vanish):
        ended = run("migrate", url, "--format", "json")
    assert (ended.code, ended.json["failures"][0]["code"]) == (3, "changed")
    assert contents(bucket) == {}


def test_a_copy_needs_space(bucket: Any) -> None:
    """
    If the disk has too little space for a copy, the error names the required size and a solution
    before any transfer.
    """
    url = put(bucket, MODEL, "model.h5")
    usage = mock.Mock(free=1000)
    with mock.patch.object(shutil, "disk_usage", return_value=usage):
        ended = run("migrate", url)
    assert ended.code == 3
    assert "Set TMPDIR" in ended.err


def test_a_denied_write_is_one_sentence(bucket: Any) -> None:
    """A denied write is a one-line error with its own code."""
    url = put(bucket, MODEL, "model.h5")
    ask = remote_requests.request

    def deny(path: Any, _act: Callable[[], Any], *, writes: bool) -> Any:
        def act() -> Any:
            raise PermissionError(SECRET)

        return ask(path, act, writes=writes)

    with mock.patch(REQUEST, deny):
        ended = run("migrate", url, "--format", "json")
    assert (ended.code, ended.json["failures"][0]["code"]) == (3, "remote-denied")
    assert "not writable" in ended.err
    assert SECRET not in ended.err


def test_a_bucket_that_does_not_exist(bucket: Any) -> None:
    """A missing bucket is an error, and nothing is created."""
    url = put(bucket, MODEL, "model.h5")
    ended = run("migrate", url, "-o", "s3://no-such-bucket/model.h5", "--format", "json")
    assert ended.code == 3
    assert len(ended.json["failures"]) == 1


def test_a_link_is_not_followed_to_a_server(bucket: Any, tmp_path: Path) -> None:
    """A malicious model could publish any local file."""
    model = tmp_path / "model"
    shutil.copytree(DIRECTORY, model)
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    (model / "assets").mkdir(exist_ok=True)
    (model / "assets" / "notes.txt").symlink_to(secret)
    ended = run("migrate", model, "--to", "float32", "-o", f"{HOME}/out")
    assert ended.code == 3
    assert "link" in ended.err
    assert contents(bucket) == {}


@pytest.mark.usefixtures("bucket")
def test_a_signed_address_is_migrated_to_a_file_of_this_machine(tmp_path: Path) -> None:
    """
    A model at a signed address is migrated to a local file, and no report or message contains the
    signature.
    """
    home = tmp_path / "web"
    home.mkdir()
    shutil.copy(MODEL, home / "model.h5")
    with range_server(home) as server:
        url = f"{server.url}/model.h5?signature={SECRET}"
        refused = run("migrate", url)
        ended = run("migrate", url, "-o", tmp_path / "out.h5", "--format", "json")
    assert (refused.code, ended.code) == (2, 0)
    assert "Specify one with -o" in refused.err
    assert SECRET not in refused.err + ended.out + ended.err
    expected = tmp_path / "expected.h5"
    run("migrate", MODEL, "-o", expected)
    assert (tmp_path / "out.h5").read_bytes() == expected.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("s3://b/model.h5", "--in-place"), "--in-place cannot replace s3://b/model.h5"),
        (("hf://o/r/model.h5",), "cannot be written with hf://"),
        (("zip://model.h5::a.zip",), "cannot be written with zip://"),
        ((str(MODEL), "-o", "https://h/x.h5"), "-o https://h/x.h5 cannot be written"),
        ((str(MODEL), "-o", f"s3://key:{SECRET}@b/x.h5"), "cannot contain credentials"),
        ((str(MODEL), "-o", "s3://b/../x.h5"), "cannot contain the part '..'"),
        ((str(MODEL), "-o", "ssh://h/x.h5"), "nsupported protocol ssh"),
    ],
)
def test_outputs_that_cannot_be_are_refused_before_anything_is_read(
    arguments: tuple[str, ...], said: str
) -> None:
    """An invalid output is a usage error with exit code 2 before any request."""
    with mock.patch.object(remote_requests, "request", side_effect=AssertionError):
        ended = run("migrate", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert SECRET not in ended.err


def test_a_saved_plan_is_applied_to_a_remote_model(bucket: Any, tmp_path: Path) -> None:
    url = put(bucket, MODEL, "model.h5")
    plan = tmp_path / "plan.json"
    plan.write_text(run("migrate", url, "--preview", "--format", "json").out)
    assert run("migrate", "--plan", plan).code == 0
    local = tmp_path / "local.h5"
    run("migrate", MODEL, "-o", local)
    assert contents(bucket)["model.migrated.h5"] == local.read_bytes()


def test_many_models_of_a_bucket(bucket: Any) -> None:
    """Outputs of earlier runs in a bucket are not inputs, and each result is one line."""
    for number in range(3):
        put(bucket, MODEL, f"all/{number}.h5")
    for jobs in ("1", "2"):
        options = ("--jobs", jobs, "--existing=replace", "--format", "jsonl")
        ended = run("migrate", f"{HOME}/all", *options)
        lines = [json.loads(line) for line in ended.out.splitlines()]
        assert ended.code == 0
        assert lines[-1]["end"]["models_written"] == 3
    assert len(contents(bucket, "all/")) == 6


def commands(url: str) -> list[str]:
    """Return the arguments of the command that audit prints for Keras 3."""
    result = run("audit", url, "--target", "keras3", "--format", "json").json
    (command,) = result["models"][0]["commands"]
    return [str(word) for word in command["arguments"]]


def test_the_command_of_audit_helps_beside_the_model(bucket: Any) -> None:
    """The command that audit prints for a remote model writes an object without findings."""
    url = put(bucket, MODEL, "model.h5")
    assert run("migrate", url, *commands(url), "--no-verify").code == 0
    (output,) = contents(bucket).keys() - {"model.h5"}
    assert run("audit", f"{HOME}/{output}", "--target", "keras3").code == 0


@pytest.mark.usefixtures("bucket")
def test_the_command_of_audit_helps_where_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The command of audit writes a local file if the server does not support writing; a signed
    address has no command, because it must not be printed.
    """
    home = tmp_path / "web"
    home.mkdir()
    shutil.copy(MODEL, home / "model.h5")
    monkeypatch.chdir(tmp_path)
    with range_server(home) as server:
        url = f"{server.url}/model.h5"
        assert run("migrate", url, *commands(url), "--no-verify").code == 0
        signed = run("audit", f"{url}?key={SECRET}", "--target", "keras3", "--format", "json")
    assert not signed.json["models"][0].get("commands")
    (output,) = (file for file in tmp_path.iterdir() if file.is_file())
    assert run("audit", output.name, "--target", "keras3").code == 0


def test_python_returns_the_url(bucket: Any) -> None:
    """``policytool.migrate`` returns the URL and writes the same object as the command."""
    url = put(bucket, MODEL, "model.h5")
    done = policytool.migrate(url, output=f"{HOME}/new.h5")
    assert (done.status, done.output) == ("written", f"{HOME}/new.h5")
    assert f"{HOME}/new.h5" in repr(done)
    assert "new.h5" in contents(bucket)
    with pytest.raises(policytool.UsageError):
        policytool.migrate(url, in_place=True)


def test_names_of_a_server_stay_in_the_copy() -> None:
    """A listing with names outside the model's directory is an error."""
    home = parse(f"{HOME}/model")
    with (
        mock.patch.object(opening, "is_directory", side_effect=lambda path: path == home),
        mock.patch.object(opening, "names", return_value=frozenset({".."})),
        pytest.raises(policytool.ModelFileError, match="outside"),
    ):
        transfers.files_below(home)


def test_a_listing_without_an_end_is_refused(bounded: Bounded) -> None:
    """An endless listing is an error, because nested directories count together."""
    bounded("remote-names", 9)
    with (
        mock.patch.object(opening, "is_directory", return_value=True),
        mock.patch.object(opening, "names", return_value=frozenset({"again"})),
        pytest.raises(policytool.ModelFileError, match="at least 10 names") as caught,
    ):
        transfers.files_below(parse(f"{HOME}/model"))
    assert caught.value.code == "remote-limit"


def test_progress_of_a_transfer_is_reported(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The progress of a transfer is a share of all bytes, and ends with an empty text even if it
    fails.
    """
    monkeypatch.setattr(transfers, "_STEP_SECONDS", 0.0)
    file = tmp_path / "a.bin"
    file.write_bytes(bytes(20 * 2**20))
    target = parse(f"{HOME}/a.bin")
    reported: list[str] = []
    with transfers.reporting(reported.append):
        transfers.upload(file, target, overwrite=False)
        transfers.download({"b.bin": target}, tmp_path)
    shares = ("40 %", "80 %", "100 %")
    assert reported == [
        *(f"uploading {HOME}/a.bin: {share} of 21 MB" for share in shares),
        "",
        *(f"downloading {HOME}/a.bin: {share} of 21 MB" for share in shares),
        "",
    ]

    def interrupt(step: str) -> None:
        reported.append(step)
        if "80 %" in step:
            raise KeyboardInterrupt

    with transfers.reporting(interrupt), pytest.raises(KeyboardInterrupt):
        transfers.upload(file, target, overwrite=True)
    assert reported[-2:] == [f"uploading {HOME}/a.bin: 80 % of 21 MB", ""]
    assert contents(bucket) == {"a.bin": file.read_bytes()}


def test_progress_of_a_transfer_is_an_option(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bucket, MODEL, "a.h5")
    command = ("migrate", f"{HOME}/a.h5")
    assert "loading" not in run(*command, "-v", "-o", f"{HOME}/quick.h5").err
    monkeypatch.setattr(transfers, "_STEP_SECONDS", 0.0)
    reported = run(*command, "-v", "-o", f"{HOME}/slow.h5").err
    assert f"policytool: downloading {HOME}/a.h5: 100 % of 0 MB\n" in reported
    assert f"policytool: uploading {HOME}/slow.h5: 100 % of 0 MB\n" in reported
    assert "loading" not in run(*command, "-q", "-o", f"{HOME}/off.h5").err


def test_a_protocol_that_writes_is_a_protocol() -> None:
    for protocol in remote_migration.WRITABLE:
        assert parse(f"{protocol}://box/model.h5").protocol == protocol
