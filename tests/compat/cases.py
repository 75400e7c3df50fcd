"""What the newest libraries are asked about, and what is known of their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.model.model import Layer, Source, Verdict
from tests.compat.asking import Job
from tests.helpers.sampling import LIBRARY_SHARE, sampled
from tests.model.test_truth import CASES as WRITTEN
from tests.model.test_truth import Case, report

if TYPE_CHECKING:
    from collections.abc import Callable

TF_KERAS: Final = "tf_keras2.21"
KERAS: Final = "keras3.15"
LIBRARIES: Final = (TF_KERAS, KERAS)
CASES: Final = tuple(case for case in WRITTEN if case.format not in {"tfjs", "export"})
"""
What a library's own loaders are given; TensorFlow.js models need a converter, and of an export of
TF 1 ``load_model`` makes no Keras model.
"""

SAMPLE: Final = sampled("files for the newest libraries", CASES, share=LIBRARY_SHARE)
"""What they are given in this run."""

RELEASES: Final = tuple(dict.fromkeys(case.release for case in CASES))
OTHER: Final = "mixed_bfloat16"
"""A global policy that no library has by default and few fixtures declare."""

Record = dict[str, Any]

OP_LAYERS: Final = frozenset({"TensorFlowOpLayer", "TFOpLambda", "SlicingOpLambda", "ClassMethod"})
"""Layers that compute in what the graph gives them, whatever they declare."""

LOADED_OTHERWISE: Final[tuple[tuple[str, Callable[[str, Case, Record], bool]], ...]] = (
    (
        "a custom model's constructor makes its layers again, under the global policy",
        lambda library, case, record: (
            library == TF_KERAS and case.name == "subclassed" and record["path"] != "net"
        ),
    ),
    (
        (
            "tf_keras gives the layers inside a MultiHeadAttention its policy, releases up to TF "
            "2.12 "
            "gave them the global one"
        ),
        lambda library, case, record: (
            library == TF_KERAS and case.name.startswith("mha") and record["role"] == "sublayer"
        ),
    ),
    (
        "up to TF 2.5 the dtype of a lookup layer is its input's, from TF 2.6 on its output's",
        lambda library, case, record: (
            library == TF_KERAS and record["class_name"] == "StringLookup"
        ),
    ),
    (
        (
            "Keras 3 gives lookup layers the dtype of their vocabulary, whatever a file of Keras 2 "
            "says"
        ),
        lambda library, case, record: (
            library == KERAS and record["class_name"] == "StringLookup" and not case.keras3
        ),
    ),
    (
        (
            "Keras 3 writes the policy of a Sequential and does not read it: the global "
            "policy decides"
        ),
        lambda library, case, record: library == KERAS and record["class_name"] == "Sequential",
    ),
)
"""Reason, and which live layers it excuses from having the dtypes that the report says."""


def job(case: Case, policy: str | None = None) -> Job:
    """Return a case's file as a job."""
    return Job(format=case.format, path=case.path, policy=policy)


def verdict(case: Case, library: str) -> Verdict | None:
    """Return what the report says of a library; None where it says nothing."""
    return report(case.path).releases.get(library)


def left_to_the_loader(case: Case) -> list[Layer]:
    """Return the layers whose policy is the loader's."""
    return [layer for layer in report(case.path).layers if layer.source is Source.GLOBAL]


def under_another_policy(library: str) -> list[Case]:
    """
    Return one file per release, format and set of classes that leave their policy to the loader.
    """
    chosen: dict[tuple[str, str, frozenset[str | None]], Case] = {}
    for case in SAMPLE:
        classes = frozenset(layer.class_name for layer in left_to_the_loader(case))
        if (
            classes
            and case.name != "lambda"
            and (said := verdict(case, library)) is not None
            and said.reason is None
        ):
            chosen.setdefault((case.release, case.format, classes), case)
    return list(chosen.values())
