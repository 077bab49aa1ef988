"""Small models for the explorer: incomes with wrong labels (two classes), seven grains, prices of homes."""

import http.client
import json
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest
from adult import DATA
from lightgbm import LGBMClassifier, LGBMRegressor

import leaftrace as lt

SETTINGS = {"num_leaves": 8, "verbose": -1, "n_jobs": 1}


def income(n=600):
    """Return (model, X, y, X_test, y_test): like Adult, with one training label in twenty wrong."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.integers(17, 90, n),
            "education": rng.integers(1, 17, n),
            "hours": rng.integers(1, 99, n).astype(float),
            "job": pd.Categorical(rng.choice(["Sales", "Tech", "Craft", "Exec"], n)),
        },
        index=[f"p{i:04d}" for i in range(n)],
    )
    score = 0.05 * (X.age - 45) + 0.4 * (X.education - 9) + 0.03 * (X.hours - 50)
    score += 1.5 * (X.job == "Exec")
    y = np.where(score + rng.logistic(size=n) > 0, ">50K", "<=50K")
    k = 3 * n // 4
    wrong = rng.choice(k, k // 20, replace=False)
    y[wrong] = np.where(y[wrong] == ">50K", "<=50K", ">50K")
    model = LGBMClassifier(n_estimators=15, **SETTINGS).fit(X[:k], y[:k])
    return model, X[:k], y[:k], X[k:], y[k:]


def grains(n=500):
    """Return the same for seven classes."""
    rng = np.random.default_rng(2)
    X = pd.DataFrame(rng.normal(size=(n, 3)).round(3), columns=["rain", "sun", "wind"])
    place = np.digitize(X.rain + X.sun + 0.3 * rng.normal(size=n), [-2, -1, -0.3, 0.3, 1, 2])
    names = np.array(["barley", "rye", "oats", "wheat", "maize", "rice", "millet"])
    y = names[place]
    model = LGBMClassifier(n_estimators=5, **SETTINGS).fit(X[:400], y[:400])
    return model, X[:400], y[:400], X[400:], y[400:]


def homes(n=400):
    """Return the same for numbers."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"rooms": rng.integers(1, 9, n), "area": rng.normal(90, 30, n).round(1)})
    X["town"] = pd.Categorical(rng.choice(["Rome", "Oslo", "Bern"], n))
    y = (2 * X.area + 15 * X.rooms + 60 * (X.town == "Oslo") + rng.normal(0, 20, n)).to_numpy()
    model = LGBMRegressor(n_estimators=15, **SETTINGS).fit(X[:300], y[:300])
    return model, X[:300], y[:300], X[300:], y[300:]


def adult():
    """Return the same for rows of Adult, with its categories."""
    folder = real_data("adult")
    train, test = (
        pd.read_parquet(folder / f"{part}.parquet").sample(n, random_state=0)
        for part, n in (("train", 1200), ("test", 300))
    )
    both = pd.concat([train, test], keys=["train", "test"])
    y = both.pop("income").astype(str)
    texts = [c for c in both if not pd.api.types.is_numeric_dtype(both[c])]
    both[texts] = both[texts].astype("category")
    X, X_test = (
        both.loc[part].set_axis([f"{part}{i}" for i in both.loc[part].index])
        for part in ("train", "test")
    )
    y, y_test = (y.loc[part].to_numpy(object) for part in ("train", "test"))
    model = LGBMClassifier(n_estimators=15, **SETTINGS).fit(X, y)
    return model, X, y, X_test, y_test


def wine():
    """Return the same for wines, whose quality is one of seven classes."""
    table = pd.read_parquet(real_data("wine_quality") / "wine_quality.parquet")
    rare = table[table.quality.isin([3, 9])]  # all classes are in the training rows
    rest = table.drop(rare.index).sample(1000, random_state=0)
    train = pd.concat([rare, rest[:800]])
    X, X_test = (part.drop(columns=["quality", "color"]) for part in (train, rest[800:]))
    y, y_test = (part.quality.to_numpy() for part in (train, rest[800:]))
    model = LGBMClassifier(n_estimators=5, **SETTINGS).fit(X, y)
    return model, X, y, X_test, y_test


def real_data(name):
    """The folder of a data set, which is not part of this repository; without it, skip the test."""
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"there is no folder {name} in LEAFTRACE_DATA")
    return folder


def tracer_of(world):
    """Return a tracer of a world."""
    model, X, y, _, _ = world
    return lt.Tracer(model, X, y, n_jobs=1)


class Client:
    """Asks a served page as a browser does, with headers that a test can change."""

    def __init__(self, address):
        parts = urlsplit(address)
        self.host = parts.netloc
        self.path = parts.path

    def request(self, method, path, body=None, **headers):
        """Return (status, headers, body). ``path``: begins with / or is below the token."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        full = path if path.startswith("/") else self.path + path
        given = {"Host": self.host} | {k.replace("_", "-"): v for k, v in headers.items()}
        data = body
        if isinstance(body, (dict, list)):
            data = json.dumps(body)
            given = {"Content-Type": "application/json"} | given
        connection.request(method, full, data, given)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, response.headers, content

    def ask(self, name, status=200, **question):
        """Return the answer to a question of the page."""
        got, _, content = self.request("POST", f"api/{name}", question)
        assert got == status, content
        return json.loads(content)


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

    def shown(self, loss):
        """A loss as the page shows it: of squared errors, in the unit of the target."""
        return np.sqrt(2 * loss) if self.tracer.classes is None else loss


def removal(*rows):
    return [{"rows": list(rows), "do": "remove"}]
