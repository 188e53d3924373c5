"""A folder that answers prompts: by the C runner and the agent in front of simulated RTL, as the reference does."""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from gradloom.cli.main import main
from gradloom.firmware.jobs.job import JobError, JobPlan, read_plan
from gradloom.jobs import on_board
from gradloom.jobs.programs import JobRecorder
from gradloom.preset import find_preset
from gradloom.sim.run.builds.designs import design_entry
from gradloom.systems.asked import Asked
from gradloom.systems.request import answered
from gradloom.systems.text.answer import asking
from gradloom.systems.text.card.linux import recorded
from gradloom.systems.text.run.answers import TokenReply, prompt_of
from gradloom.systems.text.small import frozen_of, random_tensors

from ..cli.conftest import here
from ..deep import deep
from ..systems.text.conftest import CONFIG, FAMILIES, LONG_HEADS, MODEL
from .test_c_runner import _native, built

__all__ = ["here"]

PRESET = replace(find_preset("edge-qlora-kv260"), config=CONFIG)
ASKED = Asked(name="small", preset=PRESET)
#: A program of the prompt, one of a token, and one of several, whose guesses are right but for the last.
PROMPT, TOKENS = "abcdefgh", 6


def options_of(**given):
    given = {"model": "small", "prompt": PROMPT, "tokens": TOKENS, **given}
    return PRESET.workload.options(PRESET.name, given, "infer")


def reference(options):
    return answered("infer", ASKED, replace(options, engine="reference"))


@pytest.fixture
def board(here, make_board):
    made = make_board(CONFIG, PRESET.name, 1 << 24)
    made.runner = built(here, _native()[0], made.design)
    return made


def run(board, *arguments):
    return subprocess.run(
        [str(board.runner), "--at", str(board.socket), "answer", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def said(done):
    """Tokens, programs, words that were clipped, and cycles."""
    assert done.returncode == 0, done.stderr
    told = re.fullmatch(r"(\d+) tokens by (\d+) programs, (\d+) cycles, (\d+) words clipped\n", done.stderr)
    tokens = [int(each) for each in done.stdout.split()]
    assert int(told[1]) == len(tokens)
    return tokens, int(told[2]), int(told[4]), int(told[3])


def same(found, wanted):
    assert found[:3] == (wanted["tokens"], wanted["programs"], wanted["clipped"])


def change(folder, **changes):
    """Another plan in place of a folder's."""
    found = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps(found | changes))
    return found


def test_an_answer_is_that_of_the_reference(here, board):
    """Of the folder's prompt, which a token ends the second time, and of another one."""
    options = options_of()
    written = on_board.write_answers(ASKED, options, here / "job")
    assert written.memory_bytes == read_plan(here / "job").window < 1 << 20
    wanted, found = reference(options), said(run(board, here / "job"))
    same(found, wanted)
    assert wanted["programs"] == 3 and 10_000 < found[3] < 100_000
    answers = change(here / "job")["answers"]
    change(here / "job", answers=answers | {"ends": [wanted["tokens"][-1]], "tokens": 30})
    for done in (run(board, here / "job"), board.agent("answer", str(here / "job"))):
        assert said(done) == (wanted["tokens"][:-1], *found[1:])
    # By the exponents of the folder's prompt.
    asks, _ = asking(options, lambda *told: None)
    reply, _ = asks.reply(PRESET, lambda *told: None, made=True)
    other = list(reply.tokens([20, 8, 20], 2))
    words = ["--tokens", "2", str(here / "job"), "20", "8", "20"]
    for done in (run(board, *words), board.agent("answer", *words)):
        assert said(done)[:3] == (other, reply.loop.programs, reply.saturated)


def test_a_program_that_stops(here, board):
    """By exit code 1, with code and command; the folder answers again."""
    on_board.write_answers(ASKED, options_of(), here / "job")
    whole = (here / "job/job.json").read_text()
    plan = json.loads(whole)["answers"]
    for each in plan["programs"]:
        # Without its end.
        each["program"][1] -= 1
    change(here / "job", answers=plan)
    ours, theirs = run(board, here / "job", 7), board.agent("answer", str(here / "job"), "7")
    assert ours.returncode == theirs.returncode == 1 and ours.stderr == theirs.stderr
    assert re.fullmatch(r"gradloom: program stopped: PROGRAM_UNENDED at command \d+: .+\n", ours.stderr)
    (here / "job/job.json").write_text(whole)
    assert len(said(run(board, "--tokens", 1, here / "job", 7))[0]) == 1


#: Fields of answers that are refused, by what is said of them in C, and in Python.
CHANGES = {
    ("vocabulary: must be an integer", "answers.vocabulary=0: must be"): {"vocabulary": 0},
    ("answers: has other fields", "answers: must have prompt, tokens"): {"more": 1},
    ("features and angle_words: must be multiples of 64", "answers.features=100: must be"): {"features": 100},
    ("ends: must be an integer from 0 to 95", "answers.ends[0]=96: must be"): {"ends": [96]},
    ("prompt: must be a list of 1 or more", "answers.prompt: must be a list of 1 to"): {"prompt": []},
    ("answers.embedding: must be an integer", "answers.embedding=300000: must be"): {"embedding": 300000},
    ("answers.angles: must be an integer", "answers.angles=300000: must be"): {"angles": 300000},
    ("programs: must be a list of 1 or more", "answers.programs: must be a list"): {"programs": []},
    ("one of one token for each tile", "one of one token for each tile"): {"rows": 32},
}


def test_what_is_refused(here, board, tmp_path):
    """One line each, and nothing runs: the request, the folder, and what the board is."""
    folder = here / "job"
    on_board.write_answers(ASKED, options_of(), folder)
    whole = (folder / "job.json").read_text()

    def refused(text, *arguments, agent=None):
        ours, theirs = run(board, *arguments), board.agent("answer", *map(str, arguments))
        for done, wanted in ((ours, text), (theirs, agent or text)):
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
            assert re.match(f"gradloom: {wanted}", done.stderr), (wanted, done.stderr)

    refused("token=96: must be .*from 0 to 95", folder, 5, 96)
    longest = r"tokens=6: must be at least 1, and with the prompt's 60 at most 65, as many as the folder has"
    refused(longest, folder, *range(60))
    refused(r"tokens=70: .* prompt's 8 at most 65", "--tokens", 70, folder)
    refused("tokens=0: must be", "--tokens", 0, folder)
    assert "tokens=x: must be a whole number from 1" in run(board, "--tokens", "x", folder).stderr
    assert "needs the folder of a model" in run(board).stderr
    refused(".*nowhere: is no job", here / "nowhere")
    design = json.loads(whole)["design"]
    for text, agent, fields in (
        ("the board has another design than", "the board has .*, must be", {"design": design | {"table": "rows=1;"}}),
        ("the job needs: 1048576000 bytes", "the job needs 1,048,576,000 bytes", {"window": 1000 << 20}),
        ("data.bin: has bytes that are not those", ".*data.bin has", {"data_sha256": "0" * 64}),
        ("job.json: stages: must have no program", None, {"stages": [{"writes": [], "program": [0, 1], "reads": []}]}),
        ("job.json: has no answers, but a fine-tune", ".*has no answers, but a fine-tune", {"answers": None}),
    ):
        change(folder, **fields)
        refused(text, folder, agent=agent)
        (folder / "job.json").write_text(whole)
    answers = json.loads(whole)["answers"]
    for (text, agent), fields in CHANGES.items():
        change(folder, answers=answers | fields)
        assert text in run(board, folder).stderr
        with pytest.raises(JobError, match=re.escape(agent)):
            JobPlan.parse((folder / "job.json").read_text())
    (folder / "job.json").write_text(whole)
    # A job is run, and a folder of answers answers.
    job = [str(board.runner), "--at", str(board.socket), "job", str(folder)]
    done = subprocess.run(job, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.endswith("answers prompts: run gradloom_run answer\n")
    assert "answers prompts: " in board.agent("run", str(folder)).stderr
    (folder / "data.bin").write_bytes((folder / "data.bin").read_bytes()[:-1] + b"x")
    refused("data.bin: has bytes that are not", folder, agent=".*data.bin has")


REFUSED = {
    "top_k=3: must be left out with --job, whose board takes the likeliest": {"top_k": 3},
    "tokens=200: with the prompt's 8 there are more than 128": {"tokens": 200},
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_folder_that_is_not_written(here, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        on_board.write_answers(ASKED, options_of(**REFUSED[said]), here / "job")
    assert not (here / "job").exists()


def test_the_verb_writes_a_folder(here, capsys):
    """Of the whole machine, with programs for a tile of the cache."""
    verb = ["infer", "small", "--board", "kv260", "--prompt", "ab", "--tokens", "3", "--job", "job"]
    with pytest.raises(SystemExit, match="0"):
        main([*verb, "--json"])
    told, plan = json.loads(capsys.readouterr().out), read_plan(here / "job")
    assert (told["folder"], told["memory_bytes"], told["bytes_there"]) == ("job", plan.window, plan.data_bytes)
    assert plan.answers.prompt == (65, 66) and (plan.answers.tokens, plan.answers.positions) == (3, 64)
    assert {each.count for each in plan.answers.programs} == {1, 8} and plan.answers.ends == (95,)
    with pytest.raises(SystemExit, match="0"):
        main(verb)
    assert "on the board: gradloom_run answer job, or" in " ".join(capsys.readouterr().out.split())


VERBS = {
    "job=job: must be left out, instantft-kv260 is no language model": ("lenet5",),
    "job=job: must be left out, genesys2 has no Linux": ("edge-qlora-genesys2", "--prompt", "A"),
    "host=a@b: must be left out with --job": ("edge-qlora-kv260", "--prompt", "A", "--host", "a@b"),
    "engine=rtl: must be left out for a board": ("edge-qlora-kv260", "--prompt", "A", "--engine", "rtl"),
}


@pytest.mark.parametrize("said", VERBS)
def test_the_verb_refuses(here, capsys, said):
    with pytest.raises(SystemExit, match="2"):
        main(["infer", *VERBS[said], "--job", "job"])
    out, err = capsys.readouterr()
    assert (out, err.count("gradloom: ")) == ("", 1) and said in err and not (here / "job").exists()


@deep
@pytest.mark.parametrize(
    "shapes", [LONG_HEADS, FAMILIES, replace(MODEL, context=128)], ids=["long heads", "families", "128"]
)
def test_answers_of_families(here, board, shapes):
    """Of heads of several tiles, biases, layers with other angles, and positions beyond a tile of the cache."""
    frozen = frozen_of(random_tensors(np.random.default_rng(3), shapes), shapes)
    long = shapes.context - 4 if shapes.context > 64 else 9
    prompt = np.random.default_rng(6).integers(0, shapes.vocab, long).tolist()
    made = TokenReply(prompt_of(frozen, prompt, {}, {}, CONFIG, coded=False))
    if shapes == FAMILIES:
        # Logits that clip, of which the lowest of equals is said.
        made.frac["2.logits"] += 6
    (here / "job").mkdir()
    with open(here / "job/data.bin", "wb") as data:
        recorder = JobRecorder(data, board.design["table"])
        answers = recorded(made, prompt, 4, [], CONFIG, recorder, lambda *told: None)
        recorder.finished()
        plan = recorder.plan(design_entry(PRESET.name, CONFIG), {}, answers)
    (here / "job/job.json").write_text(plan.text())
    found, wanted = said(run(board, here / "job")), list(made.tokens(prompt, 4))
    assert found[:3] == (wanted, made.loop.programs, made.saturated) and (found[2] > 0) == (shapes == FAMILIES)
    assert said(board.agent("answer", str(here / "job"))) == found


@deep
def test_answers_with_an_adapter_and_a_head_in_codes(here, board):
    from gradloom.systems.driver import finetune

    tuned = {"model": "small", "data": "text.txt", "seq": 16, "rank": 2, "steps": 3, "generate": 0, "lr": 0.1}
    options = PRESET.workload.options(PRESET.name, {**tuned, "engine": "reference"})
    finetune(PRESET, options, output=here / "run")
    answers = []
    for given in ({"adapter": here / "run"}, {"adapter": here / "run", "head": "nf"}, {}):
        options = options_of(**given)
        shutil.rmtree(here / "job", ignore_errors=True)
        on_board.write_answers(ASKED, options, here / "job")
        found = said(run(board, here / "job"))
        same(found, reference(options))
        answers.append(found[0])
    assert answers[0] != answers[2]
