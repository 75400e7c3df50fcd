"""
TensorFlow's checkpoints (tensor bundles, "V2"), read without TensorFlow.

A bundle is ``PREFIX.index``, a sorted table from key to dtype, shape and place, and shards
``PREFIX.data-NNNNN-of-MMMMM`` that hold the values. ``model.save_weights``,
``tf.train.Checkpoint``, TF 1's ``Saver`` and the ``variables/`` of a SavedModel are all bundles.
Those of TF 2 hold an object graph too: which object has which tensor, under which names.

    bundle = open_bundle(Path("variables/variables"))
    for key, entry in bundle.entries.items():
        for chunk in bundle.chunks(entry): # verified: the last chunk comes only after the checksum
            ...

Opening reads the index alone; a shard is opened when one of its tensors is read.

Sources: tensorflow/core/util/tensor_bundle/{tensor_bundle,naming}.cc,
tensorflow/core/lib/io/{table,block,format}.cc.
"""

from policytool.formats.checkpoint.bundle._bundle import Bundle, open_bundle
from policytool.formats.checkpoint.bundle._entries import Entry, Part
from policytool.formats.checkpoint.bundle._objects import (
    OBJECT_GRAPH_KEY,
    Attribute,
    ObjectGraph,
    SlotVariable,
    Trackable,
    keys_of,
)
from policytool.formats.checkpoint.bundle._table import is_table
from policytool.support.errors import BundleError

__all__ = [
    "OBJECT_GRAPH_KEY",
    "Attribute",
    "Bundle",
    "BundleError",
    "Entry",
    "ObjectGraph",
    "Part",
    "SlotVariable",
    "Trackable",
    "is_table",
    "keys_of",
    "open_bundle",
]
