"""Rules about effects on the machine that loads the model."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from policytool.formats.format_detection import AMBIGUOUS
from policytool.model import custom_classes, hazards, presets
from policytool.model.compatibility import training_incompatibilities, training_verdicts
from policytool.model.hazards import LAMBDA_ADVICE, Harm
from policytool.releases import symbols
from policytool.releases.layer_classes import layer_facts
from policytool.rules.base import Rule, Severity, rule
from policytool.support.errors import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, Finding, RuleInput


def _hazard_findings(
    declared: Rule, case: RuleInput, *harms: Harm, advice: str
) -> Iterator[Finding]:
    """Yield a finding of a rule for each hazard of some kinds, at the layer that contains it."""
    for hazard in case.loaded.hazards if case.loaded is not None else ():
        if hazard.harm in harms:
            layer = case.model.layers[hazard.site] if hazard.site is not None else None
            place_words = (
                layer.path
                if layer is not None
                else f"{hazard.address.part}{hazard.address.pointer}"
            )
            yield declared.finding(
                f"{place_words} {hazard.what}",
                path=layer.path if layer is not None else None,
                address=hazard.address,
                detail=hazard.name,
                advice=advice,
            )


_CODE_ADVICE: Final = f"{LAMBDA_ADVICE}, or load the model only if you trust its author"


@rule(
    id="PT601",
    severity=Severity.ERROR,
    example='"class_name": "Lambda", "config": {"function": ["4wEAAAAAAAAAAQAAAAIAAABDABAA...", '
    "null, "
    'null], "function_type": "lambda", ...}',
    references=("CVE-2024-3660", "CVE-2025-9905", "CVE-2026-12481"),
)
def executes_code(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Loading the model executes code from the file, such as the function of a Lambda layer.

    A Lambda layer contains the bytecode of a Python function. Lambda layers can occur at any depth:
    in wrappers, nested models and RNN cells. A ``__lambda__`` object also contains bytecode and can
    be an activation, initializer, loss, metric or learning-rate schedule. Keras builds the function
    when it loads the model, and calls it to determine the output shape of the layer. Bytecode can
    do anything that Python can, and runs only in the Python version that wrote it. Keras 3 rejects
    bytecode unless ``safe_mode=False`` is set or previously loaded code has disabled safe mode;
    Keras 3.0 to 3.11.2 do not check HDF5 files. Keras 2 and TensorFlow run the bytecode; for HDF5
    files, tf_keras 2.21 does so even with ``safe_mode=True``. The rule does not analyze the code.

    The weights in a ``.keras`` archive can be a pickle (``model.weights.npz``), which executes code
    when it is loaded.

    TF 1.15 to 2.2 write YAML with tags that call Python classes. These classes only store a value
    and are harmless, so the rule reports them as a note. policytool rejects all other tags. PyYAML
    5.2 and later cannot read files with these tags.

    Sources: CVE-2024-3660, CVE-2025-9905, CVE-2026-12481; keras/src/layers/core/lambda_layer.py in
    Keras 3.15.1. With ``safe_mode=True``, Keras 3.6.0 and tf_keras 2.21.0 ran the Lambda layer in
    an HDF5 file written by TF 2.15, and Keras 3.15.1 rejected it.
    """
    yield from _hazard_findings(executes_code, case, Harm.CODE, advice=_CODE_ADVICE)
    yield from executes_code.observation_findings(
        case,
        "pickled-weights",
        advice="do not load the file; save the model again with its weights in HDF5",
    )
    yield from executes_code.observation_findings(
        case, "python-objects", severities={"python-objects": Severity.NOTE}
    )


@rule(
    id="PT602",
    severity=Severity.ERROR,
    example='"activation": {"module": "keras.utils", "class_name": "function", "config": '
    '"get_file", '
    '"registered_name": "get_file"}',
    references=(
        "CVE-2025-1550",
        "CVE-2025-8747",
        "CVE-2025-9906",
        "CVE-2025-12060",
        "CVE-2025-12638",
        "GHSA-pwq7-2gvj-vg9v",
    ),
)
def unsafe_reference(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Config refers to harmful functions or classes that no model needs.

    A config refers to classes and functions by module and name. Keras 3.0 to 3.8 import any module
    that a config names, and Keras 3.9 and 3.10 import any function from the Keras package. The rule
    reports references that have no legitimate use in a model: Python's standard library; packages
    that unpickle data or install software; Keras functions that load or download files, draw
    models, unpack archives or disable safe mode; TensorFlow functions that access files, load
    libraries or call Python; and classes from the copy of Keras that TensorFlow includes, which has
    no safe mode. The rule detects only known cases, so a file without a finding may still refer to
    another harmful package.

    Sources: CVE-2025-1550, CVE-2025-8747, CVE-2025-9906, CVE-2025-12060 and CVE-2025-12638
    (``get_file``), GHSA-pwq7-2gvj-vg9v (classes). The Keras functions are those that Keras 3.15.1
    itself rejects (NON_MODELING_APIS in keras/src/saving/serialization_lib.py) and those in modules
    unrelated to modeling. The standard library modules come from ``sys.stdlib_module_names`` in
    Python 3.11. For ten of these references, from ``os.system`` to
    ``tensorflow.python.ops.gen_io_ops.read_file``, Keras 3.0.5, 3.3.3 and 3.6.0 return the
    function, and Keras 3.12.0 and 3.15.1 raise an error.
    """
    yield from _hazard_findings(
        unsafe_reference, case, Harm.NAMED, advice="do not load the file; check its origin"
    )


@rule(
    id="PT603",
    severity=Severity.NOTE,
    example='"module": "mypackage.layers", "class_name": "Scale", "registered_name": '
    '"mypackage>Scale"',
)
def custom_code(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Model uses custom classes or functions, whose code is not in the file.

    The file contains the configs of these classes and functions, but not their code. To load the
    model, import the package that defines them or pass them in ``custom_objects``; loading runs
    their code. A custom layer can compute in any dtype, regardless of its policy. The rule reports
    one note for each class or function, with the number of layers, losses and metrics that use it.
    A SavedModel with traces loads without the code in TF 2.3 and later and in tf_keras, except for
    recurrent layers and for layers that are called with masks. Such layers run the graph that was
    traced, for its shapes and dtypes, and do not have the other methods of their class.

    Sources: keras/src/saving/serialization_lib.py in Keras 3.15.1, ``_retrieve_class_or_fn``; the
    layer classes that each release exports.
    """
    if case.loaded is None:
        return
    is_preset = presets.is_preset(case.loaded.document)
    elsewhere = "the task" if is_preset else "the training configuration"
    for name, (count, first) in _needed_classes(case.loaded).items():
        layer = case.model.layers[first] if first is not None else None
        used = (
            f"{count} layers need"
            if count > 1
            else f"{layer.path if layer is not None else elsewhere} needs"
        )
        kind, advice = _kind_and_advice(name, is_part=layer is not None)
        message = f"{used} {name}, {kind}"
        only_layer = layer if count == 1 else None
        yield custom_code.finding(
            message,
            path=only_layer.path if only_layer is not None else None,
            address=layer.address if layer is not None else None,
            detail=name,
            advice=advice,
        )


def _kind_and_advice(name: str, *, is_part: bool) -> tuple[str, str]:
    """
    Return what a class is, and how to load it.

    :param is_part: whether layers need it, not only the task of a preset
    """
    hub_class = symbols.hub_class(name)
    if hub_class is None:
        return (
            "a custom class or function whose code is not in the file",
            "import its code before loading, or pass it in custom_objects",
        )
    if is_part and not symbols.is_reviewed_hub_class(hub_class):
        return (
            "a class that is not among the reviewed ones of KerasHub 0.32",
            "import a KerasHub that has it before loading, or pass it in custom_objects",
        )
    return "a class of KerasHub", "import keras_hub before loading"


def _needed_classes(loaded: LoadedModel) -> dict[str, tuple[int, int | None]]:
    """Return the number of layers and the first layer of each needed class, by name."""
    users: dict[str, dict[int | None, None]] = defaultdict(dict)
    for index, site in enumerate(loaded.sites):
        if not layer_facts(site.class_name).is_opaque and custom_classes.is_opaque(site):
            users[site.registered_name or site.class_name].setdefault(index)
    for hazard in loaded.hazards:
        if hazard.harm is Harm.CUSTOM:
            users[hazard.name].setdefault(hazard.site)
    compiled = training_incompatibilities.evidence(
        loaded.document, loaded.placed, keras3=loaded.is_keras3
    )
    for symbol in training_verdicts.losses_and_metrics(compiled) if compiled is not None else ():
        if symbol.is_own and not (symbol.is_class or symbol.is_lambda):
            users[symbol.name].setdefault(None)
    for name in [name for name in users if ">" in name]:
        bare = name.rpartition(">")[2]  # a SavedModel names the class of its root twice
        if users.get(bare, {}).keys() <= users[name].keys():
            users.pop(bare, None)
    return {name: (len(indices), next(iter(indices))) for name, indices in users.items()}


@rule(
    id="PT604",
    severity=Severity.ERROR,
    example='"class_name": "StringLookup", "config": {"name": "words", "vocabulary": '
    '"/etc/passwd", '
    "...}",
    references=("CVE-2025-12058", "CVE-2025-49655", "CVE-2026-1462"),
)
def loads_external_file(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Layers open or download other files when the model is loaded.

    ``TFSMLayer`` loads a SavedModel from a path in the config and runs its graph.
    ``TorchModuleWrapper`` unpickles a module, which can execute arbitrary code. TensorFlow Hub's
    ``KerasLayer`` downloads the model that its handle refers to. If ``vocabulary`` is not a list,
    ``StringLookup``, ``IntegerLookup`` and ``TextVectorization`` read it as a file path or URL. A
    feature column reads the checkpoint in ``ckpt_to_load_from``. All paths are resolved on the
    machine that loads the model. The content of the file becomes part of the model, so anyone with
    access to the model can read this content.

    Sources: CVE-2026-1462 (TFSMLayer), CVE-2025-49655 (TorchModuleWrapper), CVE-2025-12058
    (vocabulary); keras/src/export/tfsm_layer.py, keras/src/utils/torch_utils.py and
    keras/src/layers/preprocessing/index_lookup.py in Keras 3.15.1. With a path in ``vocabulary``,
    tf_keras 2.21.0 read that file into the ``StringLookup`` layer when it loaded the model. Keras
    3.6.0 and 3.15.1 did so when they built the layer with safe mode disabled.
    """
    yield from _hazard_findings(
        loads_external_file,
        case,
        Harm.PROGRAM,
        Harm.FILE,
        advice="save the data in the model, or load the model only if you trust the file or URL",
    )


_GRAPH_ADVICE: Final = "run the model only in a sandbox"


@rule(
    id="PT605",
    severity=Severity.ERROR,
    example="node { name: 'WriteFile' op: 'WriteFile' input: 'filename' input: 'contents' }",
)
def graph_accesses_files(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    SavedModel graph contains ops that access files or the network, or call Python.

    A graph is a program. TensorFlow runs the ops of a function when the function is called, and the
    ops of an initializer when the model is loaded. The rule checks all functions of all graphs,
    including those that are never called. It reports the ops of TensorFlow's own savers and tables
    (SaveV2, RestoreV2, MergeV2Checkpoints, InitializeTableFromTextFile) unless their paths come
    from the placeholder of the saver or from an asset. ``tf.print`` is reported as a note, or as an
    error if it prints to a file. PT612 reports ops that are not on the reviewed lists.

    Sources: the section on untrusted models in TensorFlow's SECURITY.md; the TensorFlow 2.21.0 op
    registry, searched by argument name; ``saved_model_cli scan`` in the same release, which looks
    for PrintV2, ReadFile and WriteFile.
    """
    yield from graph_accesses_files.observation_findings(case, "op-path", advice=_GRAPH_ADVICE)
    for name in sorted(case.document.ops):
        op = hazards.op(name)
        if op is not None:
            severity = Severity.NOTE if name == hazards.PRINTING else None
            yield graph_accesses_files.finding(
                op.sentence,
                detail=name,
                severity=severity,
                advice=_GRAPH_ADVICE,
            )


_SOFT_LINK: Final = "soft-link"


@rule(
    id="PT606",
    severity=Severity.ERROR,
    example="model_weights/dense/dense/kernel:0 stores its values in another file, /etc/passwd",
    references=("CVE-2026-1669",),
)
def external_data(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Model refers to weights or assets in other files through HDF5 links, external storage or file
    paths.

    HDF5 can store the values of a dataset in any file on the machine, and a link can point to an
    object in another file. A release that follows such a reference copies data from the other file
    into the weights, so anyone with access to the model can read that data. Keras never writes such
    references. A soft link points to an object in the same file, so the rule reports it as a
    warning. TensorFlow joins the name of a SavedModel asset to the path of the model directory, so
    a name such as ``../../secret`` refers to a file outside that directory. policytool does not
    follow any of these references.

    Sources: CVE-2026-1669 (GHSA-3m4q); ``safe_get_h5_dataset`` in keras/src/saving/saving_lib.py in
    Keras 3.15.1. According to the advisory, Keras 3.12.1 and 3.13.2 contain the fix. Keras 3.14.0
    rejected external storage in ``.keras`` files. In HDF5 files, Keras 3.14.0 and earlier releases
    followed external storage, external links and virtual datasets to another file. Keras 3.15.1
    rejected all three, as well as soft links.
    """
    yield from external_data.observation_findings(
        case,
        *hazards.OUTSIDE,
        _SOFT_LINK,
        severities={_SOFT_LINK: Severity.WARNING},
        advice="do not load the file; save the model again with all values in the file",
    )


@rule(
    id="PT607",
    severity=Severity.ERROR,
    example="the member ../../.bashrc points outside the archive",
)
def duplicate_or_escaping_member(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Archive contains duplicate members, members with paths outside the archive, or duplicate keys.

    If an archive is extracted without path checks, a member such as ``../../x`` is written outside
    the target directory. If two members or keys have the same name, some readers use the first and
    others the last, so a scanner may approve content other than what Keras loads. Python and Keras
    use the last. The same applies to two functions with the same name in a graph. Keras never
    writes such files. An archive with an extreme compression ratio causes an error (exit code 3),
    not a finding.

    Sources: CVE-2025-12060 and CVE-2025-12638 for members with paths outside the archive;
    ``_reject_zip_bomb`` in keras/src/saving/saving_lib.py in Keras 3.15.1 for extreme compression
    ratios.
    """
    yield from duplicate_or_escaping_member.observation_findings(
        case,
        "escaping-member",
        "duplicate-member",
        "duplicate-key",
        "duplicate-function",
        "stray-metadata",
        advice="do not load the file; check its origin",
    )


_SHOWN_CHARACTERS: Final = 120


@rule(
    id="PT608",
    severity=Severity.ERROR,
    example='"class_name": "StringLookup", "config": {"name": "../../../home/user/.config/x", ...}',
    references=("CVE-2026-12479",),
)
def path_in_name(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Layer name is a path that leads outside the model directory.

    Keras 3 uses layer names as paths when it saves and loads data other than weights, such as
    vocabularies. If a name is an absolute path or contains ``../`` or a NUL character, Keras 3
    reads or writes files elsewhere on the machine. A plain slash is harmless: DenseNet layers have
    names such as ``conv1/bn``.

    Sources: CVE-2026-12479; ``DiskIOStore._full_path`` in keras/src/saving/saving_lib.py in Keras
    3.15.1, which rejects such paths.
    """
    if case.loaded is None:
        return
    for site, layer in zip(case.loaded.sites, case.model.layers, strict=True):
        name = hazards.leading_out(site)
        if name is not None:
            message = (
                f"the layer name {name[:_SHOWN_CHARACTERS]!r} is a path that leads outside the "
                "model directory"
            )
            yield path_in_name.finding(
                message,
                path=layer.path,
                address=layer.address,
                advice="do not load the file; check its origin",
            )


@rule(
    id="PT609",
    severity=Severity.NOTE,
    example="saved_model.pb contains 3 graphs (train; eval; serve); only the graph tagged serve is "
    "reported",
)
def limits_reached(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Parts of the file were not checked because they exceed a limit.

    policytool limits how much it reads from untrusted files. If a graph exceeds a limit, its traced
    dtypes are unknown, and the rules that compare the graph with the layers report nothing. If a
    SavedModel contains several graphs, policytool reports only one of them, but searches all of
    them for harmful ops. In both cases, the absence of findings proves nothing about the unchecked
    parts.

    Sources: the limits in policytool/support/limits.py with their reasons;
    tensorflow/python/saved_model/tag_constants.py for the tag of the graph that releases load.
    """
    yield from limits_reached.observation_findings(case, "graph-limit", "several-graphs")


@rule(
    id="PT610",
    severity=Severity.ERROR,
    example="layers/dense/vars/0 declares 160,000,000,000 bytes but stores 0",
    references=("CVE-2026-0897",),
)
def oversized_dataset(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Datasets declare far more data than the file stores.

    HDF5 can declare a dataset of any shape without storing its values, so a file of a few kB can
    declare terabytes. A release that allocates memory for the declared shape crashes or exhausts
    the memory of the machine. The rule reports datasets with a declared size above 1 GiB and more
    than 50 times the stored size. Keras always stores every value of a dataset. The rule also
    reports datasets with more than 1,024 chunks if less than a quarter of the chunks are stored:
    HDF5 allocates a kilobyte for each chunk that it reads, and a 9 kB file can declare a million
    chunks. policytool reads shapes without allocating memory for them, and does not cast such
    datasets.

    Sources: CVE-2026-0897; h5-ratio in policytool/support/limits.py. Keras 2.12.0 to 3.14.0 tried
    to allocate memory for a kernel with a declared size of 160 GB, although the advisory lists
    3.12.1 and 3.13.2 as fixed; Keras 3.15.1 rejected it.
    """
    yield from oversized_dataset.observation_findings(
        case, "unstored-values", advice="do not load the file; check its origin"
    )


@rule(
    id="PT611",
    severity=Severity.ERROR,
    example='"name": "a", "inbound_nodes": [[["b", 0, 0, {}]]] and "name": "b", "inbound_nodes": '
    '[[["a", 0, 0, {}]]]',
)
def cyclic_graph(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Layers depend on each other in a cycle, so loading never finishes.

    The config of a functional model lists the inputs of each layer call. No build order exists if
    two layers use each other's output, a layer uses its own output, or an input refers to a missing
    call. If the inputs of a layer do not exist yet, Keras retries the layer later. Keras 2 retries
    forever, and so does Keras 3 up to 3.14 for HDF5 files and for nodes in the Keras 2 format. The
    process that loads the file then runs until it is killed. No release writes such a graph.

    Sources: ``endless_graph.h5`` and ``endless_graph.keras`` in docs/evidence/attacks.md;
    ``reconstruct_from_config`` in keras/engine/functional.py in Keras 2.
    """
    yield from _hazard_findings(
        cyclic_graph, case, Harm.ENDLESS, advice="do not load the file; check its origin"
    )


_REVIEW_ADVICE: Final = "review it before you load the model"


@rule(
    id="PT612",
    severity=Severity.WARNING,
    example='"class_name": "TFOpLambda", "config": {"function": "map_fn", ...}',
)
def unknown_symbol(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Model uses functions, ops, classes or arguments that were never reviewed.

    policytool includes reviewed lists of symbols that only compute values: the classes of every
    Keras release, about 1,000 TensorFlow functions and about 1,000 TensorFlow ops. ``check``,
    ``migrate --verify`` and ``migrate --retrace`` load a model without ``--trust`` only if all of
    its symbols are on these lists. This rule reports symbols that are neither on these lists nor
    known to be harmful. Such a symbol may have side effects, be new in a later release, or be
    misspelled.

    Sources: data/pure_classes.json, data/pure_functions.json and data/pure_ops.json, reviewed
    against TensorFlow 2.21.0, tf_keras 2.21.0 and Keras 3.15.1.
    """
    yield from _hazard_findings(unknown_symbol, case, Harm.UNKNOWN, advice=_REVIEW_ADVICE)
    for name in sorted(case.document.ops):
        if not (hazards.is_pure_op(name) or hazards.is_placed_op(name) or hazards.op(name)):
            yield unknown_symbol.finding(
                f"the graph contains the op {short(name)}, which is not on the list of ops "
                "that only compute",
                detail=name,
                advice=_REVIEW_ADVICE,
            )


@rule(
    id="PT613",
    severity=Severity.ERROR,
    example="model.keras is an HDF5 file with a zip archive appended",
)
def ambiguous_format(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    File or directory is two models, and programs differ in which one they load.

    Keras selects the reader by the suffix, and other programs select it by the content. HDF5
    readers look for a signature at byte 0, 512, 1024 and each further power of two. Zip readers
    look for a record at the end of the file, and accept any data before the archive. One file can
    therefore be a harmless HDF5 model for a scanner and a different ``.keras`` archive for Keras. A
    directory can contain a SavedModel and an unpacked ``.keras`` model, and an archive can have two
    directories. Keras never writes such files. ``migrate``, ``check`` and ``tune`` reject them,
    also with ``--trust``.

    A ``.keras`` archive that stores an HDF5 member at one of these offsets does not have the
    problem.

    Sources: ``H5FD_locate_signature`` in src/H5FDint.c in HDF5 1.14; section 4.3.16 of PKWARE
    APPNOTE 6.3.10; ``load_model`` in keras/src/saving/saving_api.py in Keras 3.15.1.
    """
    yield from ambiguous_format.observation_findings(
        case, AMBIGUOUS, advice="do not load it; check its origin"
    )
