"""Messages about files that cannot be opened."""

from __future__ import annotations

import re
from typing import Final

from policytool.troubleshooting.entry import KERAS, Entry, Family, Step, exact, issue, likely

_IDENTIFY: Final = Step(
    text="Identify the file by its content:", command="policytool inspect model.h5"
)

FILES: Final = Family(
    title="Files that do not open",
    entries=(
        Entry(
            id="file-signature",
            title="OSError: Unable to open file (file signature not found)",
            patterns=(
                exact(r"Unable to (?:synchronously )?open file \(file signature not found"),
                likely(r"file signature not found"),
            ),
            releases="all releases, with h5py",
            cause=(
                "The file is not HDF5. Usually it is a Git LFS pointer, an HTML page that a failed "
                "download left, or a `.keras` file that this release does not support."
            ),
            check=_IDENTIFY,
            fix=(
                Step(
                    text=(
                        "For a Git LFS pointer, run `git lfs pull`. For an HTML page, download the "
                        "file again."
                    )
                ),
                Step(
                    text="For a `.keras` file, convert the model for this release:",
                    command="policytool migrate model.keras --target tf2.9",
                ),
            ),
            sources=(
                issue("keras-team/keras", 19164),
                issue("keras-team/keras", 6221),
                issue("AnnekeMeyer/zone-segmentation", 2),
            ),
        ),
        Entry(
            id="truncated-file",
            title="OSError: Unable to open file (truncated file: eof = ...)",
            patterns=(exact(r"\(truncated file: eof = \d"),),
            releases="all releases, with h5py",
            cause=(
                "The end of the HDF5 file is missing: a download or a copy was interrupted. `eof` "
                "is the size of the file, and `stored_eof` is the size that it should have."
            ),
            check=_IDENTIFY,
            fix=(Step(text="Download or copy the file again."),),
            sources=(issue("keras-team/keras", 6221),),
        ),
        Entry(
            id="directory-as-file",
            title="OSError: Unable to open file (file read failed: ... Is a directory)",
            patterns=(
                exact(r"\(file read failed: .{0,200}Is a directory"),
                exact(r"unable to open file: .{0,200}errno = 21"),
                exact(r"Unable to (?:synchronously )?open file \(file read failed"),
            ),
            releases="standalone Keras 2, and h5py",
            cause=(
                "The path is a directory, usually a SavedModel, but this release expects an HDF5 "
                "file."
            ),
            check=Step(
                text="Identify the model in the directory:", command="policytool inspect exported/"
            ),
            fix=(
                Step(
                    text="Write the model as HDF5, if its configs are in the directory:",
                    command="policytool migrate exported/ --target tf2.3 -o model.h5",
                ),
                Step(text="Or load the directory with TensorFlow 2."),
            ),
        ),
        Entry(
            id="keras-file-not-zip",
            title=(
                "ValueError: File not found: ... Please ensure the file is an accessible "
                "`.keras` zip file"
            ),
            patterns=(
                exact(r"Please ensure the file is an accessible `?\.keras`? zip file"),
                exact(
                    r"(?:BadZipFile: )?File is not a zip file", re.compile(r"\.keras|keras[/\\]")
                ),
            ),
            releases="Keras 3, and TF 2.13 and later",
            cause=(
                "The file does not exist, or it has the suffix `.keras` and is not a `.keras` "
                "file. TF 2.11 and earlier write HDF5 or a SavedModel under this name."
            ),
            check=Step(
                text="Identify the file by its content:", command="policytool inspect model.keras"
            ),
            fix=(
                Step(
                    text="If the file is HDF5, convert it for the newest Keras:",
                    command="policytool migrate model.keras --target keras3",
                ),
                Step(text="If the file does not exist, correct the path."),
            ),
            sources=(issue("keras-team/keras", 21663),),
        ),
        Entry(
            id="savedmodel-not-found",
            title="OSError: SavedModel file does not exist at: ...",
            patterns=(exact(r"SavedModel file does not exist at:? "),),
            releases="TF 1.15 to 2.15",
            cause=(
                "The path does not exist, or it is neither an HDF5 file nor a SavedModel. Releases "
                "before TF 2.12 print this message for every `.keras` file."
            ),
            check=Step(
                text="Identify the file by its content:", command="policytool inspect model.keras"
            ),
            fix=(
                Step(text="If the path is wrong, correct it."),
                Step(
                    text="For a `.keras` file, convert the model for this release:",
                    command="policytool migrate model.keras --target tf2.3",
                ),
            ),
        ),
        Entry(
            id="weights-only",
            title="ValueError: No model config found in the file",
            patterns=(
                exact(r"No model config found in the file"),
                exact(r"No model found in config file"),
                exact(
                    r"Cannot create group in read.only mode",
                    re.compile(r"keras[/\\]|load_model"),
                ),
            ),
            releases="all releases",
            cause=(
                "The file contains only weights: it was written by `save_weights`, not by `save`. "
                "It has no architecture and no policies."
            ),
            check=Step(text="Confirm the content:", command="policytool inspect model.h5"),
            fix=(
                Step(
                    text=(
                        "Build the model in Python and call `model.load_weights(...)`, or get the "
                        "file that `model.save` wrote."
                    )
                ),
            ),
        ),
        Entry(
            id="h5py-decode",
            title="AttributeError: 'str' object has no attribute 'decode'",
            patterns=(exact(r"'str' object has no attribute 'decode'", KERAS),),
            releases="standalone Keras 2 and TF 2.3 and earlier, with h5py 3",
            cause=(
                "h5py 3 returns texts as `str`, and this release of Keras expects bytes. The model "
                "is usually intact."
            ),
            check=Step(
                text="Check that the model is intact, and list the releases that load it:",
                command="policytool inspect model.h5 --releases all",
            ),
            fix=(
                Step(text='Install an earlier h5py: `pip install "h5py<3"`.'),
                Step(
                    text="Or convert the model, and load it with a newer release:",
                    command="policytool migrate model.h5 --target keras3",
                ),
            ),
        ),
        Entry(
            id="bfloat16-in-hdf5",
            title="TypeError: data type 'bfloat16' not understood",
            patterns=(
                exact(r"data type ['\"]bfloat16['\"] not understood"),
                likely(r"No cast function available", KERAS),
            ),
            releases="TF 2.1 to 2.15, tf_keras, Keras 3",
            cause=(
                "Variables are stored as bfloat16 in an HDF5 file. HDF5 has no such type, and no "
                "release of Keras reads them back."
            ),
            check=Step(
                text="Find the variables:", command="policytool audit model.h5 --select PT403"
            ),
            fix=(
                Step(
                    text="Store the variables as float32, which is exact:",
                    command="policytool audit model.h5 --select PT403 --fix",
                ),
            ),
            sources=(
                issue("keras-team/keras", 17069),
                issue("tensorflow/tensorflow", 32617),
            ),
        ),
        Entry(
            id="header-too-large",
            title="RuntimeError: Unable to create attribute (object header message is too large)",
            patterns=(exact(r"object header message is too large"),),
            releases="standalone Keras 2, and h5py",
            cause=(
                "An HDF5 attribute holds at most 64 kB. The names of the layers or weights of a "
                "large model are longer."
            ),
            check=Step(text="Count the layers of a model:", command="policytool inspect model.h5"),
            fix=(
                Step(
                    text=(
                        "Save the model as `.keras` or as a SavedModel, use shorter names, or use "
                        "a newer release, which splits the attribute."
                    )
                ),
            ),
            sources=(issue("keras-team/keras", 5253), issue("keras-team/keras", 11104)),
        ),
    ),
)
