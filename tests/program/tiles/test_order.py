"""The order of jobs keeps what they read in front of them; that of commands keeps queues and tokens."""

from dataclasses import replace

import pytest

from gradloom.program.tiles.order import _SEEN, OrderedTask, _Schedule, ordered
from gradloom.program.tiles.pace import PacedCommand, paced

ROOM = {"one": {"a": 8}, "two": {"a": 8}}


def reads(*records, beats=10):
    return {("a", each): beats for each in records}


def images(count):
    """Each image is read by engine one, which writes what engine two reads: two stages, one after the other."""
    return [
        *(OrderedTask("one", reads(n), {100 + n: 10}, 1000) for n in range(count)),
        *(OrderedTask("two", reads(100 + n), {200 + n: 10}, 1000) for n in range(count)),
    ]


def test_images_follow_each_other_through_the_engines():
    assert ordered(images(3), 4, ROOM) == [0, 1, 3, 2, 4, 5]


def test_a_task_that_writes_what_others_read_stays_behind_them():
    tasks = [
        OrderedTask("one", reads(1), {2: 10}, 50),
        OrderedTask("two", reads(3), {1: 10}, 1),
        OrderedTask("two", reads(3), {2: 1}, 1),
    ]
    order = ordered(tasks, 4, ROOM)
    assert order.index(0) < order.index(1) and order.index(0) < order.index(2)


def test_what_another_task_waits_for_goes_first():
    """Two of three tasks make what a fourth reads."""
    tasks = [
        OrderedTask("one", {}, {1: 10}, 50),
        OrderedTask("one", {}, {2: 10}, 50),
        OrderedTask("one", {}, {3: 10}, 50),
        OrderedTask("two", reads(2), {5: 10}, 1),
        OrderedTask("two", reads(1, 3), {4: 10}, 1000),
    ]
    assert ordered(tasks, 4, ROOM)[:2] == [1, 0]


def test_of_many_tasks_few_are_looked_at(monkeypatch):
    """Else the effort would grow with their square."""
    looks, find = [], _Schedule._soonest
    monkeypatch.setattr(_Schedule, "_soonest", lambda self, number: looks.append(number) or find(self, number))
    tasks = [OrderedTask("one", reads(n), {1000 + n: 10}, 100) for n in range(400)]
    assert sorted(ordered(tasks, 4, ROOM)) == list(range(400)) and len(looks) <= 2 * (2 * _SEEN + 1) * len(tasks)


def test_what_needs_no_load_goes_first():
    """The third task reads what the first left in a slot."""
    tasks = [
        OrderedTask("one", reads(1, beats=100), {2: 10}, 1000),
        OrderedTask("one", reads(3, beats=100), {4: 10}, 50),
        OrderedTask("one", reads(1, beats=100), {5: 10}, 50),
    ]
    assert ordered(tasks, 4, ROOM) == [0, 2, 1]


def test_what_tasks_made_is_read_while_slots_hold_it():
    """Slots hold what the last two read: one a record that was there before, the other one that a task made."""
    tasks = [
        OrderedTask("one", {}, {1: 10}, 50),
        OrderedTask("two", reads(2, beats=20), {3: 10}, 1000),
        OrderedTask("two", reads(2, beats=20), {4: 10}, 50),
        OrderedTask("two", reads(1), {5: 10}, 50),
    ]
    assert ordered(tasks, 4, ROOM) == [0, 1, 3, 2]


def test_result_slots_limit_how_far_an_engine_is_ahead():
    """With one, engine one's second task waits for STORE, so engine two's goes first."""
    tasks = [
        OrderedTask("one", {}, {1: 500}, 10),
        OrderedTask("one", {}, {2: 500}, 10),
        OrderedTask("two", reads(3, beats=200), {4: 1}, 10),
    ]
    assert ordered(tasks, 4, ROOM) == [0, 1, 2]
    assert ordered(tasks, 1, ROOM) == [0, 2, 1]


def commands(*rows):
    """Commands by name, from name, queue, cycles and names of what must be done before."""
    made = {}
    for name, queue, cycles, *after in rows:
        made[name] = PacedCommand(queue, cycles, lambda wait, post: None, [made[other] for other in after])
    return made


def names(made):
    found = {each: name for name, each in made.items()}
    return [found[each] for each in paced(list(made.values()))]


def test_commands_stand_by_their_starts_behind_what_they_wait_for():
    order = names(commands(("slow", "one", 100), ("load", "load", 10), ("late", "one", 100, "load"), ("x", "load", 9)))
    assert order.index("load") < order.index("late") and order.index("slow") < order.index("late")
    assert order.index("x") < order.index("late")


def test_a_load_whose_record_is_not_there_lets_others_pass():
    made = commands(("slow", "one", 900), ("store", "store", 9, "slow"), ("y", "load", 9, "store"), ("x", "load", 9))
    order = names(made)
    assert order.index("x") < order.index("y") and order.index("store") < order.index("y")


def test_jobs_without_tokens_have_their_commands_in_front_of_their_loads():
    made = commands(("one", "one", 90), ("load", "load", 9), ("two", "two", 50), ("store", "store", 9))
    made["two"].beside = [made["store"], made["load"]]
    made["load"].after.append(made["one"])
    order = names(made)
    assert order.index("one") < order.index("two") < order.index("store") < order.index("load")


def test_commands_that_wait_for_one_another_are_found():
    made = commands(("one", "one", 1), ("two", "two", 1, "one"))
    made["one"].after.append(made["two"])
    with pytest.raises(RuntimeError, match="2 commands wait for one another"):
        names(made)


def test_where_load_bounds_all_records_come_for_several_tasks():
    """Rows by columns, 4 of either held: a task beside the last one lacks one record, another two."""
    places = [(row, column) for column in range(12) for row in range(12)]
    room = {"one": {"a": 4, "b": 4}}
    tasks = [
        OrderedTask("one", {("a", row): 257, ("b", 100 + column): 257}, {1000 + n: 10}, 100)
        for n, (row, column) in enumerate(places)
    ]
    usual, sparing = (_Schedule(tasks, 4, room, sparing=each) for each in (False, True))
    assert sparing.end < 0.95 * usual.end
    assert ordered(tasks, 4, room) == sparing.order
    # Where the engine bounds all, the order is the usual one.
    slow = [replace(each, work=2000) for each in tasks]
    assert ordered(slow, 4, room) == _Schedule(slow, 4, room, sparing=False).order
