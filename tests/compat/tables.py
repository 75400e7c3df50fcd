"""
SavedModels with tables that TensorFlow fills from assets, as its releases write them: ``python -m
tests.compat.tables DIRECTORY``.

Of TensorFlow 2 a module and a Keras model, of TensorFlow 1 a whole graph with a saver and
summaries.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf
import tf_keras


class Lookup(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """A table from words to the numbers of their lines."""

    def __init__(self, file: str) -> None:
        super().__init__()
        whole, line = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(file, tf.string, whole, tf.int64, line), -1
        )
        self.scale = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])  # type: ignore[untyped-decorator]  # as above
    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        return tf.cast(self.table.lookup(words), tf.float32) * self.scale


def of_tensorflow1(file: str, folder: str) -> None:
    """Write a graph with a table, a variable and a summary, which a session holds."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        words = v1.placeholder(tf.string, [None])
        table = v1.lookup.StaticHashTable(
            v1.lookup.TextFileInitializer(
                file,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            -1,
        )
        scale = v1.get_variable("scale", initializer=2.0)
        v1.summary.scalar("scale", scale)
        result = tf.cast(table.lookup(words), tf.float32) * scale
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        v1.saved_model.simple_save(
            session,
            folder,
            {"words": words},
            {"found": result},
            legacy_init_op=v1.tables_initializer(),
        )


def main(folder: Path) -> None:
    """Write the models."""
    file = folder / "words.txt"
    file.write_text("a\nb\n", encoding="utf-8")
    tf.saved_model.save(Lookup(str(file)), str(folder / "module"))
    inputs = tf_keras.Input((1,), dtype=tf.string)
    result = tf_keras.layers.StringLookup(vocabulary=["a", "b"])(inputs)
    tf_keras.Model(inputs, tf_keras.layers.Embedding(4, 2)(result)).save(
        folder / "keras", save_format="tf"
    )
    of_tensorflow1(str(file), str(folder / "session"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
