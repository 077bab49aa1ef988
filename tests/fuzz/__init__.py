"""A fuzzer: random models of every library, and damaged files, checked against the oracle."""
