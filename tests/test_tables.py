from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldwise.tables import TableError, read_table, write_table


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
        (["1", "inf"], "U", ["1", "inf"]),
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
        ("a,b,y\n1,2,3\n1,red,3\n", ["line 3", "'b'", "'red'", "0/1"]),
        ("a,b,y\n1,,3\n", ["line 2", "'b'", "missing", "''", "drop"]),
        ("a,b,y\n1,NA,3\n", ["line 2", "'b'", "missing", "'NA'"]),
        ("a,b,y\n1,nan,3\n", ["line 2", "'b'", "missing", "'nan'"]),
        ("a,b,y\n1,-inf,3\n", ["line 2", "'b'", "'-inf'", "finite"]),
        ("a,b,y\n1,1_000,3\n", ["line 2", "'b'", "'1_000'"]),
        ("a,b,y\n1,2,\n", ["line 2", "'y'", "missing"]),
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
    with pytest.raises(TableError, match="cannot write"):
        write_table(tmp_path / "no" / "t.csv", ["a"], [np.ones(2)])


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_what_is_written_is_read_back(tmp_path, name):
    rng = np.random.default_rng(0)
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
