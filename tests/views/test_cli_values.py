"""`leaftrace values` gives the numbers of the library."""

import numpy as np
from cli_world import DATA, TEST, answer

import leaftrace as lt
from leaftrace._views.cli import main


def test_values_are_the_librarys(world, here, capsys):
    _, train, test, models = world
    model, prepare, more = models["lgb.txt"]
    call = ["values", "lgb.txt", *DATA, *TEST, *more, "--id", "uid", "--top", "3"]
    said = answer(capsys, *call, "--members", "8", "--bag", "0.2,0.4", "--seed", "2")
    tracer = lt.Tracer(model, prepare(train), train.repaid.to_numpy(), train.w.to_numpy())
    found = lt.data_values(
        tracer, prepare(test), test.repaid.to_numpy(), members=8, bag=(0.2, 0.4), seed=2
    )
    np.testing.assert_allclose([line["value"] for line in said["rows"]], found.values, rtol=1e-5)
    assert [line["train_row"] for line in said["rows"]] == train.uid.tolist()
    order = np.argsort(-found.values, kind="stable")
    assert [line["position"] for line in said["table"]] == [*order[:3], *order[-3:]]
    assert said["members"] == 8
    assert said["reliability"] == found.reliability


def test_a_wrong_bag(here, capsys):
    assert main(["values", "lgb.txt", *DATA, *TEST, "--bag", "a tenth"]) == 2
    assert "write shares of the rows such as 0.1" in capsys.readouterr().err


def test_sources_are_the_librarys(world, here, capsys):
    _, train, test, models = world
    model, prepare, more = models["lgb.txt"]
    call = ["sources", "lgb.txt", *DATA, *TEST, *more, "--by", "source"]
    said = answer(capsys, *call)
    tracer = lt.Tracer(model, prepare(train), train.repaid.to_numpy(), train.w.to_numpy())
    found = lt.source_values(
        tracer, train["source"].to_numpy(), prepare(test), test.repaid.to_numpy()
    )
    assert sorted(line["source"] for line in said["table"]) == sorted(found.sources.tolist())
    shown = {line["source"]: line["value"] for line in said["table"]}
    np.testing.assert_allclose([shown[name] for name in found.sources], found.values, rtol=1e-5)
    np.testing.assert_allclose(said["total"], found.values.sum(), atol=1e-9)
