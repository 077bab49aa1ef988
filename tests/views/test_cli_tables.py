"""Tables in text files: values come under the names that they stand under, or the file is refused."""

import gzip

import pytest

import leaftrace as lt
from leaftrace._views.cli.tables import open_table

WHOLE = {
    "plain": "a,b,c\n1,2,3\n4,5,6\n",
    "separator after the last value": "a,b,c\n1,2,3,\n4,5,6,\n",
    "lines of Windows": "a,b,c\r\n1,2,3\r\n4,5,6\r\n",
    "byte order mark": "\ufeffa,b,c\n1,2,3\n4,5,6\n",
    "no end of the last line": "a;b;c\n1;2;3\n4;5;6",
}
LONGER = {
    "all rows": ("a,b,c\n1,2,3,9\n4,5,6,9\n", "2 row.* the 3 columns, the first is row 0"),
    "one row": ("a,b,c\n1,2,3\n4,5,6,9\n", "1 row.* the 3 columns, the first is row 1"),
    "much longer": ("a,b,c\n1,2,3\n4,5,6,9,9,9\n", "1 row.* the 3 columns, the first is row 1"),
}


def written(folder, text, ending):
    path = folder / f"table{ending}"
    content = text.encode()
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    return open_table(str(path))


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("kind", WHOLE)
def test_columns_by_name(kind, ending, tmp_path):
    file = written(tmp_path, WHOLE[kind], ending)
    frame = file.read(["c", "a"])
    assert frame[["a", "c"]].to_numpy().tolist() == [[1, 3], [4, 6]]
    assert frame.index.tolist() == [0, 1]
    as_text = {"a": ["1", "4"], "b": ["2", "5"], "c": ["3", "6"]}
    assert file.read_all_columns("other.csv").to_pydict() == as_text


@pytest.mark.parametrize("kind", LONGER)
def test_rows_with_more_values_than_columns(kind, tmp_path):
    text, words = LONGER[kind]
    file = written(tmp_path, text, ".csv")
    with pytest.raises(lt.InvalidInput, match=words):
        file.read(["a", "c"])
