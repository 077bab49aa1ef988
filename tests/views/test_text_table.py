"""Tables as text: nothing is cut on a narrow terminal, and a pipe gets all digits."""

import io

import numpy as np
import pytest
from rich.console import Console

from leaftrace._views.cli.output import Output
from leaftrace._views.cli.text_table import print_table

COLUMNS = {
    "train_row": np.array(["FL031251", "a name that is longer than the others"], dtype=object),
    "position": np.array([7, 12345678]),
    "loss_change_if_removed": np.array([-9.951e-05, 1 / 3]),
    "before": np.array([2.874e7, 0.1]),
    "not_computed": np.array([np.nan, np.nan]),
    "verdict": np.array(["better", "worse"], dtype=object),
    "change_is": np.array(["first order", "first order"], dtype=object),
}


def shown(width, terminal, columns=COLUMNS):
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
    print_table(console, columns, 20)
    return file.getvalue()


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_no_number_is_cut_at_any_width(width):
    text = shown(width, True)
    assert max(map(len, text.splitlines())) <= width
    for number in ("-9.951e-05", "0.3333", "12345678", "28,740,000"):
        assert number in text.split(), (number, text)
    assert "Changes are first order." in " ".join(text.split())
    assert "not computed" not in text


def test_columns_that_do_not_fit_follow_with_the_name_of_the_row():
    narrow = shown(40, True)
    assert narrow.count("FL031251") > 1
    assert shown(120, True).count("FL031251") == 1


def test_lines_of_one_name_are_told_apart_by_the_next():
    numbers = {f"number_{i}": np.array([1234.5, 2.5]) for i in range(6)}
    groups = np.array(["Rome", "Oslo"], dtype=object)
    names = {"slice": np.array(["all", "all"], dtype=object), "rows": np.array([5, 6])}
    text = shown(60, True, names | {"group": groups} | numbers)
    parts = text.strip().split("\n\n")
    assert len(parts) > 1
    for part in parts:
        assert [line.split()[0] for line in part.splitlines()[-2:]] == ["all", "all"]
        assert part.count("Rome") == part.count("Oslo") == 1
    assert text.count("2.5") == len(numbers)


def test_a_pipe_gets_one_line_a_row_and_all_digits():
    head, first, second, sentence = shown(40, False).splitlines()
    assert head.split()[:2] == ["train", "row"]
    assert first.split()[-2:] == ["28740000.0", "better"]
    assert repr(1 / 3) in second
    assert sentence == "Changes are first order."


def test_a_command_is_not_broken_into_lines():
    """Pasted into a shell, the second line would be another command."""
    out = Output(as_json=False)
    file = io.StringIO()
    out._console = Console(file=file, width=40, force_terminal=True, color_system=None)
    command = "leaftrace noise model.txt --train train.csv --target income --id id"
    out.command(command)
    assert file.getvalue() == f"  {command}\n"
