"""The same questions where the training rows are on a cluster: `leaftrace.dask.Tracer`.

>>> from leaftrace.dask import Tracer                             # doctest: +SKIP
>>> tracer = Tracer(model, frame, frame["income"], client=client)  # doctest: +SKIP
>>> tracer.top(X_test, y_test, 10)                                # doctest: +SKIP
"""

from ._tracer import Tracer as Tracer

__all__ = ["Tracer"]
