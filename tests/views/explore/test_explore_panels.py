"""The explorer's panels: test rows, training rows, groups, map, review and exports are the library's."""

import csv
import io
import json
import re
import threading

import numpy as np
import pytest
from explore_world import World, homes, income, removal
from matplotlib.path import Path as Polygon

import leaftrace as lt
from leaftrace._views.explore import basket as baskets
from leaftrace._views.explore import behind, panels
from leaftrace._views.explore.jobs import Latest, Superseded

# ---- test rows ----


def test_pages_of_test_rows(served):
    loss = served.loss(served.model)
    order = np.argsort(-loss, kind="stable")
    first = served.ask("tests", count=7)
    second = served.ask("tests", count=7, offset=7)
    lines = first["rows"] + second["rows"]
    assert [line["position"] for line in lines] == order[:14].tolist()
    np.testing.assert_allclose([line["loss"] for line in lines], loss[order[:14]], rtol=1e-9)
    assert [line["row"] for line in lines] == served.X_test.index[order[:14]].tolist()
    assert first["passing"] == len(loss)
    assert sum(first["histogram"]["all"]) == len(loss)
    worst = served.ask("tests", count=3, ascending=True)["rows"]
    assert [line["position"] for line in worst] == np.argsort(loss, kind="stable")[:3].tolist()


def test_filters_of_test_rows(people):
    loss = people.loss(people.model)
    middle = float(np.median(loss))
    decision = people.model.predict(people.X_test)
    above = people.ask("tests", loss=[middle, None], count=200)
    assert {line["position"] for line in above["rows"]} == set(np.flatnonzero(loss >= middle))
    assert sum(above["histogram"]["some"]) == len(loss)  # its own filter does not count
    counts = above["confusion"]
    classes = people.model.classes_
    for i, label in enumerate(classes):
        for j, predicted in enumerate(classes):
            these = (people.y_test == label) & (decision == predicted)
            assert counts[i][j] == (these & (loss >= middle)).sum()
            cell = people.ask("tests", label=i, decision=j, count=200)
            assert {line["position"] for line in cell["rows"]} == set(np.flatnonzero(these))
    wanted = (people.X_test.age > 60) & (people.X_test.job == "Exec")
    found = people.ask("tests", search="age>60 job=Exec", count=200)
    assert {line["row"] for line in found["rows"]} == set(people.X_test.index[wanted])
    name = people.X_test.index[5]
    assert [line["row"] for line in people.ask("tests", search=name.upper())["rows"]] == [name]


def test_residual_plot_is_a_filter():
    world = World(homes())
    predicted = world.model.predict(world.X_test)
    residual = world.y_test - predicted
    plot = world.ask("tests")["residuals"]
    assert sum(map(sum, plot["counts"])) == len(predicted)
    kept = world.ask("tests", predicted=[200, 300], residual=[0, None], count=200)["rows"]
    inside = (predicted >= 200) & (predicted <= 300) & (residual >= 0)
    assert {line["position"] for line in kept} == set(np.flatnonzero(inside))
    world.explorer.close()


# ---- training rows ----


def test_training_rows_are_those_of_the_tracer(served):
    found = served.ask("row", position=4, top=6)
    X = served.X_test.iloc[[4]]
    influence = served.tracer.influence(X, served.y_test[[4]])
    for effect in ("harmful", "helpful"):
        lines = [line for line in found["training_rows"] if line["effect"] == effect]
        expected = influence.top(6, effect=effect)
        assert [line["row"] for line in lines] == expected.train_row.tolist()
        changes = [line["change"] for line in lines]
        change = expected.loss_change_if_removed
        if served.tracer.classes is None:  # of the error, to first order
            change = change / np.abs(served.y_test[4] - served.model.predict(X)[0])
        np.testing.assert_allclose(changes, change, rtol=1e-6)
        for line in lines:
            cells = served.X.loc[line["row"], found["columns"]]
            assert line["values"] == cells.tolist()
    assert found["change_is"] == influence.change_is


def test_the_verdict_is_that_of_the_report(served):
    worst = int(np.argmax(served.loss(served.model)))
    said = served.ask("finding", position=worst)
    report = lt.report(served.tracer, served.X_test, served.y_test, rows=[worst], noise=False)
    assert said == report.data["cases"][0]["verdict"]
    assert said["kind"] != "predicted right" or served.tracer.classes is None


def test_verdicts_are_left_out_where_they_take_long(people, monkeypatch):
    monkeypatch.setattr(behind, "MAX_JUDGED", 100)
    said = people.ask("finding", position=77)
    assert said["kind"] is None
    assert "takes long" in said["facts"]


def test_what_if_is_the_influence_on_the_edited_row(people):
    edits = {"age": 33, "job": "Exec", "hours": None}
    found = people.ask("row", position=4, top=5, edits=edits)
    row = people.X_test.iloc[[4]].copy()
    row["age"] = 33
    row["hours"] = np.nan
    row["job"] = (
        row["job"].astype(str).replace(row["job"].iloc[0], "Exec").astype(people.X.job.dtype)
    )
    expected = people.tracer.influence(row, people.y_test[[4]]).top(5, effect="harmful")
    lines = [line for line in found["training_rows"] if line["effect"] == "harmful"]
    assert [line["row"] for line in lines] == expected.train_row.tolist()
    assert found["predicted"] == people.model.predict(row)[0]
    assert "no category" in people.ask("row", 422, position=4, edits={"job": "<b>"})["error"]
    assert "is a number" in people.ask("row", 422, position=4, edits={"age": "old"})["error"]


# ---- groups, map, review ----


@pytest.mark.parametrize("refit", [False, True])
def test_groups_are_those_of_the_library(people, refit):
    said = people.ask("groups", by="job", slices="age", refit=refit)
    expected = lt.group_effects(
        people.tracer, "job", people.X_test, people.y_test, "age", refit=refit, bins=6
    )
    assert [g["name"] for g in said["groups"]] == [f"job = {n}" for n in expected.groups.names]
    changes = [g["changes"] for g in said["groups"]]
    np.testing.assert_allclose(changes, expected.change, rtol=1e-6)
    number = said["groups"][2]["number"]
    basket = [{"group": {"by": "job", "number": number}, "do": "remove"}]
    described = people.ask("basket", basket=basket, position=4, shown=[0, 1, 2, 3])
    inside = (people.X.job == expected.groups.names[number]).to_numpy()
    assert described["removed"] == inside.sum() == said["groups"][2]["rows"]
    assert [s is not None for s in described["shown"]] == inside[:4].tolist()


def test_a_region_takes_all_rows_in_it(people):
    points = [[20.3, 10.1], [80.2, 20.7], [50.1, 90.3], [45.7, 40.9], [25.9, 80.4]]  # not convex
    region = {"x": "age", "y": "hours", "points": points}
    session = people.explorer.session
    basket = baskets.read_basket(session, [{"region": region, "do": "remove"}])
    inside = Polygon(points).contains_points(people.X[["age", "hours"]].to_numpy(float))
    assert 20 < inside.sum() < len(inside)
    assert basket.removed.tolist() == np.flatnonzero(inside).tolist()


def test_map_shows_the_most_influential_rows(people, monkeypatch):
    monkeypatch.setattr(panels, "MAX_POINTS", 60)
    monkeypatch.setattr(panels, "STRONGEST", 20)
    said = people.ask("map", x="age", y="job", position=4)
    values = people.tracer.influence(people.X_test.iloc[[4]], people.y_test[[4]]).values[:, 0]
    assert len(said["points"]) == 60
    strongest = np.argsort(-np.abs(values), kind="stable")[:20]
    assert {p[0] for p in said["points"][-20:]} == set(strongest.tolist())
    for position, x, y, change in said["points"]:
        assert x == people.X.age.iloc[position]
        assert said["y_names"][round(y)] == people.X.job.iloc[position]
        np.testing.assert_allclose(change, -values[position], rtol=1e-5, atol=1e-12)


def test_review_ranks_labels_and_keeps_verdicts():
    world = World(income(200))
    said = world.ask("review")
    noise = lt.label_noise(world.tracer)
    order = np.argsort(noise.label_score, kind="stable")[:50]
    assert [line["position"] for line in said["training_rows"]] == order.tolist()
    assert [line["given_label"] for line in said["training_rows"]] == world.y[order].tolist()
    first, second = order[:2].tolist()
    world.ask("verdict", position=first, verdict="wrong")
    world.ask("verdict", position=second, verdict="keep")
    assert world.ask("verdict", position=second, verdict=None)["reviewed"] == 1
    lines = list(csv.DictReader(io.StringIO(world.ask("review_csv")["text"])))
    assert [(line["train_row"], line["verdict"]) for line in lines] == [
        (world.X.index[first], "wrong")
    ]
    assert "keep, wrong, unsure" in world.ask("verdict", 422, position=1, verdict="so")["error"]
    world.explorer.close()


def test_formulas_are_harmless_in_the_csv():
    assert [panels._harmless(x) for x in ("=1+1", "@a", "-b", "a-b", -2)] == [
        "'=1+1", "'@a", "'-b", "a-b", -2,
    ]  # fmt: skip


# ---- export ----


def test_script_repeats_what_was_done(people, capsys):
    to = int(people.y[5] == "<=50K")
    basket = [*removal(3, 8), {"rows": [5], "do": "relabel", "to": to}]
    basket.append({"rows": [9], "do": "weight", "to": 2})
    seen = people.ask("refit", basket=basket, position=4)
    text = people.ask("script", basket=basket, position=4)["text"]
    names = {}
    exec(compile(text, "repeat.py", "exec"), names)
    found = names["repeat"](people.tracer, people.X_test, people.y_test)
    assert found["after"]["row"] == pytest.approx(seen["row"]["after"]["loss"])
    assert found["after"]["all"] == pytest.approx(seen["all"]["after"])
    assert "after  mean log loss of all test rows: " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other data or model"):
        names["repeat"](people.tracer, people.X_test[::-1], people.y_test[::-1])


def test_numbers_are_in_the_unit_of_the_target(capsys):
    """Losses that are half the squared error are nowhere: errors, RMSE and changes of them instead."""
    world = World(homes())
    error = np.abs(world.y_test - world.model.predict(world.X_test))
    rmse = np.sqrt((error**2).mean())
    facts = world.ask("facts")
    assert facts["loss"] == {"key": "error", "row": "error", "mean": "RMSE"}
    assert facts["mean_loss"] == pytest.approx(rmse)
    listed = world.ask("tests", loss=[float(np.median(error)), None], count=200)
    worst = np.flatnonzero(error >= np.median(error))
    assert {line["position"] for line in listed["rows"]} == set(worst)
    assert listed["mean_loss"] == pytest.approx(np.sqrt((error[worst] ** 2).mean()))
    assert listed["rows"][0]["error"] == pytest.approx(error.max())
    assert listed["histogram"]["high"] == pytest.approx(error.max())
    for refit in (False, True):
        panel = world.ask("groups", by="town", refit=refit)
        expected = lt.group_effects(world.tracer, "town", world.X_test, world.y_test, refit=True)
        way = expected.table["refitted" if refit else "predicted"]
        changes = {line["name"]: line["changes"][0] for line in panel["groups"]}
        named = dict(zip("town = " + expected.table["group"].astype(str), way, strict=True))
        assert changes == pytest.approx(named)
        assert panel["slices"][0]["before"] == pytest.approx(rmse)
    slopes = world.tracer.influence(world.X_test.iloc[[4]], world.y_test[[4]]).values[:, 0]
    points = world.ask("map", x="rooms", y="area", position=4)["points"]
    for position, _, _, change in points[-5:]:
        assert change == pytest.approx(-slopes[position] / error[4], rel=1e-5)
    names = {}
    exec(world.ask("script", basket=removal(3), position=4)["text"], names)
    found = names["repeat"](world.tracer, world.X_test, world.y_test)
    assert found["before"] == pytest.approx({"row": error[4], "all": rmse})
    assert "before RMSE of all test rows: " in capsys.readouterr().out
    world.explorer.close()


def test_audit_file(people):
    basket = removal(3, 8)
    record = json.loads(people.ask("audit", basket=basket, position=4)["text"])
    impact = lt.removal_impact(
        people.tracer, [3, 8], people.X_test, people.y_test, retrain=False
    ).audit()
    assert record["format"] == "leaftrace-explore-1"
    assert record["removed"] == [3, 8]
    assert record["changed_rows"] == people.X.index[[3, 8]].tolist()
    assert record["training"]["sha256"]["table"] in json.dumps(impact)
    assert record["effect"]["all"] == people.ask("refit", basket=basket, position=4)["all"]


def test_report_is_that_of_the_row(people):
    page = people.ask("report", position=4)["text"]
    assert people.X_test.index[4] in page
    assert not re.search(r'(src|href)="https?:', page)


# ---- the latest request wins ----


def test_an_older_request_ends_when_a_newer_one_comes(people, monkeypatch):
    begun = threading.Semaphore(0)
    begin = Latest.begin

    def noted(self, client, kind):
        check = begin(self, client, kind)
        begun.release()
        return check

    monkeypatch.setattr(Latest, "begin", noted)
    answers = []

    def ask(position, client):
        question = {"position": position, "client": client}
        answers.append((position, people.client.request("POST", "api/row", question)[0]))

    asked = [(1, "one page"), (2, "one page"), (3, "another page")]
    threads = [threading.Thread(target=ask, args=given) for given in asked]
    with people.explorer.session.lock:  # as if something was being computed
        for thread in threads:
            thread.start()
            assert begun.acquire(timeout=60)
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == [(1, 409), (2, 200), (3, 200)]


def test_latest_counts_pages_and_kinds_apart():
    latest = Latest()
    first = latest.begin("a", "row")
    latest.begin("b", "row")
    latest.begin("a", "refit")
    first()
    latest.begin("a", "row")
    with pytest.raises(Superseded):
        first()
