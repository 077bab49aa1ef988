"""Errors on the command line: one clear line, an exit code, no partly written files."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from cli_world import DATA, TEST

from leaftrace._views.cli import main

# ---- one line that says what is wrong ----


def write(name, text):
    def make():
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return make


def altered(name, change):
    def make():
        change(pd.read_csv("test.csv")).to_csv(name, index=False)

    return make


def cut(source, name, share=0.5):
    def make():
        content = Path(source).read_bytes()
        Path(name).write_bytes(content[: int(len(content) * share)])

    return make


def nothing():
    pass


EXPLAIN = ["explain", "lgb.txt", *DATA]
CLEAN = ["clean", *EXPLAIN[1:], "--val", "test.csv", "--hold", "test.csv"]
# fmt: off
WRONG = {
    "a first line of 2 MB": (write("w.csv", ",".join(f"c{i:07d}" for i in range(220_000)) + "\n1\n"),
                             ["check", "lgb.txt", "--train", "w.csv", "--target", "repaid"], "longer than a megabyte"),
    "no model": (nothing, ["check", "none.txt", *DATA], "there is no model file 'none.txt'"),
    "empty model": (write("empty.txt", ""), ["check", "empty.txt", *DATA], "is empty"),
    "a table as model": (nothing, ["check", "train.csv", *DATA], "not a model file leaftrace knows"),
    "folder as model": (nothing, ["check", ".", *DATA], "is a folder"),
    "other JSON": (write("o.json", '{"a": 1}'), ["check", "o.json", *DATA], "is the file whole?"),
    "cut LightGBM": (cut("lgb.txt", "c.txt"), ["check", "c.txt", *DATA], "is the file whole?"),
    "cut XGBoost": (cut("xgb.ubj", "c.ubj"), ["check", "c.ubj", *DATA], "is the file whole?"),
    "cut CatBoost": (cut("cat.cbm", "c.cbm"), ["check", "c.cbm", *DATA], "is the file whole?"),
    "cut pickle": (write("c.pkl", pickle.dumps([1] * 99)[:50]), ["check", "c.pkl", *DATA, "--allow-pickle"], "whole?"),
    "pickle of something": (write("l.pkl", pickle.dumps([1])), ["check", "l.pkl", *DATA, "--allow-pickle"], "list"),
    "no table": (nothing, [*EXPLAIN, "--test", "none.csv"], "there is no table 'none.csv'"),
    "empty table": (write("e.csv", ""), [*EXPLAIN, "--test", "e.csv"], "'e.csv' is empty"),
    "no rows": (altered("h.csv", lambda t: t[:0]), [*EXPLAIN, "--test", "h.csv"], "has no rows"),
    "unknown ending": (write("t.xlsx", "x"), [*EXPLAIN, "--test", "t.xlsx"], "its name should end in"),
    "not Parquet": (write("n.parquet", "a,b\n"), [*EXPLAIN, "--test", "n.parquet"], "'n.parquet' cannot be read"),
    "cut Parquet": (cut("test.parquet", "c.parquet"), [*EXPLAIN, "--test", "c.parquet"], "cannot be read"),
    "not Arrow": (write("n.arrow", "abc"), [*EXPLAIN, "--test", "n.arrow"], "'n.arrow' cannot be read"),
    "not gzip": (write("n.csv.gz", "abc"), [*EXPLAIN, "--test", "n.csv.gz"], "'n.csv.gz' cannot be read"),
    "not text": (write("b.csv", b"\xff\xfe\x00a,b\n1,2\n"), [*EXPLAIN, "--test", "b.csv"], "'b.csv' cannot be read"),
    "ragged": (write("r.csv", "a,b\n1,2\n1,2,3,4\n"), ["check", "array.json", "--train", "r.csv", "--target", "a",
               "--drop", ""], "the model was trained without names on 2"),
    "missing column": (altered("m.csv", lambda t: t.drop(columns="age")), [*EXPLAIN, "--test", "m.csv"],
                       "'m.csv' lacks the column(s) 'age'"),
    "missing target": (nothing, [*EXPLAIN[:4], "--target", "label", *TEST], "no column 'label' for --target"),
    "no target in test": (altered("u.csv", lambda t: t.drop(columns="repaid")), [*EXPLAIN, "--test", "u.csv"],
                          "no column 'repaid' for --target"),
    "target is a feature": (nothing, [*EXPLAIN[:4], "--target", "age", *TEST], "is one of the model's features"),
    "holes in target": (altered("t.csv", lambda t: t.assign(repaid=t.repaid.where(t.index != 4))),
                        [*EXPLAIN, "--test", "t.csv"], "the first is row 4"),
    "other labels": (altered("l.csv", lambda t: t.assign(repaid="maybe")), [*EXPLAIN, "--test", "l.csv"],
                     "has 'maybe', which the model does not know"),
    "text for numbers": (altered("x.csv", lambda t: t.assign(age=t.age.astype(str).where(t.index != 9, "old"))),
                         [*EXPLAIN, "--test", "x.csv"], "such as 'old' in row 9"),
    "columns twice": (write("d.csv", "age,age\n1,2\n"), [*EXPLAIN, "--test", "d.csv"], "more than one column 'age'"),
    "unseen category": (altered("s.csv", lambda t: t.assign(**{"home town": "paris"})),
                        ["explain", "xgb.ubj", *DATA, "--test", "s.csv"], "has 'paris' in the column"),
    "missing categories": (nothing, ["check", "cat.cbm", *DATA], "--missing what text stood for them"),
    "not a category": (nothing, [*EXPLAIN, *TEST, "--categorical", "age"], "takes 'age' as numbers"),
    "dropped feature": (nothing, [*EXPLAIN, *TEST, "--drop", "age"], "which --drop leaves out"),
    "no such weight": (nothing, ["check", *EXPLAIN[1:-1], "v"], "no column 'v' for --weight"),
    "no such id": (nothing, [*EXPLAIN, *TEST, "--id", "name"], "no column 'name' for --id"),
    "forgotten weights": (nothing, [*EXPLAIN[:-2], *TEST], "--fidelity warn goes on regardless"),
    "rows of another table": (nothing, [*EXPLAIN, *TEST, "--rows", "60"], "the test rows go from 0 to 59"),
    "rows in words": (nothing, [*EXPLAIN, *TEST, "--rows", "first"], "write positions such as 0,5-9"),
    "no rows file": (nothing, ["impact", *EXPLAIN[1:], *TEST, "--rows", "ids"], "there is no file 'ids'"),
    "unknown id": (write("w.txt", "u9\n"), ["impact", *EXPLAIN[1:], *TEST, "--id", "uid", "--rows", "w.txt"], "'u9'"),
    "no such folder": (nothing, [*EXPLAIN, *TEST, "--html", "no/r.html"], "there is no folder"),
    "a folder to write": (nothing, [*EXPLAIN, *TEST, "--html", "."], "it is a folder"),
    "writing over input": (nothing, [*EXPLAIN, *TEST, "--html", "test.csv"], "one of the files to read"),
    "bad parameter": (nothing, [*EXPLAIN, *TEST, "--param", "depth"], "--param name=value"),
    "unknown parameter": (nothing, [*EXPLAIN, *TEST, "--param", "depht=3"], "does not report"),
    "no such group": (nothing, ["groups", *EXPLAIN[1:], *TEST, "--by", "colour"], "no column 'colour'"),
    "nothing to choose by": (nothing, ["clean", *EXPLAIN[1:], "--hold", "test.csv"], "--val"),
    "too few to judge by": (altered("few.csv", lambda t: t[:9]), [*CLEAN[:-1], "few.csv"], "--hold has 9 rows"),
    "an action unknown": (nothing, [*CLEAN, "--action", "burn"], "action is 'burn'"),
    "a list of weights": (nothing, [*CLEAN, "--action", "reweight", "--out", "rows.txt"], "give it a table's ending"),
    "cleaned to nowhere": (nothing, [*CLEAN, "--out", "no/t.csv"], "there is no folder"),
    "cleaned to a picture": (nothing, [*CLEAN, "--out", "t.png"], "its name should end in"),
    "cleaned over input": (nothing, [*CLEAN, "--out", "test.csv"], "one of the files to read"),
    "no option": (nothing, ["check", "lgb.txt", "--train", "train.csv"], "'--target'. See: leaftrace check --help"),
    "unknown option": (nothing, ["check", "lgb.txt", *DATA, "--colour"], "--colour"),
    "baseline of test rows": (nothing, ["groups", *EXPLAIN[1:], *TEST, "--by", "k", "--baseline", "w"], "baseline"),
}
# fmt: on


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(here, capsys, case):
    prepare, argv, words = WRONG[case]
    prepare()
    before = sorted(os.listdir())
    assert main(argv) == 2
    out, err = capsys.readouterr()
    lines = [
        line
        for line in err.splitlines()
        if "warning" not in line
        and "knows its classes by number" not in line
        and not re.search(r"\(\d+\.\d s\)$", line)  # time that a part took, on a slow machine
    ]
    assert out == ""
    assert len(lines) == 1
    assert words in lines[0]
    assert sorted(os.listdir()) == before  # nothing half-written


def test_debug_shows_where(here, capsys):
    assert main(["check", "none.txt", *DATA, "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_failure_of_ours_is_owned(here, capsys, monkeypatch):
    monkeypatch.setattr("leaftrace._views.cli.job.Tracer", lambda *a, **k: 1 / 0)
    assert main(["check", "lgb.txt", *DATA]) == 3
    assert "leaftrace failed: ZeroDivisionError" in capsys.readouterr().err


# ---- as a process ----


def process(*argv, **more):
    call = [sys.executable, "-m", "leaftrace", *argv]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def test_help_has_exit_codes_and_fits(here):
    run = process("--help", env={**os.environ, "COLUMNS": "80"})
    out, _ = run.communicate()
    assert run.returncode == 0
    assert "130" in out
    assert all(
        word in out
        for word in ("explain", "noise", "clean", "groups", "fix", "impact", "check", "demo")
    )
    assert max(map(len, out.splitlines())) <= 80


def test_piped_text_is_plain(here, tmp_path):
    """Piped output has no colours, no markup from the data, and no control characters."""
    hostile = pd.read_csv("train.csv").assign(
        uid=lambda t: [f"[red]x{i}[/] \x1b[31m{i}" for i in range(len(t))]
    )
    hostile.to_csv(tmp_path / "h.csv", index=False)
    data = ["--train", str(tmp_path / "h.csv"), *DATA[2:], *TEST, "--id", "uid", "--worst", "2"]
    run = process("explain", "lgb.txt", *data)
    out, err = run.communicate()
    assert run.returncode == 0, err
    assert "\x1b" not in out
    assert "[red]x" in out
    assert not set(out) & set("─│╭╮╰╯━┃")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_a_reader_that_goes_away_ends_the_command_quietly(here):
    run = process("check", "lgb.txt", *DATA)
    run.stdout.close()
    assert run.wait() == 141
    assert "Traceback" not in run.stderr.read()
    run.stderr.close()


def test_inexact_replay_can_be_gone_on_with(here):
    run = process("explain", "lgb.txt", *DATA[:4], *TEST, "--fidelity", "warn", "--worst", "1")
    out, err = run.communicate()
    assert run.returncode == 0
    assert "leaftrace: warning: likely forgotten sample weights" in err
    assert "the replay differs from the model from step 1 of 12 on" in err
    assert "\nTest row" in out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_no_space_for_the_report(here):
    run = process("explain", "lgb.txt", *DATA, *TEST, "--worst", "1", "--html", "/dev/full")
    _, err = run.communicate()
    assert run.returncode == 2
    assert "No space left" in err
    assert "Traceback" not in err


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one process")
def test_ctrl_c_keeps_what_is_finished(here):
    Path("stopped.json").unlink(missing_ok=True)
    run = process(
        "impact",
        "lgb.txt",
        *DATA,
        *TEST,
        "--rows",
        "0-9",
        "--controls",
        "100000",
        "--audit",
        "stopped.json",
    )
    seen = ""
    deadline = time.time() + 60
    while "controls" not in seen and time.time() < deadline:  # the bar of the long part
        seen += run.stderr.read(1)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Interrupted: this is what was finished" in err
    assert "Traceback" not in err
    assert "Ctrl-C ended it early" in out
    assert json.loads(Path("stopped.json").read_text())["interrupted"]


def test_ctrl_c_before_anything(here, capsys, monkeypatch):
    def press(*_, **__):
        signal.raise_signal(signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr("leaftrace._views.cli.job.Tracer", press)
    assert main(["explain", "lgb.txt", *DATA, *TEST, "--html", "never.html"]) == 130
    assert "no file was written" in capsys.readouterr().err
    assert not Path("never.html").exists()


def test_without_typer():
    code = "import sys; sys.modules['typer'] = None; from leaftrace._views.cli import main; sys.exit(main(['check']))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr == "leaftrace: typer is missing; do: pip install 'leaftrace[cli]'\n"


def test_a_traceback_has_no_terminal_escapes(here, capsys):
    Path("esc.csv").write_text(
        Path("test.csv").read_text(encoding="utf-8").replace("income", "in\x1b[31m", 1),
        encoding="utf-8",
    )
    code = main(["explain", "lgb.txt", *DATA, "--test", "esc.csv", "--debug"])
    err = capsys.readouterr().err
    assert code == 2
    assert "Traceback" in err
    assert "\x1b" not in err
    assert "in\\x1b[31m" in err
