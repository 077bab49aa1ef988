"""Completing the description of a LightGBM run: rows drawn again, missing digits recovered."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Ensemble, Recorded
from ..base import are_elsewhere
from .draws import ADDED_NOTE, DrawCheck, draw_rows
from .ensemble import LightGBMRun
from .quantised import NOTE, rounds_gradients, with_rounded_sums
from .recover import goss_sizes, recover_parameters, recover_rates, roughly_agree
from .refitting import REFIT_FROM, refit_note, refitted

_MAX_SPARE = 100  # iterations without a tree that are looked for


def complete_ensemble(
    run: LightGBMRun, params: dict[str, Any], rounded: list[str], given: Container[str]
) -> tuple[Ensemble, dict[str, Any], list[str]]:
    """The ensemble with everything that is drawn again or recovered, its parameters, and notes.

    ``rounded``: names of parameters with six digits; ``given``: names of those that the user gave,
    which replace the model's own.
    """
    drawn, notes = _draw_again(run, params)
    rounds = rounds_gradients(params)
    if are_elsewhere(run.leaves):
        if rounds:
            raise UnsupportedModel(
                "use_quantized_grad rounds the gradients of all rows at once, so it cannot be traced on a cluster; "
                "trace it in memory, or train with quant_train_renew_leaf=True."
            )
        return _with_recorded_rows(run.ensemble(params, drawn), run, params), params, notes
    # Leaf values that depend on more than the rows of a leaf show no digits of parameters.
    shows_digits = not (params["path_smooth"] > 0 or rounds or params[REFIT_FROM] is not None)
    if rounded and shows_digits:
        reported = params
        params = recover_parameters(lambda p: run.ensemble(p, drawn), reported, rounded)
        if names := [name for name in rounded if params[name] != reported[name]]:
            notes.append(
                f"{' and '.join(names)} recovered from the leaf values, as files keep six digits"
            )
    e = run.ensemble(params, drawn)
    stored_rates = _stored_rates(run, params, e)
    if stored_rates is not None and shows_digits and "learning_rate" not in given:
        e = recover_rates(e, stored_rates / run.steepness(params))
        if not refitted(params):
            notes.append("a schedule of learning rates recovered from the leaf values")
    if refitted(params):
        notes.append(refit_note(params))
    if e.added is not None:
        notes.append(ADDED_NOTE)
    if rounds and e.rule.statistic is None:
        e = with_rounded_sums(e, params, run.steepness(params), run.has_constant_hessian)
        notes.append(NOTE)
    return _with_recorded_rows(e, run, params), params, notes


def _draw_again(
    run: LightGBMRun, params: dict[str, Any]
) -> tuple[list[NDArray[Any]] | None, list[str]]:
    """For each step how often it drew each row, or None; and a note if the model confirms it."""
    if refitted(params):
        return None, []
    e = run.ensemble({**params, "path_smooth": 0.0})

    def values_agree(t: int, A: F64, drawn: NDArray[Any]) -> bool:
        return params["path_smooth"] > 0 or roughly_agree(e, t, A, drawn)

    def sizes(t: int, A: F64) -> NDArray[np.float32]:
        return goss_sizes(e, t, A, run.steepness(params))

    spare = min(max(int(params["num_iterations"]) - e.n_steps, 0), _MAX_SPARE)
    check = DrawCheck(e, run.counts, spare, values_agree)
    if are_elsewhere(run.leaves):
        if params["data_sample_strategy"] == "goss":
            raise UnsupportedModel("GOSS draws rows by their gradients, which need all leaves.")
        check = DrawCheck(e, None, 0, values_agree)
    drawn = draw_rows(params, e, run.parsed.objective[0] == "binary", sizes, check)
    if drawn is None or all(d.all() for d in drawn):
        return None, []
    if e.rule.statistic is not None:  # a percentile counts the rows drawn, without their weights
        drawn = [(d > 0).astype(np.uint8) for d in drawn]
    note = "rows of each tree drawn again, confirmed by the number of rows in every leaf"
    return drawn, [note] if check.confirmed else []


def _stored_rates(run: LightGBMRun, params: dict[str, Any], e: Ensemble) -> F64 | None:
    """(T,) six digits of the learning rates, or None if all are the parameter. NaN: not stored."""
    parsed = run.parsed
    if parsed.averaged or (params["boosting"] == "dart" and not refitted(params)):
        return None
    found = np.array([tree.shrinkage for tree in parsed.trees[:: parsed.outputs]])
    found[run.without_splits[:, 0]] = np.nan
    if e.base_rule is not None:
        found[0] = np.nan  # adding the starting score sets it to 1
    rate = params["learning_rate"]
    differ = np.any(np.abs(found - rate) > 1e-5 * rate)
    return found if differ else None


def _with_recorded_rows(e: Ensemble, run: LightGBMRun, params: dict[str, Any]) -> Ensemble:
    """The ensemble with the recorded number of rows of each leaf, where it can be compared.

    Refitting keeps the counts of the rows before it; on several machines they are estimated from
    second derivatives.
    """
    if run.counts is None or refitted(params) or int(params.get("num_machines", 1)) > 1:
        return e
    drawn = [e.n_rows] * len(e.first_output)
    if e.sample is not None:
        drawn = [np.count_nonzero(s) for s in e.sample]
    tree_rows = np.repeat(drawn, np.diff(e.tree_leaves))
    counts = np.where(np.isnan(run.counts), tree_rows, run.counts)
    weights = [tree.weights for tree in run.parsed.trees]
    known = [w for w in weights if w is not None]
    further = [Recorded("hessian", np.concatenate(known))] if len(known) == len(weights) else []
    return replace(e, recorded=Recorded("rows", counts), further_records=further)
