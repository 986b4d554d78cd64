"""Tables as people have them: gaps by many names, other alphabets, decimal commas, dates, Excel."""

import sys
import types

import pandas as pd
import pytest
import torch
from tests.data.test_tabular import GOOD, error, same, write

from tacit.data import from_table
from tacit.data.federation import PARTS
from tacit.errors import TacitError


def column(cells, **options):
    """What becomes of one column of text beside a good one."""
    rows = len(cells)
    table = {"site": (["p", "q"] * rows)[:rows], "v": list(cells), "a": range(rows)}
    table["y"] = ([0, 1, 1, 0] * rows)[:rows]
    return from_table(table, task="site", target="y", scale="none", **options)


NUMBERS = [str(k) for k in range(60)]
GAPS = [".", "-", "NA", "n/a", "N/A", "", "NULL", "?", "–", "None", "nan", "#N/A", "missing"]


def test_words_for_nothing_are_gaps_in_numbers_and_categories_in_text():
    for word in GAPS:
        made = column([word, *NUMBERS])
        assert made.features == ("v", "v (missing)", "a"), word
    rhesus = column(["+", "-"] * 4)
    assert rhesus.features == ("v=-", "a")
    # By a fixed list: whatever the other rows hold, other words stay mistakes.
    with pytest.raises(TacitError, match="'lost' is not a number; correct the cell, or pass cat"):
        column(["lost", *NUMBERS])


def test_a_gap_in_a_target_of_numbers_is_found_whatever_it_is_called():
    for word in GAPS:
        y = [word, *(k / 2 for k in range(11))]
        message = error({"site": ["p", "q"] * 6, "a": range(12), "y": y})
        assert "row 1 has no target in column 'y' (1 row in all)" in message, word
    plus = {"site": ["p", "q"] * 6, "a": range(12), "y": ["+", "-", "-"] * 4}
    assert from_table(plus, task="site", target="y").labels == ("+", "-")


def german(text, end=""):
    """As Excel in Germany writes it."""
    return text.replace(",", ";").replace(".", ",") + end


def test_a_table_from_a_german_spreadsheet(tmp_path):
    plain = from_table(write(tmp_path, GOOD), task="site", target="y")
    pick = {"task": "site", "target": "y"}
    same(from_table(write(tmp_path, german(GOOD), "de.csv"), **pick), plain)
    # Rows and columns that hold nothing are those of the sheet, not of the table.
    sheet = german(GOOD).replace("\n", ";;\n") + ";;;;;\n" * 3
    same(from_table(write(tmp_path, sheet, "empty.csv"), **pick), plain)
    for name, encoding in (("cp.csv", "cp1252"), ("utf16.txt", "utf-16")):
        umlaut = german(GOOD).replace("north", "Nörd").encode(encoding)
        made = from_table(
            write(tmp_path, umlaut, name), **pick, encoding="cp1252" if name == "cp.csv" else None
        )
        assert list(made.names) == ["south", "Nörd"] and made.features == plain.features
    message = error(tmp_path / "cp.csv")
    assert "in Excel: CSV UTF-8" in message and "encoding='cp1252' (--encoding cp1252)" in message
    assert "there is no encoding 'klingon'" in error(tmp_path / "cp.csv", encoding="klingon")
    same(from_table(write(tmp_path, GOOD.replace(",", "\t"), "t.tsv"), **pick), plain)


def test_a_comma_in_a_number_is_a_decimal_comma_or_refused(tmp_path):
    both = german(GOOD).replace(";26;", ";1.026;")
    message = error(write(tmp_path, both))
    assert "'0,0' in row 1" in message and "'1.026' in row 7" in message
    assert "decimal=',' or decimal='.' (--option decimal=,)" in message
    ages = from_table(
        tmp_path / "t.csv", task="site", target="y", decimal=",", scale="none", target_scale="none"
    )
    rows = torch.cat([ages.part(part).x[:, 0] for part in PARTS])
    assert sorted(rows.tolist())[-1] == 1026
    # Where commas separate cells, one inside of a number may be either.
    text = ["1,5", "2,25", "1,234", "2", *NUMBERS]
    with pytest.raises(TacitError, match="'1,5' is not a number; pass decimal=',' "):
        column(text)
    made = column(text, decimal=",")
    assert made.features == ("v", "a")
    rows = torch.cat([made.part(part).x[:, 0] for part in PARTS])
    assert {1.5, 2.25} < set(rows.tolist()) and 1.234 in rows.double().numpy().round(3)
    grouped = column(["1,234,567.5", "12,000", *NUMBERS], decimal=".")
    assert torch.cat([grouped.part(part).x[:, 0] for part in PARTS]).max() == 1234567.5
    with pytest.raises(TacitError, match="'1,23' is not a number"):
        column(["1,23", *NUMBERS], decimal=".")
    with pytest.raises(TacitError, match="decimal is ';', expected one of"):
        column(NUMBERS, decimal=";")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["2024-01-31", "2024-02-29"], "dates or times such as '2024-01-31'; turn them into num"),
        (["31.01.2024", "29.02.2024"], "dates or times"),
        (["1/31/24 12:00", "2/29/24 13:15"], "dates or times"),
        (["12:30", "13:15"], "dates or times"),
        (["3,5", "4,5"], "numbers with commas such as '3,5'; pass decimal=','"),
        (["1 234", "12 345"], "numbers with grouped digits such as '1 234'; say the decimal mark"),
        (["1.234.567", "2.345.678"], "numbers with grouped digits"),
        (["45 %", "7.5%"], "numbers with a sign such as '45 %'; remove the sign"),
    ],
)
def test_numbers_and_dates_in_disguise_are_no_categories(cells, words):
    with pytest.raises(TacitError, match=words) as caught:
        column(cells * 4)
    assert "(--categorical v)" in str(caught.value) and "(--drop v)" in str(caught.value)
    assert column(cells * 4, categorical=["v"]).features[0].startswith("v=")
    base = {"site": ["p", "q"] * 4, "a": range(8), "y": cells * 4}
    assert "choose another target" in error(base)
    dates = pd.DataFrame({**base, "y": [0, 1] * 4, "d": [pd.Timestamp(2024, 1, 1).date()] * 8})
    assert "holds dates" in error(dates)


def test_all_columns_that_cannot_be_read_are_named_at_once():
    base = {"site": ["p", "q"] * 30, "a": range(60), "y": [0, 1, 1, 0] * 15}
    message = error(
        {**base, "who": [f"id{i}" for i in range(60)], "none": [None] * 60, "day": ["12:30"] * 60}
    )
    assert "column 'who' has 60 different texts" in message
    assert "3 columns cannot be read, and --drop who,none,day (drop=) leaves all of" in message


def test_excel_is_read_where_openpyxl_is_there_and_refused_with_the_remedy(tmp_path, monkeypatch):
    """The workbook here has the two calls that are made of openpyxl's."""
    rows = [line.split(",") for line in GOOD.splitlines()]
    typed = [rows[0], *([site, int(age), sex, float(y)] for site, age, sex, y in rows[1:])]
    seen = {}

    class Book:
        def __init__(self, path, **options):
            seen.update(options)
            self.worksheets = [self]

        def iter_rows(self, values_only):
            return iter([tuple(typed[0]), *map(tuple, typed[1:]), (None,) * 4])

        def close(self):
            seen["closed"] = True

    path = write(tmp_path, b"", "t.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert "pip install 'tacit[excel]', or save it as CSV" in error(path)
    monkeypatch.setitem(sys.modules, "openpyxl", types.SimpleNamespace(load_workbook=Book))
    plain = from_table(write(tmp_path, GOOD), task="site", target="y")
    same(from_table(path, task="site", target="y"), plain)
    assert seen == {"read_only": True, "data_only": True, "closed": True}


def test_a_workbook_that_openpyxl_wrote(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for line in GOOD.splitlines():
        book.active.append(line.split(","))
    book.save(tmp_path / "t.xlsx")
    plain = from_table(write(tmp_path, GOOD), task="site", target="y")
    same(from_table(tmp_path / "t.xlsx", task="site", target="y"), plain)


def test_small_things_that_spreadsheets_and_frames_do(tmp_path):
    plain = from_table(write(tmp_path, GOOD), task="site", target="y")
    pick = {"task": "site", "target": "y"}
    same(from_table(write(tmp_path, "sep=;\n" + GOOD.replace(",", ";"), "sep.csv"), **pick), plain)
    same(from_table(write(tmp_path, GOOD.replace(",", "|"), "pipe.txt"), **pick), plain)
    assert "no column 'site'" in error(write(tmp_path, "sep=\n1\n", "odd.csv"))
    # A site's number that went through a column with gaps.
    numbered = GOOD.replace("north", "1.0").replace("south", "20.0")
    floats = from_table(write(tmp_path, numbered, "floats.csv"), **pick)
    assert list(floats.names) == ["20", "1"]
    frame = pd.read_csv(tmp_path / "floats.csv")
    assert list(from_table(frame, **pick).names) == list(floats.names)
    same(from_table(frame.astype({"site": int}), **pick), floats)
    assert list(from_table(frame.assign(site="v" + frame["site"].astype(str)), **pick).names) == [
        "v20.0",
        "v1.0",
    ]
    with pytest.raises(TacitError, match="two columns named 'age'"):
        from_table(pd.concat([frame, frame[["age"]]], axis=1), **pick)
