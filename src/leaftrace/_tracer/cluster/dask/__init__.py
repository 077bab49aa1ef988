"""The back end for Dask."""
