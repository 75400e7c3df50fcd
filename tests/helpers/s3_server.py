"""An S3 server on this machine, and models in its bucket."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import fsspec

from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUCKET: Final = "models"
SECRET: Final = "hidden-secret"  # noqa: S105  # of a test


@contextlib.contextmanager
def s3_bucket() -> Iterator[Any]:
    """Start a server, set the environment for its clients, and give the client of a new bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with mock.patch.dict(os.environ, environment):
        forget_servers()
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield client
    forget_servers()
    server.stop()


def forget_servers() -> None:
    """Let the next URL of this process find its server in the environment."""
    opening._sessions.clear()  # noqa: SLF001  # a user's process has one environment
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def put(bucket: Any, path: Path, key: str) -> str:
    """Put a file or a directory into the bucket, and return its URL."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            below = f"/{file.relative_to(path).as_posix()}" if path.is_dir() else ""
            bucket.upload_file(str(file), BUCKET, f"{key}{below}")
    return f"s3://{BUCKET}/{key}"


def contents(bucket: Any, prefix: str = "") -> dict[str, bytes]:
    """Return all objects whose names begin with a prefix, by their names."""
    result = bucket.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
    return {
        entry["Key"]: bucket.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
        for entry in result
    }
