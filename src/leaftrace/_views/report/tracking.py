"""A report in MLflow: the page, its tables as CSV files, fidelity and losses as metrics."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any

from ..._data.errors import InvalidInput, LeaftraceError

if TYPE_CHECKING:
    from . import Report

FOLDER = "leaftrace"  # of the artifacts of a run
_OF_ROWS = ("row", "position", "label", "effect", "rank", "change", "above_noise")
_OF_LABELS = ("row", "position", "is_label_issue", "label_score", "given_label", "predicted_label")


def log_report(report: Report, run: Any) -> str:
    """Log a report to a run of MLflow and return the id of the run: see `Report.log_mlflow`."""
    mlflow = _mlflow()
    if run is None:
        active = mlflow.active_run()
        run = mlflow.start_run() if active is None else active
        started = active is None
    else:
        started = False
    run_id = run if isinstance(run, str) else getattr(getattr(run, "info", None), "run_id", None)
    if not run_id:
        raise InvalidInput(
            f"run is a {type(run).__name__}; pass the id of a run, a Run of MLflow, or None for the active one."
        )
    try:
        client = mlflow.MlflowClient()
        for name, value in report_metrics(report.data).items():
            client.log_metric(run_id, name, value)
        client.set_tag(run_id, "leaftrace.fidelity", report.data["fidelity"]["verdict"])
        with tempfile.TemporaryDirectory() as folder:
            for name, content in report_files(report).items():
                with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
                    file.write(content)
            client.log_artifacts(run_id, folder, FOLDER)
    finally:
        if started:
            mlflow.end_run()
    return run_id


def _mlflow() -> Any:
    try:
        import mlflow  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise LeaftraceError(
            "logging to MLflow needs it: pip install 'leaftrace[mlflow]'"
        ) from None
    return mlflow


def report_metrics(data: dict[str, Any]) -> dict[str, float]:
    """Metrics of a run, from the data of a report."""
    fidelity = data["fidelity"]
    metrics = {
        "leaftrace.fidelity_exact": float(fidelity["exact"]),
        "leaftrace.fidelity_max_error": fidelity["max_error"],
        "leaftrace.training_rows": data["model"]["rows"],
        "leaftrace.test_rows": data["test"]["rows"],
        "leaftrace.test_mean_loss": data["test"].get("mean_loss"),
        "leaftrace.test_accuracy": data["test"].get("accuracy"),
    }
    if data["noise"] is not None:
        metrics["leaftrace.surprising_labels"] = data["noise"]["flagged"]
    return {name: float(value) for name, value in metrics.items() if value is not None}


def report_files(report: Report) -> dict[str, str]:
    """Contents of the artifacts of a run, by name."""
    data = report.data
    rows = [
        {"test_row": case["row"], **{name: row.get(name) for name in _OF_ROWS}}
        for case in data["cases"]
        for row in case["training_rows"]
    ]
    files = {
        "report.html": report.html,
        "report.json": json.dumps(data, indent=1),
        "influence.csv": _as_csv(["test_row", *_OF_ROWS], rows),
    }
    if data["overall"] is not None:
        overall = data["overall"]["training_rows"]
        files["influence_overall.csv"] = _as_csv(_OF_ROWS, overall)
    if data["noise"] is not None:
        files["labels.csv"] = _as_csv(_OF_LABELS, data["noise"]["training_rows"])
    return files


def _as_csv(columns: Any, lines: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
