"""The report: numbers against the boosters' own and NumPy, and the page with hostile data."""

import base64
import builtins
import hashlib
import json
import os
import re
import stat
from functools import cache, partial
from html.parser import HTMLParser
from itertools import islice

import boosters
import hostile
import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier, Pool
from lightgbm import LGBMClassifier
from scipy.sparse import csc_matrix
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from xgboost import XGBClassifier

import leaftrace as lt
from leaftrace._actions.noise.action import label_noise
from leaftrace._engine.engine import Engine
from leaftrace._views.report import page

# The explorer inside has tests of its own.
report = partial(lt.report, explorer=False)

QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}


@cache
def categories():
    """CatBoost with a string column, missing values and weights: (model, data, tracer)."""
    d = boosters.frame()
    X, X_test = (part.assign(kind=part["kind"].astype(str)) for part in (d.X, d.X_test))
    w = boosters.weights(len(d.y))
    model = CatBoostClassifier(iterations=20, depth=4, cat_features=["kind"], **QUIET).fit(
        X, d.y, sample_weight=w
    )
    return model, X, d.y, w, X_test, d.y_test, lt.Tracer(model, X, d.y, w)


@cache
def wine():
    d = boosters.three_classes(text=True)
    model = LGBMClassifier(n_estimators=8, min_child_samples=5, verbose=-1, n_jobs=1).fit(d.X, d.y)
    return model, d, lt.Tracer(model, d.X, d.y)


@cache
def diabetes():
    d = boosters.numbers()
    model = GradientBoostingRegressor(n_estimators=15).fit(d.X, d.y)
    return model, d, lt.Tracer(model, d.X, d.y)


def data_of(*args, **kw):
    """Return the data of a report, written to JSON and read back."""
    data = report(*args, **{"noise": False} | kw).data
    again = json.loads(json.dumps(data, allow_nan=False))
    assert again == data
    return data


# ---- numbers ----


def test_the_worst_rows_by_the_boosters_own_probabilities():
    model, _, _, _, X_test, y_test, tracer = categories()
    data = data_of(tracer, X_test, y_test, worst=6, top=3)
    p = model.predict_proba(X_test)
    right = p[np.arange(len(p)), np.searchsorted(model.classes_, y_test)]
    worst = np.argsort(right)[:6]
    assert [c["position"] for c in data["cases"]] == worst.tolist()
    assert [c["row"] for c in data["cases"]] == list(X_test.index[worst])
    assert [c["label"] for c in data["cases"]] == y_test[worst].tolist()
    assert [c["predicted"] for c in data["cases"]] == model.predict(X_test)[worst].tolist()
    np.testing.assert_allclose([c["probability"] for c in data["cases"]], right[worst], rtol=1e-9)
    np.testing.assert_allclose([c["loss"] for c in data["cases"]], -np.log(right[worst]), rtol=1e-9)
    assert data["test"]["mean_loss"] == pytest.approx(-np.log(right).mean())
    assert data["test"]["accuracy"] == pytest.approx(np.mean(model.predict(X_test) == y_test))
    assert sum(data["test"]["histogram"]["counts"]) == len(y_test)
    assert data["model"]["rows"] == 400
    assert data["model"]["weighted"]
    assert data["fidelity"]["exact"]


def test_training_rows_of_a_case_and_their_features():
    _, X, y, w, X_test, y_test, tracer = categories()
    data = data_of(tracer, X_test, y_test, rows=[3, 11], top=4)
    change = -w[:, None] * tracer.influence(X_test.iloc[[3, 11]], y_test[[3, 11]]).values
    for j, case in enumerate(data["cases"]):
        harmful = np.argsort(change[:, j])[:4]
        helpful = np.argsort(-change[:, j])[:4]
        rows = case["training_rows"]
        assert [r["position"] for r in rows] == [*harmful, *helpful]
        assert [r["effect"] for r in rows] == ["harmful"] * 4 + ["helpful"] * 4
        assert [r["rank"] for r in rows] == [1, 2, 3, 4] * 2
        np.testing.assert_allclose(
            [r["change"] for r in rows], change[[*harmful, *helpful], j], rtol=1e-6
        )
        assert case["columns"] == used_most_first(tracer, X_test)
        ours = X_test.iloc[[3, 11][j]]
        for r in rows:
            assert r["row"] == X.index[r["position"]]
            assert r["label"] == y[r["position"]]
            assert r["weight"] == pytest.approx(w[r["position"]])
            for name, value, mark in zip(case["columns"], r["values"], r["marks"], strict=True):
                theirs = X.iloc[r["position"]][name]
                assert value is None if pd.isna(theirs) else value == theirs
                if pd.isna(theirs) and pd.isna(ours[name]):
                    assert mark == "="
                elif pd.isna(theirs) or pd.isna(ours[name]) or isinstance(theirs, str):
                    assert mark == ("=" if theirs == ours[name] else "!")
                elif 0 < abs(theirs - ours[name]) < X[name].std(ddof=0):
                    assert mark == "~"
                else:
                    assert mark == (
                        "=" if theirs == ours[name] else ">" if theirs > ours[name] else "<"
                    )


def used_most_first(tracer, X_test):
    """Columns by the mean move of the scores when test rows exchange their values."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(X_test), min(len(X_test), 200), replace=False))
    X = X_test.iloc[rows]
    other = np.roll(rng.permutation(len(rows)), 1)
    scores = tracer.engine.unchanged.scores
    moves = []
    for name in X.columns:
        mixed = X.assign(**{name: X[name].iloc[other].array})
        moves.append(np.abs(scores(mixed) - scores(X)).mean())
    return X.columns[np.argsort(-np.array(moves), kind="stable")].tolist()


def test_without_the_harmful_rows_by_training_again():
    _, X, y, w, X_test, y_test, tracer = categories()
    data = data_of(tracer, X_test, y_test, worst=2, top=5, retrain=True)
    for case in data["cases"]:
        gone = [r["position"] for r in case["training_rows"] if r["effect"] == "harmful"]
        keep = np.setdiff1d(np.arange(len(y)), gone)
        again = CatBoostClassifier(
            iterations=20, depth=4, cat_features=["kind"], learning_rate=_rate(tracer), **QUIET
        )
        again.fit(X.iloc[keep], y[keep], sample_weight=w[keep])
        one = X_test.iloc[[case["position"]]]
        code = list(again.classes_).index(case["label"])
        removal = case["removal"]
        assert (removal["rows"], removal["effect"]) == (5, "harmful")
        assert removal["before"]["loss"] == case["loss"]
        assert removal["retrained"]["probability"] == pytest.approx(
            again.predict_proba(one)[0, code]
        )
        refitted = tracer.refit(gone).predict_proba(one)[0, code]
        assert removal["refitted"]["probability"] == pytest.approx(refitted)
        assert removal["refitted"]["loss"] == pytest.approx(-np.log(refitted))
        assert removal["refitted"]["loss"] < case["loss"]


def test_removals_leave_every_class():
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.zeros(60, int)
    y[:2] = 1
    model = CatBoostClassifier(iterations=5, depth=2, boost_from_average=True, **QUIET).fit(X, y)
    found = report(
        lt.Tracer(model, X, y), X, y, rows=[0, 30, 40, 50], top=20, retrain=True, noise=False
    )
    lost = 0
    for case in found.data["cases"]:
        gone = {r["position"] for r in case["training_rows"] if r["effect"] == "harmful"}
        assert (case["removal"] is None) == (gone >= {0, 1})
        lost += gone >= {0, 1}
    assert 0 < lost < 4
    assert f"what happens to {lost} of the test rows without" in found.html


def _rate(tracer):
    return float(tracer.engine.ensemble.learning_rate)


def test_whole_test_set():
    _, d, tracer = wine()
    overall = data_of(tracer, d.X_test, d.y_test, worst=1, top=3)["overall"]
    every = tracer.influence(d.X_test, d.y_test).values.mean(axis=1)
    rows = overall["training_rows"]
    assert [r["position"] for r in rows] == [*np.argsort(-every)[:3], *np.argsort(every)[:3]]
    np.testing.assert_allclose(
        [r["change"] for r in rows], -every[[r["position"] for r in rows]], rtol=1e-4
    )
    assert [r["values"] for r in rows] == [d.X[r["position"]].tolist() for r in rows]


def test_noise_floor_is_shown_once_it_was_measured():
    """Lines have the mark of `Influence.top`, and the page a column for it."""
    rng = np.random.default_rng(2)
    X = pd.DataFrame(rng.normal(size=(150, 3)), columns=list("abc"))
    y = (X.a + rng.normal(size=150) > 0).to_numpy().astype(int)
    w = np.ones(100)
    w[4] = 80.0
    model = LGBMClassifier(n_estimators=5, num_leaves=5, verbose=-1, n_jobs=1)
    tracer = lt.Tracer(model.fit(X[:100], y[:100], sample_weight=w), X[:100], y[:100], w, n_jobs=1)
    arguments = (tracer, X[100:], y[100:])
    page = lt.report(*arguments, worst=3, top=4, noise=False)
    assert page.data["noise_floor"] is None
    assert page.data["cases"][0]["training_rows"][0]["above_noise"] == ""
    assert "above noise</th>" not in page.html
    assert "first order, trees fixed</span></th>" in page.html
    tracer.noise_floor(X[100:], y[100:], repeats=4)
    page = lt.report(*arguments, worst=3, top=4, noise=False)
    assert page.data["noise_floor"] == "4 retrainings without a random row"
    assert "above noise</th>" in page.html
    influence = tracer.influence(X[100:], y[100:])
    for case in page.data["cases"]:
        noise = influence.noise[case["position"]]
        for line in case["training_rows"]:
            assert line["above_noise"] == ("yes" if abs(line["change"]) > noise else "no")
    mean = tracer.influence(X[100:], y[100:], reduce="mean").noise[0]
    for line in page.data["overall"]["training_rows"]:
        assert line["above_noise"] == ("yes" if abs(line["change"]) > mean else "no")


def test_classes_and_their_probabilities():
    model, d, tracer = wine()
    case = data_of(tracer, d.X_test, d.y_test, rows=[2], top=2)["cases"][0]
    p = model.predict_proba(d.X_test)[2]
    order = np.argsort(-p)
    assert [x["label"] for x in case["probabilities"]] == model.classes_[order].tolist()
    np.testing.assert_allclose([x["probability"] for x in case["probabilities"]], p[order])
    assert sorted(case["columns"]) == sorted(f"column {j}" for j in range(13))  # an array


def test_numbers():
    model, d, tracer = diabetes()
    data = data_of(tracer, d.X_test, d.y_test, worst=3, top=2)
    error = (model.predict(d.X_test) - d.y_test) ** 2 / 2
    for case, row in zip(data["cases"], np.argsort(-error)[:3], strict=True):
        assert case["position"] == row
        assert case["prediction"] == pytest.approx(model.predict(d.X_test)[row])
        assert case["loss"] == pytest.approx(error[row])
        assert case["label"] == d.y_test[row]
        assert "predicted" not in case
    assert data["test"]["accuracy"] is None
    assert "probability" not in report(tracer, d.X_test, d.y_test, worst=1, noise=False).html


def test_labels_are_written_as_predictions_are():
    _, d, _ = diabetes()
    y = 1_234_567.0 + d.y
    model = GradientBoostingRegressor(n_estimators=5).fit(d.X, y)
    page = report(lt.Tracer(model, d.X, y), d.X_test[:1], y[:1], noise=False, explorer=False).html
    for written in (f">label </span>{y[0]:,.0f}<", f'<b class="label">{y[0]:,.0f}</b>'):
        assert written in page


def test_without_labels_it_is_about_predictions():
    model, _, _, w, X_test, _, tracer = categories()
    data = data_of(tracer, X_test, worst=20, top=2)
    p = model.predict_proba(X_test)
    assert data["of"] == "prediction"
    assert data["overall"] is None
    assert [c["position"] for c in data["cases"]] == np.argsort(
        p.max(axis=1), kind="stable"
    ).tolist()
    change = -w[:, None] * tracer.influence(X_test, of="prediction").values
    sides = set()
    for case in data["cases"]:
        row = case["position"]
        assert case["loss"] is None
        assert case["label"] is None
        raised = [r for r in case["training_rows"] if r["effect"] == "raises"]
        assert [r["position"] for r in raised] == np.argsort(change[:, row])[:2].tolist()
        # The removed rows support the prediction, so the probability of its class falls.
        assert case["removal"]["refitted"]["probability"] < case["probability"]
        assert case["probability"] == pytest.approx(p[row].max())
        sides.add(case["removal"]["effect"])
    assert sides == {"raises", "lowers"}
    assert (
        "without this training row the raw score falls"
        in report(tracer, X_test, worst=1, noise=False).html
    )


def test_a_forest_and_its_votes():
    d = boosters.binary()
    forest = RandomForestClassifier(15, random_state=0, n_jobs=1).fit(d.X, d.y)
    data = data_of(lt.Tracer(forest, d.X, d.y), d.X_test, d.y_test, worst=2, top=2)
    p = forest.predict_proba(d.X_test)
    for case in data["cases"]:
        assert case["probability"] == pytest.approx(p[case["position"], case["label"]])


def test_leaves_without_derivatives():
    d = boosters.numbers()
    model = GradientBoostingRegressor(loss="absolute_error", n_estimators=5).fit(d.X, d.y)
    tracer = lt.Tracer(model, d.X, d.y)
    found = report(tracer, d.X_test, d.y_test, worst=3, noise=False)
    assert "median" in found.data["missing"][0]["why"]
    error = np.abs(model.predict(d.X_test) - d.y_test)
    assert [c["position"] for c in found.data["cases"]] == np.argsort(-error)[:3].tolist()
    assert all(c["training_rows"] == [] and c["removal"] is None for c in found.data["cases"])
    assert "Not in this report: training rows behind each test row" in found.html


def test_sparse_rows_and_pools():
    d = boosters.binary()
    X = csc_matrix(d.X)
    X_test = csc_matrix(d.X_test)
    model = XGBClassifier(n_estimators=5, n_jobs=1).fit(X, d.y)
    case = data_of(lt.Tracer(model, X, d.y), X_test, d.y_test, rows=[4], top=1)["cases"][0]
    assert len(case["columns"]) == 16  # of 30
    place = [int(name.removeprefix("column ")) for name in case["columns"]]
    assert case["values"] == d.X_test[4, place].tolist()
    train = case["training_rows"][0]
    assert train["values"] == d.X[train["position"], place].tolist()

    _, _, _, _, X_test, y_test, tracer = categories()
    pool = Pool(X_test, y_test, cat_features=["kind"])
    data = data_of(tracer, pool, worst=2)  # it has its own labels
    assert [c["label"] for c in data["cases"]] == [y_test[c["position"]] for c in data["cases"]]
    assert data["missing"][0]["part"] == "features"
    assert data["cases"][0]["columns"] == []
    assert data["hashes"]["test table"].startswith("not hashed")


def test_other_kinds_of_cells():
    n = 60
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": rng.normal(size=n),
            "when": pd.date_range("2024-01-01", periods=n),
            "nullable": pd.array([1, None] * (n // 2), dtype="Int64"),
            "flag": rng.random(n) < 0.5,
            "level": pd.Categorical(rng.choice(["x", "y"], n)),
            "list": [[i, 2] for i in range(n)],
            "far": np.where(np.arange(n) == 0, np.inf, 1.0),
        },
        index=pd.MultiIndex.from_product([["p", "q"], range(n // 2)], names=["part", "number"]),
    )
    y = (X["a"] > 0).to_numpy(int)
    model, *_ = hostile.hostile()
    model = model.fit(X, y)
    tracer = lt.Tracer(model, X, y)
    case = data_of(tracer, X[::-1], y[::-1], rows=[n - 1], top=3)["cases"][0]  # the first row
    assert case["row"] == "('p', 0)"
    shown = dict(zip(case["columns"], case["values"], strict=True))
    assert shown["when"] == "2024-01-01T00:00:00"
    assert shown["nullable"] == 1
    assert shown["far"] == "inf"
    assert shown["flag"] is bool(X["flag"].iloc[0])
    assert shown["list"] == "[0, 2]"
    assert shown["level"] == X["level"].iloc[0]
    hidden = data_of(tracer, X, y, rows=[5], redact=["part"])["cases"][0]
    assert hidden["row"] == 5


def test_test_columns_in_another_order():
    _, _, _, _, X_test, y_test, tracer = categories()
    mixed = X_test[["kind", "d", "a", "c", "b"]].assign(more=1)
    assert (
        data_of(tracer, mixed, y_test, worst=2)["cases"]
        == data_of(tracer, X_test, y_test, worst=2)["cases"]
    )


def test_groups_are_those_of_the_action():
    _, X, _, w, X_test, y_test, tracer = categories()
    found = report(tracer, X_test, y_test, worst=1, groups="kind", noise=False)
    groups = found.data["groups"]
    change = -w * tracer.influence(X_test, y_test, reduce="mean").values[:, 0]
    before = tracer.refit().loss(X_test, y_test).mean()
    assert groups["slices"] == [{"name": "all", "rows": 20, "before": pytest.approx(before)}]
    assert {g["name"] for g in groups["groups"]} == {"red", "green", "blue"}
    for g in groups["groups"]:
        member = (X["kind"] == g["name"]).to_numpy()
        assert g["rows"] == member.sum()
        assert g["effects"][0]["predicted"] == pytest.approx(change[member].sum(), rel=1e-4)
        refitted = tracer.refit(np.flatnonzero(member)).loss(X_test, y_test).mean() - before
        assert g["effects"][0]["refitted"] == pytest.approx(refitted)
    many = report(tracer, X_test, y_test, worst=1, groups=np.arange(400) % 40, noise=False).data[
        "groups"
    ]
    assert len(many["groups"]) == 30
    assert many["left_out"] == 10
    assert many["groups"][0]["effects"][0]["refitted"] is None
    with pytest.raises(lt.InvalidInput, match="pass y_test"):
        report(tracer, X_test, groups="kind")
    with pytest.raises(lt.InvalidInput, match="groups names the column 'nothing'"):
        report(tracer, X_test, y_test, groups="nothing")


def test_suspects_are_those_of_the_action():
    _, X, y, _, X_test, y_test, tracer = categories()
    noise = data_of(tracer, X_test, y_test, worst=1, noise=7)["noise"]
    found = label_noise(tracer)
    table = found.rank(7)
    rows = noise["training_rows"]
    assert [r["row"] for r in rows] == table["train_row"].tolist()
    assert [r["label_score"] for r in rows] == table["label_score"].tolist()
    assert [r["predicted_label"] for r in rows] == table["predicted_label"].tolist()
    assert [r["is_label_issue"] for r in rows] == table["is_label_issue"].tolist()
    assert [r["given_label"] for r in rows] == [y[r["position"]] for r in rows]
    assert noise["flagged"] == len(found.issues)
    for r in rows:
        shown = dict(zip(noise["columns"], r["values"], strict=True))
        assert shown["kind"] == X["kind"].iloc[r["position"]]
    assert len(report(tracer, X_test, y_test, worst=1).data["noise"]["training_rows"]) == 30
    _, d, tracer = diabetes()
    numbers = data_of(tracer, d.X_test, d.y_test, worst=1, noise=5)["noise"]
    assert numbers["numeric"]
    assert [r["given_label"] for r in numbers["training_rows"]] == [
        d.y[r["position"]] for r in numbers["training_rows"]
    ]


def test_never_all_columns_at_once(monkeypatch):
    _, d, tracer = diabetes()
    widths = []
    real = lt.Tracer.influence

    def spy(self, *args, **kw):
        out = real(self, *args, **kw)
        widths.append(out.shape[1])
        return out

    monkeypatch.setattr(lt.Tracer, "influence", spy)
    monkeypatch.setattr(
        Engine, "scores_without", lambda self, *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    data = data_of(tracer, d.X, d.y, rows=np.arange(100), top=1)
    assert max(widths) <= 32
    assert sum(widths) == 100  # Ctrl-C came before the whole test set
    assert len(data["cases"]) == 100


def test_ctrl_c_keeps_what_is_finished(monkeypatch):
    _, d, tracer = diabetes()
    real = Engine.scores_without

    def interrupted(self, *asked):
        yield from islice(real(self, *asked), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "scores_without", interrupted)
    found = report(tracer, d.X_test, d.y_test, worst=5)
    assert [c["removal"] is not None for c in found.data["cases"]] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert found.data["missing"][0]["why"] == "it was stopped by Ctrl-C"
    assert "stopped by Ctrl-C" in found.html


# ---- what must not be shown ----


def test_redacted_columns_are_nowhere():
    model, X, y, X_test, y_test = hostile.hostile()
    X, X_test = (
        part.assign(secret=[f"personal-{i}" for i in range(len(part))]) for part in (X, X_test)
    )
    tracer = lt.Tracer(model, X, y)
    open_page = report(tracer, X_test, y_test, worst=2, noise=False)
    assert "personal-" in open_page.html
    assert "personal-" in str(open_page.data)
    hidden = report(tracer, X_test, y_test, worst=2, redact=["secret", "index"], noise=False)
    for text in (hidden.html, json.dumps(hidden.data)):
        assert "personal-" not in text
        assert "secret" not in text
        assert "passport" not in text
    assert [c["row"] for c in hidden.data["cases"]] == [c["position"] for c in hidden.data["cases"]]
    assert "2 left out on request" in hidden.html
    by_name = report(tracer, X_test, y_test, worst=2, redact="<u>passport</u>", noise=False)
    assert by_name.data["cases"][0]["row"] == by_name.data["cases"][0]["position"]
    with pytest.raises(lt.InvalidInput, match="redact names 'nobody', but there is no such column"):
        report(tracer, X_test, y_test, redact=["nobody"])
    with pytest.raises(lt.InvalidInput, match="'secret', which is redacted"):
        report(tracer, X_test, y_test, groups="secret", redact=["secret"])


# ---- the page ----


class Reader(HTMLParser):
    """A parser that collects tags, attributes and text as a browser would."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.attributes = []
        self.text = []
        self._within = []
        self.scripts = []
        self.styles = []
        self.titles = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._within.append(tag)

    def handle_endtag(self, tag):
        if tag in self._within:
            while self._within.pop() != tag:
                pass

    def handle_data(self, data):
        tag = self._within[-1] if self._within else ""
        {"script": self.scripts, "style": self.styles, "title": self.titles}.get(
            tag, self.text
        ).append(data)


@pytest.fixture(scope="module")
def evil():
    model, X, y, X_test, y_test = hostile.hostile()
    tracer = lt.Tracer(model, X, y)
    kind = hostile.COLUMNS[2]
    return report(
        tracer,
        X_test,
        y_test,
        worst=15,
        top=6,
        groups=kind,
        test_groups=kind,
        title=hostile.STRINGS[1],
    )


def test_hostile_strings_stay_text(evil):
    seen = Reader(evil.html)
    assert seen.tags.count("script") == 2  # the data and the page's own
    assert seen.tags.count("style") == 1
    assert not {"img", "iframe", "object", "embed", "form", "base"} & set(seen.tags)
    assert not [name for _, name, _ in seen.attributes if name.startswith("on") or name == "style"]
    links = [value for _, name, value in seen.attributes if name in ("href", "src", "action")]
    assert all(link.startswith("#") or link == "data:," for link in links)
    whole = "".join(seen.text) + "".join(
        value or "" for _, name, value in seen.attributes if name == "title"
    )
    for text in hostile.STRINGS[:7] + hostile.STRINGS[9:]:
        assert text in whole
    assert hostile.COLUMNS[4] in whole
    assert "".join(seen.titles) == hostile.STRINGS[1]
    assert "\ud800" not in evil.html
    assert "\x00" not in evil.html
    evil.html.encode()


def test_embedded_data_is_the_data(evil):
    inside = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', evil.html, re.S
    ).group(1)
    assert json.loads(inside) == evil.data
    assert not set("<>&\u2028\u2029") & set(inside)


def test_the_policy_allows_this_style_and_script_and_no_request(evil):
    policy = next(
        v for _, n, v in Reader(evil.html).attributes if n == "content" and "default-src" in v
    )
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        content = re.search(f"<{tag}>(.*?)</{tag}>", evil.html, re.S).group(1)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"(https?:)?//[\w.]+\.\w", evil.html)


@pytest.mark.parametrize("text", ["personal " * 111, '"<&🌳\u2028' * 200])
def test_wide_tables_of_long_strings_stay_small(text):
    model, X, y, X_test, y_test = hostile.hostile(n=90, m=24)
    long = {
        f"column {j} {text}": [f"{i}{text}{i}" for i in range(len(X) + len(X_test))]
        for j in range(300)
    }
    more = pd.DataFrame(long, index=X.index.append(X_test.index), dtype=object)
    X, X_test = pd.concat([X, more[: len(X)]], axis=1), pd.concat([X_test, more[len(X) :]], axis=1)
    tracer = lt.Tracer(model, X, y)
    plain = report(tracer, X_test, y_test, noise=False)
    assert len(plain.html.encode()) < 5e6
    assert "16 of 305 columns, those with differences first" in plain.html
    assert len(plain.data["cases"][0]["values"][-1]) <= 201
    if text.startswith("personal"):
        assert "left out to keep this page" not in plain.html
        return
    most = report(tracer, X_test, y_test, worst=24, top=30, noise=False)
    assert len(most.html.encode()) < 5e6
    recorded = lt.report(tracer, X_test, y_test, worst=24, top=30, noise=False)
    assert (
        len(recorded.html.encode()) < 5e6
    )  # also with the explorer, or without if it is too large
    left = int(re.search(r"<b>(\d+) more test rows were left out", most.html).group(1))
    assert len(most.data["cases"]) == 24  # the data are complete
    assert Reader(most.html).tags.count("details") == 24 - left > 0


def test_columns_with_differences_come_first():
    model, X, y, X_test, y_test = hostile.hostile()
    same = pd.DataFrame({f"same {j}": 1 for j in range(20)}, index=X.index.append(X_test.index))
    X, X_test = pd.concat([same[: len(X)], X], axis=1), pd.concat([same[len(X) :], X_test], axis=1)
    model = model.set_params(functiontransformer__func=last_two_numbers).fit(X, y)
    case = report(lt.Tracer(model, X, y), X_test, y_test, worst=1, noise=False).data["cases"][0]
    assert set(case["columns"][:5]) == set(hostile.COLUMNS)
    assert case["columns"][5:] == [f"same {j}" for j in range(11)]


def last_two_numbers(X):
    return X[["a", "b"]].to_numpy(float)


def test_number_words():
    assert [page.number(x) for x in (None, 12345, 0.0, 0.28312, -1.5, 2e-9, 1234.5)] == [
        "–", "12,345", "0", "0.2831", "−1.500", "2.000e−09", "1,234",
    ]  # fmt: skip
    assert [page.signed(x) for x in (0.01, -0.0239, 0.0)] == ["+0.0100", "−0.0239", "+0"]
    assert [page.percent(p) for p in (0.0, 0.00031, 0.0084, 0.5, 0.999, 1.0)] == [
        "0.00 %", "0.031 %", "0.84 %", "50.0 %", "99.90 %", "100.00 %",
    ]  # fmt: skip


# ---- files ----


@pytest.fixture(scope="module")
def small():
    _, d, tracer = diabetes()
    return report(tracer, d.X_test, d.y_test, worst=1, noise=False)


def test_save(small, tmp_path):
    path = tmp_path / "report.html"
    mask = os.umask(0o022)
    try:
        small.save(path)
    finally:
        os.umask(mask)
    assert path.read_text(encoding="utf-8") == small.html
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # a colleague can read it
    assert os.listdir(tmp_path) == ["report.html"]
    assert "1 of 20 test rows" in repr(small)


def test_files_that_cannot_be_written(small, tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "no" / "report.html", tmp_path / "file" / "report.html", tmp_path):
        with pytest.raises(
            lt.LeaftraceError,
            match=r"cannot write the report .*; choose another place with 0\.\d MB",
        ):
            small.save(path)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_no_space(small):
    with pytest.raises(lt.LeaftraceError, match="No space left on device"):
        small.save("/dev/full")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_failed_save_leaves_the_old_file(small, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(lt.LeaftraceError, match="No space left"):
        small.save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


def test_without_jinja(small, monkeypatch):
    real = builtins.__import__

    def no_jinja(name, *args, **kw):
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *args, **kw)

    monkeypatch.setattr(builtins, "__import__", no_jinja)
    page._template.cache_clear()
    with pytest.raises(lt.LeaftraceError, match=r"pip install leaftrace\[report\]"):
        page.render(small.data)


# ---- input ----


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"top": 0}, "top is 0; a report shows 1 to 50"),
        ({"worst": 1000}, "worst is 1000; a report shows 1 to 200"),
        ({"noise": -1}, "noise is -1"),
        ({"rows": [20]}, "rows has 20, but positions of test rows go from 0 to 19"),
        ({"rows": [True]}, r"rows is a mask of shape \(1,\)"),
        ({"rows": []}, "no test rows to show"),
        ({"rows": np.zeros(300, int)}, "rows has 300 test rows; a report shows up to 200"),
    ],
)
def test_wrong_arguments(wrong, message):
    _, d, tracer = diabetes()
    with pytest.raises(lt.InvalidInput, match=message):
        report(tracer, d.X_test, d.y_test, **wrong)


def test_wrong_tables():
    model, d, tracer = diabetes()
    with pytest.raises(lt.InvalidInput, match=r"pass a leaftrace\.Tracer"):
        report(model, d.X_test, d.y_test)
    with pytest.raises(lt.InvalidInput, match="y_test has 3 values"):
        report(tracer, d.X_test, d.y_test[:3])
    with pytest.raises(lt.InvalidInput, match="no test rows"):
        report(tracer, d.X_test[:0], d.y_test[:0])
