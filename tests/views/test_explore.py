"""The explorer's answers are the library's numbers, and only its own page gets them."""

import csv
import io
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import lightgbm
import numpy as np
import pytest
from cli_world import DATA, TEST
from explore_world import Client, grains, homes, income, tracer_of
from matplotlib.path import Path as Polygon
from scipy.stats import t as student

import leaftrace as lt
from leaftrace._cli import main
from leaftrace._data.stopping import Stopped, is_wanted
from leaftrace._explore import basket as baskets
from leaftrace._explore import behind, panels
from leaftrace._explore.jobs import Latest, Superseded
from leaftrace._explore.session import Session

STATIC = Path(lt.__file__).parent / "_explore" / "static"


class World:
    """A served model.

    ``loss``: (m,) of the test rows by a model, computed from its own predictions."""

    def __init__(self, world):
        self.model, self.X, self.y, self.X_test, self.y_test = world
        self.tracer = tracer_of(world)
        self.explorer = lt.explore(self.tracer, self.X_test, self.y_test, open_browser=False)
        self.client = Client(self.explorer.address)
        self.ask = self.client.ask

    def loss(self, model):
        if self.tracer.classes is None:
            return (self.y_test - model.predict(self.X_test)) ** 2 / 2
        p = model.predict_proba(self.X_test)
        own = np.searchsorted(self.model.classes_, self.y_test)
        return -np.log(p[np.arange(len(p)), own])


@pytest.fixture(scope="module", params=["income", "grains", "homes"])
def served(request):
    made = World({"income": income, "grains": grains, "homes": homes}[request.param]())
    yield made
    made.explorer.close()


@pytest.fixture(scope="module")
def people():
    made = World(income())
    yield made
    made.explorer.close()


def removal(*rows):
    return [{"rows": list(rows), "do": "remove"}]


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
        np.testing.assert_allclose(changes, expected.loss_change_if_removed, rtol=1e-6)
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


# ---- the basket ----


def test_first_order_of_removals(served):
    said = served.ask("basket", basket=removal(3, 8, 11), position=4)
    rows = [3, 8, 11]
    one = served.tracer.influence(served.X_test.iloc[[4]], served.y_test[[4]]).values[rows, 0]
    mean = served.tracer.influence(served.X_test, served.y_test, reduce="mean").values[rows, 0]
    assert said["effect"]["level"] == "first order"
    np.testing.assert_allclose(said["effect"]["row"]["change"], -one.sum(), rtol=1e-5)
    np.testing.assert_allclose(said["effect"]["all"]["change"], -mean.sum(), rtol=1e-5)


def test_first_order_is_the_limit_of_refits(served):
    """A weight that moves a little changes the refitted losses by the first-order amount.

    The step of 1e-3 leaves a relative error of about that size."""
    one = served.tracer.influence(served.X_test.iloc[[4]], served.y_test[[4]]).values
    mean = served.tracer.influence(served.X_test, served.y_test, reduce="mean").values
    for part, values in (("row", one), ("all", mean)):
        row = int(np.abs(values[:, 0]).argmax())
        question = {"basket": [{"rows": [row], "do": "weight", "to": 1.001}], "position": 4}
        first = served.ask("basket", **question)["effect"]
        exact = served.ask("refit", **question)
        np.testing.assert_allclose(first[part]["change"], exact[part]["change"], rtol=1e-2)


def test_first_order_of_labels_is_the_limit_of_refits():
    world = World(homes())
    basket = [{"rows": [7], "do": "relabel", "to": float(world.y[7] + 0.01)}]
    first = world.ask("basket", basket=basket, position=4)["effect"]
    exact = world.ask("refit", basket=basket, position=4)
    for part in ("row", "all"):
        np.testing.assert_allclose(first[part]["change"], exact[part]["change"], rtol=1e-2)
    world.explorer.close()


def test_whole_numbers_take_labels_with_a_fraction():
    model, X, y, X_test, y_test = homes()
    whole = y.round().astype(int)
    model = lightgbm.LGBMRegressor(**model.get_params()).fit(X, whole)
    basket = [{"rows": [7], "do": "relabel", "to": 300.5}]
    other = whole.astype(float)
    other[7] = 300.5
    tracer = lt.Tracer(model, X, whole, n_jobs=1)
    loss = tracer.refit(y=other).loss(X_test, y_test)
    with lt.explore(tracer, X_test, y_test, open_browser=False) as explorer:
        client = Client(explorer.address)
        said = client.ask("refit", basket=basket, position=4)
        assert said["all"]["after"] == pytest.approx(loss.mean(), rel=1e-12)
        names = {}
        exec(client.ask("script", basket=basket, position=4)["text"], names)
        assert names["changed"](tracer)["y"].tolist() == other.tolist()


def test_first_order_of_relabelled_classes(people):
    """Moving a label's mass from one class to the other is twice the way from it to the middle."""
    code = int(people.y[7] == "<=50K")  # the other class
    said = people.ask("basket", basket=[{"rows": [7], "do": "relabel", "to": code}], position=4)
    one = people.X_test.iloc[[4]], people.y_test[[4]]
    slope = people.tracer.label_influence(*one, rows=[7]).values[0, 0]
    np.testing.assert_allclose(said["effect"]["row"]["change"], slope * (2 * code - 1), rtol=1e-5)


def test_refit_is_that_of_the_tracer(served):
    numbers = served.tracer.classes is None
    to = float(served.y[5] + 40) if numbers else int(served.y[5] == served.tracer.classes[0])
    basket = [
        *removal(3, 8),
        {"rows": [5], "do": "relabel", "to": to},
        {"rows": [8, 30, 31], "do": "weight", "to": 2.5},  # the last word on row 8
    ]
    said = served.ask("refit", basket=basket, position=4)
    y = served.y.copy()
    y[5] = to if numbers else served.tracer.classes[to]
    weight = np.ones(len(y))
    weight[[8, 30, 31]] = 2.5
    before = served.loss(served.tracer.refit())
    after = served.loss(served.tracer.refit(without=[3], y=y, sample_weight=weight))
    change = after - before
    assert said["level"] == "refitted"
    np.testing.assert_allclose(said["row"]["before"]["loss"], before[4], rtol=1e-9)
    np.testing.assert_allclose(said["row"]["after"]["loss"], after[4], rtol=1e-9)
    np.testing.assert_allclose(said["all"]["before"], before.mean(), rtol=1e-9)
    np.testing.assert_allclose(said["all"]["after"], after.mean(), rtol=1e-9)
    np.testing.assert_allclose(said["all"]["change"], change.mean(), rtol=1e-9)
    half = student.ppf(0.975, len(change) - 1) * change.std(ddof=1) / len(change) ** 0.5
    interval = [change.mean() - half, change.mean() + half]
    np.testing.assert_allclose(said["all"]["interval"], interval, rtol=1e-6)
    assert (said["all"]["better"], said["all"]["worse"]) == ((change < 0).sum(), (change > 0).sum())


def test_retraining_is_the_librarys_own(people):
    """A model that LightGBM trains on the rest of the rows has the losses of the page."""
    gone = [3, 8, 11]
    question = {"basket": removal(*gone), "position": 4}
    assert people.ask("retrain", **question)["status"] in ("running", "done")
    said = wait_for(people, question, "done")
    kept = np.delete(np.arange(len(people.y)), gone)
    own = lightgbm.LGBMClassifier(**people.model.get_params()).fit(
        people.X.iloc[kept], people.y[kept]
    )
    loss = people.loss(own)
    assert said["done"] == said["total"] == 4
    assert said["effect"]["level"] == "retrained"
    np.testing.assert_allclose(said["effect"]["row"]["after"]["loss"], loss[4], rtol=1e-9)
    np.testing.assert_allclose(said["effect"]["all"]["after"], loss.mean(), rtol=1e-9)
    assert len(said["effect"]["controls"]["all"]) == 3
    assert people.ask("retrained", basket=removal(3), position=4) == {"status": "none"}
    other = people.ask("retrained", basket=removal(*gone), position=5)["effect"]
    np.testing.assert_allclose(other["row"]["after"]["loss"], loss[5], rtol=1e-9)


def wait_for(world, question, status):
    for _ in range(300):
        said = world.ask("retrained", **question)
        if said["status"] != "running":
            assert said["status"] == status, said
            return said
        time.sleep(0.05)
    raise AssertionError("still running")


def test_retraining_can_be_cancelled(people, monkeypatch):
    told = threading.Event()

    def endless(_):
        while is_wanted():
            time.sleep(0.01)
        told.set()
        raise Stopped

    monkeypatch.setattr(baskets.Basket, "retrain", endless)
    question = {"basket": removal(1), "position": 4}
    people.ask("retrain", **question)
    assert people.ask("retrained", **question)["status"] == "running"
    assert people.ask("cancel", **question)["status"] == "cancelled"
    assert told.wait(5)  # the training itself was ended


def test_failed_retraining_says_why(people, monkeypatch):
    def fails(_):
        raise lt.InvalidInput("no rows are left.")

    monkeypatch.setattr(baskets.Basket, "retrain", fails)
    question = {"basket": removal(2), "position": 4}
    people.ask("retrain", **question)
    assert wait_for(people, question, "failed")["error"] == "no rows are left."


def test_controls_change_as_many_rows(served):
    session = served.explorer.session
    numbers = served.tracer.classes is None
    to = 500.0 if numbers else 1
    items = [*removal(3, 8, 9), {"rows": [20, 21, 22], "do": "relabel", "to": to}]
    items.append({"rows": [30], "do": "weight", "to": 2})
    basket = baskets.read_basket(session, items)
    random = basket.random_like(np.random.default_rng(0))
    assert len(random.removed) == 3
    assert random.factor[random.reweighted].tolist() == [2]
    assert len(random.relabelled) == len(basket.relabelled)
    old, new = (np.sort(b.tracer.y_train[b.relabelled]) for b in (basket, random))
    if numbers:
        steps = [b.labels[b.relabelled] - b.tracer.y_train[b.relabelled] for b in (basket, random)]
        np.testing.assert_allclose(np.sort(steps[0]), np.sort(steps[1]))
    else:
        assert old.tolist() == new.tolist()
        assert set(random.labels[random.relabelled]) == set(basket.labels[basket.relabelled])
    question = {"basket": items, "position": 4}
    said = served.ask("controls", **question)
    assert len(set(said["all"])) == len(said["row"]) == 5
    assert served.ask("controls", **question) == said
    by_hand = session.tracer.refit(**basket_arguments(basket, 2))
    change = served.loss(by_hand) - served.loss(session.tracer.refit())
    np.testing.assert_allclose(said["all"][2], change.mean(), rtol=1e-7)
    np.testing.assert_allclose(said["row"][2], change[4], rtol=1e-7)


def basket_arguments(basket, number):
    """The training set of a control, drawn again from its seed."""
    seed = [int(basket.hash[:8], 16), number]
    random = basket.random_like(np.random.default_rng(seed))
    weight = np.where(random.factor == 0, 1, random.factor)
    return {"without": random.removed, "y": random.labels, "sample_weight": weight}


def test_results_are_kept_by_what_a_basket_does(people, monkeypatch):
    people.ask("refit", basket=removal(40, 41), position=4)

    def refuse(_):
        raise AssertionError("refitted again")

    monkeypatch.setattr(baskets.Basket, "refit", refuse)
    same = [*removal(41), {"rows": [40], "do": "weight", "to": 3}, *removal(40)]
    assert people.ask("refit", basket=same, position=9)["level"] == "refitted"
    hashes = [people.ask("basket", basket=b, position=4)["hash"] for b in (removal(40, 41), same)]
    assert hashes[0] == hashes[1]
    assert people.ask("basket", basket=removal(40), position=4)["hash"] != hashes[0]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"rows": [10_000], "do": "remove"}, "positions of training rows"),
        ({"rows": [], "do": "remove"}, "positions of training rows"),
        ({"rows": [1.5], "do": "remove"}, "positions of training rows"),
        ({"rows": [True], "do": "remove"}, "positions of training rows"),
        ({"rows": [1], "do": "burn"}, "do='burn'"),
        ({"rows": [1], "do": "weight", "to": 0}, "above 0"),
        ({"rows": [1], "do": "weight", "to": "5"}, "above 0"),
        ({"rows": [1], "do": "relabel", "to": 7}, "no class number 7"),
        ({"group": {"by": "job", "number": 9}, "do": "remove"}, "no group 9"),
        ({"group": {"by": "<b>", "number": 0}, "do": "remove"}, "no column"),
        ({"region": {"x": "age", "y": "hours", "points": [[0, 0]]}, "do": "remove"}, "corners"),
        ("all", "is an object"),
    ],
)
def test_bad_items_are_refused(people, item, message):
    assert message in people.ask("basket", 422, basket=[item], position=4)["error"]


def test_a_class_without_rows_is_refused(people):
    group = {"group": {"by": "(label)", "number": 0}, "do": "remove"}
    assert "class" in people.ask("refit", 422, basket=[group], position=4)["error"]


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
    assert "after  all" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other data or model"):
        names["repeat"](people.tracer, people.X_test[::-1], people.y_test[::-1])


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


# ---- who can read it ----


def test_every_address_needs_the_token(people):
    client = people.client
    assert client.request("GET", "")[0] == 200
    wrong = client.path[:-2] + ("a" if client.path[-2] != "a" else "b") + "/"
    for path in (
        "/",
        "/favicon.ico",
        wrong,
        wrong + "static/main.js",
        client.path[:-1],
        "//",
        "/%C3%A9/",
    ):
        assert client.request("GET", path)[0] == 404, path
    assert client.request("POST", wrong + "api/facts", {})[0] == 404
    assert len(client.path) > 30


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),  # another port
        ({"Host": "127.0.0.1:80.evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://{host}"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Origin": "http://{host}", "Sec_Fetch_Site": "same-origin"}, 200),
    ],
)
def test_host_and_origin(people, method, headers, status):
    given = {name: value.format(host=people.client.host) for name, value in headers.items()}
    path, body = ("", None) if method == "GET" else ("api/facts", {})
    assert people.client.request(method, path, body, **given)[0] == status


def test_a_link_may_open_the_page_but_nothing_else(people):
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert people.client.request("GET", "", **link)[0] == 200
    assert people.client.request("GET", "static/main.js", **link)[0] == 403
    assert people.client.request("POST", "api/facts", {}, **link)[0] == 403


def test_requests_are_small_json_objects(people):
    client = people.client
    assert client.request("POST", "api/facts", "{}", Content_Type="text/plain")[0] == 415
    assert client.request("POST", "api/facts", "{}")[0] == 415
    assert client.request("POST", "api/facts", [1])[0] == 400
    assert client.request("POST", "api/facts", "{", Content_Type="application/json")[0] == 400
    assert client.request("POST", "api/nothing", {})[0] == 404
    assert client.request("POST", "api/_basket", {})[0] == 404
    assert client.request("GET", "api/facts")[0] == 405
    length = {"Content_Length": "4000001", "Content_Type": "application/json"}
    assert client.request("POST", "api/facts", "{}", **length)[0] == 413


def test_headers_forbid_what_the_page_does_not_need(people):
    answers = [
        people.client.request("GET", path) for path in ("", "static/main.js", "/", "static/no.js")
    ]
    answers.append(people.client.request("POST", "api/facts", {}))
    for _, headers, _ in answers:
        policy = headers["content-security-policy"]
        assert (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy
        )
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_only_the_files_of_the_page_are_given(people):
    for name in ("..%2fserver.py", "%2e%2e/server.py", "..\\server.py", "/etc/passwd", "report.js"):
        assert people.client.request("GET", f"static/{name}")[0] in (404, 403, 405), name
    assert people.client.request("GET", "static/report.css")[0] == 200


def test_the_page_has_no_inline_script_and_writes_no_markup():
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>", page) == ['<script type="module" src="static/main.js">']
    assert not re.search(r"\son\w+=|<style|style=|https?:", page)
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|srcdoc"
    for path in STATIC.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(forbidden, text), path.name
        assert re.findall(r"https?://[^\"]*", text) in ([], ["http://www.w3.org/2000/svg"])


def test_the_socket_listens_on_loopback_only(people):
    assert people.explorer.address.startswith("http://127.0.0.1:")
    assert repr(people.explorer) == f"Explorer({people.explorer.address})"
    assert people.explorer.address in people.explorer._repr_html_()


# ---- starting it ----


def test_a_port_that_is_taken_is_an_error(people):
    taken = int(people.client.host.rpartition(":")[2])
    with pytest.raises(lt.InvalidInput, match=f"port {taken} cannot be used"):
        lt.explore(people.tracer, people.X_test, people.y_test, port=taken, open_browser=False)


def test_labels_are_needed(people):
    with pytest.raises(lt.InvalidInput, match="with their labels"):
        Session(people.tracer, people.X_test, None)
    with pytest.raises(lt.InvalidInput, match=r"leaftrace\.Tracer"):
        lt.explore(people.model, people.X_test, people.y_test)


def test_the_address_is_printed_and_closing_ends_it(people, capsys):
    with lt.explore(people.tracer, people.X_test, people.y_test, open_browser=False) as explorer:
        assert capsys.readouterr().out == f"{explorer.address}\n"
        client = Client(explorer.address)
        assert client.ask("facts")["test_rows"] == len(people.y_test)
    with pytest.raises(ConnectionError):
        client.ask("facts")


def test_the_browser_is_opened_by_a_private_file(people, monkeypatch):
    """Other users of the machine see arguments of processes, so the address is not one of them."""
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with lt.explore(people.tracer, people.X_test, people.y_test) as explorer:
        assert explorer.address not in opened[0]
        assert explorer.address.split("/")[3] not in opened[0]
        link = Path(url2pathname(urlsplit(opened[0]).path))
        assert f"url={explorer.address}" in link.read_text(encoding="utf-8")
        if sys.platform != "win32":
            assert link.stat().st_mode & 0o077 == 0
    assert not link.exists()


def test_models_without_derivatives_can_be_explored():
    _, X, y, X_test, y_test = homes(320)
    model = lightgbm.LGBMRegressor(
        objective="l1", n_estimators=4, num_leaves=4, verbose=-1, n_jobs=1
    ).fit(X, y)
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    with lt.explore(tracer, X_test, y_test, open_browser=False) as explorer:
        client = Client(explorer.address)
        assert "derivative" in client.ask("row", position=1)["missing"]
        assert "missing" in client.ask("basket", basket=removal(1), position=1)["effect"]
        said = client.ask("refit", basket=removal(1), position=1)
        after = np.abs(y_test - tracer.refit([1]).predict(X_test))
        assert said["all"]["after"] == pytest.approx(after.mean())


# ---- the command ----


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for other processes")
def test_the_first_line_of_the_command_is_the_address(here):
    command = [sys.executable, "-m", "leaftrace", "explore", "lgb.txt", *DATA, *TEST, "--no-open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=here, **pipes) as process:
        try:
            address = process.stdout.readline().strip()
            facts = Client(address).ask("facts")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert facts["classes"] == ["no", "yes"]
    assert "the page is closed" in errors
    assert process.returncode == 130


def test_the_command_refuses_what_it_cannot_do(here, capsys):
    command = ("explore", "lgb.txt", *DATA, *TEST, "--no-open")
    assert main([*command, "--json"]) == 2
    assert "has no --json" in capsys.readouterr().err
    assert main([*command, "--port", "70000"]) == 2
    assert "65535" in capsys.readouterr().err
