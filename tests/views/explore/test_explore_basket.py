"""Effects of a basket in the explorer: first order, refits, retraining and controls are the library's numbers."""

import threading
import time

import lightgbm
import numpy as np
import pytest
from explore_world import Client, World, homes, removal
from scipy.stats import t as student

import leaftrace as lt
from leaftrace._data.stopping import Stopped, is_wanted
from leaftrace._views.explore import basket as baskets


def test_first_order_of_removals(served):
    said = served.ask("basket", basket=removal(3, 8, 11), position=4)
    rows = [3, 8, 11]
    one = served.tracer.influence(served.X_test.iloc[[4]], served.y_test[[4]]).values[rows, 0]
    mean = served.tracer.influence(served.X_test, served.y_test, reduce="mean").values[rows, 0]
    assert said["effect"]["level"] == "first order"
    row, every = -one.sum(), -mean.sum()
    if served.tracer.classes is None:  # d sqrt(2 L) = dL / sqrt(2 L)
        loss = served.loss(served.model)
        row, every = row / np.sqrt(2 * loss[4]), every / np.sqrt(2 * loss.mean())
    np.testing.assert_allclose(said["effect"]["row"]["change"], row, rtol=1e-5)
    np.testing.assert_allclose(said["effect"]["all"]["change"], every, rtol=1e-5)


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
        assert said["all"]["after"] == pytest.approx(np.sqrt(2 * loss.mean()), rel=1e-12)
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
    shown = served.shown
    moved = shown(after) - shown(before)
    np.testing.assert_allclose(said["row"]["change"], moved[4], rtol=1e-9)
    if numbers:
        errors = np.abs(served.y_test[4] - served.model.predict(served.X_test)[4])
        np.testing.assert_allclose(said["row"]["before"]["error"], errors, rtol=1e-9)
    np.testing.assert_allclose(said["all"]["before"], shown(before.mean()), rtol=1e-9)
    np.testing.assert_allclose(said["all"]["after"], shown(after.mean()), rtol=1e-9)
    rise = shown(after.mean()) - shown(before.mean())
    np.testing.assert_allclose(said["all"]["change"], rise, rtol=1e-8)
    half = student.ppf(0.975, len(change) - 1) * change.std(ddof=1) / len(change) ** 0.5
    ends = before.mean() + change.mean() + np.array([-half, half])
    interval = shown(ends) - shown(before.mean())
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
    after, before = served.loss(by_hand), served.loss(session.tracer.refit())
    rise = served.shown(after.mean()) - served.shown(before.mean())
    np.testing.assert_allclose(said["all"][2], rise, rtol=1e-7)
    rise = served.shown(after[4]) - served.shown(before[4])
    np.testing.assert_allclose(said["row"][2], rise, rtol=1e-7)


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
