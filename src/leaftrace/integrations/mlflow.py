"""An evaluator for `mlflow.models.evaluate`: what training rows do to the rows of an evaluation.

>>> mlflow.models.evaluate(                                             # doctest: +SKIP
...     model_uri, data, targets="label", model_type="classifier", evaluators=["leaftrace"],
...     evaluator_config={"leaftrace": {"tracer": tracer, "worst": 10}},
... )

MLflow finds it by its name once leaftrace is installed. It makes a `report` and logs it to the run as
`Report.log_mlflow` does; its metrics are in the result of the evaluation.
"""

from __future__ import annotations

from typing import Any

try:
    from mlflow.models import EvaluationResult  # pyright: ignore[reportMissingImports]
    from mlflow.models.evaluation.base import ModelEvaluator  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    if error.name and error.name.partition(".")[0] == "mlflow":
        raise ImportError(
            "leaftrace.integrations.mlflow needs MLflow; do: pip install 'leaftrace[mlflow]'"
        ) from None
    raise

from .._data.errors import InvalidInput
from .._tracer.tracer import Tracer
from .._views.make_report import report
from .._views.report.tracking import report_metrics

_SETTINGS = ("worst", "top", "noise", "groups", "test_groups", "redact", "title")


class LeaftraceEvaluator(ModelEvaluator):
    """The evaluator "leaftrace".

    Its configuration has the ``tracer`` of the model and, if wanted, arguments of `report`:
    ``worst``, ``top``, ``noise``, ``groups``, ``test_groups``, ``redact``, ``title``.
    """

    name = "leaftrace"

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Any, **kwargs: Any) -> bool:
        """Whether a tracer was given, which has the training rows that an evaluation lacks."""
        return isinstance((evaluator_config or {}).get("tracer"), Tracer)

    def evaluate(
        self,
        *,
        model_type: str,
        dataset: Any,
        run_id: str,
        evaluator_config: Any,
        model: Any = None,
        extra_metrics: Any = None,
        custom_artifacts: Any = None,
        predictions: Any = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Log a report on the rows of the evaluation, and return its metrics."""
        config = dict(evaluator_config)
        tracer = config.pop("tracer")
        if unknown := sorted(set(config) - set(_SETTINGS)):
            raise InvalidInput(
                f"evaluator_config of leaftrace has {', '.join(unknown)}; it can have tracer, {', '.join(_SETTINGS)}."
            )
        found = report(tracer, dataset.features_data, dataset.labels_data, **config)
        found.log_mlflow(run_id)
        return EvaluationResult(metrics=report_metrics(found.data), artifacts={}, run_id=run_id)
