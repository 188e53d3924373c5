"""Prompts by a UART: what a line loses or brings twice is asked for again, what a board refuses is named."""

import zlib

import pytest

from gradloom.boards.links.lines import Lines
from gradloom.boards.links.prompts import Reply, prompted


class Board:
    """A line at whose end each request has the answers of the next entry of ``script``, with the prompt's name."""

    def __init__(self, *script):
        self.script, self.asked, self.answers = list(script), [], b""

    def write(self, data):
        word, name, *rest, _ = data.decode().split()
        self.asked.append((word, *rest))
        self.answers = b""
        for each in self.script.pop(0) if self.script else ():
            word, *numbers = each.split()
            if word == "other":
                # Of a prompt of somebody else.
                word, name = "token", f"{int(name, 16) ^ 1:08x}"
            line = " ".join([word, name, *(f"{int(number):08x}" for number in numbers)]).encode()
            self.answers += b"%s %08x\n" % (line, zlib.crc32(line))
        return len(data)

    def read(self, size):
        found, self.answers = self.answers[:size], self.answers[size:]
        return found


def test_tokens_come_in_their_order_and_lost_ones_again():
    first = ["answers", "token 1 70", "working", "other 0 99"]
    board, told = Board(first, ["token 0 60", "token 2 80", "answered 3 9 200"]), []
    assert prompted(Lines(board), [5, 6], 8, 0, told=told.append) == Reply([60, 70, 80], 9, 200)
    assert told == [60, 70, 80]
    # The first that is missing is asked for.
    assert board.asked == [("ask", "00000000", "00000008", "ffffffff", "00000005", "00000006"), ("again", "00000000")]


@pytest.mark.parametrize(
    "script, said",
    [
        ([["busy"]], "the board answers another prompt"),
        ([["refused"]], "the board refuses the prompt"),
        ([], "the board is silent after 10 requests"),
        ([["answers", "token 0 60"]] + [["token 0 60"]] * 70, "no token arrived in 60 requests"),
    ],
)
def test_a_board_that_does_not_answer_says_why(script, said):
    with pytest.raises(ValueError, match=said):
        prompted(Lines(Board(*script)), [5], 4, 0)
