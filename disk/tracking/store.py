"""Write records to MLflow. Writing a record twice adds nothing.

`Store.put` adds what MLflow lacks of a `Record`. It asks MLflow itself what is there, so any process on any machine can
continue any run: the tag `disk.key` finds the run, and a metric's newest step tells which rows are new. MLflow is
imported when a `Store` is made, so that training does not pay for the import.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from disk.errors import ArtefactError
from disk.lazy import need
from disk.storage.files import checksum, sweep, whole
from disk.storage.lock import lock
from disk.tracking.record import Record, Row, Summary
from disk.tracking.shown import BY_SKILL, experiment_tags, log_world, skill_models

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

BATCH, PARAMS = 1000, 100
"""MLflow's limits per call: of metrics, and of params or tags."""
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the default waits four minutes per call for a dead server
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # errors reach the user once, as a TrackingError
    "GIT_PYTHON_REFRESH": "quiet",
}
ATTEMPTS = 3
Status = Literal["RUNNING", "FINISHED", "KILLED"]


class Store:
    def __init__(self, uri: str) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self.database = database(uri)
        self.uri = uri if self.database is None else f"sqlite:///{self.database}"
        self.summary = Summary()
        self._experiments: dict[str, str] = {}
        self._open()

    def _open(self) -> None:
        client = need("mlflow").MlflowClient
        with self._locked():
            if self.database is not None and not (self.database.exists() and self.database.stat().st_size):
                _create_database(self.database)
            self.client = client(self.uri)
            self.client.search_experiments(max_results=1)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time into a store that is a file. Servers guard themselves."""
        if self.database is None:
            yield
            return
        self.database.parent.mkdir(parents=True, exist_ok=True)
        file = lock(self.database.with_name(f"{self.database.name}.lock"), wait=True)
        assert file is not None
        with file:
            yield

    def experiment(self, name: str) -> str:
        """Return the id of an experiment, which is created if it does not exist."""
        if name not in self._experiments:
            with self._locked():
                self._experiments[name] = self._find_experiment(name) or self._create_experiment(name)
        return self._experiments[name]

    def _find_experiment(self, name: str) -> str | None:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            return None
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _create_experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        location = None if self.database is None else (self.database.parent / "mlartifacts" / name).as_uri()
        try:
            return str(self.client.create_experiment(name, artifact_location=location, tags=experiment_tags(name)))
        except MlflowException:
            found = self._find_experiment(name)  # on a server, without a lock, another process was faster
            if found is None:
                raise
            return found

    def runs(self, experiment: str, key: str) -> dict[str, Run]:
        """Return the MLflow runs whose key begins with `key`. Delete all but the oldest of runs with the same key."""
        from mlflow.exceptions import MlflowException

        found = self.client.search_runs(
            [self.experiment(experiment)], f"tags.`disk.key` LIKE '{key}%'", max_results=10_000
        )
        runs: dict[str, Run] = {}
        for run in sorted(found, key=lambda run: (run.info.start_time, run.info.run_id)):
            if runs.setdefault(run.data.tags["disk.key"], run) is not run:
                # Two processes created it at once on a server, without a lock. All agree on the oldest.
                with suppress(MlflowException):  # another process deletes it too
                    self.client.delete_run(run.info.run_id)
        return runs

    def put(self, record: Record, known: Mapping[str, Run], parent: str | None, status: Status | None) -> str:
        """Add what MLflow lacks of a record. Return the id of its run. Status None leaves the status as it is."""
        from mlflow.exceptions import MlflowException

        run = known.get(record.key)
        if run is not None and _shows_other_training(run, record):
            self._set_aside(run, record)
            run = None
        run = run or self._create(record)
        for attempt in range(ATTEMPTS):
            try:
                self._fill(run, record, parent, status)
                break
            except MlflowException:
                if attempt == ATTEMPTS - 1:
                    raise
                # Two processes write one run: MLflow refuses a param that both saw missing, and deletes one of two
                # new runs. A second attempt starts from what is there now; a dead server fails on this line.
                run = self.runs(record.experiment, record.key).get(record.key, run)
        return str(run.info.run_id)

    def _fill(self, run: Run, record: Record, parent: str | None, status: Status | None) -> None:
        self._describe(run, record, parent)
        log_world(self.client, run, record)
        self._add_rows(run, record.rows)
        self._add_results(run, record)
        self._set_status(run, record, "FINISHED" if record.finished else status)
        self._add_artefacts(run, record.artefacts)

    def _set_aside(self, run: Run, record: Record) -> None:
        """Keep a run that shows an earlier training, under a key that is never searched for."""
        if run.info.status == "RUNNING":
            self.client.set_terminated(run.info.run_id, "KILLED")
        self.client.update_run(run.info.run_id, name=f"{record.name} (replaced)")
        self.client.set_tag(run.info.run_id, "disk.key", f"replaced/{record.key}")

    def _create(self, record: Record) -> Run:
        experiment = self.experiment(record.experiment)  # before the lock, because it takes the lock too
        with self._locked():
            runs = self.runs(record.experiment, record.key)  # another process may have been faster
            if record.key not in runs:
                tags = {"disk.key": record.key}
                self.client.create_run(experiment, start_time=record.started, tags=tags, run_name=record.name)
                self.summary.runs += 1
                runs = self.runs(record.experiment, record.key)
            return runs[record.key]

    def _describe(self, run: Run, record: Record, parent: str | None) -> None:
        """Add params and tags. They come before points: tags tell one training from the next with the same key."""
        from mlflow.entities import Param, RunTag

        wanted = {**record.tags, "disk.curve": _fingerprint(record.rows)}
        if parent is not None:
            wanted["mlflow.parentRunId"] = parent
        tags = [RunTag(k, v) for k, v in wanted.items() if v and run.data.tags.get(k) != v]
        # MLflow refuses to change a param: the first value stays.
        params = [Param(k, v) for k, v in record.params.items() if k not in run.data.params]
        for start in range(0, max(len(params), len(tags)), PARAMS):
            part = slice(start, start + PARAMS)
            self.client.log_batch(run.info.run_id, params=params[part], tags=tags[part], synchronous=True)

    def _add_rows(self, run: Run, rows: Sequence[Row]) -> None:
        """Add new rows in ascending order, so that a metric's newest step tells which points are there."""
        newest = {metric.key: metric.step for metric in run.data._metric_objs}
        points = [
            (name, value, _time(run, row.elapsed), row.step, None)
            for row in rows
            for name, value in row.values.items()
            if row.step > newest.get(name, -1)
        ]
        self._add_points(run, points)

    def _add_results(self, run: Run, record: Record) -> None:
        digest = _digest(record.results)
        if not record.results or run.data.tags.get("disk.results") == digest:
            return
        end, points = _time(run, record.seconds), list[tuple[str, float, int, int, str | None]]()
        with self._locked():
            models = skill_models(self.client, run, record)
        for name, values in record.results.items():
            there = self._newest(run, name)
            for step, value in values.items():
                model = models[step] if name.startswith(BY_SKILL) else None
                if step not in there:
                    points.append((name, value, end, step, model))
                elif there[step].value != value:  # MLflow shows the later of two values at one step
                    points.append((name, value, there[step].timestamp + 1, step, model))
        self._add_points(run, points)
        self.client.set_tag(run.info.run_id, "disk.results", digest)

    def _newest(self, run: Run, name: str) -> dict[int, Metric]:
        """Return the latest value at each step of a metric."""
        if name not in run.data.metrics:
            return {}
        history = self.client.get_metric_history(run.info.run_id, name)
        return {metric.step: metric for metric in sorted(history, key=lambda metric: metric.timestamp)}

    def _add_points(self, run: Run, points: Sequence[tuple[str, float, int, int, str | None]]) -> None:
        """Add points: name, value, time, step, and the model that they measure too."""
        from mlflow.entities import Metric

        for start in range(0, len(points), BATCH):
            batch = [Metric(*point) for point in points[start : start + BATCH]]
            self.client.log_batch(run.info.run_id, metrics=batch, synchronous=True)
            self.summary.points += len(batch)

    def _set_status(self, run: Run, record: Record, status: Status | None) -> None:
        if status is None or status == run.info.status:
            return
        if status == "RUNNING":
            self.client.update_run(run.info.run_id, status=status)
        else:
            self.client.set_terminated(run.info.run_id, status, _time(run, record.seconds))

    def _add_artefacts(self, run: Run, artefacts: Mapping[str, Path]) -> None:
        for name, path in artefacts.items():
            try:
                digest = checksum(path)[:16]
            except ArtefactError:
                continue  # replaced or removed since it was listed; the next call adds it
            tag = f"disk.artifact.{name}"
            if run.data.tags.get(tag) != digest:
                self.client.log_artifact(run.info.run_id, str(path), os.path.dirname(name) or None)
                self.client.set_tag(run.info.run_id, tag, digest)
                self.summary.artefacts += 1


def database(uri: str) -> Path | None:
    """Return the absolute path of an SQLite uri's file; None for any other store."""
    found = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?", uri)
    return Path(os.path.abspath(found[1])) if found else None


def _create_database(path: Path) -> None:
    """Create an empty store and move it into place whole: a killed process leaves no half of a schema."""
    from mlflow import MlflowClient

    # Dozens of migrations, each of which waits for the disk: 8 s on disk, 2 s in memory.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  a folder of random name in it
    with tempfile.TemporaryDirectory(prefix="disk-mlflow-", dir=memory) as folder:
        made = Path(folder) / path.name
        MlflowClient(f"sqlite:///{made}").search_experiments(max_results=1)
        sweep(path.parent, path.name)
        with made.open("rb") as content, whole(path) as file:
            shutil.copyfileobj(content, file)


def explain(uri: str, error: BaseException) -> str:
    """Describe an error in one line, without the password that the uri may hold."""
    cause = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    hint = ""
    if (file := database(uri)) is not None and file.exists():
        hint = f" (if {file.name} is damaged or of another MLflow version, delete it and track again: it is a mirror)"
    return f"MLflow at {re.sub(r'//[^/@]*@', '//', uri)}: {reason}{hint}"


def _shows_other_training(run: Run, record: Record) -> bool:
    """Return True if MLflow's run shows a training that is not the record's."""
    now = {"disk.curve": _fingerprint(record.rows), "disk.config_hash": record.tags.get("disk.config_hash", "")}
    return any(value and run.data.tags.get(tag, value) != value for tag, value in now.items())


def _fingerprint(rows: Sequence[Row]) -> str:
    """Hash a curve's first row without its times. A resumed training keeps that row."""
    if not rows:
        return ""
    return _digest([rows[0].step, {k: v for k, v in rows[0].values.items() if not k.startswith("time/")}])


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _time(run: Run, elapsed: float) -> int:
    """Return a moment of a training in milliseconds, counted from the run's start: the same in every mirror."""
    return int(run.info.start_time) + round(1000 * elapsed)
