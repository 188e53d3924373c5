"""A text's last part is held out, and what is judged lies evenly over it."""

import pytest

from gradloom.choosing.texts import split


class Characters:
    """A token a character, numbered by its place."""

    def encode(self, text):
        return list(range(len(text)))


def parted(tmp_path, tokens, seq):
    text = tmp_path / "text.txt"
    text.write_text("a" * tokens)
    return split(text, Characters(), seq)


def test_a_fifth_is_held_out_and_at_most_eight_windows_are_judged(tmp_path):
    found = parted(tmp_path, 500, 5)
    assert found.learnt == list(range(400))
    assert [each[0] for each in found.judged] == [400, 410, 425, 435, 450, 460, 475, 485]
    assert all(each == list(range(each[0], each[0] + 5)) for each in found.judged)
    assert found.windows(150) == [list(range(150)), list(range(150, 300))]
    assert found.windows(200)[-1] == list(range(200, 400))


def test_two_windows_are_enough_and_less_are_refused(tmp_path):
    found = parted(tmp_path, 20, 10)
    assert (found.learnt, found.judged) == (list(range(10)), [list(range(10, 20))])
    with pytest.raises(ValueError, match="has 19 tokens, seq=10 needs at least 20.*--seq 9"):
        parted(tmp_path, 19, 10)
    with pytest.raises(ValueError, match=r"has 3 tokens.*longer text$"):
        parted(tmp_path, 3, 2)
    with pytest.raises(ValueError, match="--seq 2"):
        parted(tmp_path, 4, 3)
