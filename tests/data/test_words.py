"""Text by user: words to ids, vocabularies, TFF's files, posts, CSV."""

import csv
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.data import load
from tacit.data.federation import PARTS
from tacit.data.sets.stackoverflow import first_texts
from tacit.data.words import read_words, without_markup, word_ids, words_of
from tacit.errors import TacitError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"

POSTS = {
    "100": [
        ("how to sort a list", "sorting lists", "python|list"),
        ("a list of lists", "flatten", "python"),
        ("sort by two keys", "sorting", "python|sorting"),
        ("what is a list", "list", "list"),
    ],
    "200": [
        ("null pointer", "crash", "java"),
        ("how to sort", "sorting in java", "java|sorting"),
        ("a pointer", "pointer", "c"),
    ],
    "300": [("one row", "only", "c")],
    "400": [("fourth user", "sort", "c|java")] * 5,
}


def error(name, **options) -> str:
    with pytest.raises(TacitError) as caught:
        load(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def texts_of(made, part: str, k: int) -> list[list[str]]:
    """Rows back as words; what is not in the vocabulary is '?'."""
    names = ["", *made.features, "?"]
    return [[names[int(i)] for i in row if i] for row in made.part(part).of(k)[0]]


def tags_of(made, part: str, k: int) -> list[set[str]]:
    return [{made.labels[int(i)] for i in row.nonzero()} for row in made.part(part).of(k)[1]]


def test_words():
    said = "Don't panic: C3-PO's 2 droids_x!"
    assert words_of(said) == ["don't", "panic", "c3", "po's", "2", "droids", "x"]
    assert without_markup("<p>a &lt;b&gt; <i>c</i></p>").split() == ["a", "<b>", "c"]
    rows = word_ids([["a", "z", "a"], [], list("abab")], ("a", "b"), 3)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[1, 3, 1], [0, 0, 0], [1, 2, 1]]
    assert word_ids([["a"]], ("a", "b"), 2).shape == (1, 3)  # never as long as the vocabulary
    last = 2**24 - 2
    assert int(np.float32(last + 1)) == last + 1  # the largest vocabulary's id of other words


def test_vocabulary_files(tmp_path):
    path = tmp_path / "v"
    for content, expected in (
        ("a\nb\n\na\nc\n", ("a", "b", "c")),
        ("the 900\nof 800\n", ("the", "of")),
        (json.dumps({"x": 2, "y": 30, "z": 3}), ("y", "z", "x")),
        ('["q", "p"]', ("q", "p")),
    ):
        path.write_text(content)
        assert read_words(path, 10) == expected
        assert read_words(path, 1) == expected[:1]
    for content, words in (("", "no words"), ("[1]", "neither a list"), ('{"a": []}', "neither")):
        path.write_text(content)
        with pytest.raises(TacitError, match=words):
            read_words(path, 10)
    with pytest.raises(TacitError, match="cannot be read"):
        read_words(tmp_path / "none", 10)


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(**features) -> bytes:
    """A tf.train.Example, written by hand: texts, and integers as TFF's `score` is."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, str):
            feature = field(1, field(1, value.encode()))
        else:
            feature = field(3, field(1, varint(value)))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def test_examples_are_read_without_tensorflow():
    long = "wörd " * 100
    message = example(tokens=long, score=300, tags="a|b", title="")
    assert first_texts(message) == {"tokens": long, "tags": "a|b", "title": ""}
    for damaged in (message[:-3], b"\xff" * 20, b"\x0b"):
        with pytest.raises(ValueError):
            first_texts(damaged)


def write_sqlite(path: Path) -> None:
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, "
                 "serialized_example_proto BLOB)")  # fmt: skip
    base.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, "
                 "num_examples INTEGER)")  # fmt: skip
    for user in reversed(POSTS):
        base.execute("INSERT INTO client_metadata VALUES (?, 'train', ?)", (user, len(POSTS[user])))
        for tokens, title, tags in POSTS[user]:
            row = example(tokens=tokens, title=title, tags=tags, score=7, type="question")
            base.execute("INSERT INTO examples VALUES ('train', ?, ?)", (user, row))
        row = example(tokens="held back", title="", tags="python")
        base.execute("INSERT INTO examples VALUES ('test', ?, ?)", (user, row))
    base.commit()
    base.close()


def write_hdf5(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for user, rows in POSTS.items():
            group = file.create_group(f"examples/{user}")
            for name, column in zip(("tokens", "title", "tags"), zip(*rows), strict=True):
                cells = [cell.encode() for cell in column]
                group.create_dataset(name, data=cells, dtype=h5py.string_dtype())


@pytest.mark.parametrize(
    ("name", "write"),
    [("stackoverflow.sqlite", write_sqlite), ("stackoverflow_train.h5", write_hdf5)],
)
def test_stackoverflow(tmp_path, name, write):
    write(tmp_path / name)
    made = load("stackoverflow", path=tmp_path, users=3, words=6, tags=4, length=8, min_rows=3)
    assert list(made.names) == ["100", "200", "400"]  # 300 has one row only
    assert made.kind == "multilabel" and made.outputs == 4 and made.words == 6
    assert made.labels == ("java", "c", "python", "list")  # by count: 7, 6, 3, 2 (then sorting)
    assert len(made.leaks) == 2 and all("counting over all tasks" in leak for leak in made.leaks)
    everything = [
        (tuple(text), frozenset(tags))
        for part in PARTS
        for text, tags in zip(texts_of(made, part, 0), tags_of(made, part, 0), strict=True)
    ]
    known = set(made.features)
    expected = []
    for tokens, title, tags in POSTS["100"]:
        words = [w if w in known else "?" for w in f"{tokens} {title}".split()]
        expected.append((tuple(words), frozenset(tags.split("|")) & set(made.labels)))
    assert sorted(everything, key=str) == sorted(expected, key=str)
    assert all("held" not in words for words in made.features)

    two = load("stackoverflow", path=tmp_path, users=2, rows=3)
    assert list(two.names) == ["100", "200"]
    assert sum(len(two.part(p).y) for p in PARTS) == 6
    assert "no user with 9 rows" in error("stackoverflow", path=tmp_path, min_rows=9)


def test_a_published_vocabulary_is_an_assumption(tmp_path):
    write_sqlite(tmp_path / "stackoverflow.sqlite")
    (tmp_path / "stackoverflow.word_count").write_text("sort 9\nlist 5\nzebra 1\n")
    (tmp_path / "stackoverflow.tag_count").write_text(json.dumps({"c": 5, "java": 9}))
    made = load("stackoverflow", path=tmp_path)
    assert made.features == ("sort", "list", "zebra") and made.labels == ("java", "c")
    assert not made.leaks and sum("taken to be public" in a for a in made.assumptions) >= 2
    other = tmp_path / "own.txt"
    other.write_text("pointer\n")
    mixed = load("stackoverflow", path=tmp_path, words_file=other)
    assert mixed.features == ("pointer",) and mixed.outputs == 2


def test_wrong_stackoverflow_files(tmp_path):
    assert "holds no stackoverflow_train.h5" in error("stackoverflow", path=tmp_path)
    junk = tmp_path / "stackoverflow.sqlite"
    junk.write_bytes(b"no database at all" * 100)
    assert "not an SQLite file of TFF" in error("stackoverflow", path=junk)
    junk.unlink()
    write_sqlite(junk)
    base = sqlite3.connect(junk)
    base.execute("UPDATE examples SET serialized_example_proto = x'0b'")
    base.commit()
    base.close()
    assert "is not an example with tokens, title, tags" in error("stackoverflow", path=junk)
    for options, words in (
        ({"users": 1}, "users is 1"), ({"rows": 0}, "rows is 0"), ({"words": 0}, "words is 0"),
        ({"words": 2**24}, "words is"), ({"length": 1.5}, "length is 1.5"),
        ({"test": 2}, "test is 2"),
    ):  # fmt: skip
        assert words in error("stackoverflow", path=junk, **options)
    pytest.importorskip("h5py")
    bad = tmp_path / "stackoverflow_train.h5"
    bad.write_bytes(b"no hdf5")
    assert "is not an HDF5 file" in error("stackoverflow", path=bad)
    write_hdf5(bad)
    import h5py

    with h5py.File(bad, "a") as file:
        del file["examples/200/title"]
    assert "lacks one of tokens, title, tags" in error("stackoverflow", path=bad)
    with h5py.File(bad, "w") as file:
        file["other"] = [1]
    assert "no group 'examples'" in error("stackoverflow", path=bad)


def write_csv(path: Path, header: list[str], rows: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_text_with_tags_or_a_label(tmp_path):
    days = [("Sun", "a; b", "good"), ("Rain", "b", "bad"), ("Sun", "", "good"), ("Fog", "a", "so")]
    rows = [
        [user, f"{word} and more, {user}", tags, mood]
        for user in ("ann", "bo", "cy")
        for word, tags, mood in days * 2
    ]
    path = write_csv(tmp_path / "t.csv", ["who", "said", "tags", "mood"], rows)
    made = load("text", path=path, task="who", text="said", separator=";", words=20, length=5)
    assert (made.kind, made.labels) == ("multilabel", ("a", "b"))
    assert list(made.names) == ["ann", "bo", "cy"]
    pairs = {
        (texts_of(made, part, 0)[i][0], frozenset(tags_of(made, part, 0)[i]))
        for part in PARTS
        for i in range(len(made.part(part).of(0)[0]))
    }
    assert pairs == {
        ("sun", frozenset("ab")), ("rain", frozenset("b")), ("sun", frozenset()),
        ("fog", frozenset("a")),
    }  # fmt: skip
    mood = load("text", path=path, task="who", text="said", target="mood", separator=None)
    assert (mood.kind, mood.labels) == ("multiclass", ("bad", "good", "so"))
    assert mood.words is not None and len(mood.leaks) == 1
    for part in PARTS:
        for x, y in zip(mood.part(part).x, mood.part(part).y, strict=True):
            assert {"sun": "good", "rain": "bad", "fog": "so"}[
                mood.features[int(x[0]) - 1]
            ] == mood.labels[y]

    assert "pass path=" in error("text")
    assert "no column 'user'" in error("text", path=path)
    assert "separator is empty" in error("text", path=path, separator="")
    assert "no option 'sep'" in error("text", path=path, sep=";")
    rows[2][3] = ""
    write_csv(path, ["who", "said", "tags", "mood"], rows)
    wrong = error("text", path=path, task="who", text="said", target="mood", separator=None)
    assert "row 3 (line 4 of t.csv) has no entry in column 'mood' (1 row in all)" in wrong
    write_csv(path, ["user", "text", "tags"], [["a", "x", ""], ["b", "y", ""]])
    assert "no tags in any row" in error("text", path=path)


HEADER = ["Id", "PostTypeId", "OwnerUserId", "ParentId", "Title", "Body", "Tags"]


def test_stackexchange_answers_have_the_tags_of_their_question(tmp_path):
    rows = [
        ["1", "1", "9.0", "", "Where to?", "<p>By <b>train</b> &amp; ship</p>", "<rail><sea>"],
        ["2", "2", "8.0", "1.0", "", "<p>Rome</p>", ""],
        ["3", "2", "9.0", "77.0", "", "<p>question not here</p>", ""],
        ["4", "1", "", "", "nobody", "asks", "<rail>"],
    ]
    for number in range(5, 13):
        rows.append([str(number), "2", ("8.0", "9.0")[number % 2], "1", "", f"more {number}", ""])
    write_csv(tmp_path / "Posts.csv", HEADER, rows)
    made = load("stackexchange", path=tmp_path, min_rows=3)
    assert list(made.names) == ["user-9", "user-8"] and set(made.labels) == {"rail", "sea"}
    every = [text for part in PARTS for k in (0, 1) for text in texts_of(made, part, k)]
    assert ["where", "to", "by", "train", "ship"] in every and ["rome"] in every
    assert len(every) == 10 and "asks" not in made.features and "not" not in made.features
    assert all((made.part(p).y == 1).all() for p in PARTS)
    assert any("tags of their question" in said for said in made.assumptions)
    write_csv(tmp_path / "Posts.csv", HEADER, rows[2:4])
    assert "no post with an author and tags" in error("stackexchange", path=tmp_path)
    write_csv(tmp_path / "Posts.csv", HEADER[1:], [row[1:] for row in rows])
    assert "no column 'Id'" in error("stackexchange", path=tmp_path)


def test_the_real_travel_posts(monkeypatch):
    if not (SHARED / "stackexchange_travel").is_dir():
        pytest.skip("the real files of stackexchange_travel are not beside the repository")
    monkeypatch.setenv("TACIT_DATA", str(SHARED))
    made = load("stackexchange")
    assert 200 < len(made) < 227 and made.words == 10_000 and made.outputs == 500
    assert made.input_shape == (256,) and "air-travel" in made.labels[:3]
    assert (sum(made.part(p).counts for p in PARTS) >= 5).all()
    x, y = made.train.x, made.train.y
    assert x.min() == 0 and x.max() == 10_001 and torch.equal(x, x.round())
    assert (y.sum(dim=1) > 0).float().mean() > 0.95
    # Words mean something: posts tagged "trains" speak of trains more often than others.
    trains = (x == made.features.index("train") + 1).any(dim=1).float()
    tagged = y[:, made.labels.index("trains")] == 1
    assert trains[tagged].mean() > 5 * trains[~tagged].mean()
