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

MAX_WEIGHTS_SHARDS: Final = 10_000
"""Files of one model's weights; Keras makes them of 5 GB unless it is told otherwise."""

MAX_PROTO_BYTES: Final = 2**31 - 1
"""Protobuf's own limit for one message."""

MAX_OBJECT_NODES: Final = 2_000_000
"""Nodes of a SavedModel's object graph; EfficientNetV2-L has about 20,000."""

MAX_TRACE_STEPS: Final = 10_000_000
"""Ops of a SavedModel's entry points with their inputs, calls and scopes, each counted as often as it is called; EfficientNetV2-L takes some 100,000."""

MAX_SCOPE_DEPTH: Final = 100
"""Scopes within scopes; real ones nest below 30."""

MAX_CALL_DEPTH: Final = 200
"""Functions within functions; a layer in a loop in a nested model reaches about 10."""

MAX_OBJECT_DEPTH: Final = 200
"""Objects within objects on the shortest way to a variable; real models nest below 20."""

MAX_CHECKPOINT_INDEX_BYTES: Final = 256 * 2**20
"""EfficientNetB0's index has 18 kB, some 60 bytes a tensor. All keys together are held to the same, because prefix compression multiplies them."""

MAX_CHECKPOINT_ENTRIES: Final = 1_000_000
"""Tensors and slices of tensors; models have thousands, each up to three times with an optimizer's slots."""

MAX_CHECKPOINT_KEY_BYTES: Final = 64 * 2**10
"""A key is a path through objects or scopes; real ones have a few hundred bytes."""

MAX_CHECKPOINT_ENTRY_BYTES: Final = 2**20
"""An entry takes some 30 bytes, and one of a partitioned variable as many again for each slice."""

MAX_CHECKPOINT_SHARDS: Final = 99_999
"""What the five digits in a shard's name can count."""

MAX_CHECKPOINT_RANK: Final = 254
"""TensorFlow's own ``TensorShape::MaxDimensions``."""

MAX_CHECKPOINT_STRING_BYTES: Final = 256 * 2**20
"""A tensor of strings is read whole to verify it; vocabularies reach tens of MB."""

MAX_CHECKPOINT_GRAPH_BYTES: Final = 32 * 2**20
"""The object graph, which grows some thirtyfold when parsed; that of a model with 20,000 objects has about 2 MB."""

MAX_READ_SECONDS: Final = 3600
"""For one file in a process of its own: EfficientNetV2-L takes one second, and an hour reads the values of a terabyte from a disk."""

MAX_WRITE_SECONDS: Final = 4 * MAX_READ_SECONDS
"""Of a file that is rewritten, values are read to be counted, read to be written, written, and read back."""

MAX_ANSWER_BYTES: Final = 2**30
"""Of a process that reads files for another: a layer takes some 300 bytes, and there are at most MAX_LAYERS; a diff needs configs, of MAX_JSON_BYTES."""
