"""Packages that hold give the adapter; all others are refused in one line."""

import hashlib
import json
import struct
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

import gradloom
from gradloom.cli.main import main
from gradloom.delivery import codes
from gradloom.delivery.content import Content
from gradloom.delivery.keys import read_public, read_signer
from gradloom.delivery.manifest import FULL
from gradloom.delivery.package import base_hash, open_package, signed_package
from gradloom.models.adapters.language.lora_xs import fresh_cores, save_cores
from gradloom.models.adapters.lora import fresh_lora, save_lora
from gradloom.models.adapters.peft import read_peft
from gradloom.models.adapters.peft_files import write_peft

from ..language import save_model
from ..models.conftest import TINY

WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
def trust(place):
    return {"trust": place / "root.pub", "base": place / "base"}


@pytest.fixture
def signing(place):
    return {"base": place / "base", "key": place / "root"}


def files(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_a_package_of_32_bits_is_the_adapter(place, trust, signing, tmp_path):
    gradloom.package.sign(place / "one", tmp_path / "a.pkg", version=1, bits=32, **signing)
    gradloom.package.apply(tmp_path / "a.pkg", tmp_path / "out", **trust)
    ours, given = load_file(tmp_path / "out" / WEIGHTS), load_file(place / "one" / WEIGHTS)
    assert set(ours) == set(given) and all(np.array_equal(ours[name], given[name]) for name in given)
    read = [json.loads((each / "adapter_config.json").read_text()) for each in (tmp_path / "out", place / "one")]
    assert read[0] == read[1]


@pytest.mark.parametrize("bits, share", [(8, 0.01), (4, 0.12), (3, 0.25), (2, 0.6)])
def test_a_delta_brings_its_parent_near_the_new_adapter(place, trust, signing, tmp_path, bits, share):
    gradloom.package.sign(
        place / "two", tmp_path / "d.pkg", parent=place / "installed", version=4, bits=bits, **signing
    )
    gradloom.package.apply(tmp_path / "d.pkg", tmp_path / "out", parent=place / "installed", **trust)
    before, wanted, got = (load_file(each / WEIGHTS) for each in (place / "installed", place / "two", tmp_path / "out"))
    change = np.concatenate([(wanted[name] - before[name]).ravel() for name in wanted])
    error = np.concatenate([(wanted[name] - got[name]).ravel() for name in wanted])
    assert np.sqrt((error**2).mean() / (change**2).mean()) < share


def test_a_delta_changes_what_is_in_the_output_folder(place, trust, tmp_path):
    gradloom.package.apply(place / "one.pkg", tmp_path / "out", **trust)
    told = gradloom.package.apply(place / "two.pkg", tmp_path / "out", **trust)
    assert told["version"] == 4
    assert gradloom.package.verify(place / "two.pkg", **trust)["result"] == told["result"]
    assert sorted(files(tmp_path / "out")) == [".gradloom", "adapter_config.json", WEIGHTS, "gradloom_delivery.json"]


def test_the_manifest_says_what_the_adapter_is(place, trust):
    told = gradloom.package.verify(place / "one.pkg", **trust)
    assert (told["kind"], told["version"], told["least"], told["bits"]) == ("full", 3, 2, 8)
    assert (told["rank"], told["layers"], told["tensors"], told["scale"], told["block"]) == (2, 2, 4, 2.0, 64)
    peak = max(np.abs(each).max() for each in load_file(place / "installed" / WEIGHTS).values())
    assert 2.0 ** (told["exponent"] - 1) < peak <= 2.0 ** told["exponent"]
    content = (place / "one.pkg").read_bytes()
    # The offsets that the page of formats states.
    assert content[:8] == b"GRADLOOM" and content[8:12] == b"\1\0\1\x08"
    assert struct.unpack_from("<HHHhHxxIIQ", content, 12) == (2, 2, 4, told["exponent"], 64, 3, 2, len(content) - 512)
    assert content[40:72].hex() == told["key"] and content[168:200].hex() == told["payload"]
    assert struct.unpack_from("<ff", content, 200) == (2.0, 0.0) and not any(content[208:448])
    assert told["payload"] == hashlib.sha256(content[512:]).hexdigest()


def test_the_hash_of_a_base_is_that_of_sha256sum_s_lines(place):
    done = subprocess.run(["sha256sum", "a.json", "weights.bin"], cwd=place / "base", capture_output=True, check=True)
    assert base_hash(place / "base") == hashlib.sha256(done.stdout).digest()


def test_a_package_cut_at_any_byte_is_refused(place):
    content, public = (place / "one.pkg").read_bytes(), read_public(place / "root.pub")
    open_package(content, [public])
    for length in range(len(content)):
        with pytest.raises(ValueError, match="package|payload"):
            open_package(content[:length], [public])
    with pytest.raises(ValueError, match="payload: has"):
        open_package(content + b"\0", [public])


@pytest.mark.parametrize("name", ("one.pkg", "two.pkg"))
def test_a_flipped_bit_is_refused(place, name):
    """1,000 bits of each package, and one of each byte or so of the manifest."""
    content, public = (place / name).read_bytes(), read_public(place / "root.pub")
    bits = np.random.default_rng(7).choice(8 * len(content), 1000, replace=False).tolist()
    for bit in [*bits, *range(0, 8 * 512, 9)]:
        wrong = bytearray(content)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"^(package|key|signature|payload)"):
            open_package(bytes(wrong), [public])


def refused(capsys, *arguments):
    """The one line that the command line says."""
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said.count("\n") == 1 and said.startswith("gradloom: ")
    return said


def test_what_does_not_hold_is_one_line_and_leaves_what_was_there(place, tmp_path, capsys, signing):
    trusted = ["--trust", place / "root.pub"]
    base = ["--base", place / "base"]
    kept = tmp_path / "kept"
    gradloom.package.apply(place / "one.pkg", kept, trust=place / "root.pub", base=place / "base")
    before = files(kept)
    flipped = bytearray((place / "two.pkg").read_bytes())
    flipped[600] ^= 4
    (tmp_path / "flipped.pkg").write_bytes(flipped)
    (tmp_path / "cut.pkg").write_bytes(flipped[:600])
    gradloom.package.sign(place / "two", tmp_path / "parent.pkg", parent=place / "one", version=9, **signing)
    for package, options, words in (
        ("one.pkg", [*trusted, *base], "version=3: must be above 3"),
        ("two.pkg", [*trusted, "--base", place / "base2"], "base="),
        ("two.pkg", ["--trust", place / "other.pub", *base], "is not trusted"),
        ("two.pkg", ["--trust", place / "base" / "a.json", *base], "64 hexadecimal digits"),
        ("two.pkg", [*trusted, *base, "--keys", place / "one.pkg"], "a key list is needed"),
        (tmp_path / "flipped.pkg", [*trusted, *base], "its hash does not hold"),
        (tmp_path / "cut.pkg", [*trusted, *base], "payload: has 88 bytes"),
        (tmp_path / "parent.pkg", [*trusted, *base], "parent="),
        ("missing.pkg", [*trusted, *base], "No such file"),
    ):
        assert words in refused(capsys, "package", "apply", place / package, "-o", kept, *options)
        assert files(kept) == before
    assert "a delta needs the adapter" in refused(
        capsys, "package", "apply", place / "two.pkg", "-o", tmp_path / "new", *trusted, *base
    )
    assert not (tmp_path / "new").exists()


def test_an_installed_adapter_whose_bit_flips_is_refused(place, trust, tmp_path, capsys):
    gradloom.package.apply(place / "one.pkg", tmp_path / "out", **trust)
    weights = bytearray((tmp_path / "out" / WEIGHTS).read_bytes())
    weights[-1] ^= 1
    (tmp_path / "out" / WEIGHTS).write_bytes(weights)
    with pytest.raises(ValueError, match="its SHA-256 is not the one"):
        gradloom.package.apply(place / "two.pkg", tmp_path / "out", **trust)


def test_parameters_of_a_package_have_bounds(place, tmp_path, capsys):
    common = ["--base", place / "base", "--key", place / "root", "-o", tmp_path / "a.pkg"]
    for options, words in (
        (["--version", 0], "version=0: must be 1 to"),
        (["--version", 2, "--least", 3], "least=3: must be 0 to"),
        (["--version", 2, "--bits", 5], "bits=5: must be one of"),
        (["--version", 2, "--bound", "nan"], "bound=nan"),
    ):
        assert words in refused(capsys, "package", "sign", place / "one", *common, *options)
    assert not (tmp_path / "a.pkg").exists()


@pytest.mark.parametrize("packed", [True, False])
def test_an_adapter_of_another_model_than_its_base_is_refused(place, tmp_path, capsys, packed):
    """As merge and finetune refuse it; of a base that is no language model nothing is known."""
    base = tmp_path / "tiny"
    save_model(base, TINY)
    tensors = load_file(base / "model.safetensors")
    if packed:
        gradloom.pack(base, tmp_path / "packed")
        base = tmp_path / "packed"
    adapters = fresh_lora(TINY, rank=2)
    save_lora(tmp_path / "good", TINY, adapters)
    config, held = read_peft(tmp_path / "good")
    wide = {name: np.zeros((len(array), 65)) if "lora_A" in name else array for name, array in held.items()}
    write_peft(tmp_path / "wide", wide, config)
    save_cores(tmp_path / "cores", TINY, fresh_cores(TINY, tensors.__getitem__, rank=2))
    changed, held = read_peft(tmp_path / "cores")
    write_peft(tmp_path / "fewer", dict(list(held.items())[1:]), changed)
    common = ["--base", base, "--key", place / "root", "--version", 1, "-o", tmp_path / "a.pkg"]
    wrong = {place / "one": "has no ", tmp_path / "wide": "has shape [2, 65]", tmp_path / "fewer": "has no "}
    for name, said in wrong.items():
        assert said in refused(capsys, "package", "sign", name, *common)
        assert said in refused(capsys, "package", "sign", name, "--parent", name, *common)
        assert not (tmp_path / "a.pkg").exists()
    for name in ("good", "cores"):
        main_ends(["package", "sign", tmp_path / name, *common])


def signed(place, config, scale=2.0):
    """A package of an adapter with another config, signed as it is."""
    _, tensors = read_peft(place / "one")
    content = Content({**config}, tensors)
    coded = [codes.encode(array, 32) for _, array in content.ordered()]
    return signed_package(
        b"".join([content.table(), *coded]),
        read_signer(place / "root"),
        kind=FULL,
        version=5,
        bits=32,
        base=base_hash(place / "base"),
        result=content.hash,
        scale=scale,
    )


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("lora_alpha", float("nan"), "lora_alpha=NaN: must be a finite number"),
        ("lora_alpha", -5, "lora_alpha=-5: must be a number from"),
        ("init_lora_weights", "olora", 'init_lora_weights="olora"'),
        ("use_magic", True, "use_magic=true: this key is not known"),
        ("r", 3, "has shape [2, 65]: expected [3, 65]"),
    ],
)
def test_a_signed_adapter_that_no_reader_takes_is_refused(place, tmp_path, capsys, key, value, said):
    config, _ = read_peft(place / "one")
    (tmp_path / "a.pkg").write_bytes(signed(place, config))
    more = ["--trust", place / "root.pub", "--base", place / "base"]
    main_ends(["package", "apply", tmp_path / "a.pkg", "--check", *more])
    (tmp_path / "a.pkg").write_bytes(signed(place, {**config, key: value}))
    for words in (["--check"], ["-o", tmp_path / "out"]):
        assert said in refused(capsys, "package", "apply", tmp_path / "a.pkg", *words, *more)
    assert not (tmp_path / "out").exists()


def main_ends(words):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, words)))
    assert stop.value.code == 0


def test_a_manifest_has_finite_numbers(place, tmp_path, capsys):
    config, _ = read_peft(place / "one")
    (tmp_path / "a.pkg").write_bytes(signed(place, config, scale=float("nan")))
    assert "scale=nan" in refused(
        capsys, "package", "apply", tmp_path / "a.pkg", "--check", "--trust", place / "root.pub"
    )
