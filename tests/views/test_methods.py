"""Methods on the command line and in reports: the library's numbers, under the name of the method."""

import lightgbm
import numpy as np
import pandas as pd
import pytest
from cli_world import DATA, TEST, answer
from lightgbm import LGBMClassifier

import leaftrace as lt
from leaftrace._views.cli import main

METHODS = {
    "leaf": (lt.LeafInfluence(), "first order, trees fixed"),
    "structure": (lt.StructureInfluence(), "first order, soft splits"),
    "refit": (lt.LeafRefit(), "refitted, trees fixed"),
}


@pytest.fixture(scope="module")
def tracer(world):
    _, train, _, models = world
    model, prepare, _ = models["lgb.txt"]
    return lt.Tracer(model, prepare(train), train.repaid.to_numpy(), train.w.to_numpy())


@pytest.fixture(scope="module")
def asked(world):
    _, _, test, models = world
    return models["lgb.txt"][1](test).iloc[[3, 10]], test.repaid.to_numpy()[[3, 10]]


@pytest.mark.parametrize("name", METHODS)
def test_explain_by_method(tracer, asked, here, capsys, name):
    method, kind = METHODS[name]
    command = ("explain", "lgb.txt", *DATA, *TEST, "--rows", "3,10", "--top", "3")
    said = answer(capsys, *command, "--method", name)
    found = tracer.influence(*asked, method=method)
    sides = [found.top(k, effect=effect) for k, effect in ((2, "harmful"), (1, "helpful"))]
    expected = pd.concat(sides).sort_values("test_position", kind="stable")
    lines = [line for one in said["test_rows"] for line in one["training_rows"]]
    assert said["method"] == repr(method)
    assert {line["change_is"] for line in lines} == {kind}
    assert [line["train_row"] for line in lines] == expected.train_row.tolist()
    changes = [line["loss_change_if_removed"] for line in lines]
    np.testing.assert_allclose(changes, expected.loss_change_if_removed, rtol=1e-5)


def test_a_report_by_soft_splits(tracer, asked, here, capsys):
    """The page of the command and that of the library name the method at each table."""
    command = ["explain", "lgb.txt", *DATA, *TEST, "--rows", "3", "--html", "soft.html"]
    assert main([*command, "--method", "structure"]) == 0
    found = lt.report(tracer, *asked, top=3, noise=False, method=lt.StructureInfluence())
    for page in ((here / "soft.html").read_text(encoding="utf-8"), found.html):
        assert "first order, soft splits" in page
        assert "StructureInfluence(temperature=1.0)" in page
        assert "trees fixed</span>" not in page
        assert "trees held fixed" not in page
    soft = tracer.influence(*asked, method=lt.StructureInfluence())
    for case in found.data["cases"]:
        values = soft.change[:, case["position"]]
        changes = {line["position"]: line["change"] for line in case["training_rows"]}
        np.testing.assert_allclose(
            list(changes.values()), values[list(changes)], rtol=1e-5, atol=1e-9
        )
    overall = tracer.influence(*asked, method=lt.StructureInfluence(), reduce="mean").change[:, 0]
    lines = found.data["overall"]["training_rows"]
    for line in lines:
        assert line["change"] == pytest.approx(overall[line["position"]], rel=1e-4)


def test_other_names_of_methods(here, capsys):
    assert main(["explain", "lgb.txt", *DATA, *TEST, "--method", "soft"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert "--method is 'soft'; it can be leaf, structure, refit." in said


@pytest.mark.parametrize("html", [[], ["--html", "dart.html"]])
def test_models_without_soft_splits(world, here, capsys, html):
    _, train, _, models = world
    prepare = models["lgb.txt"][1]
    dart = LGBMClassifier(n_estimators=4, boosting_type="dart", drop_rate=0.9, verbose=-1, n_jobs=1)
    dart.fit(prepare(train), train.repaid, sample_weight=train.w).booster_.save_model("dart.txt")
    command = ["explain", "dart.txt", *DATA, *TEST, "--rows", "3", "--classes", "no,yes", *html]
    assert main([*command, "--method", "structure"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "dropped or scaled after they were grown" in said
    assert "use --method leaf, which holds splits fixed" in said
    assert not (here / "dart.html").exists()


def test_a_report_refuses_instead_of_showing_another_method(tracer, asked):
    with pytest.raises(lt.InvalidInput, match="a report shows changes"):
        lt.report(tracer, *asked, method=lt.baselines.TreeSim())
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = lightgbm.LGBMRegressor(n_estimators=3, objective="mae", verbose=-1, n_jobs=1)
    quantiles = lt.Tracer(model.fit(X, X[:, 0]), X, X[:, 0])
    with pytest.raises(lt.UnsupportedModel, match="percentile"):
        lt.report(quantiles, X[:2], X[:2, 0], method=lt.StructureInfluence())
