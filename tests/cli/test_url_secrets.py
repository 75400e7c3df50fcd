"""No command prints or writes a part of a URL that may be a secret, whatever the URL looks like."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policytool.support.files import remote
from policytool.support.files.remote_path import redacted, without_secrets
from policytool.support.files.remote_requests import request
from tests.conftest import MIXED_H5, run
from tests.helpers.marks import THOROUGH, examples

if TYPE_CHECKING:
    from policytool.support.files.remote_path import RemotePath

SECRET: Final = "hunter2"  # noqa: S105  # of no server

in_password: Final = st.text(alphabet="ab1@/:%?#&=+.~\\|^", max_size=4)
schemes: Final = st.sampled_from(
    [
        *("http", "https", "HTTP", "s3", "S3", "gs", "gcs", "hf", "az", "abfs", "memory", "ftp"),
        *("zip", "file", "simplecache", "models", "x+y"),
    ]
)
hosts: Final = st.sampled_from(["host", "host.example", "[::1]", "127.0.0.1:80", "", "bucket"])
places: Final = st.sampled_from(["", "/", "/a.h5", "/dir/a.keras", "/a@b/c", "/a::b", "//"])
users: Final = st.builds(
    "{}{}{}{}{}@".format,
    st.sampled_from(["user:", "u%40v:", "a.b@c.example:", ":", "user:x:"]),
    in_password,
    st.just(SECRET),
    in_password,
    st.sampled_from(["", "@"]),
)
queries: Final = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["?", "?sig=", "?a=1&", "#", "#token=", "?x=1::", "?::", "?a=b@c&sig="]),
    in_password,
    st.just(SECRET),
    in_password,
)
slashes: Final = st.sampled_from(["://", "://", "://", ":///", ":\\\\", ":/"])


@st.composite
def urls(draw: st.DrawFn) -> str:
    """Return text that is a URL, or resembles one, and contains the secret."""
    user, query = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    scheme = draw(schemes)
    if scheme == "zip":  # its archive is a local path, which may contain an @
        user, query = False, True
    marks = slashes if user else st.just("://")
    own = (
        f"{scheme}{draw(marks)}{draw(users) if user else ''}{draw(hosts)}{draw(places)}"
        f"{draw(queries) if query else ''}"
    )
    around = draw(
        st.sampled_from(["{}", "{}", "{}", "zip://a.h5::{}", "s3://b/k::{}", "http://h/{}"])
    )
    return draw(st.sampled_from(["", "", "", " ", '"', "'", "\t", "\x1b", "./"])) + around.format(
        own
    )


@given(url=urls())
@example(url="zip://host?x=1::hunter2:\\")
@example(url="zip://host?x=1::hunter2://a")
def test_displayed_urls_have_no_secret(url: str) -> None:
    """The same holds after the text became a path, which merges slashes."""
    assert SECRET not in without_secrets(url)
    assert SECRET not in without_secrets(Path(url).as_posix())
    assert SECRET not in redacted(f"the path {url} is a URL")


COMMANDS: Final = (
    *(("inspect", "URL"), ("audit", "URL"), ("audit", "-v", "URL"), ("diff", "URL", "URL")),
    *(("migrate", "URL", "--to", "float32"), ("migrate", "a.h5", "-o", "URL", "--to", "float32")),
    *(("inspect", "a.h5", "--format", "json=URL"), ("audit", "a.h5", "--baseline", "URL")),
    *(("audit", "a.h5", "--cache", "URL"), ("audit", "a.h5", "--write-baseline", "URL")),
    *(("migrate", "--plan", "URL"), ("inspect", "a.h5", "--config", "URL"), ("URL",)),
    *(("inspect", "a.h5", "--layer", "URL"), ("audit", "a.h5", "--target", "URL")),
    *(("inspect", "--format", "jsonl", "URL"), ("inspect", "--URL"), ("tune", "URL", "--to", "x")),
    *(
        ("audit", "a.h5", "URL", "--format", "json", "--jobs", "1"),
        ("check", "URL"),
        ("merge", "URL"),
    ),
    *(("audit", "--format", "sarif=a.sarif", "--format", "junit=a.xml", "URL"), ("explain", "URL")),
    *(
        ("audit", "-", "LIST"),
        ("inspect", "-", "LIST"),
        ("migrate", "-", "LIST", "--to", "float32"),
    ),
    *(("audit", "a.h5", "SETTINGS"), ("inspect", "--show-settings", "SETTINGS")),
)


def _unreachable(_session: object, path: RemotePath) -> object:
    """Fail as a backend does whose message has the URL."""

    def fail() -> object:
        raise OSError(f"cannot connect to {path.url}")

    return request(path, fail)


@THOROUGH
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@settings(max_examples=examples(50))
@given(url=urls(), key=st.sampled_from(["baseline", "target", "select", "set", "cache", "x"]))
def test_no_command_prints_or_writes_a_secret(command: tuple[str, ...], url: str, key: str) -> None:
    """
    A secret in a URL stays hidden if the URL is an argument, in a list on stdin, an output, or in a
    settings file.
    """
    with (
        TemporaryDirectory() as directory,
        chdir(directory),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(remote.Session, "system", _unreachable)
        patch.setattr("time.sleep", lambda _seconds: None)
        if "SETTINGS" in command:
            text = url.replace("\\", "\\\\").replace('"', '\\"').replace("\t", " ")
            Path("policytool.toml").write_text(f'{key} = "{text}"\n'.replace("\x1b", ""))
        words = [word.replace("URL", url) for word in command if word not in {"LIST", "SETTINGS"}]
        ended = run(*words, stdin=f"{url}\n".encode())
        texts = [ended.out, ended.err]
        texts += [
            path.read_bytes().decode(errors="replace")
            for path in Path().rglob("*")
            if path.is_file() and path.name != "policytool.toml"
        ]
        names = [path.as_posix() for path in Path().rglob("*") if path.is_file()]
    assert not any(SECRET in text for text in texts), (words, ended, names)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:p@hunter2@host/a", "http://host/a"),
        ("http://user:p/hunter2@host/a", "http://host/a"),
        ("http://user:p?hunter2@host/a", "http://..."),
        ("http://host/a?x=1::hunter2", "http://host/a"),
        (" http://user:hunter2@host/a", " http://host/a"),
        ("'http://user:hunter2@host/a'", "'http://host/a'"),
        ("http:/user:hunter2@host/a", "http:/host/a"),
        ("s3://bucket/key?hunter2", "s3://bucket/key"),
        ("s3://b/k::http://user:hunter2@host/", "s3://b/k::http://host/"),
        ("https://cdn.example/npm/model@1.0/model.json", None),
        ("https://minio:9000/bucket/a.h5", None),
        ("http://[::1]:80/a", None),
        ("hf://org/repo@revision/a.h5", None),
        ("abfs://box@account.dfs.core.windows.net/a", None),
        ("zip://in@1/a.h5::models@1.zip", None),
        ("models:/name@alias/data", None),
        ("C:\\models\\a@b.h5", None),
        ("models@1/a.h5?", None),
    ],
)
def test_displayed_urls_keep_their_public_parts(url: str, shown: str | None) -> None:
    """Versions after an @, ports, containers and aliases remain."""
    assert without_secrets(url) == (url if shown is None else shown)


def test_a_directory_with_the_name_of_a_protocol_is_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of git ls-files has such names; reports show a path that is local again."""
    monkeypatch.chdir(tmp_path)
    for name in ("models:/x/1/f.h5", "s3:/b/f.h5"):
        path = Path(name)
        path.parent.mkdir(parents=True)
        shutil.copy(MIXED_H5, path)
    ended = run(
        "inspect", "-", "--jobs", "1", "--format", "json", stdin=b"models:/x/1/f.h5\ns3:/b/f.h5\n"
    )
    assert ended.code == 0, ended.err
    shown = [model["path"] for model in ended.json["models"]]
    assert shown == ["./models:/x/1/f.h5", "s3:/b/f.h5"]
    assert run("inspect", *shown, "--jobs", "1", "--format", "json").json == ended.json
