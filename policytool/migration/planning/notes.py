"""
The notes on a plan, and the casts of stored tensors.

Notes report policies that the plan keeps, facts about a model that ``--to`` cannot determine, and
the parts of a SavedModel outside its metadata (signatures, and the file that each release reads).

A variable is stored in its variable dtype, with one exception: no release reads bfloat16 from HDF5,
and Keras 2 does not read it from ``.keras`` files. In these formats bfloat16 variables are stored
as float32, which preserves the values and which every release reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address
from policytool.formats.edits import Cast, EditKind
from policytool.formats.saved_model import GRAPH, KERAS
from policytool.migration.plan import CUSTOM_CODE, WRAPPER_POLICY, Note, NoteSeverity
from policytool.migration.planning.keep import layers_to_keep
from policytool.migration.planning.policy_formats import policies_under_other_keys
from policytool.model import custom_classes, presets
from policytool.model.hazards import LAMBDA
from policytool.model.model import verdict_of
from policytool.model.rounded_weights import CASTABLE
from policytool.model.tree import MODEL_CLASSES
from policytool.releases import dtype_support, dtypes, policy
from policytool.releases.generations import SubPolicy
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import KERAS3, newest, release_name
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from policytool.formats.document import Tensor
    from policytool.formats.edits import Edit
    from policytool.migration.planning.decisions import Decisions
    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Signature, Verdict

_BFLOAT16: Final = "bfloat16"
_STAND_IN: Final = "float32"


def casts(loaded: LoadedModel, decisions: Decisions, *, retrace: bool = False) -> tuple[Cast, ...]:
    """
    Return the casts that the decisions require, and the casts that make the file readable.

    The checkpoint of a SavedModel is unchanged unless the model is re-exported, and so are the
    weights of a KerasHub preset.
    """
    if not stores_dtypes(loaded) or (loaded.is_saved_object and not retrace):
        return ()
    if presets.is_preset(loaded.document):  # from_preset casts the values
        return ()
    casts_by_tensor = {cast.tensor: cast for cast in _layer_casts(loaded, decisions)}
    for cast in _unreadable(loaded):
        casts_by_tensor.setdefault(cast.tensor, cast)
    return tuple(casts_by_tensor.values())


def stores_dtypes(loaded: LoadedModel) -> bool:
    """
    Return whether the file can store variables in their own dtypes. TensorFlow.js stores only
    float32, which tensorflowjs casts when it loads the variables.
    """
    return loaded.document.format != "tfjs"


def reads_bfloat16(loaded: LoadedModel) -> bool:
    """Return whether loaders of the file read variables that are stored as bfloat16."""
    keeps_bfloat16 = loaded.document.format in {"keras", "keras-hub", "orbax"}
    return (loaded.is_keras3 and keeps_bfloat16) or loaded.is_saved_object


def _layer_casts(loaded: LoadedModel, decisions: Decisions) -> Iterator[Cast]:
    """Yield the casts of the layers' variables."""
    for index, tensors in loaded.placed.tensors.items():
        owner = _owner(loaded, index)
        new_dtype = decisions.variable_dtype(loaded, owner) if owner in decisions.by_site else None
        if new_dtype is None or new_dtype == loaded.layers[owner].variable_dtype:
            continue
        if loaded.layers[owner].quantization is not None:
            # scales, histories and indices keep their dtypes; Keras 3 rounds the other variables
            # to the same values when it reads them
            continue
        for tensor in tensors:
            if tensor.dtype in CASTABLE:
                cast = _cast(loaded, decisions, index, owner, tensor)
                if cast is not None:
                    yield cast


def _owner(loaded: LoadedModel, index: int) -> int:
    """
    Return the layer whose policy a layer uses: the layer itself, or its parent if the parent
    creates it.
    """
    site = loaded.sites[index]
    while site.sub_policy is SubPolicy.OWN and site.parent is not None:
        index = site.parent
        site = loaded.sites[index]
    return index


def _cast(
    loaded: LoadedModel, decisions: Decisions, index: int, owner: int, tensor: Tensor
) -> Cast | None:
    """Return the cast of a variable to its new dtype; None if it keeps its dtype."""
    name = tensor.path[-1].removesuffix(":0")
    policy = decisions.by_site[owner].policy
    class_dtype = dtype_support.variable_dtype(
        loaded.loader, loaded.sites[index].class_name, policy.name, name
    )
    variable = class_dtype or decisions.variable_dtype(loaded, owner) or tensor.dtype
    stored = _STAND_IN if variable == _BFLOAT16 and not reads_bfloat16(loaded) else variable
    if stored == tensor.dtype or stored not in CASTABLE:
        return None
    rounds = variable != stored and dtypes.itemsize(tensor.dtype) > dtypes.itemsize(stored)
    return Cast(
        tensor=tensor.path,
        path=loaded.layers[index].path,
        before=tensor.dtype,
        after=stored,
        through=variable if rounds else None,
        reason=(
            f"{loaded.layers[owner].path} stores its variables in {variable}"
            + (
                f", which releases can read from this file only as {stored}"
                if variable != stored
                else ""
            )
        ),
    )


def _unreadable(loaded: LoadedModel) -> Iterator[Cast]:
    """Yield casts from bfloat16 to float32 if no release reads bfloat16 from the file."""
    if reads_bfloat16(loaded):
        return
    owners = {
        tensor.path: loaded.layers[index].path
        for index, tensors in loaded.placed.tensors.items()
        for tensor in tensors
    }
    for tensor in (*(loaded.document.tensors or ()), *loaded.document.state):
        if tensor.dtype == _BFLOAT16:
            yield Cast(
                tensor=tensor.path,
                path=owners.get(tensor.path),
                before=_BFLOAT16,
                after=_STAND_IN,
                reason=(
                    "no release can read bfloat16 from this file format, and float32 preserves the "
                    "values"
                ),
            )


YAML_REWRITTEN: Final = "yaml-layout-rewritten"
"""The code of the note on rewritten YAML files. Conversions write no YAML, so they lack it."""

_SIXTEEN_BITS: Final = 2
"""The size of float16 and bfloat16, in bytes."""


def about(loaded: LoadedModel, options: Options, decisions: Decisions) -> Iterator[Note]:
    """
    Yield the notes on a plan: policies that it keeps, and, if it changes policies, facts that it
    could not determine.
    """
    yield from _about_other_keys(loaded)
    yield from _about_storage(loaded, decisions)
    if options.to is None:
        return
    yield from _about_exceptions(loaded, options, decisions, options.to)
    yield from _about_inputs(loaded, decisions, policy.policy_from_name(options.to))
    root = loaded.sites[0]
    if presets.is_preset(loaded.document):
        message = presets.replacement(options.to)
        yield Note(severity=NoteSeverity.NOTE, code=presets.REPLACED, message=message)
    elif root.class_name not in MODEL_CLASSES and 0 not in loaded.graphs:
        yield Note(
            severity=NoteSeverity.NOTE,
            code="outputs-unknown",
            message=(
                f"{loaded.layers[0].path} is a subclassed model with unknown output layers, so no "
                "output layer is kept in float32"
            ),
            path=loaded.layers[0].path,
        )
    yield from _about_sub_layers(loaded, decisions)
    yield from _about_missing_policies(loaded)


def about_layout(loaded: LoadedModel, edits: Collection[Edit]) -> Iterator[Note]:
    """Yield a note if the edits rewrite a YAML file."""
    if edits and loaded.document.format == "yaml":
        yield Note(
            severity=NoteSeverity.NOTE,
            code=YAML_REWRITTEN,
            message=(
                "PyYAML rewrites the file: tags, anchors, unknown keys and the key order are "
                "preserved, but comments are lost and line breaks may change"
            ),
        )


def about_keras3(loaded: LoadedModel, after: Sequence[Verdict]) -> Iterator[Note]:
    """
    Yield notes about predictions in Keras 3, if it fails to load a file of Keras 2 and loads the
    edited file: it may compute a layer in another dtype, or with other code.

    In Keras 3, the policy of a wrapper decides in which dtype the wrapped layer computes.
    """
    newest_keras = newest(KERAS3).id
    before, verdict = verdict_of(loaded.loaders, newest_keras), verdict_of(after, newest_keras)
    if loaded.is_keras3 or before is None or before.reason is None:
        return
    if verdict is None or verdict.reason is not None:
        return
    for index, child in layers_with_other_policies(loaded):
        wrapper, layer = loaded.layers[index], loaded.layers[child]
        yield Note(
            severity=NoteSeverity.WARNING,
            code=WRAPPER_POLICY,
            path=layer.path,
            message=(
                f"{release_name(verdict.loader)} would compute {layer.path} in {wrapper.policy}, "
                f"the policy of its wrapper; --target {KERAS3} keeps {layer.policy}"
            ),
        )
    if custom := {site.class_name for site in loaded.sites if custom_classes.is_opaque(site)}:
        yield Note(
            severity=NoteSeverity.WARNING,
            code=CUSTOM_CODE,
            message=custom_code_words(custom, release_name(verdict.loader)),
        )


def layers_with_other_policies(loaded: LoadedModel) -> Iterator[tuple[int, int]]:
    """Yield each wrapper with the layer in it that has another policy, as their indices."""
    for index, site in enumerate(loaded.sites):
        if layer_facts(site.class_name).wraps in {"steps", "directions"}:
            for child in loaded.children[index]:
                is_layer = not layer_facts(loaded.sites[child].class_name).is_model
                own = loaded.layers[child].policy
                if is_layer and own not in {None, loaded.layers[index].policy}:
                    yield index, child


def custom_code_words(names: Collection[str], release: str) -> str:
    """Return the note about custom classes of a model that another library will load."""
    classes = sorted({*names} - {LAMBDA})
    clauses = ["predictions depend on their code"]
    if LAMBDA in names:
        clauses.insert(0, "Lambda: needs safe_mode=False, and may still fail")
    if classes:
        passed = f"when you load the model, pass versions of these classes for {release}"
        clauses.insert(0, f"{join_first(classes, 4)}: {passed} as custom_objects")
    return "; ".join(clauses)


def _about_storage(loaded: LoadedModel, decisions: Decisions) -> Iterator[Note]:
    """Yield a note if the file cannot store the new variable dtype of some layers."""
    new_dtypes = {
        (index, decisions.variable_dtype(loaded, index))
        for index in decisions.by_site
        if loaded.has_weights(index)
    }
    changed = sorted(
        {
            str(dtype)
            for index, dtype in new_dtypes
            if dtype not in {"float32", loaded.layers[index].variable_dtype}
        }
    )
    if changed and not stores_dtypes(loaded):
        dtypes = " or ".join(changed)
        yield Note(
            severity=NoteSeverity.NOTE,
            code="tensors-kept",
            message=(
                "the stored tensors are unchanged because TensorFlow.js does not support "
                f"{dtypes}; tensorflowjs casts them without checks when it creates a Keras model"
            ),
        )


def _about_exceptions(
    loaded: LoadedModel, options: Options, decisions: Decisions, to: str
) -> Iterator[Note]:
    """Yield a note on layers that keep a policy other than the base policy."""
    kept = layers_to_keep(loaded, policy.policy_from_name(to), options.outputs)
    exceptions = [
        layer.path
        for index, layer in enumerate(loaded.layers)
        if index not in kept and _is_exception(loaded, decisions, index, to)
    ]
    if exceptions:
        layers = (
            "1 layer has an explicit policy and keeps it"
            if len(exceptions) == 1
            else f"{len(exceptions)} layers have explicit policies and keep them"
        )
        yield Note(
            severity=NoteSeverity.NOTE,
            code="exceptions-kept",
            message=(
                f"{layers} ({join_first(exceptions)}); use --include exceptions to change them too"
            ),
        )


def _about_inputs(
    loaded: LoadedModel, decisions: Decisions, target_policy: policy.Policy
) -> Iterator[Note]:
    """Yield a note if inputs keep a 16-bit dtype although the model will compute in more bits."""
    compute = target_policy.compute_dtype
    if compute is None or dtypes.itemsize(compute) <= _SIXTEEN_BITS:
        return
    half_inputs = [
        layer
        for index, layer in enumerate(loaded.layers)
        if loaded.is_input(index)
        and index not in decisions.by_site
        and dtypes.is_float(layer.compute_dtype)
        and dtypes.itemsize(str(layer.compute_dtype)) <= _SIXTEEN_BITS
    ]
    if half_inputs:
        stay = "1 input stays in" if len(half_inputs) == 1 else f"{len(half_inputs)} inputs stay in"
        yield Note(
            severity=NoteSeverity.NOTE,
            code="inputs-kept",
            message=(
                f"{stay} {half_inputs[0].compute_dtype} "
                f"({join_first([layer.path for layer in half_inputs])}), so input values are "
                f"rounded to this dtype before the first layer; use --set 'PATH={compute}' to "
                "change an input"
            ),
        )


def _about_missing_policies(loaded: LoadedModel) -> Iterator[Note]:
    layers = [
        (index, layer)
        for index, layer in enumerate(loaded.layers)
        if layer.policy is None and not loaded.sites[index].is_model
    ]
    undeclared = [layer.path for index, layer in layers if loaded.has_weights(index)]
    if undeclared:
        layers_say = (
            "1 layer with weights has"
            if len(undeclared) == 1
            else f"{len(undeclared)} layers with weights have"
        )
        yield Note(
            severity=NoteSeverity.WARNING,
            code="policy-unsaid",
            message=(
                f"{layers_say} no policy in the file ({join_first(undeclared)}), so the global "
                "policy applies before and after the change"
            ),
        )


def _about_other_keys(loaded: LoadedModel) -> Iterator[Note]:
    """
    Yield a note for each Keras 2 policy that a custom class stores under a key that Keras does not
    define; only the code of the class defines the meaning of the key.
    """
    for root, config in loaded.configs:
        for steps in policies_under_other_keys(config):
            place = Address.below(root, *steps).pointer
            policy_place = f"{root.part} {place}" if loaded.is_saved_object else place
            yield Note(
                severity=NoteSeverity.WARNING,
                code="policy-elsewhere",
                message=(
                    f"a custom class stores a Keras 2 policy dict at {policy_place}; it is left "
                    "unchanged because only the class defines its meaning"
                ),
            )


def _about_sub_layers(loaded: LoadedModel, decisions: Decisions) -> Iterator[Note]:
    """
    Yield a note for each layer whose inner layers have different policies in different releases
    (MultiHeadAttention up to TF 2.13).
    """
    owners = {
        parent
        for site in loaded.sites
        if site.sub_policy is SubPolicy.GLOBAL and (parent := site.parent) is not None
    }
    owners |= {
        maker
        for maker in loaded.makers.values()
        if layer_facts(loaded.sites[maker].class_name).makes_projections
    }
    for index in sorted(owners & decisions.by_site.keys()):
        path = loaded.layers[index].path
        yield Note(
            severity=NoteSeverity.NOTE,
            code="sub-layers",
            message=(
                f"inner layers of {path} use the global policy in TF 2.13 and earlier, and the "
                f"policy of {path} in TF 2.14 and later"
            ),
            path=path,
        )


def _is_exception(loaded: LoadedModel, decisions: Decisions, index: int, to: str) -> bool:
    """
    Return whether the layer keeps an explicit policy that is neither the base policy nor the
    target.
    """
    if (
        index in decisions.by_site
        or loaded.is_input(index)
        or not loaded.is_floating(index)
        or loaded.sites[index].sub_policy is not None
    ):
        return False
    return loaded.policy_name(index) not in {decisions.base, to}


_SIGNATURES: Final = 5


def about_traces(loaded: LoadedModel, edits: Sequence[Edit]) -> Iterator[Note]:
    """Yield notes for users of a rewritten SavedModel."""
    if not edits or not loaded.is_saved_object:
        return
    if any(edit.kind is EditKind.NUMERICS for edit in edits):
        yield from _about_signatures(loaded)
    if any(node.other_part is not None for node in loaded.document.nodes.values()):
        yield Note(
            severity=NoteSeverity.NOTE,
            code="two-files",
            message=(
                "the metadata is stored in two files, and both are rewritten: TF 2.5 and later "
                f"read {KERAS}, and TF 2.4 and earlier read {GRAPH}"
            ),
        )
    if loaded.document.format == "keras-metadata":
        yield Note(
            severity=NoteSeverity.NOTE,
            code="part-of-a-model",
            message=(
                f"the file is part of a SavedModel and works only with the {GRAPH} and the "
                "variables that were saved with it"
            ),
        )


def _about_signatures(loaded: LoadedModel) -> Iterator[Note]:
    """Yield a note on signatures that keep their traced dtypes."""
    signatures = loaded.signatures
    if not signatures:
        if loaded.document.format == "savedmodel":
            yield Note(
                severity=NoteSeverity.NOTE,
                code="no-signatures",
                message="the model has no signatures; Keras rebuilds the layers from the metadata",
            )
        return
    listed = join_first([_signature_words(signature) for signature in signatures], _SIGNATURES)
    yield Note(
        severity=NoteSeverity.WARNING,
        code="signatures-as-before",
        message=(
            f"the traced graph is unchanged: {listed}. TensorFlow Serving, TFLite and "
            "tf.saved_model.load run this graph and ignore the metadata, while "
            "tf.keras.models.load_model rebuilds the layers from the metadata. Use --retrace to "
            "re-export the graph"
        ),
    )


def _signature_words(signature: Signature) -> str:
    if not signature.compute_dtypes:
        return f"{signature.name} computes as before"
    *others, last = signature.compute_dtypes
    return (
        f"{signature.name} still computes in {', '.join(others)} and {last}"
        if others
        else f"{signature.name} still computes in {last}"
    )
