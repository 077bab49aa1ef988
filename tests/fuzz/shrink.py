"""A simpler configuration that still shows a failure."""

from __future__ import annotations

from copy import deepcopy

from .data import ROWS


def simpler(configuration):
    """Yield configurations that differ from this one in one thing, and are simpler."""
    for name in configuration["settings"]:
        if name not in ("objective", "loss_function", "loss", "criterion"):
            yield changed(configuration, lambda c, name=name: c["settings"].pop(name))
    for name in configuration["data"]:
        if name not in ("target", "rows", "columns", "seed"):
            yield changed(configuration, lambda c, name=name: c["data"].pop(name))
    if configuration["weights"] != "none":
        yield changed(configuration, lambda c: c.update(weights="none"))
    if configuration.get("baseline"):
        yield changed(configuration, lambda c: c.pop("baseline"))
    for rounds in (1, 2, 4, 8):
        if rounds < configuration["rounds"]:
            yield changed(configuration, lambda c, rounds=rounds: c.update(rounds=rounds))
    for rows in ROWS:
        if rows < configuration["data"]["rows"]:
            yield changed(configuration, lambda c, rows=rows: c["data"].update(rows=rows))


def changed(configuration, change):
    out = deepcopy(configuration)
    change(out)
    return out


def shrink(configuration, run):
    """Return the simplest configuration found that fails in the same way, and its outcome."""
    outcome = run(configuration)
    ways = {(f.kind, f.check) for f in outcome.failures}
    trying = bool(ways)
    while trying:
        trying = False
        for candidate in simpler(configuration):
            found = run(candidate)
            if ways & {(f.kind, f.check) for f in found.failures}:
                configuration = candidate
                outcome = found
                trying = True
                break
    return configuration, outcome
