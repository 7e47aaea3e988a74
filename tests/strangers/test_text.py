"""Text as spreadsheets and programs write it: each number is read, and no cell moves."""

from __future__ import annotations

import csv
import gzip
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import centroid_encoder as ce
from centroid_encoder.errors import InputError

X = [[1234.5, 3.25], [2000.25, 4.5], [12.5, 0.5]]
PLAIN = "a,b\n1234.5,3.25\n2000.25,4.5\n12.5,0.5\n"
SAME = {
    "plain": PLAIN,
    "windows line ends": PLAIN.replace("\n", "\r\n"),
    "Vizgen's line ends": PLAIN.replace("\n", "\r\r\n"),
    "line ends of old Macs": PLAIN.replace("\n", "\r"),
    "UTF-16": PLAIN.replace(",", "\t").encode("utf-16"),
    "BOM": PLAIN.encode("utf-8-sig"),
    "separator of Excel": "sep=,\n" + PLAIN,
    "comments": "# of cells, and more\n## again\n" + PLAIN,
    "title": "My cells\n\n" + PLAIN,
    "sentences above": "My cells were here\nOn a day\n" + PLAIN,
    "units": PLAIN.replace("b\n", "b\n(µm),(counts)\n", 1),
    "empty rows": PLAIN + ",\n,\n",
    "separator at the end of rows": PLAIN.replace("5\n", "5,\n"),
    "separator at the end": PLAIN.replace("\n", ",\n"),
    "R": 'a b\n"1" 1234.5 3.25\n"2" 2000.25 4.5\n"3" 12.5 0.5\n',
    "bars": PLAIN.replace(",", "|"),
    "semicolons": PLAIN.replace(",", ";").replace(".", ","),
    "decimal comma in quotes": 'a,b\n"1234,5","3,25"\n"2000,25","4,5"\n"12,5","0,5"\n',
    "decimal comma in a column": 'a,b\n"1234,5",3.25\n"2000,25",4.5\n"12,5",0.5\n',
    "thousands": 'a,b\n"1,234.5",3.25\n"2,000.25",4.5\n12.5,0.5\n',
    "thousands in Germany": "a;b\n1.234,5;3,25\n2.000,25;4,5\n12,5;0,5\n",
    "thousands in France": "a;b\n1\u202f234,5;3,25\n2\u00a0000,25;4,5\n12,5;0,5\n",
    "thousands in Switzerland": "a;b\n1'234.5;3.25\n2’000.25;4.5\n12.5;0.5\n",
    "scientific": "a;b\n1,2345E+03;3,25\n2,00025e3;4,5\n1,25E1;5e-1\n",
    "units in cells": "a;b\n1234,5 µm;3,25 %\n2000,25 µm;4,5 %\n12,5 µm;0,5 %\n",
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_numbers_in_many_notations(kind: str, tmp_path: Path) -> None:
    text = SAME[kind]
    path = tmp_path / "cells.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    adata = ce.read_table(path)
    assert adata.var_names.tolist() == ["a", "b"]
    assert_allclose(adata.X, X)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a,b\n"1,234",1.5\n567,2.5\n', [[1234, 1.5], [567, 2.5]]),
        ("a;b\n1.234;1,5\n567;2,5\n", [[1234, 1.5], [567, 2.5]]),
        ("a;b\n1,5;0.5\n2,5;0.25\n3,5;0.75\n", [[1.5, 0.5], [2.5, 0.25], [3.5, 0.75]]),
        ('a,b\n"5,788",1.5\n"4,125",2.5\n', [[5.788, 1.5], [4.125, 2.5]]),
        ("a\tb\n5,788\t1.5\n999\t2.5\n", [[5788, 1.5], [999, 2.5]]),
        ("a\tb\n5,788\t2\n4,125\t5\n", [[5.788, 2], [4.125, 5]]),
        (
            "a;b\n3;1.125\n4.125;2.375\n5.375;4.5\n2;4\n",
            [[3, 1.125], [4.125, 2.375], [5.375, 4.5], [2, 4]],
        ),
        ("a\tc\n3\tx\n4.125\ty\n5.375\tx\n2\tz\n", [[3], [4.125], [5.375], [2]]),
        ("# a b\n1.5 2\n2.5 5\n", [[1.5, 2], [2.5, 5]]),
        ("# by me\n# a,b\n1.5,2\n2.5,5\n", [[1.5, 2], [2.5, 5]]),
        ("a\n1.5\n2.5\n", [[1.5], [2.5]]),
        ("a,b\ninf,1\n2.5,-Infinity\n", [[np.inf, 1], [2.5, -np.inf]]),
        ("c,a,b\nx,NA,#N/A\ny,1.5,2\nz,1.5,2\n", [[np.nan, np.nan], [1.5, 2], [1.5, 2]]),
        ('a,"b\nc",d\n1.5,3,"x\ny"\n2.5,4,z\n3.5,5,z\n', [[1.5, 3], [2.5, 4], [3.5, 5]]),
        ("141,142,143\n1.5,2,2\n2,5,1\n", [[1.5, 2, 2], [2, 5, 1]]),
        ("a,c,d\n1.5,TRUE,2024-01-01\n2.5,FALSE,2024-01-02\n", [[1.5], [2.5]]),
        ("a,c,d\n1.5,,NA\n2.5,,\n", [[1.5], [2.5]]),
    ],
)
def test_numbers(text: str, expected: list[list[float]], tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text(text)
    assert_allclose(ce.read_table(tmp_path / "cells.csv").X, expected)


def test_what_is_not_plain_is_said(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_bytes("Fläche;b\n#DIV/0!;1\n1,5;<2\n2,5;3\n3,5;4\n".encode("cp1252"))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        adata = ce.read_table(path)
    assert adata.var_names.tolist() == ["Fläche", "b"]
    texts = [str(warning.message) for warning in found]
    assert any("Windows text" in text for text in texts)
    assert any("2 values became missing, since no number: such as '#DIV/0!'" in x for x in texts)


def test_classes_stay_text(tmp_path: Path) -> None:
    rows = [f"{i * 7 % 20 / 8},{'+-'[i % 2]},{'Label 1' if i % 3 else 0}" for i in range(20)]
    (tmp_path / "cells.csv").write_text("\n".join(["m,CD8,User Label", *rows]))
    obs = ce.read_table(tmp_path / "cells.csv").obs
    assert obs["CD8"].value_counts().to_dict() == {"+": 10, "-": 10}
    assert obs["User Label"].nunique() == 2


def test_names_are_made_unique(tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text("a,a,,b\n1.5,2,3,4\n2.5,3,9,5\n")
    adata = ce.read_table(tmp_path / "cells.csv")
    assert adata.var_names.tolist() == ["a", "a.1", "b"]
    assert adata.obs.columns.tolist() == ["Unnamed: 2"]


REFUSED = {
    "empty": (b"", "it is empty"),
    "blank": (b"\n\n", "it is empty"),
    "a header only": (b"a,b\n", "a header and no rows"),
    "no header": (b"1.5,2\n2.5,3\n", "no header"),
    "a workbook": (b"PK\3\4\0\0" * 9, "no text"),
    "NUL": (b"a,b\n1,2\0\n", "no text"),
    "a long row": (b"a,b\n1,2\n3,4,5\n", "line 3 has 3 fields, but the header has 2"),
    "a long row below": (b"a,b\n" + b"1,2\n" * 500 + b"1,2,3\n", "line 502 has 3 fields"),
    "a short header": (b"a,b\n1,2,3,4\n5,6,7,8\n", "line 2 has 4 fields, but the header has 2"),
    "decimal comma or row names": (b"a\n1,5\n2,5\n", "line 2 has 2 fields"),
    "an open quote": (b'a,b\n1,2\n"3,4\n', "never closed"),
    "an open quote below": (b"a,b\n" + b"1,2\n" * 500 + b'"3,4\n', "never closed"),
    "text only": (b"a,b\nx,y\nz,w\n", "no column with measurements"),
    "missing only": (b"a,b\n,NA\n", "no rows|no column with measurements"),
    "JSON": (b'{"a": [1, 2],\n "b": [3, 4]}\n', "no column with measurements"),
    "a git pointer": (b"version https://x\noid sha256:3a\nsize 12\n", "no column"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_table_is_refused_in_a_sentence(kind: str, tmp_path: Path) -> None:
    content, words = REFUSED[kind]
    (tmp_path / "cells.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        ce.read_table(tmp_path / "cells.csv")


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_damaged_packages_are_refused(ending: str, tmp_path: Path) -> None:
    for content in (b"no package", gzip.compress(PLAIN.encode() * 99)[:40]):
        (tmp_path / f"cells.csv{ending}").write_bytes(content)
        with pytest.raises(InputError, match="cannot be unpacked"):
            ce.read_table(tmp_path / f"cells.csv{ending}")


def test_points_between_thousands_of_whole_numbers(tmp_path: Path) -> None:
    area = [850, 1234, 999, 12345] * 10
    rows = [f"{f'{x:,}'.replace(',', '.')};a, T cell;{i % 7 + 1}" for i, x in enumerate(area)]
    (tmp_path / "cells.csv").write_text("Area;Class;Spots\n" + "\n".join(rows) + "\n")
    adata = ce.read_table(tmp_path / "cells.csv")
    assert adata[:, "Area"].X.ravel().tolist() == area


def test_text_has_no_spaces_around_it(tmp_path: Path) -> None:
    rows = "\n".join(f"{0.5 + i}, {'tumour' if i % 2 else 'stroma '}" for i in range(20))
    (tmp_path / "cells.csv").write_text(f"area, class\n{rows}\n")
    assert set(ce.read_table(tmp_path / "cells.csv").obs["class"]) == {"tumour", "stroma"}


@pytest.mark.parametrize("word", ["-", ".", "n.d.", "#DIV/0!", "OVER", "missing", "none", "<0.5"])
@pytest.mark.parametrize("n", [6, 36])
def test_a_marker_with_missing_values_stays_a_feature(word: str, n: int, tmp_path: Path) -> None:
    """Also where most values are missing, and where the others are whole numbers."""
    rows = [f"{word if i < n else i * 7 % 23},{i * 13 % 17 * 1.7}" for i in range(60)]
    (tmp_path / "cells.csv").write_text("\n".join(["spots,b", *rows]))
    with pytest.warns(UserWarning, match=f"{n} values became missing"):
        adata = ce.read_table(tmp_path / "cells.csv")
    assert np.isnan(adata[:, "spots"].X).sum() == n


def test_what_cannot_be_read_for_sure_is_named(tmp_path: Path) -> None:
    rows = [f"{1 + i % 9},{i:03};{i % 7 + 1}.250;{i} {'µm' if i % 2 else 'mm'}" for i in range(20)]
    rows += ["5,125;9;unsure"]
    (tmp_path / "cells.csv").write_text("\n".join(["a;b;size", *rows]))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        adata = ce.read_table(tmp_path / "cells.csv")
    texts = " ".join(str(warning.message) for warning in found)
    assert "'a' has no plain decimal mark" in texts
    assert "'size' is text, since its units differ: mm, µm" in texts
    assert_allclose(adata[0].X, [[1, 1.25]])


def test_long_ids_beside_a_missing_value_stay_different(tmp_path: Path) -> None:
    first = 2_594_000_000_000_000_001
    rows = [f"{'' if i == 7 else first + i * 3},{i * 13 % 17 * 1.7},{i % 5}e20" for i in range(30)]
    (tmp_path / "cells.csv").write_text("\n".join(["EntityID,Area,Large", *rows]))
    adata = ce.read_table(tmp_path / "cells.csv")
    ids = [int(x) for x in adata.obs["EntityID"].dropna()]
    assert ids == [first + i * 3 for i in range(30) if i != 7]
    assert adata.var_names.tolist() == ["Area", "Large"]


@pytest.mark.slow
def test_a_large_file_takes_little_memory_and_its_columns_one_type(tmp_path: Path) -> None:
    """pandas reads a large file in parts. The first part of a column holds no words."""
    rng, n = np.random.default_rng(0), 30_000
    values = rng.random((n, 80)).round(6)
    lines = [",".join(map(str, row)) for row in values]
    ids = [f"{i:06d}" if i < n // 3 else f"x{i}" for i in range(n)]
    names = ",".join(f"m{i}" for i in range(80))
    path = tmp_path / "cells.csv"
    path.write_text("\n".join([f"code,{names}", *map(",".join, zip(ids, lines, strict=True))]))
    tracemalloc.start()
    adata = ce.read_table(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * path.stat().st_size
    assert adata.obs_names.tolist() == ids
    assert_allclose(adata.X, values)


def test_a_field_that_is_too_long_for_the_header_is_named(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    (tmp_path / "cells.csv").write_text("a,b\n1.5," + "x" * 200_000 + "\n")
    with pytest.raises(InputError, match="line 2 cannot be read: field larger than"):
        ce.read_table(tmp_path / "cells.csv")
    assert csv.field_size_limit() == before


def test_rows_without_the_last_field_and_decimal_commas(tmp_path: Path) -> None:
    rows = [f"{i};{i},5;{i},25" + ";good" * (i % 2) for i in range(30)]
    path = tmp_path / "cells.csv"
    path.write_text("\n".join(["id;x;y;note", *rows]))
    adata = ce.read_table(path, roles={"x": "feature", "y": "feature"})
    assert_allclose(adata.X, np.arange(30)[:, None] + [0.5, 0.25])
