"""Read delimited text as programs and spreadsheets write it."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path

import pandas as pd
from anndata.utils import make_index_unique

from centroid_encoder.errors import InputError

SEPARATORS = "\t;,|"
"""Possible separators; where two fit equally well, the first one is taken, and a space if none."""
UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
N_ROWS = 100
"""Number of the first rows that decide on separator, header and decimal mark."""
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"]
MAX_CLASSES = 50
"""A column of at most so many whole numbers and words, most of them repeated, is text."""
NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?")


def read_text(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read a table of delimited text; return it, and sentences on what was not plain.

    Encoding, separator, decimal mark and header are detected. Lines above the header, empty rows
    and columns, and rows of units below the header are left out. If rows have one field more than
    the header, the first one is the name of the row.

    Raises an InputError if there is no header, no row, or a row that is longer than the header.
    """
    text, notices = _decoded(path)
    stream = io.StringIO(text)
    separator = _separator(stream)
    stream.seek(0)
    sample = list(islice(_rows(stream, separator), N_ROWS))
    rows = [row for row, _, _ in sample]
    n_fields = _typical(rows)
    too_long = "line {} has {} fields, but the header has {}"
    start = next(i for i, row in enumerate(rows) if len(row) == n_fields)
    if start and any(map(NUMBER.fullmatch, rows[start])):
        # R's `write.table` gives no name to the column of row names.
        if len(rows[start - 1]) != n_fields - 1 or n_fields == 2:
            raise InputError(too_long.format(sample[start][1], n_fields, len(rows[start - 1])))
        start -= 1
    if start:
        notices.append(f"lines above the header were left out: {start}")
    names, n_header = _header(rows[start:])
    _, header_line, header_end = sample[start + n_header - 1]
    body = sample[start + n_header :]
    for row, line, _ in body:
        if len(row) > n_fields:
            raise InputError(too_long.format(line, len(row), len(names)))
    if not body:
        raise InputError("it has a header and no rows")
    if len(names) < n_fields:
        names = (
            ["", *names] if any(row[n_fields - 1 :] != [""] for row, _, _ in body) else [*names, ""]
        )
    decimal = _decimal([row for row, _, _ in body], separator)
    stream.seek(header_end)
    try:
        frame = pd.read_csv(
            stream,
            sep=separator,
            header=None,
            names=range(n_fields),
            decimal=decimal,
            keep_default_na=False,
            na_values=MISSING,
            low_memory=False,
        )
    except pd.errors.ParserError as error:
        found = re.search(r"in line (\d+), saw (\d+)", str(error))
        if not found:
            raise InputError("a quotation mark in it is never closed") from error
        line = header_line + int(found[1])
        raise InputError(too_long.format(line, found[2], len(names))) from error
    kept = [i for i, name in enumerate(names) if name or frame[i].notna().any()]
    frame = frame[kept].dropna(how="all").reset_index(drop=True)
    names = [names[i] or f"Unnamed: {i}" for i in kept]
    frame.columns = make_index_unique(pd.Index(names), join=".")
    return _converted(frame, decimal, notices), notices


def _decoded(path: Path) -> tuple[str, list[str]]:
    """Return the text of a file, which may be compressed."""
    raw = path.read_bytes()
    try:
        raw = UNPACK.get(path.suffix.lower(), bytes)(raw)
    except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"it cannot be unpacked: {error}") from error
    notices = []
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")
        notices.append("it is no UTF-8, and was read as Windows text (cp1252)")
    if "\0" in text:
        raise InputError("it is no text, or in no known encoding; save it as CSV in UTF-8")
    if "\r" in text:
        text = text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")
    # Outlines of cells may be longer than the default limit.
    csv.field_size_limit(max(csv.field_size_limit(), min(len(text), 2**31 - 1)))
    return text, notices


def _separator(stream: io.StringIO) -> str:
    fits: list[tuple[float, float]] = []
    for separator in SEPARATORS:
        stream.seek(0)
        rows = [row for row, _, _ in islice(_rows(stream, separator), N_ROWS)]
        n_fields = _typical(rows)
        lacks = [n_fields - len(row) for row in rows]
        shares = [sum(lack in kind for lack in lacks) / len(rows) for kind in ((0, 1), (0,))]
        # A text in each row may hold another separator, which the header does not hold.
        fits.append((shares[0], shares[1]) if n_fields > 1 else (0, 0))
    return SEPARATORS[fits.index(max(fits))] if max(fits)[0] else " "


def _typical(rows: Sequence[Sequence[str]]) -> int:
    if not rows:
        raise InputError("it is empty")
    counts = Counter(map(len, rows))
    return max(counts, key=lambda n: (counts[n], n))


def _rows(stream: io.StringIO, separator: str) -> Iterator[tuple[list[str], int, int]]:
    """Yield each row but comments and empty ones, with the line and the place of its end."""
    reader = csv.reader(stream, delimiter=separator)
    for row in reader:
        cells = [cell.strip() for cell in row]
        if any(cells) and not re.match(r"# |##|sep=.?$", cells[0]):
            yield cells, reader.line_num, stream.tell()


def _header(rows: Sequence[list[str]]) -> tuple[list[str], int]:
    """Return the names of the columns, and the number of rows that they and their units take."""
    first, rows = rows[0], rows[:20]
    filled = [cell for cell in first if cell]
    found = [float(cell.replace(",", ".")) for cell in filled if NUMBER.fullmatch(cell)]
    # The names may be numbers, such as masses or ids of genes.
    is_row = len(set(found)) < len(found) or any(value % 1 for value in found)
    is_row = is_row or len(found) == len(filled)
    if len(found) > len(filled) / 2 and is_row and (found != sorted(set(found)) or len(found) < 3):
        raise InputError("it has no header: its first line holds numbers")
    numeric = [{i for i, cell in enumerate(row) if NUMBER.fullmatch(cell)} for row in rows]
    counts = Counter(i for found in numeric for i in found)
    columns = [i for i, count in counts.items() if count >= len(rows) / 2]
    n = 1
    # Rows of units or descriptions have text in the columns of numbers.
    while columns and n < len(rows) and not numeric[n]:
        cells = [rows[n][i] for i in columns if i < len(rows[n])]
        if sum(cell not in MISSING and cell[0] not in "#<>" for cell in cells) <= len(columns) / 2:
            break
        n += 1
    if n > 1 and len(rows[1]) == len(first) and len(set(first)) <= 0.75 * len(first):
        # CellProfiler writes the names of the objects above those of the measurements.
        first = ["_".join(filter(None, pair)) for pair in zip(first, rows[1], strict=True)]
    return first, n


def _decimal(rows: Sequence[Sequence[str]], separator: str) -> str:
    """Return the decimal mark of most numbers; thousands, as in 1,234, count only if in doubt."""
    cells = " ".join(cell for row in rows for cell in row if "," in cell or "." in cell).split(" ")
    marks = {}
    for mark in ",.":
        found = [cell for cell in cells if re.fullmatch(rf"[-+]?\d*\{mark}\d+", cell)]
        n_plain = sum(not re.fullmatch(r"[-+]?[1-9]\d{0,2}[,.]\d{3}", cell) for cell in found)
        marks[mark] = n_plain, len(found) * (mark == "." or separator != ",")
    # Whole numbers such as 850 and 1.234 in one column have points between thousands.
    columns = [[cell for cell in cells if cell] for cells in zip_longest(*rows, fillvalue="")]
    if separator != "," and marks["."][0] == 0 and any(map(_has_thousands, columns)):
        return ","
    return max(".,", key=marks.__getitem__)


def _has_thousands(cells: Sequence[str]) -> bool:
    """Return whether all cells are whole numbers, some of them with points between thousands."""
    is_whole = all(re.fullmatch(r"[-+]?\d{1,3}(\.\d{3})*", cell) for cell in cells)
    return is_whole and 1 < sum("." in cell for cell in cells) < len(cells)


def _converted(frame: pd.DataFrame, decimal: str, notices: list[str]) -> pd.DataFrame:
    """Return the table with numbers for texts that are numbers in another notation."""
    wrong, columns = [], dict(frame.items())
    for name, column in columns.items():
        if pd.api.types.is_numeric_dtype(column):
            continue
        texts = column.dropna().astype(str).str.strip()
        found = numbers(texts, decimal)
        if found is not None:
            wrong += [f"{text!r} in {name!r}" for text in texts[found.isna()]]
        columns[name] = (texts if found is None else found).reindex(column.index)
    if wrong:
        verb = "values became" if wrong[1:] else "value became"
        notices.append(f"{len(wrong)} {verb} missing, since no number: such as {wrong[0]}")
    return pd.DataFrame(columns, index=frame.index)


def numbers(texts: pd.Series, decimal: str) -> pd.Series | None:
    """Return the numbers that texts are; None if most are no numbers, or if they are classes."""
    texts = texts.str.replace("\N{MINUS SIGN}", "-")
    plain = texts.str.replace(r"(?<=\d)[\s'’](?=\d{3})|\s*(%|[µμun]m\S*|px\S*)$", "", regex=True)
    point, comma = _read(plain, ",", "."), _read(plain, ".", ",")
    n_more = comma.count() - point.count()
    # Where each cell has three digits behind a comma, it is unlikely to separate thousands.
    is_comma = decimal == "," or plain.str.fullmatch(r"[-+]?\d+,\d{3}").all()
    found = comma if n_more > 0 or (n_more == 0 and is_comma) else point
    # Signs and "n.d." stand for what is missing.
    is_word = found.isna() & ~texts.str.match(r"[#<>]|\W+$|(?i:n\.?[ad]\.?)$")
    is_class = is_word.any() and texts.nunique() <= min(MAX_CLASSES, len(texts) / 2)
    if found.count() <= len(texts) / 2 or (is_class and (found.dropna() % 1 == 0).all()):
        return None
    return found


def _read(texts: pd.Series, thousands: str, mark: str) -> pd.Series:
    grouped = texts.str.fullmatch(rf"[-+]?[1-9]\d{{0,2}}(\{thousands}\d{{3}})+(\{mark}\d*)?")
    plain = texts.mask(grouped, texts.str.replace(thousands, "", regex=False))
    return pd.to_numeric(plain.str.replace(mark, ".", regex=False), errors="coerce")
