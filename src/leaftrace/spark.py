"""Influence of training rows that are in a Spark DataFrame: `leaftrace.spark.Tracer`.

>>> from leaftrace.spark import Tracer                                               # doctest: +SKIP
>>> tracer = Tracer(model, frame, features=names, label="income", order="id")        # doctest: +SKIP
>>> tracer.influence(X_test, y_test, reduce="mean").orderBy("value").show()          # doctest: +SKIP
"""

try:
    from ._tracer.cluster.spark.tracer import Tracer as Tracer
except ModuleNotFoundError as error:
    if error.name and error.name.partition(".")[0] in ("pyspark", "py4j", "pyarrow", "pandas"):
        raise ImportError(
            f"leaftrace.spark needs {error.name}; do: pip install 'leaftrace[spark]'"
        ) from None
    raise

__all__ = ["Tracer"]
