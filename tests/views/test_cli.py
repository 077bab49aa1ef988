"""The command line gives the same numbers as the library called by hand."""

import json
import pickle
import shlex
import signal
from dataclasses import replace
from pathlib import Path

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from cli_world import DATA, REFIT_PARAMETERS, TEST, answer, people

import leaftrace as lt
from leaftrace._views.cli import main
from leaftrace._views.cli.explanation import Explanation, next_command
from leaftrace._views.cli.options import Options
from leaftrace._views.report.verdicts import EXCEPTION, RIGHT, UNUSUAL, WRONG_LABELS, Verdict

# ---- the same numbers as the library ----


@pytest.mark.parametrize("file", ["cat.cbm", "xgb.ubj", "lgb.txt"])
def test_explain_gives_the_librarys_numbers(world, here, capsys, file):
    _, train, test, models = world
    model, prepare, more = models[file]
    said = answer(
        capsys,
        "explain",
        file,
        *DATA,
        *TEST,
        *more,
        "--rows",
        "3,10-12",
        "--top",
        "4",
        "--id",
        "uid",
    )
    binary = file == "xgb.ubj"
    y, y_test = ((t.repaid == "yes").astype(int) if binary else t.repaid for t in (train, test))
    tracer = lt.Tracer(model, prepare(train), y.to_numpy(), train.w.to_numpy())
    rows = [3, 10, 11, 12]
    values = (
        tracer.influence(prepare(test).iloc[rows], y_test.to_numpy()[rows]).values
        * train.w.to_numpy()[:, None]
    )
    assert said["fidelity"]["exact"]
    assert [one["position"] for one in said["test_rows"]] == rows
    for j, one in enumerate(said["test_rows"]):
        up = np.argsort(-values[:, j], kind="stable")[:2]  # harmful rows come first
        order = np.append(up, np.argsort(values[:, j], kind="stable")[:2])
        got = one["training_rows"]
        assert one["test_row"] == test.uid[rows[j]]
        assert one["label"] == test.repaid[rows[j]]
        assert [line["train_row"] for line in got] == train.uid[order].tolist()
        assert [line["label"] for line in got] == train.repaid[order].tolist()
        np.testing.assert_allclose(
            [line["loss_change_if_removed"] for line in got], -values[order, j], rtol=1e-5
        )
        assert [line["effect"] for line in got] == np.where(
            values[order, j] > 0, "harmful", "helpful"
        ).tolist()
        right = model.predict(prepare(test).iloc[[rows[j]]])[0]
        assert one["predicted_label"] == (["no", "yes"][right] if binary else right)


def test_noise_floor_marks_what_stands_out(world, here, capsys):
    """`--noise-floor` marks the lines as the library does after `noise_floor`."""
    _, train, test, models = world
    model, prepare, more = models["lgb.txt"]
    command = ("explain", "lgb.txt", *DATA, *TEST, *more, "--rows", "3,10", "--top", "4")
    plain = answer(capsys, *command)
    assert plain["test_rows"][0]["training_rows"][0]["change_is"] == "first order, trees fixed"
    assert "above_noise" not in plain["test_rows"][0]["training_rows"][0]
    said = answer(capsys, *command, "--noise-floor", "3")
    tracer = lt.Tracer(model, prepare(train), train.repaid.to_numpy(), train.w.to_numpy())
    rows = [3, 10]
    asked = prepare(test).iloc[rows], test.repaid.to_numpy()[rows]
    tracer.noise_floor(*asked, repeats=3)
    expected = tracer.influence(*asked).top(4).above_noise
    got = [line["above_noise"] for one in said["test_rows"] for line in one["training_rows"]]
    assert got == expected.tolist()
    assert said["noise_floor"]["done"] == "3 retrainings without a random row"


def test_worst_are_those_of_largest_loss(world, here, capsys):
    _, _, test, models = world
    model, prepare, _ = models["lgb.txt"]
    said = answer(capsys, "explain", "lgb.txt", *DATA, *TEST, "--worst", "5", "--top", "1")
    p = model.predict_proba(prepare(test))[np.arange(len(test)), (test.repaid == "yes").astype(int)]
    assert [one["position"] for one in said["test_rows"]] == np.argsort(p, kind="stable")[
        :5
    ].tolist()
    np.testing.assert_allclose(
        [one["loss"] for one in said["test_rows"]], -np.log(np.sort(p)[:5]), rtol=1e-6
    )


def test_explain_ends_with_a_command_that_runs(here, capsys):
    """It is spelled with the user's own files and options, and a shell can read it."""
    pd.read_csv("test.csv").to_csv("my test.csv", index=False)
    call = ("explain", "lgb.txt", *DATA, "--test", "my test.csv", "--id", "uid", "--worst", "12")
    said = answer(capsys, *call)
    command = said["next"]["command"]
    words = shlex.split(command)
    assert words[:3] == ["leaftrace", words[1], "lgb.txt"]
    kinds = [one["verdict"] for one in said["test_rows"]]
    assert words[1] == ("fix" if WRONG_LABELS in kinds else "noise")
    assert set(DATA) | {"--id", "uid"} <= set(words)
    assert main([*call]) == 0
    assert capsys.readouterr().out.rstrip().endswith(command)
    assert main(words[1:]) in (0, 1)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (WRONG_LABELS, "fix m.txt --train 'a b.csv' --target y --test t.csv --row T7 --id i"),
        (EXCEPTION, "noise m.txt --train 'a b.csv' --target y --id i"),
        (UNUSUAL, "explore m.txt --train 'a b.csv' --target y --test t.csv --id i"),
    ],
)
def test_the_next_command_follows_the_verdicts(kind, words):
    options = Options(
        model="m.txt", train="a b.csv", target="y", id="i", param=["x=1", "z=2"], allow_pickle=True
    )
    found = Explanation(
        [{"test_row": "T1", "position": 1}, {"test_row": "T7", "position": 7}],
        verdicts=[Verdict(RIGHT, ""), Verdict(kind, "because.")],
    )
    _, command = next_command(found, options, "t.csv")
    assert command == f"leaftrace {words} --param x=1 --param z=2 --allow-pickle"
    assert next_command(Explanation(), options, "t.csv") is None
    assert next_command(found, replace(options, baseline="b"), "t.csv") is None


def test_without_labels_it_is_about_predictions(here, capsys):
    pd.read_csv("test.csv").drop(columns="repaid").to_csv("bare.csv", index=False)
    said = answer(
        capsys, "explain", "lgb.txt", *DATA, "--test", "bare.csv", "--no-labels", "--worst", "2"
    )
    assert said["of"] == "prediction"
    assert "loss" not in said["test_rows"][0]


@pytest.mark.parametrize(
    "ending", ["csv", "tsv", "semicolon.csv", "csv.gz", "csv.zst", "parquet", "feather", "arrow"]
)
@pytest.mark.parametrize("file", ["lgb.txt", "xgb.ubj"])
def test_every_kind_of_table(here, capsys, ending, file):
    import pyarrow as pa

    frame = pd.read_parquet("train.parquet")
    path = f"table.{ending}"
    if ending == "parquet":
        frame.astype({"home town": "category"}).to_parquet(path)
    elif ending == "feather":
        frame.to_feather(path)
    elif ending == "arrow":  # a stream
        table = pa.Table.from_pandas(frame)
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    else:
        text = frame.to_csv(
            index=ending == "tsv", sep={"tsv": "\t", "semicolon.csv": ";"}.get(ending, ",")
        )
        with pa.output_stream(path) as out:  # compresses by the ending
            out.write(text.encode())
    said = answer(capsys, "check", file, "--train", path, "--target", "repaid", "--weight", "w")
    assert said["fidelity"]["exact"]
    assert said["model"]["training_rows"] == 240


def test_model_without_names(here, capsys):
    data = [
        "--train",
        "train.csv",
        "--target",
        "amount",
        "--drop",
        "home town,k,repaid,w,source,uid",
    ]
    assert answer(capsys, "check", "array.json", *data)["fidelity"]["exact"]


def test_numbers_that_the_model_knows_as_text(here, capsys, tmp_path):
    """A zip code is text in the model but looks like a number in a CSV."""
    frame = people(200, 4).assign(k=lambda t: t.k.astype(str))
    X = frame[["k", "age"]].astype({"k": "category"})
    for model, save in (
        (
            lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1),
            lambda m: m.booster_.save_model(tmp_path / "m"),
        ),
        (
            xgboost.XGBClassifier(n_estimators=5, n_jobs=1, enable_categorical=True),
            lambda m: m.save_model(tmp_path / "m.ubj"),
        ),
    ):
        save(model.fit(X, (frame.repaid == "yes").astype(int)))
    frame.to_csv(tmp_path / "t.csv", index=False)
    for name in ("m", "m.ubj"):
        said = answer(
            capsys,
            "check",
            str(tmp_path / name),
            "--train",
            str(tmp_path / "t.csv"),
            "--target",
            "repaid",
        )
        assert said["fidelity"]["exact"]


def test_labels_that_are_other_numbers(here, capsys, tmp_path):
    frame = people(200, 5).assign(
        grade=lambda t: np.where(t.income.fillna(0) > 0.5, 7, np.where(t.age > 50, 2, 4))
    )
    model = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(
        frame[["age", "income"]], frame.grade
    )
    model.booster_.save_model(tmp_path / "m.txt")
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = str(tmp_path / "t.csv")
    call = [
        "explain",
        str(tmp_path / "m.txt"),
        "--train",
        table,
        "--target",
        "grade",
        "--test",
        table,
        "--worst",
        "3",
    ]
    said = answer(capsys, *call)
    assert said["model"]["classes"] == [2, 4, 7]
    assert {one["label"] for one in said["test_rows"]} <= {2, 4, 7}
    assert main([*call, "--classes", "7,4,2"]) == 2
    assert "Pass exactly the rows, labels and weights" in capsys.readouterr().err


def test_baseline(capsys, tmp_path):
    """Scores of training and test rows are given as a column."""
    train = people(200, 6)
    test = people(40, 7)
    data = lightgbm.Dataset(
        train[["age", "income"]], train.repaid == "yes", init_score=train.amount
    )
    model = lightgbm.train({"objective": "binary", "verbosity": -1}, data, 6)
    model.save_model(tmp_path / "m.txt")
    for name, frame in (("train", train), ("test", test)):
        frame.to_parquet(tmp_path / f"{name}.parquet")
    files = [str(tmp_path / name) for name in ("m.txt", "train.parquet", "test.parquet")]
    call = [
        "explain",
        files[0],
        "--train",
        files[1],
        "--test",
        files[2],
        "--target",
        "repaid",
        "--baseline",
        "amount",
    ]
    said = answer(capsys, *call, "--worst", "3", "--top", "1")
    F = model.predict(test[["age", "income"]], raw_score=True) + test.amount
    loss = np.logaddexp(0, np.where(test.repaid == "yes", -F, F))
    assert [one["position"] for one in said["test_rows"]] == np.argsort(-loss, kind="stable")[
        :3
    ].tolist()
    np.testing.assert_allclose(
        [one["loss"] for one in said["test_rows"]], np.sort(loss)[::-1][:3], rtol=1e-6
    )


# ---- the other commands ----


def test_check_says_no(here, capsys):
    said = answer(capsys, "check", "lgb.txt", *DATA[:4], code=1)  # without the weights
    assert not said["fidelity"]["exact"]
    assert said["exit_code"] == 1


def test_noise_and_its_threshold(world, here, capsys):
    _, train, _, models = world
    model, prepare, _ = models["lgb.txt"]
    found = lt.label_noise(
        lt.Tracer(model, prepare(train), train.repaid.to_numpy(), train.w.to_numpy())
    )
    share = float(found.is_label_issue.mean())
    assert share > 0
    said = answer(capsys, "noise", "lgb.txt", *DATA, "--fail-above", str(share))
    assert said["share"] == share
    issues = [line for line in said["table"] if line["is_label_issue"]]
    assert [line["train_row"] for line in issues] == found.indices().tolist()
    assert [line["given_label"] for line in issues] == train.repaid[found.indices()].tolist()
    answer(capsys, "noise", "lgb.txt", *DATA, "--fail-above", str(share - 1e-3), code=1)
    assert said["confirmed"] is None
    said = answer(capsys, "noise", "lgb.txt", *DATA, "--hold", "test.csv")
    assert said["confirmed"] == (said["interval"][1] < 0)
    assert said["confirmed"] == ("is suggested" in said["advice"])
    assert said["effects"][0]["retrained"] is not None


def test_groups(world, here, capsys):
    _, train, test, models = world
    model, prepare, _ = models["lgb.txt"]
    said = answer(
        capsys, "groups", "lgb.txt", *DATA, *TEST, "--by", "source", "--test-by", "home town"
    )
    tracer = lt.Tracer(model, prepare(train), train.repaid.to_numpy(), train.w.to_numpy())
    web = np.flatnonzero(train.source == "web")
    bern = np.flatnonzero(test["home town"] == "bern")
    rows = prepare(test).iloc[bern], test.repaid.to_numpy()[bern]
    expected = tracer.refit(web).loss(*rows).mean() - tracer.refit().loss(*rows).mean()
    [line] = [line for line in said["table"] if line["slice"] == "bern" and line["group"] == "web"]
    assert line["refitted"] == pytest.approx(expected, rel=1e-6)
    said = answer(
        capsys, "groups", "lgb.txt", *DATA, *TEST, "--by", "age", "--no-refit", "--bins", "3"
    )
    assert len(said["table"]) == 3


def test_fix(world, here, capsys):
    _, train, test, models = world
    model, prepare, _ = models["lgb.txt"]
    wrong = np.flatnonzero(model.predict(prepare(test)) != test.repaid)
    said = answer(capsys, "fix", "lgb.txt", *DATA, *TEST, "--row", str(wrong[0]))
    assert said["fixed"]
    keep = np.setdiff1d(np.arange(len(train)), [line["train_row"] for line in said["table"]])
    again = lightgbm.LGBMClassifier(n_estimators=12, n_jobs=1, verbose=-1)
    again.fit(prepare(train).iloc[keep], train.repaid[keep], sample_weight=train.w[keep])
    assert again.predict(prepare(test).iloc[[wrong[0]]])[0] == test.repaid[wrong[0]]


def test_impact_by_ids(here, capsys):
    Path("ids.txt").write_text("u0-7\n\nu0-3\nu0-7\n")
    call = ["impact", "lgb.txt", *DATA, *TEST, "--id", "uid", "--rows", "ids.txt", "--no-retrain"]
    said = answer(capsys, *call, "--audit", "audit.json", "--fail-above", "0", code=1)
    audit = json.loads(Path("audit.json").read_text())
    assert audit["removed"]["positions"] == [3, 7]
    assert audit["removed"]["row_names"] == ["u0-3", "u0-7"]
    by_position = answer(
        capsys, "impact", "lgb.txt", *DATA, *TEST, "--rows", "3,7-7", "--no-retrain"
    )
    assert by_position["effects"] == said["effects"]


def test_xgboost_file_needs_its_parameters_to_train_again(here, capsys):
    call = ["impact", "xgb.ubj", *DATA, *TEST, "--rows", "0-3"]
    assert main(call) == 2
    assert f"XGBoost's defaults are {' '.join(REFIT_PARAMETERS)}." in capsys.readouterr().err
    call += REFIT_PARAMETERS
    assert main(call) == 2
    assert "--param max_depth" in capsys.readouterr().err
    assert answer(capsys, *call, "--param", "max_depth=4")["effects"][0]["retrained"] > 0


def test_pickles_only_when_allowed(world, here, capsys):
    Path("lgb.pkl").write_bytes(pickle.dumps(world[3]["lgb.txt"][0]))
    assert main(["check", "lgb.pkl", *DATA]) == 2
    assert "--allow-pickle" in capsys.readouterr().err
    assert main(["check", "lgb.pkl", *DATA, "--allow-pickle"]) == 0
    assert "runs the code in it" in capsys.readouterr().err


def test_report_and_redaction(here, capsys):
    said = answer(
        capsys,
        "explain",
        "lgb.txt",
        *DATA,
        *TEST,
        "--worst",
        "2",
        "--html",
        "r.html",
        "--redact",
        "home town",
    )
    page = Path(said["report"]).read_text()
    assert page.startswith("<!doctype html>")
    assert len(page) < 5_000_000
    assert "home town" not in page
    assert "oslo" not in page


@pytest.mark.parametrize("file", ["cat.cbm", "xgb.ubj", "lgb.txt"])
def test_a_report_loads_the_model_once_and_computes_an_influence_once(
    world, here, capsys, monkeypatch, file
):
    loads = []
    columns = []
    load = catboost.CatBoost.load_model
    influence = lt.Tracer.influence

    def counted(booster):
        start = booster.__init__

        def init(self, *args, **settings):
            if settings.get("model_file") is not None:
                loads.append(settings["model_file"])
            start(self, *args, **settings)

        return init

    def load_counted(self, path, **settings):
        loads.append(path)
        return load(self, path, **settings)

    def influence_counted(self, *args, **settings):
        found = influence(self, *args, **settings)
        columns.append((found.shape[1], settings.get("reduce")))
        return found

    for booster in (lightgbm.Booster, xgboost.Booster):
        monkeypatch.setattr(booster, "__init__", counted(booster))
    monkeypatch.setattr(catboost.CatBoost, "load_model", load_counted)
    monkeypatch.setattr(lt.Tracer, "influence", influence_counted)
    answer(
        capsys,
        "explain",
        file,
        *DATA,
        *TEST,
        *world[3][file][2],
        "--worst",
        "3",
        "--html",
        "r.html",
        "--no-explorer",
        *(REFIT_PARAMETERS if file == "xgb.ubj" else []),
    )
    assert loads == [file]
    assert columns == [(3, None), (1, "mean")]  # each test row, and the whole test set


def test_ctrl_c_while_explaining(here, capsys, monkeypatch):
    def press(self, *_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("leaftrace._views.report.explained_rows.ExplainedRows.influence", press)
    assert main(["explain", "lgb.txt", *DATA, *TEST, "--html", "stopped.html"]) == 130
    assert "the report was not written" in capsys.readouterr().err
    assert not Path("stopped.html").exists()


def test_demo(tmp_path, capsys):
    assert main(["demo", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    assert "exact: all" in out
    report = tmp_path / "demo" / "report.html"
    assert f"Report: {report}" in out.replace("\n", "")
    assert report.exists()
