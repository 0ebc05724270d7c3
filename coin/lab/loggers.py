"""Where journals are kept: W&B by default (coin/lab/wandb_journal.py), or one of Lightning's other loggers."""

import abc
import os
import re
from dataclasses import dataclass
from pathlib import Path

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger

from coin.lab.console import say
from coin.lab.journal import Journal, Subject
from coin.training.ranks import is_first


class Logs(abc.ABC):
    """A dataclass whose fields are its settings."""

    def open(self, folder: Path, subject: Subject) -> Journal:
        """A journal below the folder; the first rank keeps it, the others none."""
        return self.journal(folder, subject) if is_first() else Journal()

    @abc.abstractmethod
    def journal(self, folder: Path, subject: Subject) -> Journal: ...


@dataclass
class Csv(Logs):
    def journal(self, folder: Path, subject: Subject) -> Journal:
        logger = CSVLogger(folder, name=subject.job_type, version=subject.name)
        say(f"log: {logger.log_dir}")
        return started(logger, subject)


@dataclass
class TensorBoard(Logs):
    def journal(self, folder: Path, subject: Subject) -> Journal:
        try:
            logger = TensorBoardLogger(folder, name=subject.job_type, version=subject.name)
        except ModuleNotFoundError as error:
            raise ValueError(f"logger=tensorboard: {error}; pip install 'coin[tensorboard]'") from error
        say(f"log: {logger.log_dir}  (see it with: tensorboard --logdir {folder})")
        return started(logger, subject)


@dataclass
class MLflow(Logs):
    """`uri` is a tracking server, such as http://127.0.0.1:5000, or a database; null: MLFLOW_TRACKING_URI, else
    mlflow.db in the working folder."""

    experiment: str = "coin"
    uri: str | None = None

    def journal(self, folder: Path, subject: Subject) -> Journal:
        try:
            import mlflow
        except ModuleNotFoundError as error:
            raise ValueError(f"logger=mlflow: {error}; pip install 'coin[mlflow]'") from error
        tags = {"job_type": subject.job_type, "group": subject.group or "", "id": subject.id or ""}
        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
        logger = MLFlowLogger(
            self.experiment,
            run_name=subject.name,
            tracking_uri=uri,
            tags={key: value for key, value in tags.items() if value},
            run_id=(earlier := self.earlier(uri, subject)),
        )
        try:
            logger.experiment  # noqa: B018 (it asks the server)
        except mlflow.exceptions.MlflowException as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"logger.uri={without_secrets(uri)}: MLflow cannot log there ({reason}); is its server running?"
            ) from error
        say(f"log: MLflow run {logger.run_id} at {without_secrets(uri)}")
        return Journal(logger) if earlier else started(logger, subject)  # its settings may not be said twice

    def earlier(self, uri: str, subject: Subject) -> str | None:
        """The run that was killed and goes on."""
        if subject.id is None:
            return None
        import mlflow

        client = mlflow.MlflowClient(uri)
        try:
            known = client.get_experiment_by_name(self.experiment)
            found = client.search_runs([known.experiment_id], f"tags.id = '{subject.id}'") if known else []
        except mlflow.exceptions.MlflowException:
            return None  # said when the run is opened
        return found[0].info.run_id if found else None


def without_secrets(uri: str) -> str:
    """An address without its user, password and query."""
    return re.sub(r"//[^/@]*@", "//", uri).partition("?")[0]


def started(logger: Logger, subject: Subject) -> Journal:
    logger.log_hyperparams(dict(subject.config))
    return Journal(logger)
