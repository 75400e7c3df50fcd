"""Models in repositories of the Hub, read with its own client: files, requests and messages."""

from __future__ import annotations

import os
import shutil
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from unittest import mock

import fsspec.config
import pytest
from huggingface_hub import HfFileSystem

import policytool
from policytool.support.files import opening, remote_requests
from tests.conftest import run, run_process
from tests.helpers.hub_server import HubServer, hub_server
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.presets import backbone, decoder_groups, policy, split_weights, write_preset
from tests.helpers.sampling import sampled
from tests.helpers.small_models import dense, h5_model, keras_zip, sequential

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = THOROUGH

TOKEN: Final = "hf_hidden"  # noqa: S105  # of a test
UNPACKED: Final = FIXTURES / "keras3.15/unpacked.keras.d"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    """Serve a repository, and configure the client to use it with a token."""
    main = tmp_path / "models/owner/name/main"
    main.mkdir(parents=True)
    keras_zip(main / "model.keras")
    keras_zip(main / "odd #1?.keras")
    (main / "README.md").write_text("text", encoding="utf-8")
    shutil.copytree(UNPACKED, main / "sub/unpacked")
    with hub_server(tmp_path) as server:
        settings = {"hf": {"endpoint": server.url}}
        with (
            mock.patch.dict(fsspec.config.conf, settings),
            mock.patch.dict(os.environ, {"HF_TOKEN": TOKEN}),
        ):
            _forget_servers()
            yield server
    _forget_servers()


def _forget_servers() -> None:
    opening._sessions.clear()  # noqa: SLF001  # each test has another server
    HfFileSystem.clear_instance_cache()


def found_paths(url: str) -> list[str]:
    """Return the paths of the models that a URL selects."""
    ended = run("inspect", url, "--format", "json")
    assert ended.code == 0, ended.err
    return [model["path"] for model in ended.json["models"]]


def failure_codes(url: str) -> list[str]:
    """Return the codes of the failures of a URL."""
    ended = run("inspect", url, "--format", "json")
    assert ended.code == 3
    assert TOKEN not in ended.out + ended.err
    return [failure["code"] for failure in ended.json["failures"]]


def test_repository_selects_its_models(hub: HubServer) -> None:
    """Over several pages of its listing, with directories as one model."""
    base = "hf://owner/name"
    names = ["model.keras", "odd #1?.keras", "sub/unpacked"]
    assert found_paths(base) == [f"{base}/{name}" for name in names]
    assert found_paths(f"{base}/*.keras") == [f"{base}/{name}" for name in names[:2]]
    assert found_paths(f"{base}/sub/unpacked/config.json") == [f"{base}/sub/unpacked"]
    assert hub.requests


@pytest.mark.parametrize(
    ("directory", "url"),
    [
        ("models/owner/name/v1", "hf://owner/name@v1"),
        ("models/owner/name/refs/pr/1", "hf://owner/name@refs%2Fpr%2F1"),
        ("models/owner/name/refs/pr/1", "hf://owner/name@refs/pr/1"),
        ("datasets/owner/data/main", "hf://datasets/owner/data"),
        ("models/owner/whole/main", "hf://owner/whole"),
    ],
)
def test_revisions_and_kinds_of_repositories(
    hub: HubServer, tmp_path: Path, directory: str, url: str
) -> None:
    """
    Revisions and each kind of repository are supported, also a repository that is itself a model.
    """
    shutil.copytree(UNPACKED, tmp_path / directory)
    assert found_paths(url) == [url]
    assert found_paths(f"{url}/config.json") == [url]
    assert hub.requests


def test_ranges_are_read_and_the_token_stays_at_the_hub(hub: HubServer, tmp_path: Path) -> None:
    """The signed URL is on another server, which does not receive the token."""
    import h5py

    path = tmp_path / "models/owner/name/main/large.h5"
    h5_model(path, sequential(dense()))
    with h5py.File(path, "a") as file:
        file["model_weights"].create_dataset("large", shape=(2_000_000,), dtype="f8")[:] = 1
    assert found_paths("hf://owner/name/large.h5") == ["hf://owner/name/large.h5"]
    assert hub.sent < 50_000
    assert len(hub.requests) < 20
    tokens = {request.authorization for request in hub.requests if not request.is_large_file}
    assert f"Bearer {TOKEN}" in tokens
    assert {request.authorization for request in hub.requests if request.is_large_file} == {""}


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("hf://owner/name/none.keras", "not-found"),
        ("hf://owner/name@none/model.keras", "not-found"),
        ("hf://owner/none/model.keras", "remote-denied"),
        ("hf://owner", "remote-failed"),
        ("hf://own er/na:me/model.keras", "remote-failed"),
    ],
)
def test_each_failure_has_a_code(hub: HubServer, url: str, code: str) -> None:
    """
    Each failure has its own code, but a missing repository and a private one have the same, because
    the Hub does not distinguish them.
    """
    assert failure_codes(url) == [code]
    assert hub.sent == 0


def test_gated_and_private_repositories_are_denied(hub: HubServer) -> None:
    hub.gated.add("models/owner/name")
    assert failure_codes("hf://owner/name/model.keras") == ["remote-denied"]
    hub.gated.clear()
    hub.private["models/owner/name"] = "another"
    assert failure_codes("hf://owner/name/model.keras") == ["remote-denied"]
    hub.private["models/owner/name"] = TOKEN
    assert found_paths("hf://owner/name/model.keras")


def test_names_in_a_listing_do_not_lead_outside_the_repository(hub: HubServer) -> None:
    hub.extra_names = ["..", "../../etc/passwd", "sub/../../x"]
    result = run("inspect", "hf://owner/name", "--format", "json")
    assert result.code == 0
    assert not any(".." in request.path for request in hub.requests)


def test_hub_client_writes_no_files_and_prints_no_messages(hub: HubServer, tmp_path: Path) -> None:
    """
    The client writes no files to the home directory and prints no messages about repeated requests.
    """
    home = tmp_path / "home"
    home.mkdir()
    hub.failures = [HTTPStatus.SERVICE_UNAVAILABLE]
    environment = {"HF_ENDPOINT": hub.url, "HOME": str(home)}
    ended = run_process("inspect", "hf://owner/name/model.keras", environment=environment)
    assert (ended.code, ended.err) == (0, "")
    assert hub.failures == []
    assert list(home.rglob("*")) == []


def test_a_hub_that_stalls_ends_at_the_limit(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Hub that does not answer is a one-line error that names the time limit."""
    hub.stall = 3
    monkeypatch.setattr(remote_requests, "_STOP_SECONDS", 0.01)
    ended = run("inspect", "hf://owner/name/model.keras", "--limit", "remote-seconds=1")
    assert ended.code == 3
    assert "[remote-timeout]" in ended.err


@pytest.mark.parametrize(
    ("decoders", "width", "most"),
    sampled("large presets of a Hub", [(40, 10_224, 300), (80, 7232, 560)], share=2),
)
def test_large_preset_is_read_by_its_headers(
    hub: HubServer, decoders: int, width: int, most: int
) -> None:
    """
    A preset of 100 GB needs less than 10 MB. HDF5 places the header of an array next to its values,
    so the number of requests depends on the number of large arrays (241 and 481), not on their
    size. Each shard is read like those before it.
    """
    preset = hub.root / "models/owner/llama/main"
    write_preset(preset, backbone(policy("bfloat16")), {})
    split_weights(preset, decoder_groups(decoders, width), 30)
    assert sum(path.stat().st_size for path in preset.iterdir()) > 100e9
    assert len(policytool.inspect("hf://owner/llama").layers) == 10 * decoders + 2
    assert hub.sent < 10e6
    assert sum(request.is_large_file for request in hub.requests) < most
