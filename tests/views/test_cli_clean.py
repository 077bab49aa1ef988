"""`leaftrace clean` gives the library's answer, and writes a table in which nothing else changed."""

import os
import signal
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import xgboost
from cli_world import answer

import leaftrace as lt
from leaftrace._views.cli import main

TABLES = ["--jobs", "1", "--val", "val.csv", "--hold", "hold.csv"]
MODEL = {"n_estimators": 8, "num_leaves": 5, "n_jobs": 1, "verbose": -1, "random_state": 0}


def people(n, seed, noise):
    """Labels TRUE and FALSE, a code with leading zeros, a number of many digits, a text that reads as missing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)).round(3), columns=["a", "b", "c"])
    truth = frame.a + frame.b > 0
    frame["good"] = np.where(truth ^ (rng.random(n) < noise), "TRUE", "FALSE")
    frame["amount"] = (frame.a + frame.b + np.where(rng.random(n) < noise, 5.0, 0.0)).round(3)
    frame["w"] = rng.integers(1, 4, n)
    frame["zip"] = [f"0{i:04d}" for i in range(n)]
    frame["note"] = np.where(rng.random(n) < 0.5, "NA", '"12.10", he said')
    return frame


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    for name, n, noise in (("train", 400, 0.25), ("val", 300, 0.0), ("hold", 300, 0.0)):
        people(n, len(name), noise).to_csv(folder / f"{name}.csv", index=False)
    train = pd.read_csv(folder / "train.csv")
    X = train[["a", "b", "c"]]
    weights = train.w.to_numpy()
    good = lightgbm.LGBMClassifier(**MODEL).fit(X, train.good, sample_weight=weights)
    amount = lightgbm.LGBMRegressor(**MODEL).fit(X, train.amount)
    good.booster_.save_model(folder / "good.txt")
    amount.booster_.save_model(folder / "amount.txt")
    xgb = xgboost.XGBClassifier(n_estimators=12, max_depth=3, n_jobs=1).fit(X, train.good)
    xgb.save_model(folder / "good.ubj")
    return folder


@pytest.fixture
def there(tables, monkeypatch):
    monkeypatch.chdir(tables)
    before = set(os.listdir())
    yield tables
    for name in set(os.listdir()) - before:
        os.unlink(name)


def by_hand(target, model, weighted=True, **how):
    train, val, hold = (pd.read_csv(f"{name}.csv") for name in ("train", "val", "hold"))
    X = [t[["a", "b", "c"]] for t in (train, val, hold)]
    tracer = lt.Tracer(
        model, X[0], train[target].to_numpy(), train.w.to_numpy() if weighted else None, n_jobs=1
    )
    return lt.clean(tracer, X[1], val[target].to_numpy(), X[2], hold[target].to_numpy(), **how)


GOOD = ["clean", "good.txt", "--train", "train.csv", "--target", "good", "--weight", "w", *TABLES]
AMOUNT = ["clean", "amount.txt", "--train", "train.csv", "--target", "amount", *TABLES]


def fitted():
    train = pd.read_csv("train.csv")
    return lightgbm.LGBMClassifier(**MODEL).fit(
        train[["a", "b", "c"]], train.good, sample_weight=train.w
    )


def test_removes_what_the_library_removes(there, capsys):
    found = by_hand("good", fitted(), max_rounds=4)
    assert found.improved
    said = answer(capsys, *GOOD, "--max-rounds", "4", "--out", "clean.csv")
    assert said["improved"]
    assert sorted(line["position"] for line in said["rows"]) == found.rows.tolist()
    train, val = (pd.read_csv(f"{name}.csv") for name in ("train", "val"))
    columns = ["a", "b", "c"]
    tracer = lt.Tracer(
        fitted(), train[columns], train.good.to_numpy(), train.w.to_numpy(), n_jobs=1
    )
    harm = tracer.influence(val[columns], val.good.to_numpy(), reduce="mean").values[:, 0]
    assert (np.diff(harm[[line["position"] for line in said["rows"]]]) <= 0).all()  # worst first
    assert {line["do"] for line in said["rows"]} == {"remove"}
    assert said["effects"][0]["retrained"] == pytest.approx(found.effects["retrained"][0])
    lines = Path("train.csv").read_text().splitlines()
    kept = Path("clean.csv").read_text().splitlines()
    assert kept == [lines[0]] + [
        line for i, line in enumerate(lines[1:]) if i not in set(found.without)
    ]


def test_relabels_as_the_file_writes_classes(there, capsys):
    found = by_hand("good", fitted(), action="relabel", batch=0.05, max_rounds=4)
    assert found.improved
    said = answer(
        capsys,
        *GOOD,
        "--action",
        "relabel",
        "--batch",
        "0.05",
        "--max-rounds",
        "4",
        "--out",
        "clean.csv",
    )
    before, after = (
        pd.read_csv(name, dtype=str, keep_default_na=False) for name in ("train.csv", "clean.csv")
    )
    changed = np.flatnonzero(before.good != after.good)
    assert (
        changed.tolist() == found.rows.tolist() == sorted(line["position"] for line in said["rows"])
    )
    assert after.good.tolist() == ["TRUE" if label else "FALSE" for label in found.labels]
    assert before.drop(columns="good").equals(after.drop(columns="good"))
    assert {(line["label"], line["suggested_label"]) for line in said["rows"]} <= {
        (True, False),
        (False, True),
    }


@pytest.mark.parametrize("ending", ["parquet", "feather", "csv.gz", "tsv.zst"])
def test_reweights_in_every_form_of_table(there, capsys, ending):
    found = by_hand("good", fitted(), action="reweight", max_rounds=2)
    assert found.improved
    answer(capsys, *GOOD, "--action", "reweight", "--max-rounds", "2", "--out", f"clean.{ending}")
    if ending == "parquet":
        after = pd.read_parquet("clean.parquet")
    elif ending == "feather":
        after = pd.read_feather("clean.feather")
    else:
        with pa.input_stream(f"clean.{ending}") as stream:
            after = pd.read_csv(stream, sep="\t" if "tsv" in ending else ",")
    np.testing.assert_allclose(after.w, found.sample_weight, rtol=1e-12)
    assert after.good.tolist() == pd.read_csv("train.csv").good.tolist()


def test_numbers_and_a_column_of_weights_that_was_not_there(there, capsys):
    train = pd.read_csv("train.csv")
    model = lightgbm.LGBMRegressor(**MODEL).fit(train[["a", "b", "c"]], train.amount)
    found = by_hand("amount", model, False, action="relabel", max_rounds=2)
    answer(capsys, *AMOUNT, "--action", "relabel", "--max-rounds", "2", "--out", "clean.csv")
    np.testing.assert_allclose(pd.read_csv("clean.csv").amount, found.labels, rtol=1e-12)
    found = by_hand("amount", model, False, action="reweight", max_rounds=2)
    answer(capsys, *AMOUNT, "--action", "reweight", "--max-rounds", "2", "--out", "clean.csv")
    np.testing.assert_allclose(
        pd.read_csv("clean.csv").sample_weight, found.sample_weight, rtol=1e-12
    )


def test_types_of_a_parquet_table_stay(there, capsys):
    frame = pd.read_csv("train.csv", dtype={"zip": str}).astype({"note": "category", "w": "int8"})
    frame.index = pd.Index([f"r{i}" for i in range(len(frame))], name="who")
    frame.to_parquet("typed.parquet")
    call = [
        *GOOD[:3],
        "typed.parquet",
        *GOOD[4:],
        "--action",
        "relabel",
        "--batch",
        "0.05",
        "--max-rounds",
        "4",
        "--out",
        "clean.parquet",
    ]
    answer(capsys, *call)
    before, after = (
        pyarrow.parquet.read_table(name) for name in ("typed.parquet", "clean.parquet")
    )
    assert after.schema.equals(before.schema, check_metadata=True)
    assert before.drop_columns("good").equals(after.drop_columns("good"))
    assert not before["good"].equals(after["good"])
    assert pd.read_parquet("clean.parquet").index.equals(frame.index)


@pytest.mark.filterwarnings("default::leaftrace.IndexWarning")
def test_a_list_of_rows_is_one_that_impact_reads(there, capsys):
    found = by_hand("good", fitted(), max_rounds=4)
    answer(capsys, *GOOD, "--id", "zip", "--max-rounds", "4", "--out", "rows.txt")
    assert (
        Path("rows.txt").read_text().split()
        == pd.read_csv("train.csv").zip[found.without].astype(str).tolist()
    )
    impact = ["impact", *GOOD[1:-4], "--id", "zip", "--rows", "rows.txt", "--test", "hold.csv"]
    answer(capsys, *impact, "--no-retrain", "--audit", "audit.json")
    assert answer(capsys, *GOOD, "--max-rounds", "4", "--out", "positions.txt")["out"].endswith(
        "positions.txt"
    )
    assert list(map(int, Path("positions.txt").read_text().split())) == found.without.tolist()
    frame = pd.read_csv("train.csv")
    frame.assign(zip="same").to_csv("same.csv", index=False)
    assert (
        main(
            [
                *GOOD[:3],
                "same.csv",
                *GOOD[4:],
                "--id",
                "note",
                "--max-rounds",
                "2",
                "--out",
                "r.txt",
            ]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert "warning: 2 labels of training rows are shared by several rows" in said
    assert "choose a column without duplicates for --id" in said
    assert "names several training rows" in said
    assert not Path("r.txt").exists()


def test_no_improvement_is_a_no_and_writes_nothing(there, capsys):
    people(300, 9, 0.5).to_csv(
        "noise.csv", index=False
    )  # random labels, from which nothing can be learned
    call = [
        "--val",
        "noise.csv",
        "--hold",
        "noise.csv",
        "--max-rounds",
        "1",
        "--batch",
        "0.01",
        "--out",
        "clean.csv",
    ]
    assert main([*GOOD[:-4], *call]) == 1
    out, err = capsys.readouterr()
    assert "Keep the training set as it is" in " ".join(out.split())
    assert "'clean.csv' was not written" in err
    assert not Path("clean.csv").exists()


def test_classes_by_number_keep_their_names(there, capsys):
    call = [
        "clean",
        "good.ubj",
        "--train",
        "train.csv",
        "--target",
        "good",
        *TABLES,
        "--param",
        "max_depth=3",
        "--param",
        "min_child_weight=1",
        "--param",
        "max_delta_step=0",
    ]
    said = answer(capsys, *call, "--action", "relabel", "--max-rounds", "2", "--out", "clean.csv")
    assert set(pd.read_csv("clean.csv", dtype=str).good) == {"TRUE", "FALSE"}
    assert {line["label"] for line in said["rows"]} <= {True, False}


def test_ctrl_c_writes_the_best_so_far(there, capsys, monkeypatch):
    from leaftrace._engine.refit import RetrainedModel

    count = []
    loss = RetrainedModel.loss

    def press(self, *rows):
        count.append(1)
        if len(count) == 2:  # in the second round
            signal.raise_signal(signal.SIGINT)
        return loss(self, *rows)

    monkeypatch.setattr(RetrainedModel, "loss", press)
    assert main([*GOOD, "--out", "clean.csv"]) == 130
    out, err = capsys.readouterr()
    assert "Interrupted after 1 round" in out
    assert "Interrupted: this is what was finished" in err
    assert len(pd.read_csv("clean.csv")) == 388
