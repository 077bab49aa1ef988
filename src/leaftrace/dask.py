"""Influence of training rows that are on a Dask cluster: `leaftrace.dask.Tracer`.

>>> from leaftrace.dask import Tracer                             # doctest: +SKIP
>>> tracer = Tracer(model, frame, frame["income"], client=client)  # doctest: +SKIP
>>> tracer.top(X_test, y_test, 10)                                # doctest: +SKIP
"""

try:
    from ._tracer.cluster.dask.tracer import Tracer as Tracer
except ModuleNotFoundError as error:
    if error.name and error.name.partition(".")[0] in ("dask", "distributed"):
        raise ImportError(
            f"leaftrace.dask needs {error.name}; do: pip install 'leaftrace[dask]'"
        ) from None
    raise

__all__ = ["Tracer"]
