"""The order of jobs keeps what they read in front of them; that of commands keeps queues and tokens."""

import pytest

from gradloom.rtl.plan.diffusion.order import Task, ordered
from gradloom.rtl.plan.diffusion.pace import Command, paced

ROOM = {"one": 8, "two": 8}


def images(count):
    """Each image is read by engine one, which writes what engine two reads: two stages, one after the other."""
    return [
        *(Task("one", {n: 10}, {100 + n: 10}, 50) for n in range(count)),
        *(Task("two", {100 + n: 10}, {200 + n: 10}, 50) for n in range(count)),
    ]


def test_images_follow_each_other_through_the_engines():
    assert ordered(images(3), 4, ROOM) == [0, 1, 3, 2, 4, 5]


def test_a_task_that_writes_what_others_read_stays_behind_them():
    tasks = [Task("one", {1: 10}, {2: 10}, 50), Task("two", {3: 10}, {1: 10}, 1), Task("two", {3: 10}, {2: 1}, 1)]
    order = ordered(tasks, 4, ROOM)
    assert order.index(0) < order.index(1) and order.index(0) < order.index(2)


def test_what_another_task_waits_for_goes_first():
    """Two of three tasks make what a fourth reads."""
    tasks = [
        Task("one", {}, {1: 10}, 50),
        Task("one", {}, {2: 10}, 50),
        Task("one", {}, {3: 10}, 50),
        Task("two", {2: 10}, {5: 10}, 1),
        Task("two", {1: 10, 3: 10}, {4: 10}, 1000),
    ]
    assert ordered(tasks, 4, ROOM)[:2] == [1, 0]


def test_result_slots_limit_how_far_an_engine_is_ahead():
    """With one, engine one's second task waits for STORE, so engine two's goes first."""
    tasks = [Task("one", {}, {1: 500}, 10), Task("one", {}, {2: 500}, 10), Task("two", {3: 100}, {4: 1}, 10)]
    assert ordered(tasks, 4, ROOM) == [0, 1, 2]
    assert ordered(tasks, 1, ROOM) == [0, 2, 1]


def test_commands_stand_by_their_starts_behind_what_they_wait_for():
    added = []
    slow = Command("one", 100, lambda: added.append("slow"))
    late = Command("one", 100, lambda: added.append("late"), wait=(1,))
    load = Command("load", 10, lambda: added.append("load"), post=(1,))
    last = Command("load", 10, lambda: added.append("last"), follows=late)
    for each in paced([slow, late, load, last]):
        each.add()
    assert added.index("load") < added.index("late") < added.index("last")
    assert added.index("slow") < added.index("late")


def test_commands_that_wait_for_one_another_are_found():
    one, two = Command("one", 1, lambda: None, wait=(1,), post=(2,)), Command("two", 1, lambda: None, (2,), (1,))
    with pytest.raises(RuntimeError, match="2 commands wait for one another"):
        paced([one, two])
