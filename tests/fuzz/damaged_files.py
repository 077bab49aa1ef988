"""Damaged model files, results and caches: a clear error, or the numbers of what the file now says.

A damage may leave a file that is whole, with another model in it. Then leaftrace says that it is not exact, or
gives the predictions of that model. The command line never fails in a way it calls its own fault.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path
from unittest import mock

import catboost
import joblib
import lightgbm
import numpy as np
import xgboost
from cli_world import DATA, FEATURES, build
from sklearn.ensemble import HistGradientBoostingRegressor

import leaftrace as lt
from leaftrace._views.cli import main, trial

from .asking import asked
from .damage import damaged
from .draw import Draw
from .outcome import Outcome

PICKLE = ["--allow-pickle"]
NUMBERS = ["--train", "train.csv", "--target", "amount"]
# File, how its content is damaged, further arguments of the command line.
MODELS = {
    "lgb.txt": ("text", DATA),
    "xgb.ubj": ("bytes", DATA),
    "xgb.json": ("json", DATA),
    "cat.cbm": ("bytes", [*DATA, "--missing", "none"]),
    "cat.json": ("json", [*DATA, "--missing", "none"]),
    "lgb.pkl": ("bytes", [*DATA, *PICKLE]),
    "sklearn.joblib": ("bytes", [*NUMBERS, *PICKLE]),
}
# Said before anything fails, and of use if the reason is in them.
NOTICES = ("warning:", "the model knows its classes by number")
OTHERS = {"influence.npz": "npz", "manifest.json": "json", "leaves.npy": "bytes"}


def draw_configuration(draw):
    """Draw a file and the seed of its damage."""
    return {"file": draw.pick([*MODELS, *OTHERS]), "damage": draw.whole(10**9)}


def run(configuration):
    """Damage the file of a configuration and read it. Return the outcome."""
    out = Outcome(configuration)
    file = configuration["file"]
    draw = Draw(configuration["damage"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = world().folder
        if file in MODELS:
            read_model(
                folder, file, damaged((folder / file).read_bytes(), MODELS[file][0], draw), out
            )
        elif file == "influence.npz":
            content = damaged((folder / file).read_bytes(), OTHERS[file], draw)
            read_influence(folder, content, out)
        else:
            read_cache(world(), file, draw, out)
    return out


class World:
    """A folder with tables, models, a saved result and a cache of leaves."""

    def __init__(self):
        self.removed_at_exit = tempfile.TemporaryDirectory(prefix="leaftrace-fuzz-")
        self.folder, self.train, self.test, models = build(Path(self.removed_at_exit.name))
        cat, xgb, lgb = (models[name][0] for name in ("cat.cbm", "xgb.ubj", "lgb.txt"))
        cat.save_model(self.folder / "cat.json", format="json")
        xgb.save_model(self.folder / "xgb.json")
        (self.folder / "lgb.pkl").write_bytes(pickle.dumps(lgb))
        self.numbers = HistGradientBoostingRegressor(max_iter=5).fit(
            self.train[["age", "income"]], self.train.amount
        )
        joblib.dump(self.numbers, self.folder / "sklearn.joblib")
        tracer = self.traced_from_files("cache")
        self.slopes = tracer.influence(
            self.test[["age", "income"]], self.test.amount, reduce="mean"
        ).values
        tracer.influence(self.test[["age", "income"]], self.test.amount).save(
            self.folder / "influence.npz"
        )

    def traced_from_files(self, cache_folder):
        return lt.Tracer.from_files(
            self.numbers,
            self.folder / "train.parquet",
            target="amount",
            columns=["age", "income"],
            cache=self.folder / cache_folder,
            n_jobs=1,
        )


@cache
def world():
    return World()


def read_model(folder, file, content, out):
    """Check a damaged model by the command line, and its predictions if it is exact."""
    path = folder / f"damaged-{file}"
    path.write_bytes(content)
    code, said, printed = command_line(folder, ["check", path.name, *MODELS[file][1], "--json"])
    out.checks["command line"] += 1
    if code == 3 or code not in (0, 1, 2):
        out.note("raw exception", file, f"exit code {code}: {said}")
    elif code == 2 and len(without_notices(said)) != 1:
        out.note("wrong", file, f"more than one line: {said}")
    elif code == 2:
        out.note("refusal", file, said.replace(str(folder), "").replace(path.name, file))
    if code == 0 and json.loads(printed)["fidelity"]["exact"]:
        out.checks["exact"] += 1
        same_predictions(file, path, out)


def without_notices(said):
    """Return the lines of stderr that are an error."""
    lines = [line for line in said.splitlines() if not any(notice in line for notice in NOTICES)]
    return [
        line for line in lines if not re.search(r"\(\d+\.\d s\)$", line)
    ]  # time that a part took


def command_line(folder, argv):
    """Return (exit code, stderr, stdout) of a command in this process."""
    said = io.StringIO()
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(printed),
        mock.patch.object(trial, "_CPU_SECONDS", 10),  # these files are small: they take two
    ):
        code = main(argv)
    return code, said.getvalue(), printed.getvalue()


def same_predictions(file, path, out):
    """The predictions of an exact model are those of its own library."""
    rows = world().test
    train = world().train
    model = str(path)
    if file.endswith((".pkl", ".joblib")):
        model = joblib.load(path)
    elif file.startswith("xgb"):
        model = xgboost.Booster(model_file=model)
    typed, labels = prepared(file, train)
    weight = None if file.startswith("sklearn") else train.w
    tracer = asked(out, file, True, lambda: lt.Tracer(model, typed, labels, weight, n_jobs=1))
    if tracer is None:
        return
    found = tracer.refit(without=[]).scores(prepared(file, rows)[0])[:, 0]
    expected = own_scores(file, path, model, prepared(file, rows)[0])
    if not np.allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max()):
        out.note("wrong", file, f"exact, but predicts {found[:3]} instead of {expected[:3]}")


def prepared(file, table):
    """Return the columns and the labels of a table as the model of a file takes them."""
    if file.startswith("sklearn"):
        return table[["age", "income"]], table.amount
    if file.startswith("cat"):
        return table[FEATURES].fillna({"home town": "none"}), table.repaid
    typed = table[FEATURES].astype({"home town": "category", "k": "category"})
    return typed, table.repaid if file == "lgb.pkl" else (table.repaid == "yes").astype(int)


def own_scores(file, path, model, X):
    """Return raw predictions (m,) by the library itself."""
    if file.startswith("sklearn"):
        return model.predict(X)
    if file == "lgb.pkl":
        return model.predict(X, raw_score=True)
    if file.startswith("lgb"):
        return lightgbm.Booster(model_file=path).predict(X, raw_score=True)
    if file.startswith("xgb"):
        return model.predict(xgboost.DMatrix(X, enable_categorical=True), output_margin=True)
    kind = "json" if file.endswith("json") else "cbm"
    loaded = catboost.CatBoost().load_model(path, format=kind)
    return np.asarray(loaded.predict(X, prediction_type="RawFormulaVal"))


def read_influence(folder, content, out):
    """A damaged result is refused, or can be used."""
    path = folder / "damaged.npz"
    path.write_bytes(content)
    out.checks["saved result"] += 1
    asked(out, "saved result", False, lambda: str(lt.Influence.load(path).top(3)))


def read_cache(world, file, draw, out):
    """A damaged cache is refused, or gives the right numbers."""
    shutil.rmtree(world.folder / "damaged-cache", ignore_errors=True)
    shutil.copytree(world.folder / "cache", world.folder / "damaged-cache")
    (path,) = (world.folder / "damaged-cache").rglob(file)
    path.write_bytes(damaged(path.read_bytes(), OTHERS[file], draw))
    out.checks["leaf cache"] += 1
    X = world.test[["age", "income"]]
    found = asked(
        out, "leaf cache", False,
        lambda: world.traced_from_files("damaged-cache").influence(X, world.test.amount, reduce="mean").values,
    )  # fmt: skip
    if found is not None and not np.allclose(found, world.slopes, rtol=1e-6, atol=1e-9):
        out.note(
            "wrong",
            "leaf cache",
            f"accepted, with other numbers: {found[:3, 0]} for {world.slopes[:3, 0]}",
        )
