"""Training rows on a cluster: one engine, and a back end for each kind of cluster.

Partitions keep their rows, and only sums over leaves are sent. `protocol` has what the engine asks of
a cluster; `dask` and `spark` give it.
"""
