"""The fuzzer itself: it finds mistakes that are put in, and simplifies what fails."""

from dataclasses import replace

import numpy as np
import pytest

from . import checks, soft_splits
from .draw import Draw
from .outcome import Outcome, outcome_from
from .reference import Answer
from .shrink import shrink
from .spaces import LIBRARIES, draw_configuration
from .summary import Summary


def plain(library, **settings):
    data = {"target": "any", "rows": 60, "columns": 4, "seed": 1}
    return {"library": library, "weights": "none", "rounds": 3, "settings": settings, "data": data}


LIGHTGBM = plain(
    "LightGBM", objective="regression", min_data_in_leaf=3, lambda_l2=1.0, feature_fraction=0.5
)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_seed_is_a_configuration(library):
    assert draw_configuration(Draw(5), library) == draw_configuration(Draw(5), library)
    assert draw_configuration(Draw(5), library) != draw_configuration(Draw(6), library)


def test_every_check_is_made():
    outcome = checks.run(LIGHTGBM)
    assert outcome.findings == []
    assert set(outcome.checks) == {
        "fidelity", "LeafRefit", "refit without a row", "refit without a group", "refit with weights", "other labels",
        "influence", "influence along a direction", "tangent", "candidates", "label influence",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        ({"l2": 1.001}, "LeafRefit"),
        ({"l2": 1.001}, "influence"),
        ({"base_value": None, "base": 0.0}, "refit without a group"),
    ],
)
def test_wrong_numbers_are_found(monkeypatch, wrong, check):
    """An oracle of other settings than the model's stands for a leaftrace that is wrong."""
    true = checks.reference_of
    agreeing = checks.agreeing_reference

    def other(case, configuration, out):
        reference = agreeing(case, configuration, out)
        return replace(reference, structure=replace(reference.structure, **wrong))

    monkeypatch.setattr(checks, "agreeing_reference", other)
    assert true is checks.reference_of
    failures = checks.run(LIGHTGBM).failures
    assert check in {finding.check for finding in failures if finding.kind == "wrong"}


def test_wrong_numbers_of_soft_splits_are_found(monkeypatch):
    few = {**LIGHTGBM, "data": {**LIGHTGBM["data"], "rows": 20}}
    outcome = checks.run(few)
    assert not outcome.failures
    assert outcome.checks[soft_splits.CHECK] == 3
    program = soft_splits.KinkFree
    warmer = lambda tracer, X, temperature: program(tracer, X, 1.01 * temperature)  # noqa: E731
    monkeypatch.setattr(soft_splits, "KinkFree", warmer)
    failures = checks.run(few).failures
    assert {(finding.kind, finding.check) for finding in failures} == {("wrong", soft_splits.CHECK)}


def test_a_false_refusal_is_found(monkeypatch):
    def refuse(case, y):
        raise checks.lt.FidelityError("no")

    monkeypatch.setattr(checks, "traced", refuse)
    assert [f.kind for f in checks.run(LIGHTGBM).failures] == ["false refusal"]


def test_what_the_oracle_does_not_know_is_not_decided():
    out = Outcome({})
    checks.compare(out, "a", np.array([2.0]), Answer(np.array([1.0]), np.array([0.5])), 1.0)
    checks.compare(out, "b", np.array([2.0]), Answer(np.array([1.0]), np.array([1e-5])), 1.0)
    checks.compare(out, "c", np.array([np.nan]), Answer(np.array([1.0]), np.array([1e-5])), 1.0)
    assert [(f.kind, f.check) for f in out.findings] == [
        ("undecided", "a"),
        ("wrong", "b"),
        ("wrong", "c"),
    ]


@pytest.mark.parametrize("curvature", [0.0, 3.0, 20.0])
def test_both_slopes_at_a_kink_are_right(curvature):
    """A leaf whose gradient is exactly l1 has two; curvature does not hide that, and is no kink."""
    case = checks.case_of(LIGHTGBM)
    reference = checks.reference_of(case, False)

    def bent(jump):
        return lambda r, e: 1.0 + 2.0 * e + curvature * e**2 + jump * max(e, 0.0)

    value, error = reference.slope(bent(1e-3), 2e-3)
    assert value - error <= 2.0
    assert value + error >= 2.001
    value, error = reference.slope(bent(0.0), 2e-3)
    assert abs(value - 2.0) <= error < 1e-8


def test_rows_of_weight_zero_alone_in_a_leaf_have_no_slope():
    case = checks.case_of(LIGHTGBM)
    reference = checks.reference_of(case, False)
    ids = reference.structure.steps[0][0][0]
    w = np.where(ids == ids[0], 0.0, 1.0)
    for l2, rows in ((0.0, ids == ids[0]), (1.0, np.zeros(len(w), bool))):
        structure = replace(
            reference.structure, l2=l2, min_hessian=0.0, steps=reference.structure.steps[:1]
        )
        found = replace(reference, structure=structure, w=w).rows_without_slope()
        assert np.array_equal(found, rows)


def test_shrinking_keeps_what_fails():
    def run(configuration):
        out = Outcome(configuration)
        if configuration["settings"].get("lambda_l2") and configuration["data"]["rows"] >= 20:
            out.note("wrong", "influence")
        return out

    found, outcome = shrink(LIGHTGBM, run)
    assert found["settings"] == {"objective": "regression", "lambda_l2": 1.0}
    assert (found["rounds"], found["data"]["rows"]) == (1, 20)
    assert outcome.failures


def test_the_summary_judges_a_run(capsys):
    good = Outcome({}, checks={"fidelity": 1})
    refused = Outcome({})
    refused.note("false refusal", "tracer", "FidelityError: step 3 of 9")
    summary = Summary()
    for seed in range(300):
        summary.add("models", seed, outcome_from(good.to_json()))
    summary.add("models", 300, refused)
    assert not summary.failed  # one in 300
    summary.add("models", 301, refused)
    assert summary.failed
    summary.show()
    printed = capsys.readouterr().out
    assert "python -m tests.fuzz --seed 301" in printed
    assert "2  false refusal: FidelityError: step # of #" in printed
