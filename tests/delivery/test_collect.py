"""A card that a board has written becomes PEFT's files, with moments and log."""

import dataclasses
import io
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import gradloom
from gradloom.firmware.chip.card import KEPT, read_header
from gradloom.firmware.chip.kept import Copy, KeptFile, KeptRecord, Reason, encode, newest
from gradloom.models.adapters.lora import load_lora
from gradloom.program.descent import AdamW
from gradloom.systems.text.card.course import qlora_course
from gradloom.systems.text.card.job import board_job, write_card_image
from gradloom.systems.text.card.trainer import JobTrainer
from gradloom.systems.text.order import arranged
from gradloom.systems.text.run.training import as_bytes

from ..models.test_filled import QWEN
from ..systems.text.conftest import CONFIG, LONG_HEADS, MODEL, TOKENS, adapters, frozen, model, tensors  # noqa: F401

RULE = AdamW(lr=1e-2)


@pytest.fixture
def card(frozen, adapters, model, tmp_path):  # noqa: F811
    """An image, its job, and the trainer whose state a copy holds."""
    made = board_job(qlora_course(frozen, (TOKENS,), adapters, [0, 1], RULE, 3), CONFIG)
    rank = next(iter(adapters.values())).rank
    facts = {"model": "small", "shapes": dataclasses.asdict(model), "rank": rank, "alpha": 2.0 * rank, "steps": 3}
    write_card_image(made, tmp_path / "run", facts | {"moment_scales": RULE.moment_scales}, memory_bytes=1 << 24)
    return tmp_path / "run" / "card.img", made


@pytest.fixture
def trained(frozen, adapters, card):  # noqa: F811
    trainer = JobTrainer(frozen, dict(adapters), [0, 1], RULE, frac=card[1].frac, exponents=card[1].exponents)
    result = trainer.step(TOKENS)
    return trainer, result


def put(path, copies):
    """Copies to their places on the card."""
    image = bytearray(path.read_bytes())
    sections, identity = read_header(bytes(image[:512]))
    (area,) = (each for each in sections if each.kind == KEPT)
    for number, copy in enumerate(copies):
        if copy is not None:
            data = copy if isinstance(copy, bytes) else encode(dataclasses.replace(copy, identity=identity))
            at = area.start + number * area.size // 2
            image[at : at + len(data)] = data
    path.write_bytes(image)


def words_of(made, trainer, result):
    """The kept words after a step."""
    from gradloom.rtl.formats.weights.tiles import tile_rows
    from gradloom.systems.text.operations.learnt.rechosen import FRACS

    words = bytearray(made.job.kept.bytes)
    for name, place in made.layout.offsets.items():
        if name in result.values and place < len(words):
            value = result.values[name]
            data = as_bytes({name: value})[name] if value.ndim == 3 else tile_rows(value, 64)
            words[place : place + len(data)] = data
    for number, name in enumerate(trainer.exponents.constants):
        at = made.layout["exponents"] + 48 * number
        words[at : at + 24] = np.array([trainer.exponents.frac[f"{name}.{w}"] for w in FRACS], "<i4").tobytes()
    return bytes(words)


@pytest.mark.parametrize(
    "model", [MODEL, LONG_HEADS, QWEN], ids=["heads of 64", "heads of 128", "heads of 48"], indirect=True
)
def test_a_trained_adapter_comes_off_the_card(card, trained, model, tmp_path, run):  # noqa: F811
    path, made = card
    trainer, result = trained
    words = words_of(made, trainer, result)
    log = tuple(KeptRecord(5 << 16, 8, n) for n in range(2))
    old = Copy(sequence=1, identity=0, runs=1, words=bytes(len(words)), log=log[:1])
    new = Copy(sequence=2, identity=0, runs=2, words=words, log=log, reason=Reason.RUNS)
    put(path, (new, old))
    found = gradloom.card.collect(tmp_path / "out", card=path)
    assert (found["steps"], found["of"], found["reason"], found["saturated"]) == (2, 3, "runs", [0, 1])
    assert found["loss"] == [pytest.approx(5 / 8 * np.log(2))] * 2
    loaded = load_lora(tmp_path / "out", model)
    assert loaded.keys() == trainer.adapters.keys()
    for name, each in trainer.adapters.items():
        assert np.array_equal(loaded[name].a, each.a.astype(np.float32))
        assert np.allclose(loaded[name].b, each.b, rtol=1e-6, atol=0)
    moments = load_file(tmp_path / "out" / "optimizer.safetensors")
    for name, each in trainer.adapters.items():
        m, v = trainer.moments[f"{name}.mb"].astype("<u4").view("<f4")
        at = f"base_model.model.{name}.lora_B.weight"
        for factor, (held, end) in enumerate(((m, "exp_avg"), (v, "exp_avg_sq")), 1):
            (found,) = arranged(model, {name: dataclasses.replace(each, b=moments[f"{at}.{end}"])}).values()
            assert np.allclose(found.b, held.T * RULE.moment_scales[factor - 1] * each.scale**factor, rtol=1e-5)
            assert moments[f"{at}.{end}"].shape == each.b.shape
    code, out, _ = run("card", "collect", "--card", path, "-o", tmp_path / "again")
    assert code == 0 and "small after 2 of 3 steps" in " ".join(out.split())


@pytest.mark.parametrize("damage", [0, 100, 600])
def test_of_two_copies_the_newest_whole_one_counts(card, tmp_path, damage):
    path, made = card
    size = made.job.kept.bytes
    first = Copy(sequence=0xFFFFFFFF, identity=0, runs=1, words=bytes(size))
    second = Copy(sequence=0, identity=0, runs=2, words=bytes(size))
    put(path, (first, second))
    assert gradloom.card.collect(tmp_path / "out", card=path)["steps"] == 2
    image = bytearray(path.read_bytes())
    area = next(each for each in read_header(bytes(image[:512]))[0] if each.kind == KEPT)
    # Zeros behind the words of a copy's block are not read.
    image[area.start + area.size // 2 + (damage if damage != 100 else 8)] ^= 1
    path.write_bytes(image)
    assert gradloom.card.collect(tmp_path / "out", card=path)["steps"] == 1


def test_a_card_without_a_result_is_one_line(card, tmp_path, run):
    path, made = card
    cases = [
        (None, "the board has stored nothing yet"),
        (lambda image: put(path, (b"GLKP" + bytes(600), None)), "no stored copy is whole"),
        (lambda image: path.write_bytes(b"x" * 2000), "not an image that gradloom wrote"),
        (lambda image: path.write_bytes(image[:100]), "not an image that gradloom wrote"),
        (lambda image: path.write_bytes(image[:600]), "section about is damaged"),
        (lambda image: path.write_bytes(image[:20] + b"x" + image[21:]), "the header is damaged"),
        (lambda image: path.unlink(), "No such file or directory: name the card's device or its image"),
    ]
    image = path.read_bytes()
    for change, said in cases:
        path.write_bytes(image)
        if change is not None:
            change(image)
        code, out, err = run("card", "collect", "--card", path, "-o", tmp_path / "out")
        assert code == 2 and not out and said in err and err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_card_in_another_machine_is_read_over_ssh(card, tmp_path, run, monkeypatch):
    """A shell plays ssh. A machine that does not answer, and a card that is not there, are one line."""
    path, made = card
    put(path, (Copy(sequence=1, identity=0, runs=2, words=bytes(made.job.kept.bytes)), None))
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text('#!/bin/sh\n[ "$3" = me@desk ] || { echo "no route to host" >&2; exit 255; }\nexec sh -c "$4"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:/usr/bin:/bin")
    odd = path.with_name("the card's image")
    odd.write_bytes(path.read_bytes())
    found = gradloom.card.collect(tmp_path / "far", card=odd, host="me@desk")
    near = gradloom.card.collect(tmp_path / "near", card=path)
    assert found == {**near, "output": str(tmp_path / "far")}
    name = "adapter_model.safetensors"
    assert (tmp_path / "far" / name).read_bytes() == (tmp_path / "near" / name).read_bytes()
    cases = [
        (("--host", "me@moon", "--card", path), "me@moon does not give"),
        (("--host", "me@desk", "--card", tmp_path / "nothing"), "No such file"),
        (("--host", "-oProxy", "--card", path), "host must be like user@machine"),
        (("--host", "me@desk"), "give one of them"),
        (("--host", "me@desk", "--port", "/dev/ttyUSB0"), "host: needs card"),
        (("--port", "/dev/nothing"), "no such port"),
        (("--port", "/dev/ttyUSB0", "--card", path), "give one of them"),
    ]
    for options, said in cases:
        code, out, err = run("card", "collect", *options, "-o", tmp_path / "out")
        assert code == 2 and not out and said in err and err.count("\n") == 1, err
        assert not (tmp_path / "out").exists()


def test_a_failure_leaves_what_was_there(card, tmp_path, monkeypatch):
    path, made = card
    put(path, (Copy(sequence=1, identity=0, runs=1, words=bytes(made.job.kept.bytes)), None))
    gradloom.card.collect(tmp_path / "out", card=path)
    before = (tmp_path / "out" / "log.json").read_text()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gradloom.systems.text.card.collected.Collected.moments", interrupted)
    put(path, (None, Copy(sequence=2, identity=0, runs=2, words=bytes(made.job.kept.bytes))))
    with pytest.raises(KeyboardInterrupt):
        gradloom.card.collect(tmp_path / "out", card=path)
    assert (tmp_path / "out" / "log.json").read_text() == before
    assert json.loads(before)["steps"] == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "run"]


def test_a_file_on_linux_is_replaced_whole(tmp_path, monkeypatch):
    kept = KeptFile(tmp_path / "learnt")
    assert kept.find(5) is None
    first = Copy(sequence=1, identity=5, runs=4, words=b"abcd" * 200, log=(KeptRecord(1, 2, 3),))
    kept.write(first)
    assert kept.find(5) == first and kept.find(6) is None
    monkeypatch.setattr("gradloom.firmware.chip.kept.os.fsync", lambda number: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        kept.write(dataclasses.replace(first, runs=5))
    assert kept.find(5) == first
    data = encode(first)
    for cut in range(0, len(data), 97):
        (tmp_path / "learnt").write_bytes(data[:cut])
        assert kept.find(5) is None or cut >= 512 + 1024 + 16
    assert newest(io.BytesIO(data), 0, len(data), 6) is None
