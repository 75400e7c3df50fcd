"""The conversion that ``inspect`` suggests for a model that the newest Keras fails to load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.releases.releases import KERAS3, newest
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from policytool.commands.inspect import Selected
    from policytool.commands.migrate import Result
    from policytool.formats.discovery import Input


def with_fix(selected: Selected, found: Input) -> Selected:
    """
    Return what was selected of one model, with the command that converts it if the newest Keras
    fails to load it: planning takes as long as reading, so that several models have none, and
    repeats the requests for a remote one. If it cannot be planned at all, the model is shown with
    the reason.
    """
    (model,) = selected.inspection.models
    newest_keras = newest(KERAS3).id
    if isinstance(found.path, RemotePath) or not any(
        one.loader == newest_keras and one.reason is not None for one in model.loaders
    ):
        return selected
    # Planning is imported for models that need it: it takes as long to import as inspect does.
    from policytool.commands import migrate
    from policytool.commands.batch import isolation
    from policytool.commands.destinations import Destination
    from policytool.migration.planning.options import options_from_arguments

    options = options_from_arguments(None, {}, target=KERAS3)
    request = migrate.MigrateRequest(
        options=options, destination=Destination(write=False), parts=False
    )
    done = isolation.isolated(found.display_path, lambda: migrate.attempt(found, request))
    if (reason := _beyond_limits(done)) is not None:
        return replace(selected, unplanned={model.path: reason})
    if not isinstance(done, migrate.Migration) or done.status is not migrate.Status.PLANNED:
        return selected
    if not any(one.loader == newest_keras and one.loads for one in done.plan.loaders_after):
        return selected
    return replace(selected, fixes={model.path: ("--target", KERAS3)})


def _beyond_limits(done: Result) -> str | None:
    """Return why a conversion was not planned though the model was read; None if it was."""
    from policytool.commands.inspect import Failure
    from policytool.model import reading

    if isinstance(done, Failure):
        return done.message
    refusals = done.plan.refusals if done is not None else ()
    return next((one.message for one in refusals if one.code == reading.BEYOND), None)
