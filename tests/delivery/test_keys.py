"""Keys in files, and lists of trusted and revoked keys."""

import pytest

import gradloom
from gradloom.delivery.keys import check_signature, read_public, read_signer


@pytest.fixture(autouse=True)
def _monocypher():
    pytest.importorskip("monocypher")


def test_keys_are_made_for_their_owner_alone(tmp_path):
    told = gradloom.package.keys(tmp_path / "k")
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    signer, public = read_signer(tmp_path / "k"), read_public(tmp_path / "k.pub")
    assert signer.public == public and told["public"].endswith("k.pub")
    assert check_signature(signer.sign(b"text"), public, b"text")
    assert not check_signature(signer.sign(b"text"), public, b"texu")
    with pytest.raises(ValueError, match="never overwritten"):
        gradloom.package.keys(tmp_path / "k")


@pytest.mark.parametrize("mode", (0o640, 0o604, 0o620, 0o602, 0o666))
def test_a_key_that_others_may_use_is_refused(tmp_path, mode):
    gradloom.package.keys(tmp_path / "k")
    (tmp_path / "k").chmod(mode)
    with pytest.raises(ValueError, match=f"others may use it .mode {mode:o}."):
        read_signer(tmp_path / "k")


def test_other_files_are_no_keys(tmp_path):
    gradloom.package.keys(tmp_path / "k")
    with pytest.raises(ValueError, match="k: is a secret key, a public one is needed: name that, the name with .pub"):
        read_public(tmp_path / "k")
    for mode in (0o644, 0o600):
        (tmp_path / "k.pub").chmod(mode)
        with pytest.raises(ValueError, match="k.pub: is a public key, a secret one is needed: name that, the name wi"):
            read_signer(tmp_path / "k.pub")
    (tmp_path / "note").write_text("note")
    for read, digits in ((read_public, 64), (read_signer, 128)):
        with pytest.raises(ValueError, match=f"{digits} hexadecimal digits"):
            read(tmp_path / "note")


def test_a_damaged_key_is_refused(tmp_path):
    """In either half: a signature by a wrong public half would give the seed away."""
    gradloom.package.keys(tmp_path / "k")
    text = (tmp_path / "k").read_text()
    for place in (len(text) - 2, len(text) - 100):
        digit = "0" if text[place] != "0" else "1"
        (tmp_path / "k").write_text(text[:place] + digit + text[place + 1 :])
        with pytest.raises(ValueError, match="halves do not belong together"):
            read_signer(tmp_path / "k")


def test_signatures_are_deterministic(tmp_path):
    gradloom.package.keys(tmp_path / "k")
    assert len({read_signer(tmp_path / "k").sign(b"abc") for _ in range(2)}) == 1


def test_a_list_trusts_and_revokes(place, tmp_path):
    common = {"trust": place / "root.pub", "base": place / "base"}
    gradloom.package.sign(place / "one", tmp_path / "a.pkg", base=place / "base", key=place / "other", version=5)
    with pytest.raises(ValueError, match="is not trusted"):
        gradloom.package.apply(tmp_path / "a.pkg", tmp_path / "out", **common)
    gradloom.package.keys(tmp_path / "1.pkg", key=place / "root", version=1, trust=[place / "other.pub"])
    gradloom.package.keys(tmp_path / "2.pkg", key=place / "root", version=2, revoke=[place / "other.pub"])
    with pytest.raises(ValueError, match="is revoked"):
        gradloom.package.apply(tmp_path / "a.pkg", tmp_path / "out", keys=tmp_path / "2.pkg", **common)
    assert not (tmp_path / "out").exists()
    gradloom.package.apply(tmp_path / "a.pkg", tmp_path / "out", keys=tmp_path / "1.pkg", **common)
    # The root stays trusted; the version of the list that was used may not fall, nor the list be left out.
    gradloom.package.sign(place / "one", tmp_path / "b.pkg", base=place / "base", key=place / "root", version=6)
    gradloom.package.apply(tmp_path / "b.pkg", tmp_path / "out", keys=tmp_path / "2.pkg", **common)
    gradloom.package.sign(place / "one", tmp_path / "c.pkg", base=place / "base", key=place / "other", version=7)
    with pytest.raises(ValueError, match="version=1: must be at least 2"):
        gradloom.package.apply(tmp_path / "c.pkg", tmp_path / "out", keys=tmp_path / "1.pkg", **common)
    with pytest.raises(ValueError, match="version 2 of the key list is in use"):
        gradloom.package.apply(tmp_path / "c.pkg", tmp_path / "out", **common)


def test_a_list_of_another_key_is_refused(place, tmp_path):
    gradloom.package.keys(tmp_path / "1.pkg", key=place / "other", version=1, trust=[place / "other.pub"])
    with pytest.raises(ValueError, match="is not trusted"):
        gradloom.package.verify(place / "one.pkg", trust=place / "root.pub", keys=tmp_path / "1.pkg")
    with pytest.raises(ValueError, match="is the key that signs the list"):
        gradloom.package.keys(tmp_path / "2.pkg", key=place / "root", version=1, revoke=[place / "root.pub"])
    with pytest.raises(ValueError, match="is trusted in the same list"):
        pair = [place / "other.pub"]
        gradloom.package.keys(tmp_path / "2.pkg", key=place / "root", version=1, trust=pair, revoke=pair)
