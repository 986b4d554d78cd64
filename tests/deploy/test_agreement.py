"""The file of a consortium: what it becomes, what changes its digest, and what it refuses."""

from __future__ import annotations

import json
import tomllib

import pytest

from tacit.deploy.agreement import Agreement
from tacit.deploy.example import write_example
from tacit.deploy.terms import Terms, differences
from tacit.errors import TacitError
from tacit.methods import PMTL, FedMTL
from tacit.privacy import Privacy
from tacit.secure.settings import Secure

TEXT = """
[consortium]
name = "heart"
silos = ["cleveland", "hungarian", "va"]

[data]
target = "disease"
kind = "binary"
labels = ["no", "yes"]
validation = 0.25
test = 0.1
split_seed = 3

[data.columns]
age = { range = [0, 120] }
sex = { flag = true }
cp = { categories = ["typical", "atypical", "none"] }
chol = { range = [0, 700], gaps = true }
fbs = { flag = true, gaps = true }
ecg = { categories = ["normal", "ST-T"], gaps = true }

[method]
name = "pmtl"
clip = 0.5

[privacy]
epsilon = 2

[run]
rounds = 30
cohort = 0.5
"""
EXCHANGE = TEXT.replace('"pmtl"\nclip = 0.5', '"fedmtl"').replace("[privacy]\nepsilon = 2", "")
LABELS = TEXT.replace('"disease"', '["disease", "angina"]').replace(
    'kind = "binary"\nlabels = ["no", "yes"]', 'kind = "multilabel"'
)
HEADS = """
[data.heads]
cleveland = ["disease"]
hungarian = ["disease", "angina"]
va = ["angina"]
"""


@pytest.fixture
def read(tmp_path):
    def reading(text: str) -> Terms:
        (tmp_path / "consortium.toml").write_text(text, encoding="utf-8")
        return Agreement.read(tmp_path / "consortium.toml").terms

    return reading


def test_a_file_may_still_say_server_for_publishing(read):
    with pytest.warns(FutureWarning, match="server is called publishing now"):
        old = read(TEXT + '[server]\nrule = "momentum"\n')
    assert old == read(TEXT + '[publishing]\nrule = "momentum"\n')


def test_a_file_becomes_terms(read):
    terms = read(TEXT)
    assert terms.silos == ("cleveland", "hungarian", "va") and terms.consortium == "heart"
    assert (terms.kind, terms.outputs, terms.labels) == ("binary", 1, ("no", "yes"))
    assert terms.features == (
        "age", "sex", "cp=typical", "cp=atypical", "cp=none", "chol", "chol (missing)", "fbs",
        "fbs (missing)", "ecg=normal", "ecg=ST-T", "ecg=(missing)",
    )  # fmt: skip
    assert terms.input_shape == (12,)
    assert terms.make_method() == PMTL(clip=0.5)
    assert terms.make_privacy() == Privacy(epsilon=2.0)
    assert (terms.rounds, terms.cohort, terms.model, terms.seed) == (30, 0.5, "linear", None)
    assert terms.data["target"] == ["disease"] and terms.data["split_seed"] == 3
    assert [column["name"] for column in terms.data["columns"]] == [
        "age", "sex", "cp", "chol", "fbs", "ecg",
    ]  # fmt: skip
    assert "public by agreement" in terms.assumptions[0]
    again = Terms.from_json(json.loads(json.dumps(terms.to_json())))
    assert again == terms and again.digest == terms.digest


def test_every_setting_of_the_method_is_in_the_terms(read):
    """So that two versions of tacit with other defaults do not take themselves to agree."""
    assert read(TEXT).method == {"name": "pmtl", **vars(PMTL(clip=0.5))}


def test_rounds_are_usual_if_nobody_says(read):
    assert read(TEXT.replace("rounds = 30", "")).rounds == PMTL().usual_rounds
    assert read(EXCHANGE.replace("rounds = 30", "")).rounds == FedMTL().usual_rounds


def test_servers_are_counted_but_not_found(read):
    terms = read(EXCHANGE + '[curator]\nservers = 3\ntrust = "replicated"\n')
    assert terms.make_curator() == Secure(servers=3, trust="replicated")
    assert read(TEXT + "[curator]\n").make_curator() == Secure(servers=3)
    with pytest.raises(TacitError, match=r"no setting 'curator\.peers'"):
        read(TEXT + '[curator]\npeers = ["a:1"]\n')


def test_heads_say_who_predicts_what(read):
    terms = read(LABELS + HEADS)
    assert (terms.kind, terms.outputs, terms.labels) == ("multilabel", 2, ("disease", "angina"))
    heads = terms.federation().heads
    assert heads is not None
    assert [heads.of(k) for k in range(3)] == [("disease",), ("disease", "angina"), ("angina",)]
    assert read(LABELS).heads is None


def test_one_label_may_be_a_list_of_one(read):
    terms = read(LABELS.replace('["disease", "angina"]', '["disease"]'))
    assert (terms.outputs, terms.labels) == (1, ("disease",))


def test_regression_and_multiclass(read):
    numbers = TEXT.replace('"binary"\nlabels = ["no", "yes"]', '"regression"\nrange = [0, 100]')
    terms = read(numbers)
    assert (terms.kind, terms.outputs, terms.labels) == ("regression", 1, ())
    assert terms.data["range"] == [0, 100]
    terms = read(numbers.replace("regression", "count"))
    assert (terms.kind, terms.outputs, terms.labels) == ("count", 1, ())
    terms = read(TEXT.replace('"binary"', '"multiclass"').replace('"yes"', '"yes", "maybe"'))
    assert (terms.outputs, terms.labels) == (3, ("no", "yes", "maybe"))


@pytest.mark.parametrize(
    "old, new",
    [
        ('name = "heart"', 'name = "hearts"'),
        ('"cleveland", "hungarian"', '"hungarian", "cleveland"'),
        ('"no", "yes"', '"yes", "no"'),
        ("validation = 0.25", "validation = 0.2"),
        ("test = 0.1", "test = 0.2"),
        ("split_seed = 3", "split_seed = 4"),
        ("[0, 120]", "[0, 121]"),
        ("sex = { flag = true }", "sex = { range = [0, 1] }"),
        ('"typical", "atypical"', '"atypical", "typical"'),
        ("[0, 700], gaps = true", "[0, 700]"),
        ("age = { range = [0, 120] }\nsex = { flag = true }",
         "sex = { flag = true }\nage = { range = [0, 120] }"),
        ("clip = 0.5", "clip = 0.6"),
        ("clip = 0.5", "clip = 0.5\npull = 0.7"),
        ("epsilon = 2", "epsilon = 3"),
        ("epsilon = 2", 'epsilon = 2\nneighbours = "replace"'),
        ("rounds = 30", "rounds = 31"),
        ("cohort = 0.5", "cohort = 2"),
        ("cohort = 0.5", "cohort = 0.5\nseed = 1"),
        ("cohort = 0.5", "cohort = 0.5\nmetrics = true"),
        ("cohort = 0.5", 'cohort = 0.5\nmodel = "mlp"'),
        ("cohort = 0.5", 'cohort = 0.5\n[publishing]\nrule = "momentum"'),
        ("cohort = 0.5", "cohort = 0.5\n[curator]\nservers = 2"),
    ],
)  # fmt: skip
def test_whatever_is_agreed_is_in_the_digest(read, old, new):
    assert old in TEXT
    agreed, other = read(TEXT), read(TEXT.replace(old, new))
    assert other.digest != agreed.digest
    assert differences(agreed, other.to_json())


def test_the_same_numbers_written_otherwise_are_the_same_terms(read):
    other = TEXT.replace("[0, 120]", "[0.0, 120.0]").replace("epsilon = 2", "epsilon = 2.0")
    other = other.replace("clip = 0.5", "clip = 1").replace("# ", "#")
    agreed = read(TEXT.replace("clip = 0.5", "clip = 1.0"))
    assert read(other).digest == agreed.digest
    whole = TEXT.replace("cohort = 0.5", "cohort = 1")
    assert read(whole).digest == read(whole.replace("cohort = 1", "cohort = 1.0")).digest


@pytest.mark.parametrize(
    "text, words",
    [
        (TEXT.replace('"va"', '"va", "va"'), "a name of its own"),
        (TEXT.replace('"va"', '"v a"'), "cannot be the name"),
        (TEXT.replace('"va"', '"coordinator"'), "means another party"),
        (TEXT.replace('target = "disease"\n', ""), "lacks 'data.target': add it"),
        (TEXT.replace('"binary"', '"binery"'), "data.kind is 'binery': input should be"),
        (TEXT.replace("split_seed", "spilt_seed"), "'data.spilt_seed'; did you mean 'split_seed'"),
        (TEXT.replace("flag = true }", "flg = true }", 1), "'data.columns.sex.flg'; did you mean"),
        (TEXT.replace("cohort", "chort"), "'run.chort'; did you mean 'cohort'"),
        (TEXT.replace("validation = 0.25", "validation = 0.95"), "leave no rows to train on"),
        (TEXT.replace("split_seed = 3", 'public = "a.csv"'), "all parties would have to hold"),
        (TEXT.replace("{ range = [0, 120] }", "{ gaps = true }"), "'age' needs one of range"),
        (TEXT.replace("flag = true }", "flag = true, range = [0, 1] }", 1), "'sex' needs one of"),
        (TEXT.replace("[0, 120]", "[120, 0]"), "column 'age' has range [120.0, 0.0]"),
        (TEXT.replace("[0, 120]", "[0, inf]"), "two finite numbers"),
        (TEXT.replace("[0, 120]", "[0, nan]"), "two finite numbers"),
        (TEXT.replace("[0, 120]", "[0, 1e39]"), "two finite numbers"),
        (TEXT.replace("[0, 120]", "[0]"), "data.columns.age.range"),
        (TEXT.replace('"typical", "atypical", "none"', '"typical"'), "'cp' has ['typical']: 2 or"),
        (TEXT.replace('"atypical"', '"typical"'), "different ones are needed"),
        (TEXT.replace('"atypical"', '" "'), "no cell is read as"),
        (TEXT.replace('"atypical"', '"NA"'), "if it means an empty cell"),
        (TEXT.replace('"atypical"', '"(missing)"'), "write gaps = true instead"),
        (TEXT.replace("age =", "disease ="), "is a target, so it cannot be"),
        (TEXT.replace('["no", "yes"]', '["no"]'), "2 or more different ones"),
        (TEXT.replace('["no", "yes"]', '["a", "b", "c"]'), "has two classes"),
        (TEXT.replace('["no", "yes"]', '["1", "1.0"]'), "two are the same number"),
        (TEXT.replace('labels = ["no", "yes"]', ""), "kind 'binary' has labels: add labels ="),
        (TEXT.replace("labels =", "range = [0, 1]\nlabels ="), "has no range: leave range out"),
        (TEXT.replace('"binary"', '"regression"'), "kind 'regression' has no labels"),
        (TEXT.replace('"disease"', '["disease"]'), "needs the name of one column"),
        (LABELS.replace('["disease", "angina"]', '"disease"'), "needs a list of columns"),
        (TEXT + HEADS, "heads are for kind 'multilabel'"),
        (LABELS + HEADS.replace("va =", "vaa ="), "names 'vaa', which is not a silo; did you mean"),
        (LABELS + HEADS.replace('va = ["angina"]', ""), "'va' has no heads"),
        (LABELS + HEADS.replace('va = ["angina"]', 'va = ["x"]'), "works on head 'x'"),
        (LABELS + HEADS.replace('["angina"]', "[]"), "holds no head"),
        (LABELS + HEADS.replace('"angina"', '"disease"'), "no silo predicts 'angina'"),
        (TEXT.replace('"pmtl"', '"pmtll"'), "no method 'pmtll'; did you mean 'pmtl'"),
        (TEXT.replace('"pmtl"\nclip = 0.5', '"local"'), "nothing leaves a silo"),
        (TEXT.replace('"pmtl"', '"related"'), "how silos are related"),
        (TEXT.replace("clip", "clib"), "no setting 'clib'; did you mean 'clip'"),
        (TEXT.replace("clip = 0.5", "clip = inf"), "clip must be finite under privacy"),
        (TEXT.replace("clip = 0.5", "clip = -1"), "clip"),
        (TEXT.replace('"pmtl"\nclip = 0.5', '"fedmtl"'), "no ε can be promised"),
        (EXCHANGE.replace("fedmtl", "fedfomo").replace("0.25", "0"), "judge models by"),
        (EXCHANGE + '[publishing]\nrule = "adam"\n', "publishing= moves the billboard"),
        (EXCHANGE + "[curator]\n", "need trust"),
        (TEXT + '[curator]\ntrust = "dealer"\n', "leave trust out"),
        (TEXT + "[curator]\nservers = 1\n", "at least 2 are needed"),
        (TEXT.replace("epsilon = 2", "epsilon = -2"), "epsilon=-2.0"),
        (TEXT.replace("epsilon = 2", 'epsilon = 2\nsampling = "fixed-size"'), "too small an ε"),
        (TEXT.replace("epsilon = 2", 'epsilon = 2\nsampling = "some"'), "choose one of poisson"),
        (TEXT.replace("cohort = 0.5", "cohort = 9"), "there are only 3"),
        (TEXT.replace("rounds = 30", "rounds = 0"), "rounds=0"),
        (TEXT.replace("rounds = 30", 'model = "linaer"'), "model='linaer': choose one of"),
        (TEXT.replace("rounds = 30", 'model = "cnn"'), "needs square images"),
        (EXCHANGE.replace("rounds = 30", "metrics = true"), "leave metrics out"),
        ("consortium = ", "cannot be read"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_one_sentence_before_anybody_has_data(read, text, words):
    assert text not in (TEXT, EXCHANGE, LABELS + HEADS)
    with pytest.raises(TacitError) as caught:
        read(text)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TacitError, match="there is no file"):
        Agreement.read(tmp_path / "none.toml")


EXAMPLE = """site,age,sex,"blood ""p"", mm",cp,fbs,one,disease
north,29,1,126,typical,0,x,no
north,77,0,,none,1,x,yes
south,41,0,564.5,,,x,no
south,50,1,130,none,1,x,yes
"""


def test_an_example_becomes_a_file_that_can_be_read(read, tmp_path):
    (tmp_path / "e.csv").write_text(EXAMPLE)
    text = write_example(tmp_path / "e.csv", task="site", target="disease")
    found = tomllib.loads(text)
    assert found["consortium"]["silos"] == ["north", "south"]
    assert found["data"]["columns"] == {
        "age": {"range": [29, 77]},
        "sex": {"flag": True},
        'blood "p", mm': {"range": [120, 570], "gaps": True},
        "cp": {"categories": ["none", "typical"], "gaps": True},
        "fbs": {"flag": True, "gaps": True},
    }  # `one` never varies
    assert (found["data"]["kind"], found["data"]["labels"]) == ("binary", ["no", "yes"])
    assert "# Ranges, categories and classes come from an example, e.csv." in text
    terms = read(text)
    assert terms.silos == ("north", "south") and terms.privacy is not None
    assert terms.method["name"] == "mixed" and terms.rounds == 6
    named = read(text.replace('"auto"', '"pmtl"'))
    assert named.rounds == PMTL().usual_rounds


def test_examples_of_other_kinds(read, tmp_path):
    rows = "".join(f"{k % 7 - 3.25},{k % 2},{(k + 1) % 2},{-0.031 * k}\n" for k in range(30))
    (tmp_path / "e.csv").write_text("x,a,b,y\n" + rows)
    names = ["one", "two"]
    terms = read(write_example(tmp_path / "e.csv", silos=names, target="y", drop=["a", "b"]))
    assert terms.kind == "regression" and terms.data["range"] == [-0.9, 0.0]
    assert terms.data["columns"][0]["range"] == [-3.3, 2.8]
    text = write_example(tmp_path / "e.csv", silos=names, target=["a", "b"], method="fedmtl")
    terms = read(text)
    assert (terms.kind, terms.labels, terms.features) == ("multilabel", ("a", "b"), ("x", "y"))
    assert terms.method["name"] == "fedmtl" and terms.privacy is None
    with pytest.raises(TacitError, match="nobody knows the silos"):
        write_example(tmp_path / "e.csv", target="y")
