"""The verb choose on a small model: costs composed of small programs, budgets, and short runs of finalists."""

import functools
import json
import re
import shlex
import sys

import pytest

from gradloom.choosing import finalists, points, quality, runs
from gradloom.choosing import text as driver
from gradloom.choosing.candidates import Candidate
from gradloom.choosing.state import ChoiceState
from gradloom.choosing.texts import split
from gradloom.models.adapters.language.methods import METHODS
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.descent import build

from ..small import Letters

TEXT = (
    "the warp is strung once and stays; the weft is thrown across it, a little at a time. what stays is the cloth's "
    "strength, what is thrown is its pattern. a loom that learns keeps the warp and changes the weft. "
) * 3
#: What each program costs does not depend on the text: measured once for all tests.
MEASURE = functools.cache(points.measure)


@pytest.fixture
def cloth(here, monkeypatch):  # noqa: F811
    """A text that is long enough to hold a part of it out."""
    monkeypatch.setattr(driver, "open_tokenizer", lambda path, **_: Letters())
    monkeypatch.setattr(points, "measure", MEASURE)
    (here / "text.txt").write_text(TEXT)
    return here


COMMON = ("choose", "small", "--data", "text.txt", "--jobs", "1", "--seq", "32", "--json")


def chosen(run, *options, output="chosen"):
    code, out, err = run(*COMMON, "-o", output, *options)
    assert (code, err) == (0, ""), err
    return json.loads(out)


#: The choice of 12 steps without budgets, once made.
FREE: dict = {}


def free(run):
    """It is the same whenever it is made."""
    return FREE or FREE.update(chosen(run, "--steps", "12")) or FREE


def test_a_choice_says_the_line_that_runs_it(run, cloth):
    """The line runs, and learns what the short run did, since that was as long."""
    said = free(run)
    assert said == json.loads((cloth / "chosen" / "choose.json").read_text())
    assert (cloth / "chosen" / "pareto.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in (cloth / "chosen").iterdir()) == [".gradloom", "choose.json", "pareto.png"]
    first = said["finalists"][0]
    assert first["held_out"] < said["held_out_before"] and first["short_steps"] == first["steps"] == 12
    assert 2 <= len(said["finalists"]) <= finalists.MOST and said["within"] == said["candidates"] == len(said["offers"])
    program, *words = shlex.split(said["command"])
    assert program == "gradloom" and "--json" not in words
    code, out, _ = run(*words, "--engine", "float", "-o", "tuned", "--json")
    tuned = json.loads(out)
    assert code == 0 and tuned["adapter_parameters"] * 4 == first["update_bytes"]
    assert (len(tuned["loss"]), tuned["rank"], tuned["seq"]) == (12, first["rank"], 32)


def test_the_chosen_line_learns_nearly_as_much_as_the_best_candidate(run, cloth):
    """After whole fine-tunes of every candidate, on a text and a model that nothing was set by."""
    said = free(run)
    checkpoint = Quantized(open_checkpoint(find_weights("small")))
    llama = build(checkpoint)
    parts = split(cloth / "text.txt", Letters(), 32)
    losses = {}
    for row in said["offers"]:
        if row["store"] != "words":
            continue  # in floating point they learn as words do
        method = METHODS[row["method"]]
        each = Candidate(
            method=row["method"],
            targets=method.parse(row["targets"] if method.ranked else None),
            from_layer=row["from_layer"],
            rank=row["rank"] or 0,
            seq=row["seq"],
            accumulate=row["accumulate"],
        )
        losses[str(each)], _ = quality.learns(llama, checkpoint.tensor, parts, each, row["steps"], seed=0)
    first = said["finalists"][0]
    mine = losses[f"{first['learns']}, words, {first['seq']} tokens x {first['accumulate']}"]
    before = said["held_out_before"]
    assert before - mine >= 0.9 * (before - min(losses.values())) > 0 and len(losses) >= 20


@pytest.mark.parametrize("torch", [True, False])
def test_finalists_learn_by_torch_where_it_is_installed(run, cloth, monkeypatch, torch):
    """Losses are those of our own engine within rounding, and the choice is the same."""
    said = free(run)
    if torch:
        wanted = f"torch {pytest.importorskip('torch').__version__}"
    else:
        monkeypatch.setitem(sys.modules, "torch", None)
        wanted = "gradloom"
    found = chosen(run, "--steps", "12", output="again")
    assert found["float"] == wanted and found["command"] == said["command"]
    assert found["held_out_before"] == pytest.approx(said["held_out_before"], abs=1e-4)
    assert [row["learns"] for row in found["finalists"]] == [row["learns"] for row in said["finalists"]]
    for one, other in zip(found["finalists"], said["finalists"]):
        assert one["held_out"] == pytest.approx(other["held_out"], abs=2e-3)
        assert one["first_step"] == pytest.approx(other["first_step"], rel=1e-3)


def test_memory_of_a_finalist_is_that_of_its_plan(run, cloth):
    """By class, as the board's job is laid out."""
    found = 0
    for row in free(run)["finalists"]:
        assert sum(row["memory"].values()) == row["memory_bytes"]
        if row["accumulate"] > 1:
            continue
        options = {"seq": row["seq"], "from-layer": row["from_layer"], "steps": row["steps"], "texts": row["texts"]}
        options["method"] = row["method"]
        if METHODS[row["method"]].ranked:
            options |= {"rank": row["rank"], "targets": row["targets"], "store": row["store"]}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        code, out, err = run("plan", "small", *words, "--json")
        assert (code, err) == (0, "") and json.loads(out)["memory"] == row["memory"]
        found += 1
    assert found >= 2


def test_budgets_leave_what_meets_them(run, cloth):
    """Each budget binds: what is beyond it is no finalist, and without it would have been."""
    first = free(run)["finalists"][0]
    for name, value, unit, scale in (
        ("update", "update_bytes", "B", 1),
        ("memory", "memory_bytes", "B", 1),
        ("time", "seconds", "us", 1e6),
    ):
        bound = int(first[value] * scale) - 1
        said = chosen(run, "--steps", "12", f"--{name}", f"{bound}{unit}", output=name)
        assert said["within"] < said["candidates"] or name == "time"
        assert all(row[value] * scale <= bound for row in said["finalists"])
        assert all((row[value] * scale <= bound) == row["within"] for row in said["offers"])


def test_less_time_means_fewer_steps(run, cloth):
    most = max(row["seconds"] for row in free(run)["offers"])
    said = chosen(run, "--steps", "12", "--time", f"{int(most * 1e6 * 0.9)}us", output="less")
    assert min(row["steps"] for row in said["offers"] if row["accumulate"] == 1) < 12
    assert max(row["seconds"] for row in said["offers"] if row["within"]) <= 0.9 * most


@pytest.mark.parametrize(
    "options, message",
    {
        "no unit": (("--time", "10"), "time=10: needs a unit, one of us, ms, s, min, h; give --time 10s"),
        "strange unit": (("--memory", "3MX"), "memory=3MX: needs a unit, one of B, kB, MB"),
        "no number": (("--update", "much"), "update=much: must be a number and a unit"),
        "nothing": (("--update", "0kB"), "update=0kB: must be above 0"),
        "nothing that small": (
            ("--update", "100B", "--steps", "9"),
            "update=100 B: no candidate of 64 meets it; the smallest (lora-xs q,v from layer 1, rank 8, words, 32 "
            "tokens x 1) ships 512 bytes; give --update 1kB",
        ),
        "nothing that short": (
            ("--time", "1us", "--steps", "9"),
            "time=1e-06 s: no candidate of 64 can meet it; the products of the fewest updates take 1 ms",
        ),
        "a short text": (
            ("--seq", "64", "--data", "short.txt"),
            "data=short.txt: has 84 tokens, seq=64 needs at least 128, a window to learn from and one that is held "
            "out; give a longer text, or give --seq 42",
        ),
        "a long window": (("--seq", "65"), "seq=65: must be from 2 to 64; give --seq 64"),
        "no window": (("--seq", "x"), "seq=x: must be integers between commas"),
        "no text": (("--data", "none.txt"), "data=none.txt: no such file"),
        "another board": (
            ("--board", "ulx3s"),
            "board=ulx3s: no preset chooses for small on it; must be one of genesys2, kv260",
        ),
        "no model": ((), "model=other: is no file, none of the presets"),
    }.values(),
    ids=lambda value: None if isinstance(value, tuple) else value.split(":")[0],
)
def test_what_cannot_be_chosen_is_one_line(run, cloth, options, message):
    (cloth / "short.txt").write_text(TEXT[:84])
    model = "small" if options else "other"
    code, out, err = run("choose", model, *COMMON[2:], "-o", "none", *options)
    assert code == 2 and out == "" and err.startswith(f"gradloom: {message}") and len(err.splitlines()) == 1, err
    assert not (cloth / "none" / "choose.json").exists()


def test_an_interrupted_choice_goes_on(run, cloth, monkeypatch):
    """Of what was interrupted, finished finalists are not run again, and the result is as if it had not been."""
    whole, made = chosen(run, "--steps", "9"), []
    learns = quality.learns

    def interrupted(llama, tensor, parts, each, steps, **options):
        if len(made) == 1:
            raise KeyboardInterrupt
        made.append(each)
        return learns(llama, tensor, parts, each, steps, **options)

    monkeypatch.setattr(runs, "learns", interrupted)
    code, _, err = run(*COMMON, "-o", "again", "--steps", "9")
    assert re.search(
        r"^interrupted; again/unfinished.json has \d+ figures; the same command continues$", err, re.MULTILINE
    )
    assert code == 130 and sorted(file.name for file in (cloth / "again").iterdir()) == [".gradloom", "unfinished.json"]
    kept = json.loads((cloth / "again" / "unfinished.json").read_text())
    left = cloth / "again", kept["request"], kept["budget"]
    code, _, err = run(*COMMON, "-o", "again", "--steps", "10")
    assert code == 2 and "holds the unfinished choice of another request" in err
    held = ChoiceState(*left)
    assert held.points and held.losses
    # Losses are of a budget, which sets how long finalists learn; costs are not.
    other = ChoiceState(*left[:2], {"seconds": 1.0})
    assert other.points == held.points and not other.losses
    monkeypatch.setattr(runs, "learns", lambda *given, **options: made.append(given[3]) or learns(*given, **options))
    monkeypatch.setattr(points, "measure", None)
    assert chosen(run, "--steps", "9", output="again") == whole
    assert len(made) == len(set(made)) == len(whole["finalists"])
    assert not (cloth / "again" / "unfinished.json").exists()


def test_what_a_refusal_offers_is_taken_in_the_same_folder(run, cloth, monkeypatch):
    """The costs stay there, and are not counted again."""
    code, _, err = run(*COMMON, "-o", "out", "--steps", "9", "--memory", "1kB")
    given = re.search(r"give (--memory) (\S+)$", err.strip())
    assert code == 2 and given, err
    monkeypatch.setattr(points, "measure", None)
    assert chosen(run, "--steps", "9", *given.groups(), output="out")["within"] > 0
    assert not (cloth / "out" / "unfinished.json").exists()
