"""
Bounds for files from strangers, each with the reason for its size.

They are far above what any published model needs and far below what would hurt the machine that reads it.
"""

from __future__ import annotations

from typing import Final

MAX_JSON_BYTES: Final = 256 * 2**20
"""The largest real config seen is EfficientNetV2-L's 1 MB; vocabularies stored in configs reach tens of MB."""

MAX_JSON_DEPTH: Final = 200
"""Real configs nest below 40 levels (nested models in wrappers); the interpreter's own recursion limit is 1000."""

MAX_YAML_BYTES: Final = 8 * 2**20
"""YAML takes twenty times as long to read as JSON, this much 15 seconds. EfficientNetV2-L's config is 1 MB."""

MAX_YAML_NODES: Final = 2_000_000
"""Values once every alias is written out: a few lines of aliases of aliases stand for billions. EfficientNetV2-L's config has 60,000."""

MAX_LAYERS: Final = 100_000
"""EfficientNetV2-L has 1,031 layers."""

MAX_H5_OBJECTS: Final = 1_000_000
"""Groups, datasets and links together; EfficientNetV2-L's file has 4,000."""

MAX_H5_DEPTH: Final = 64
"""Groups within groups; nested models in wrappers reach about 15."""

MAX_H5_RANK: Final = 32
"""HDF5's own H5S_MAX_RANK."""

MAX_ZIP_MEMBERS: Final = 100_000
"""A `.keras` file has 3 members and one per asset or shard."""

MAX_ZIP_RATIO: Final = 200
"""Uncompressed over compressed size. Keras stores members uncompressed; deflated JSON reaches about 40."""

MAX_INFLATED_BYTES: Final = 16 * 2**30
"""A weights member that someone compressed has to be inflated to a temporary file before it can be read."""

MAX_PROTO_BYTES: Final = 2**31 - 1
"""Protobuf's own limit for one message."""

MAX_OBJECT_NODES: Final = 2_000_000
"""Nodes of a SavedModel's object graph; EfficientNetV2-L has about 20,000."""
