"""Asking leaftrace a question: what it says, warns of or fails with becomes a finding, and numbers are compared."""

from __future__ import annotations

import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import leaftrace as lt

ACCURACY = 1e-5  # of a derivative or a refit, relative to the largest one
CONCLUSIVE = 1e-3  # larger errors of the oracle itself leave a check undecided


def compare(out, check, found, answer, scale):
    """Count a check, and note a wrong number. The answer may be too uncertain to decide."""
    expected = np.asarray(answer.value)
    allowed = ACCURACY * scale + np.asarray(answer.error)
    certain = np.isfinite(expected) & (np.asarray(answer.error) <= CONCLUSIVE * scale)
    if not np.any(certain):
        out.note("undecided", check)
        return
    out.checks[check] += 1
    found = np.broadcast_to(found, expected.shape)
    distance = np.nan_to_num(np.abs(found - expected), nan=np.inf)
    bad = certain & ~(distance <= allowed)
    if np.any(bad):
        worst = np.unravel_index(np.argmax(np.where(bad, distance, -1)), bad.shape)
        out.note(
            "wrong", check, f"{found[worst]:.10g} instead of {expected[worst]:.10g}, of {scale:.3g}"
        )


@contextmanager
def quiet():
    """Warnings of libraries and of the oracle are of no interest."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def recorded_warnings(out, check):
    """Note warnings that are not leaftrace's own."""
    with warnings.catch_warnings(record=True) as seen, np.errstate(all="warn", under="ignore"):
        warnings.simplefilter("always")
        yield
    for warning in seen:
        if not issubclass(warning.category, lt.FidelityWarning):
            where = f"{Path(warning.filename).name}:{warning.lineno}"
            out.note("warning", check, f"{warning.category.__name__}: {warning.message} ({where})")


def asked(out, check, answerable, question):
    """Return the answer of leaftrace to a question, or None.

    ``answerable``: whether the oracle can answer, so that a refusal is false."""
    try:
        with recorded_warnings(out, check):
            return question()
    except lt.LeaftraceError as error:
        kind = "false refusal" if answerable else "refusal"
        out.note(kind, check, f"{type(error).__name__}: {error}")
    except Exception as error:
        out.note("raw exception", check, described(error))
    return None


def described(error):
    """Return an exception in a line, with the place it came from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
