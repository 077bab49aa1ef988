"""The back end for Spark."""
