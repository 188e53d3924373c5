"""A port by which STORE writes, by hand: addresses wait for answers, words for room, answers keep their order."""

from gradloom.sim.time.shell.ports import WritePort


def test_addresses_wait_for_the_answer_of_the_burst_that_is_so_far_back():
    port = WritePort(most=2, parts=1, depth=4, latency=3)
    assert port.address(5) == 5
    port.answers.extend((20, 30))
    assert (port.address(5), port.address(20), port.address(21), port.address(40)) == (21, 21, 21, 40)
    port.answers.append(50)
    assert port.address(5) == 31


def test_words_leave_in_parts_and_wait_for_room():
    """Of two parts a word, two words of room; a word leaves two cycles after it came."""
    port = WritePort(most=2, parts=2, depth=2, latency=3)
    assert [port.take(0), port.take(1), port.take(2), port.take(3)] == [0, 1, 4, 6]
    assert list(port.left) == [7, 9] and port.sent == 9
    assert port.take(30) == 30 and port.sent == 33


def test_answers_keep_their_order():
    """An answer comes ``latency`` after the last part, one a cycle, and is told two cycles later."""
    port = WritePort(most=4, parts=1, depth=4, latency=3)
    port.take(0)
    assert (port.sent, port.answer(), port.answer()) == (2, 8, 9)
    port.take(20)
    assert (port.sent, port.answer()) == (22, 28)
