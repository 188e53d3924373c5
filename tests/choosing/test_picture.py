"""Labels of a picture stand beside each other."""

from gradloom.choosing.picture import _meet


def test_boxes_meet_where_they_have_room_in_common():
    box = (0, 0, 2, 1)
    assert _meet(box, (1, 0.5, 3, 2)) and _meet((1, 0.5, 3, 2), box) and _meet(box, (0.5, 0.25, 1, 0.75))
    for beside in ((2, 0, 3, 1), (-1, 0, 0, 1), (0, 1, 2, 2), (0, -1, 2, 0)):
        assert not _meet(box, beside) and not _meet(beside, box)
