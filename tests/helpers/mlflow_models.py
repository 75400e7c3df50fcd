"""
Register a directory of models on the MLflow server that ``MLFLOW_TRACKING_URI`` names: ``python
mlflow_models.py LOCATION DIRECTORY``, in an environment with MLflow.

It prints the ids of two logged models that have the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

NAME = "fixtures"


def main(location: str, directory: str) -> None:
    """Register a directory as an artifact of a run, and as a logged model."""
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.create_experiment("policytool", artifact_location=location or None)
    run = client.create_run(experiment)
    client.log_artifacts(run.info.run_id, directory, "model")
    client.create_registered_model(NAME)
    source = f"{run.info.artifact_uri}/model"
    for _ in range(2):
        version = client.create_model_version(NAME, source=source, run_id=run.info.run_id)
    client.create_model_version(NAME, f"runs:/{run.info.run_id}/model", run.info.run_id)
    client.set_registered_model_alias(NAME, "champion", version.version)
    for _ in range(2):
        logged = client.create_logged_model(experiment)
        client.log_model_artifacts(logged.model_id, directory)
        client.finalize_logged_model(logged.model_id, "READY")
        client.create_model_version(NAME, f"models:/{logged.model_id}", model_id=logged.model_id)
        sys.stdout.write(f"\n{logged.model_id}")


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2])))
