"""Tables and saved models as users of the command line have them."""

import json

import catboost
import lightgbm
import numpy as np
import pandas as pd
import xgboost

from leaftrace._views.cli import main

DATA = ["--train", "train.csv", "--target", "repaid", "--weight", "w"]
TEST = ["--test", "test.csv"]
# A file of XGBoost does not keep them, and refits need them.
REFIT_PARAMETERS = ["--param", "min_child_weight=1", "--param", "max_delta_step=0"]
FEATURES = ["age", "home town", "income", "k"]
CATEGORIES = {"home town": "category", "k": "category"}


def answer(capsys, *argv, code=0):
    """Return the JSON document that a command prints."""
    got = main([*argv, "--json"])
    out, err = capsys.readouterr()
    assert got == code, err
    return json.loads(out)


def people(n, seed):
    rng = np.random.default_rng(seed)
    town = rng.choice(["rome", "oslo", "bern"], n).astype(object)
    town[rng.random(n) < 0.1] = None
    frame = pd.DataFrame(
        {"age": rng.integers(18, 80, n), "home town": town, "income": rng.normal(size=n).round(3)}
    )
    frame["k"] = rng.choice([3, 5, 9], n)
    frame.loc[rng.random(n) < 0.1, "income"] = np.nan
    score = frame.income.fillna(0) + (town == "oslo") + 0.4 * rng.normal(size=n)
    frame["repaid"] = np.where(score > 0.3, "yes", "no")
    frame["amount"] = score.round(3)
    frame["w"] = rng.integers(1, 4, n)
    frame["source"] = rng.choice(["web", "shop"], n)
    frame["uid"] = [f"u{seed}-{i}" for i in range(n)]
    return frame


def build(folder):
    """Write tables and saved models into a folder.

    Tables are written by pandas, and models are trained on what pandas reads back. The models and tables
    are returned too, for comparison."""
    for name, frame in (("train", people(240, 0)), ("test", people(60, 1))):
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet")
    train, test = (pd.read_csv(folder / f"{name}.csv") for name in ("train", "test"))

    def typed(t):
        return t[FEATURES].astype(CATEGORIES)

    def filled(t):
        return t[FEATURES].fillna({"home town": "none"})

    codes = (train.repaid == "yes").astype(int)
    quiet = {"verbose": False, "allow_writing_files": False, "cat_features": ["home town", "k"]}
    cat = catboost.CatBoostClassifier(12, thread_count=1, **quiet).fit(
        filled(train), train.repaid, sample_weight=train.w
    )
    xgb = xgboost.XGBClassifier(n_estimators=12, max_depth=4, n_jobs=1, enable_categorical=True)
    xgb.fit(typed(train), codes, sample_weight=train.w)
    lgb = lightgbm.LGBMClassifier(n_estimators=12, n_jobs=1, verbose=-1).fit(
        typed(train), train.repaid, sample_weight=train.w
    )
    cat.save_model(folder / "cat.cbm")
    xgb.save_model(folder / "xgb.ubj")
    lgb.booster_.save_model(folder / "lgb.txt")
    # Numbers, from an array: columns without names.
    array = train[["age", "income"]].to_numpy()
    xgboost.XGBRegressor(n_estimators=8, n_jobs=1).fit(array, train.amount).save_model(
        folder / "array.json"
    )
    models = {
        "cat.cbm": (cat, filled, ["--missing", "none"]),
        "xgb.ubj": (xgb, typed, []),
        "lgb.txt": (lgb, typed, []),
    }
    return folder, train, test, models
