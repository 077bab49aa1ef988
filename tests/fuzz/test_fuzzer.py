"""The fuzzer itself: it finds mistakes that are put in, and simplifies what fails."""

from dataclasses import replace

import numpy as np
import pytest

from . import checks
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
