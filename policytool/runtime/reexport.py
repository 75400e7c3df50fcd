"""The job ``reexport``: a SavedModel built anew with other policies, traced and saved again."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

from . import model_calls, rebuilt_model
from .library import KERAS2, Library, Refused, paths, refusing

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

VARIABLES = "variables"


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Write the model of ``job["source"]`` with the policies of ``job["config"]`` to ``job["draft"]``,
    and return what was done.
    """
    step("importing TensorFlow")
    library = Library(KERAS2)
    library.register(job["custom_objects"], job["registered"], job["needed"])
    if job["trust"]:
        library.trust()
    step("loading the original")
    original = _original(library, job)
    rebuilt_model.check_code(library, original)
    step("comparing the signatures with the model call")
    loaded = (
        library.tf.saved_model.load(job["source"]) if job["traces"] else None
    )  # keep a reference: in TF 2.2, signatures do not keep their variables alive
    signatures = dict(loaded.signatures) if loaded is not None else {}
    nested = model_calls.input_structure(original, signatures)
    matched = [
        model_calls.match_signature(library, original, nested, name, signature)
        for name, signature in sorted(signatures.items())
    ]
    step("rebuilding the model")
    model = rebuilt_model.rebuild_model(library, original, nested, job)
    optimizer = (
        rebuilt_model.compile_model(library, model, job["training"]) if job["training"] else None
    )
    del original, signatures, loaded
    gc.collect()
    restored = rebuilt_model.restore_state(
        library, model, optimizer, os.path.join(job["source"], VARIABLES, VARIABLES)
    )
    step("tracing and saving")
    exported = {
        match.name: model_calls.signature_of_model(library, model, nested, match)
        for match in matched
    }
    _save(library, model, exported if job["traces"] else None, job["draft"])
    step("loading the result")
    _check_loads(library, job)
    return {
        "versions": library.versions,
        "policies": {path: _policy(layer) for path, layer in paths(model)},
        "signatures": sorted(match.name for match in matched),
        "traces": job["traces"],
        "variables": len(restored.taken),
        "cast": sorted(restored.cast),
        "optimizer": None if optimizer is None else _count_optimizer_variables(restored),
    }


def _original(library: Library, job: Mapping[str, Any]) -> Any:
    with library.loading("it", job["registered"]), library.global_policy(job["policy_before"]):
        return library.load(job["source"], compiled=False, trust=job["trust"])


def _check_loads(library: Library, job: Mapping[str, Any]) -> None:
    """
    Reject a result that its library cannot load, such as a Sequential that two models share in
    tf_keras 2.21.
    """
    text = (
        "{library} {keras} cannot load its own export of this model: {{}}; use --python to "
        "specify an interpreter that has another release"
    ).format(**library.versions)
    with refusing("not-reloadable", text), library.global_policy(job["policy"]):
        library.load(job["draft"], compiled=False, trust=job["trust"])


def _save(library: Library, model: Any, signatures: Any, draft: str) -> None:
    """Save a model with its signatures as a SavedModel."""
    options: dict[str, Any] = {"save_format": "tf"}
    if signatures is None:
        if library.release < (2, 4):
            raise Refused(
                "traces",
                (
                    "the file has no traces, and TensorFlow {} cannot save models without "
                    "traces; use a newer release with --python"
                ).format(library.tf.__version__),
            )
        options["save_traces"] = False
    else:
        options["signatures"] = signatures
    with library.scope():
        model.save(draft, **options)


def _policy(layer: Any) -> Any:
    return getattr(getattr(layer, "_dtype_policy", None), "name", None)


def _count_optimizer_variables(restored: Any) -> dict[str, int]:
    """Return the numbers of restored and of lost variables of the optimizer."""
    return {
        name: sum("optimizer" in key.lower() for key in keys)
        for name, keys in (("restored", restored.taken), ("lost", restored.left))
    }
