"""Models whose policies have faults (PT1)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from policytool.formats import rewriting
from policytool.formats.document import Address
from policytool.formats.edits import Edit, EditKind, WriteOptions
from policytool.formats.format_detection import document
from policytool.model.loaded_model import dtype_places
from policytool.rules import AuditOptions
from policytool.support.text.jsontext import pointer
from tests.helpers import changed_fixtures
from tests.helpers.paths import FIXTURES
from tests.rules.faults.fault import Fault

if TYPE_CHECKING:
    from pathlib import Path

MIXED: Final = "tf2.15/global_mixed_float16.h5"
SHARED: Final = "tf2.12/global_mixed_float16.h5"
KERAS3: Final = AuditOptions(targets=("keras3.15",))


def policy(name: str, class_name: str = "Policy", **more: object) -> dict[str, object]:
    """Return a policy as a dict."""
    return {"class_name": class_name, "config": {"name": name}, **more}


def _named(value: object, second: object = None, *, folder: Path) -> Path:
    """Write a model whose layer dense_a, and norm if a second policy is given, has this policy."""
    policies = {"dense_a": value, **({"norm": second} if second is not None else {})}
    return changed_fixtures.h5_policies(folder, MIXED, **policies)


def _fault(rule: str, name: str, value: object, second: object = None, **more: Any) -> Fault:
    return Fault(rule, name, lambda folder: _named(value, second, folder=folder), **more)


def _renamed_shared_policy(folder: Path) -> Path:
    return changed_fixtures.h5_layers(
        folder,
        SHARED,
        lambda layers: layers["dropout"]["dtype"]["config"].update(name="mixed_bfloat16"),
    )


def _shared_number_of_two_classes(folder: Path) -> Path:
    def change(layers: dict[str, Any]) -> None:
        for key in ("kernel_initializer", "bias_initializer"):
            layers["dense_a"][key]["shared_object_id"] = 777

    return changed_fixtures.h5_layers(folder, SHARED, change)


def _one_copy(folder: Path, *, source: str, value: object) -> Path:
    """
    Write a SavedModel in which the metadata of the root has another policy for the layer dropout
    than the metadata of the layer.
    """
    target = changed_fixtures.saved_model(folder, source, lambda _: None)
    read = document(target, source)
    part = read.config_part or ""
    for place, before in dtype_places(read.parts[part]):
        holder: Any = read.parts[part]
        for step in place[:-1]:
            holder = holder[step]
        if holder.get("name") == "dropout" and isinstance(before, dict):
            edit = Edit(
                kind=EditKind.FORMAT,
                address=Address(part=part, pointer=pointer(*place)),
                path=None,
                before=before,
                after=value,  # type: ignore[arg-type]
                reason="a test",
            )
            rewriting.write(
                target,
                target,
                rewriting.Changes(edits=(edit,)),
                document_format="savedmodel",
                options=WriteOptions(in_place=True, backup=False),
            )
            return target
    raise LookupError(source)


def _fixture(name: str, _: Path) -> Path:
    return FIXTURES / name


def _targeted(name: str, *targets: str, is_fixed: bool = False) -> Fault:
    return Fault(
        "PT104",
        f"{name} for {', '.join(targets)}",
        partial(_fixture, name),
        AuditOptions(targets=targets),
        is_fixed,
    )


FAULTS: Final = (
    Fault(
        "PT101",
        "experimental policy in one of two copies",
        partial(
            _one_copy,
            source="tf2.5/global_mixed_float16",
            value=policy("mixed_float16", "PolicyV1"),
        ),
    ),
    *(
        _fault("PT102", f"{name} {kind}", value, is_fixed=True)
        for name in (
            "float16_with_float32_vars",
            "bfloat16_with_float32_vars",
            "float32_with_float32_vars",
            "float64_with_float32_vars",
        )
        for kind, value in (("as text", name), ("as a dict", policy(name)))
    ),
    _fault(
        "PT102",
        "two removed names",
        "float16_with_float32_vars",
        "bfloat16_with_float32_vars",
    ),
    _fault("PT102", "int8_from_mixed_float16", "int8_from_mixed_float16"),
    *(
        _fault("PT103", name, value)
        for name, value in (
            ("_infer, Policy", policy("_infer")),
            ("_infer, PolicyV1", policy("_infer", "PolicyV1")),
            ("infer, Policy", policy("infer")),
            ("infer_with_float32_vars, Policy", policy("infer_with_float32_vars")),
            ("infer as text", "infer"),
            ("_infer as text", "_infer"),
        )
    ),
    _targeted("tf2.3/exp_mf16_fixed128.h5", "keras3.15", is_fixed=True),
    _targeted("tf2.15/global_mixed_float16.h5", "keras3.15", is_fixed=True),
    _targeted("tf2.5/exp_mf16_fixed128.h5", "tf2.3", is_fixed=True),
    _targeted("tf2.5/exp_mf16_fixed128.h5", "tf2.3", "keras3.15"),
    _targeted("keras3.15/default_float32.keras", "tf2.3", "tf2.15"),
    _targeted("keras3.15/int8_policy.keras", "tf_keras2.21"),
    _targeted("keras2.3.1/default_float32.h5", "tf2.3", "tf2.15", "keras3.15"),
    _fault("PT104", "infer for keras3.15", policy("infer"), options=KERAS3),
    _fault(
        "PT105",
        "policies of Keras 2 and Keras 3",
        policy("mixed_float16", "DTypePolicy", module="keras", registered_name=None),
        is_fixed=True,
    ),
    _fault("PT105", "PolicyV1 in TF 2.15", policy("mixed_float16", "PolicyV1")),
    Fault("PT106", "renamed shared policy", _renamed_shared_policy, is_fixed=True),
    Fault("PT106", "shared number of two classes", _shared_number_of_two_classes),
    Fault(
        "PT106",
        "shared number in one of two copies",
        partial(
            _one_copy,
            source="tf2.15/global_mixed_float16",
            value=policy("mixed_bfloat16", shared_object_id=0),
        ),
    ),
    _fault("PT107", "unknown name", "mixed_flaot16"),
    _fault("PT107", "unknown class", policy("mixed_float16", "MyPolicy")),
    Fault("PT108", "Keras 2 dicts", partial(_fixture, MIXED), is_fixed=True),
    Fault(
        "PT108",
        "Keras 2 dicts for tf2.15",
        partial(_fixture, MIXED),
        AuditOptions(targets=("tf2.15",)),
    ),
)
