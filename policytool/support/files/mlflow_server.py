"""
Requests to an MLflow server, with the addresses, credentials and connections of MLflow's client.

The client's own functions are not used: they repeat a request for minutes, read answers of any
size, and may create a database in the working directory.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.support.files.remote_path import RemotePath
    from policytool.support.text.jsontext import Json

_QUIET: Final = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_DISABLE_AGENT_HINT": "1"}
"""
Settings while MLflow is imported, which otherwise sends usage data, writes to the user's home, and
may print hints.
"""

_WEB: Final = ("http://", "https://")
_BLOCK: Final = 2**20
_GRACE: Final = 5
"""Seconds after which a connection ends whose request is over."""


class MlflowServer:
    """One MLflow server, and the model that is read from it, for its sentences."""

    def __init__(self, path: RemotePath, address: str) -> None:
        self.path = path
        self.address = address

    def answer(self, endpoint: str, values: Mapping[str, str]) -> dict[str, Json]:
        """
        Return the JSON object in the server's answer.

        :raises ModelFileError: if the answer is not a JSON object, or is too large.
        :raises Exception: of requests or MLflow, if the request fails.
        """
        most = limits.JSON_BYTES.value + 1
        with closing(self.open(endpoint, values)) as response:
            data = read_body(response, most)
        try:
            document, _ = jsontext.parse(data)
        except jsontext.JsonError as error:
            if error.code == "json-limit":
                message = f"is not readable: the answer of the MLflow server {error}"
                raise ModelFileError(self.path.shown, "remote-limit", message) from None
            raise self.unexpected_answer() from None
        if not isinstance(document, dict):
            raise self.unexpected_answer()
        return document

    def open(
        self,
        endpoint: str,
        values: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:  # noqa: ANN401  # a response of requests, which ships no types
        """
        Return a response whose body was not read yet.

        :raises Exception: of requests or MLflow, if the request fails.
        """
        from mlflow.utils.credentials import get_default_host_creds
        from mlflow.utils.rest_utils import http_request

        response = http_request(
            get_default_host_creds(self.address),
            endpoint,
            "GET",
            params=values,
            extra_headers={"Accept-Encoding": "identity", **(headers or {})},
            stream=True,
            max_retries=0,  # policytool repeats it
            raise_on_status=False,
            timeout=limits.REMOTE_SECONDS.value + _GRACE,
        )
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            response.close()
            response.raise_for_status()
        return response

    def unexpected_answer(self) -> ModelFileError:
        """Return the error for an answer that MLflow servers do not send."""
        return ModelFileError(
            self.path.shown,
            "remote-failed",
            "is not readable: the answer of the server is not one of an MLflow server; check "
            "MLFLOW_TRACKING_URI",
        )


def servers(path: RemotePath) -> tuple[MlflowServer, MlflowServer]:
    """
    Return the servers of the registry, and of runs and artifacts, that MLflow's settings name.

    :raises ModelFileError: if MLflow cannot be imported, or they name no server.
    """
    _import_mlflow(path)
    import mlflow

    addresses = mlflow.get_registry_uri(), mlflow.get_tracking_uri()
    if not all(address.startswith(_WEB) for address in addresses):
        raise ModelFileError(
            path.shown,
            "remote-location",
            "is not readable: there is no address of an MLflow server; set MLFLOW_TRACKING_URI to "
            "one, such as http://HOST:5000",
        )
    registry, tracking = (MlflowServer(path, address) for address in addresses)
    return registry, tracking


def read_body(response: Any, count: int) -> bytes:  # noqa: ANN401  # as above
    """Return the next bytes of a response, fewer at its end."""
    blocks, left = [], count
    while left and (block := response.raw.read(min(left, _BLOCK))):
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def _import_mlflow(path: RemotePath) -> None:
    """
    Import MLflow without its messages and its telemetry.

    :raises ModelFileError: if that fails.
    """
    if "mlflow" in sys.modules:
        return
    before = {name: os.environ.get(name) for name in _QUIET}
    os.environ.update(_QUIET)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import mlflow.utils.rest_utils  # noqa: F401
    except Exception as error:  # its packages raise anything if their versions do not fit
        raise ModelFileError(
            path.shown,
            "remote-package",
            f"requires the package mlflow, whose import ends with {type(error).__name__}; install "
            "it again with: pip install 'policytool[mlflow]'",
        ) from error
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
