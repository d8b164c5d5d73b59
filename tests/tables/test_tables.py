from __future__ import annotations

import gzip
import os
import sys
import tracemalloc
from datetime import date
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldwise.outputs import OutputError
from foldwise.tables import TableError, read_table, write_table
from foldwise.tables import text as text_files


@pytest.fixture
def csv_file(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_reads_features_and_target_by_name(csv_file):
    table = read_table(csv_file("a,y,b\n1,0.5,2\n3,1.5,-4e2\n"), "y")
    assert table.columns == ("a", "b")
    np.testing.assert_array_equal(table.X, [[1, 2], [3, -400]])
    np.testing.assert_array_equal(table.y, [0.5, 1.5])
    assert table.X.dtype == table.y.dtype == np.float64
    assert table.X.flags.writeable


def test_without_a_target_every_column_is_a_feature(csv_file):
    table = read_table(csv_file("a,b\n1,2\n"))
    assert table.columns == ("a", "b")
    assert table.y is None


def test_columns_are_taken_by_name_and_in_the_given_order(csv_file):
    table = read_table(csv_file("b,note,a\n2,hello,1\n"), columns=["a", "b"])
    np.testing.assert_array_equal(table.X, [[1, 2]])


def test_dropped_columns_may_hold_anything(csv_file):
    table = read_table(csv_file("id,a,y\nk_1,1,2\nk_2,3,4\n"), "y", drop=["id"])
    assert table.columns == ("a",)


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        (["1", "2.0", "-3"], "i", [1, 2, -3]),
        (["1", "2.5"], "f", [1.0, 2.5]),
        (["no", "yes"], "U", ["no", "yes"]),
        (["1", "yes"], "U", ["1", "yes"]),
        (["1_0", "2_0"], "U", ["1_0", "2_0"]),
        (["a", "inf"], "U", ["a", "inf"]),
    ],
)
def test_target_types(csv_file, cells, kind, expected):
    rows = "".join(f"0,{cell}\n" for cell in cells)
    y = read_table(csv_file("a,y\n" + rows), "y").y
    assert y.dtype.kind == kind
    assert y.tolist() == expected


def test_gzip_byte_order_mark_quotes_blank_lines_and_windows_line_ends(csv_file):
    text = '\ufeff"a, first",y\r\n"1",x\r\n\r\n2,"y, z"\r\n'.encode()
    table = read_table(csv_file(gzip.compress(text), "t.csv.gz"), "y")
    assert table.columns == ("a, first",)
    assert table.y.tolist() == ["x", "y, z"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,y\n1,2,3\n1,red,3\n", ["line 3", "'b'", "'red'", "not a number", "drop", "categorical"]),
        ("a,b,y\n1,red,3\n1,2,3\n", ["line 3", "'b'", "'2'", "is a number", "drop", "categorical"]),
        ("a,b,y\n1,,3\n1,NA,3\n", ["line 2", "'b'", "every cell is missing", "Drop"]),
        ("a,b,y\n1,-inf,3\n", ["line 2", "'b'", "'-inf'", "finite"]),
        ("a,b,y\n1,1,3\n1,1_000,3\n", ["line 3", "'b'", "'1_000'"]),
        ("a,b,y\n1,inf,3\n", ["line 2", "'b'", "'inf'", "finite"]),
        ("a,b,y\n1,2,\n", ["line 2", "'y'", "missing"]),
        ("a,y\n1,\n1,2\n1,NA\n1,?\n", ["target 'y'", "3 rows (lines 2, 4, 5)"]),
        ("a,y\n1,2\n1,inf\n1,-inf\n", ["target 'y'", "not finite", "2 rows (lines 3, 4)"]),
        ("a,b,y\n1,2\n", ["line 2", "2 cells", "3"]),
        ("a,b,z\n1,2,3\n", ["no column 'y'", "'a', 'b', 'z'"]),
        ("a,a,y\n1,2,3\n", ["two columns", "'a'", "Rename"]),
        (",a,y\n0,2,3\n", ["column 1 has no name"]),
        ("1,2,3\n4,5,6\n", ["only numbers", "names"]),
        ("a;b;y\n1;2;3\n", ["semicolons", "commas"]),
        ("a\tb\ty\n1\t2\t3\n", ["tabs"]),
        ("a,b,y\n", ["no data row"]),
        ("", ["first line is empty"]),
        ("y\n1\n", ["no feature column"]),
        ('a,b,y\n"1"x,2,3\n', ["cannot read", "quotes"]),
        (b"a,b,y\n\xff\xfe,2,3\n", ["UTF-8"]),
        ("a,b,y\n1,2,3\n".encode("utf-16-le"), ["zero bytes", "UTF-8"]),
        ("a,b,y\n1,2,3\n".encode("utf-16")[:-1], ["UTF-8"]),
        (b"PAR1\x15\x04\x15", ["Parquet"]),
        (b"PK\x03\x04\x14\x00", ["zip"]),
        ("a,b,y\n1," + "x" * 200_000 + ",3\n", ["cannot read", "field limit"]),
    ],
)
def test_bad_tables_are_refused_with_the_place_and_a_way_out(csv_file, text, words):
    with pytest.raises(TableError) as caught:
        read_table(csv_file(text), "y")
    for word in words:
        assert word in str(caught.value)


def test_line_numbers_count_lines_of_the_file_not_rows(csv_file):
    with pytest.raises(TableError, match="line 5"):
        read_table(csv_file("a,y\n\n1,2\n\nred,2\n"), "y")


def test_a_finite_row_whose_sum_overflows_is_kept(csv_file):
    X = read_table(csv_file("a,b\n1e308,1e308\n")).X
    np.testing.assert_array_equal(X, [[1e308, 1e308]])


@pytest.mark.parametrize(
    "content", [b"not gzip", gzip.compress(b"a,y\n1,2\n" * 500)[:30]], ids=["plain", "cut"]
)
def test_a_damaged_gzip_file_is_refused(csv_file, content):
    with pytest.raises(TableError, match="gzip"):
        read_table(csv_file(content, "t.csv.gz"), "y")


def test_a_missing_file_and_a_missing_column_are_refused(csv_file, tmp_path):
    with pytest.raises(TableError, match="No such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(TableError, match="no column 'c'"):
        read_table(csv_file("a,b\n1,2\n"), columns=["a", "c"])
    with pytest.raises(OutputError, match="cannot write"):
        write_table(tmp_path / "no" / "t.csv", ["a"], [np.ones(2)])


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_what_is_written_is_read_back(tmp_path, name, rng):
    X, y = (
        rng.standard_normal((20, 3)) * 10.0 ** rng.integers(-200, 200, (20, 3)),
        np.array(["a,b", 'c"'] * 10),
    )
    write_table(tmp_path / name, ["p", "q", "r s", "y"], [*X.T, y])
    table = read_table(tmp_path / name, "y")
    np.testing.assert_array_equal(table.X, X)
    np.testing.assert_array_equal(table.y, y)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_floats_survive_to_the_last_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("bits") / "t.csv"
    write_table(path, ["a"], [np.array(values)])
    assert read_table(path).X.ravel().tobytes() == np.array(values).tobytes()


def test_missing_numbers_are_nan_and_are_counted(csv_file):
    table = read_table(csv_file("a,b,y\n1,?,3\nNA,2,4\n,NaN,5\n"), "y")
    np.testing.assert_array_equal(table.X, [[1, np.nan], [np.nan, 2], [np.nan, np.nan]])
    assert table.missing == {"a": (2, 3), "b": (2, 2)}
    assert table.categories == {}


def test_texts_become_sorted_categories_and_missing_ones_a_category_of_their_own(csv_file):
    table = read_table(csv_file("a,b,c,y\n,1,x,3\nred,2,,4\nblue,3,x,5\nred,4,z,6\n"), "y")
    assert table.categories == {"a": ("blue", "red", None), "c": ("x", "z", None)}
    np.testing.assert_array_equal(table.X, [[2, 1, 0], [1, 2, 2], [0, 3, 0], [1, 4, 1]])
    assert table.missing == {}


def test_numbers_may_be_declared_categories(csv_file):
    path = csv_file("zip,y\n10115,1\n80331,2\nx,3\n")
    table = read_table(path, "y", categorical=["zip"])
    assert table.categories == {"zip": ("10115", "80331", "x")}
    with pytest.raises(TableError, match="no column 'plz'"):
        read_table(path, "y", categorical=["plz"])


def test_a_misspelt_column_is_answered_with_the_one_that_was_meant(csv_file):
    path = csv_file("weight,height,y\n1,2,3\n")
    with pytest.raises(TableError, match=r"no column 'Weigth'\. Did you mean 'weight'\? It has"):
        read_table(path, "y", drop=["Weigth"])
    with pytest.raises(TableError, match=r"no column 'age'\. It has"):
        read_table(path, "y", drop=["age"])


def test_columns_of_names_are_refused(csv_file):
    path = csv_file("name,y\n" + "".join(f"n{k},1\n" for k in range(60)))
    with pytest.raises(TableError, match="more than 50 different texts"):
        read_table(path, "y")
    assert len(read_table(path, "y", max_categories=60).categories["name"]) == 60


def test_categories_of_another_table_are_kept(csv_file):
    path = csv_file("b,a\nred,1\ngreen,\n,3\n")
    table = read_table(path, columns=["a", "b"], categories={"b": ["blue", "red", None]})
    np.testing.assert_array_equal(table.X, [[1, 1], [np.nan, -1], [3, 2]])
    assert table.unknown == {"b": 1}
    with pytest.raises(TableError, match=r"line 2, column 'b'.*'red' is not a number"):
        read_table(path, columns=["b"], categories={})


def test_columns_that_were_not_asked_for_are_named(csv_file):
    path = csv_file("a,z,b\n1,x,2\n")
    assert read_table(path, columns=["b"]).extra == ("a", "z")
    with pytest.raises(TableError, match=r"no columns 'c', 'd'\. Not used: 'z'"):
        read_table(path, columns=["c", "a", "b", "d"])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_encodings(csv_file, encoding):
    table = read_table(csv_file("größe,y\n1,ä\n2,ö\n".encode(encoding)), "y")
    assert table.columns == ("größe",)
    assert table.y.tolist() == ["ä", "ö"]


def test_tabs_and_gzip_by_content(csv_file):
    text = b"a\tb\ty\n1\t2,5\t3\n1\tx\t4\n"
    for name in ("t.tsv", "t.tab", "t.tsv.gz", "t.TSV"):
        content = gzip.compress(text) if name.endswith("gz") else text
        assert read_table(csv_file(content, name), "y").categories == {"b": ("2,5", "x")}
    assert read_table(csv_file(text, "t.txt"), "y", format="tsv").columns == ("a", "b")
    assert read_table(csv_file(gzip.compress(b"a,y\n1,2\n"), "t.csv"), "y").columns == ("a",)
    with pytest.raises(TableError, match="'xml' is unknown"):
        read_table(csv_file(text, "t.txt"), "y", format="xml")


HOSTILE = [
    '"q"',
    "<script>alert(1)</script>",
    "a,b",
    "new\nline",
    "\x1b[31m",
    "${x}",
    "[bold]",
    "'; DROP",
    "=1+1",
    "🙂",
]


def test_hostile_names_survive(tmp_path):
    path = tmp_path / "t.csv"
    write_table(path, [*HOSTILE, "y"], [np.arange(3.0)] * (len(HOSTILE) + 1))
    assert read_table(path, "y").columns == tuple(HOSTILE)


def test_ten_thousand_columns(tmp_path):
    path = tmp_path / "t.csv"
    names = [f"c{k}" for k in range(10_000)]
    path.write_text(",".join([*names, "y"]) + "\n" + (",".join(["1.5"] * 10_000) + ",2\n") * 3)
    table = read_table(path, "y")
    assert table.X.shape == (3, 10_000)
    with pytest.raises(TableError, match="and 9995 more"):
        read_table(path, "z")


class Endless:
    """A file of a gigabyte without a line end, made while it is read."""

    def __init__(self, size):
        self.left, self.most = size, 0

    def readline(self, size):
        size = min(size, self.left)
        self.left -= size
        self.most = max(self.most, size)
        return "x" * size


def test_a_line_without_end_is_not_read_to_its_end(tmp_path):
    file = Endless(1 << 30)
    with pytest.raises(TableError, match="longer than"):
        list(text_files.bounded_lines(file, tmp_path))
    assert file.left > 0.9 * (1 << 30)
    with gzip.open(tmp_path / "t.csv.gz", "wb", compresslevel=1) as out:
        out.write(b"a,y\n")
        for _ in range(40):
            out.write(b"1" * (1 << 20))
    with pytest.raises(TableError, match="longer than"):
        read_table(tmp_path / "t.csv.gz", "y")


def test_svmlight(csv_file):
    table = read_table(csv_file("1 1:0.5 4:2 # note\n-1 2:1\n", "t.svm"))
    assert table.columns == ("1", "2", "3", "4")
    np.testing.assert_array_equal(table.X, [[0.5, 0, 0, 2], [0, 1, 0, 0]])
    assert table.y.tolist() == [1, -1]
    again = read_table(csv_file("0 0:1 9:1\n", "t.svmlight"), columns=["4", "9", "11"])
    np.testing.assert_array_equal(again.X, [[0, 1, 0]])
    zero = read_table(csv_file(gzip.compress(b"0.5 0:1 1:2\n"), "t.libsvm.gz"))
    assert zero.columns == ("0", "1")
    assert zero.y.tolist() == [0.5]


def test_a_large_svmlight_file_stays_sparse(csv_file):
    table = read_table(csv_file("1 1:0.5 6000000:2\n-1 2:1\n", "t.svm"))
    assert table.X.shape == (2, 6_000_000)
    assert table.X.nnz == 3


@pytest.mark.parametrize(
    "text", ["", "1 a:2\n", "x 1:2\n", "1 1:nan\n", "inf 1:2\n", "a,b\n1,2\n", "1\n", "1 2:1 1:1\n"]
)
def test_bad_svmlight_files(csv_file, text):
    with pytest.raises(TableError):
        read_table(csv_file(text, "t.svm"))


def test_names_of_svmlight_columns(csv_file):
    with pytest.raises(TableError, match="have numbers"):
        read_table(csv_file("1 1:2\n", "t.svm"), columns=["age"])
    with pytest.raises(TableError, match="have no names"):
        read_table(csv_file("1 1:2\n", "t.svm"), drop=["1"])


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    columns = {
        "a": [1.5, None, float("nan")],
        " b ": pa.array(["x", None, "y"]).dictionary_encode(),
        "c": [True, False, True],
        "d": [1, 2, 3],
        "y": ["no", "yes", "no"],
    }
    pq.write_table(pa.table(columns), path)
    table = read_table(path, "y")
    assert table.columns == ("a", "b", "c", "d")
    assert table.categories == {"b": ("x", "y", None), "c": ("False", "True")}
    np.testing.assert_array_equal(table.X, [[1.5, 0, 1, 1], [np.nan, 2, 0, 2], [np.nan, 1, 1, 3]])
    assert table.y.tolist() == ["no", "yes", "no"]
    values = np.random.default_rng(0).standard_normal(50)
    pq.write_table(pa.table({"v": values}), path)
    np.testing.assert_array_equal(read_table(path).X[:, 0], values)
    pq.write_table(pa.table({"v": [[1, 2]]}), path)
    with pytest.raises(TableError, match="not supported"):
        read_table(path)
    with pytest.raises(TableError, match="no column 'z'"):
        read_table(path, "z")
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(TableError, match="Parquet"):
        read_table(path)
    with pytest.raises(TableError, match="No such file"):
        read_table(tmp_path / "none.parquet")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"foldwise\[parquet\]"):
        read_table(tmp_path / "t.parquet")


def test_all_columns_that_cannot_be_used_are_told_at_once(csv_file):
    """Free text, dates, mixtures, infinities, nothing: one message, with a way out for each kind."""
    lines = ["note,day,size,rate,void,colour,x,y"]
    for k in range(60):
        size, rate = ("large" if k == 7 else k), ("inf" if k == 9 else k)
        lines.append(f"text {k},2024-{k % 12 + 1:02d}-{k % 28 + 1:02d},{size},{rate},,{'rb'[k % 2]},{k},{k}")
    path = csv_file("\n".join(lines) + "\n")
    with pytest.raises(TableError) as caught:
        read_table(path, "y")
    kinds = {"note": "texts", "day": "dates", "size": "mixed", "rate": "infinite", "void": "empty"}
    assert caught.value.faults == kinds
    text = str(caught.value)
    for word in (*kinds, "5 columns", "line 9: 'large'", "line 11: 'inf'", "2024-", "every cell", "a year"):
        assert word in text, word
    table = read_table(path, "y", drop=list(kinds))
    assert table.columns == ("colour", "x")
    table = read_table(
        path, "y", drop=["note", "day", "void", "rate"], categorical=["size"], max_categories=60
    )
    assert len(table.categories["size"]) == 60
    many = ",".join(f"c{k}" for k in range(30))
    with pytest.raises(TableError, match=r"30 columns.* and 22 more"):
        read_table(csv_file(f"{many},y\n{'1,' * 30}1\n{'x,' * 30}2\n"), "y")


def test_the_target_is_neither_dropped_nor_categorical(csv_file):
    path = csv_file("a,b,y\n1,2,3\n2,3,4\n")
    with pytest.raises(TableError, match="'y' is the target"):
        read_table(path, "y", drop=["y"])
    with pytest.raises(TableError, match="'y' is the target"):
        read_table(path, "y", categorical=["y"])
    with pytest.raises(TableError, match="'a' cannot be both"):
        read_table(path, "y", drop=["a"], categorical=["a"])


def peak_memory(call):
    """Bytes that Python and numpy hold at most during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("index", [10**9, 2**31 - 1, 2**31, 2**62, 10**30])
def test_a_svmlight_index_beyond_any_use_takes_no_memory(csv_file, index):
    path = csv_file(f"1 1:0.5 {index}:2\n-1 2:1\n", "t.svm")

    def read():
        with pytest.raises(TableError, match=r"largest index|cannot read"):
            read_table(path)

    assert peak_memory(read) < 1e7

    def pick():
        try:
            X = read_table(path, columns=["2", "1", "7"]).X
        except TableError:  # beyond what an index can be
            assert index >= 2**31
        else:
            assert X.tolist() == [[0, 0.5, 0], [1, 0, 0]]

    assert peak_memory(pick) < 1e7


def test_a_svmlight_file_has_a_target_of_its_own(csv_file):
    path = csv_file("1 1:0.5\ninf 1:2\n", "t.svm")
    with pytest.raises(TableError, match="beginning of each line"):
        read_table(path, "1")
    with pytest.raises(TableError, match=r"1 row .line 2"):
        read_table(path)
    with pytest.raises(TableError, match="row 2"):
        read_table(csv_file("1 1:0.5\n2 1:nan\n", "t.svm"))


def test_a_gzip_bomb_is_refused_on_the_way(csv_file, monkeypatch):
    monkeypatch.setattr(text_files, "SMALL", 1 << 20)
    bomb = gzip.compress(b"a,y\n" + b"0,0\n" * (1 << 21))
    with pytest.raises(TableError, match="500 times"):
        read_table(csv_file(bomb, "t.csv.gz"), "y")
    fair = b"a,y\n" + b"0,0\n" * (1 << 17)
    assert len(read_table(csv_file(gzip.compress(fair), "t.csv.gz"), "y").y) == 1 << 17


def test_parquet_types(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    columns = {
        "price": pa.array([Decimal("1.50"), None, Decimal("2.25")]),
        "on": pa.array([True, False, None]),
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        "y": pa.array([1, 2, 3]),
    }
    pq.write_table(pa.table(columns), path)
    table = read_table(path, "y")
    np.testing.assert_array_equal(table.X[:, 0], [1.5, np.nan, 2.25])
    assert table.categories == {"on": ("False", "True", None), "kind": ("a", "b")}
    odd = {
        "day": pa.array([date(2024, 1, 1)] * 3),
        "list": pa.array([[1], [2], []]),
        "raw": pa.array([b"a", b"b", b"c"]),
        "part": pa.array([{"a": 1}, {"a": 2}, None]),
    }
    pq.write_table(pa.table({**columns, **odd}), path)
    with pytest.raises(TableError, match="4 columns cannot be used") as caught:
        read_table(path, "y")
    assert caught.value.faults == dict.fromkeys(odd, "type")
    assert read_table(path, "y", drop=list(odd)).columns == ("price", "on", "kind")
    with pytest.raises(TableError, match="target 'day'"):
        read_table(path, "day", columns=["price"])
    monkeypatch.setattr(os, "sysconf", lambda name: 8)
    with pytest.raises(TableError, match="this machine has 64"):
        read_table(path, "y", drop=list(odd))


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (["01", "1", "2"], True),
        (["+1", "-1", "+1"], True),
        (["9007199254740993", "9007199254740992", "3"], True),
        (["1", "-1", "0"], False),
        (["1.50", "01.5", "2"], False),
    ],
)
def test_whole_numbers_that_are_names_stay_as_they_are_written(labels, kept, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{k},{label}\n" for k, label in enumerate(labels)))
    y = read_table(path, target="y").y
    assert (y.tolist() == labels) is kept
    if not kept:
        assert y.dtype.kind in "if"
