"""Lists of operations: what a list needs, what depends on what learns, and who is called for each."""

from dataclasses import dataclass, replace

from gradloom.program.operations import Operation, Reading, Tensor, TensorFunction, Weight, dependent, needed

A, B, C, D = (Tensor(name, 2, 3) for name in "abcd")


@dataclass(frozen=True)
class Made(TensorFunction):
    pass


@dataclass(frozen=True)
class Kept(TensorFunction):
    lasting = True


@dataclass(frozen=True)
class Optional(Operation):
    takes, gives = ("x", "bias"), ("o", "more")

    x: Tensor
    bias: Weight | None
    o: Tensor
    more: Tensor | None

    @property
    def wants(self):
        return (*self.reads, "made weight")


def test_fields_that_are_none_are_no_tensors():
    whole = Optional(A, Weight("w", (2, 5)), B, C)
    assert (whole.reads, whole.makes, whole.results) == (("a", "w"), ("b", "c"), (B, C))
    part = replace(whole, bias=None, more=None)
    assert (part.reads, part.makes) == (("a",), ("b",)) and Weight("w", (2, 5)).size == 10
    assert Made((A, B), C).reads == ("a", "b") and Made((A,), C).weights == ()


def test_a_list_needs_what_is_wanted_and_what_lasts():
    first, second, third = Made((A,), B), Made((B,), C), Made((A,), D)
    assert needed([first, second, third]) == []
    assert needed([first, second, third], ["c"]) == [first, second]
    assert needed([first, second, third], ["d"]) == [third]
    kept = Kept((C,), D)
    assert needed([first, second, kept]) == [first, second, kept]
    # Its weights are made before it, too.
    weight = Made((A,), Tensor("made weight", 1, 1))
    assert needed([weight, third, Optional(A, None, B, None)], ["b"]) == [weight, Optional(A, None, B, None)]


def test_what_follows_from_what_learns_depends_on_it():
    operations = [Made((A,), B), Kept((A,), C), Made((C, B), D), Made((B,), Tensor("e", 1, 1))]
    assert dependent(operations, lambda each: each.lasting) == {"c", "d"}


def test_a_reading_calls_the_method_of_each_class_in_order():
    class Names(Reading):
        found: tuple[str, ...] = ()

        def _made(self, operation, more=""):
            self.found += (f"made {operation.o.name}{more}",)

        def _kept(self, operation):
            self.found += (f"kept {operation.o.name}",)

    told, names = [], Names()
    names.run([Kept((A,), B), Made((A,), C)], told.append)
    names.do(Made((A,), D), "!")
    assert told == ["Kept", "Made"] and names.found == ("kept b", "made c", "made d!")
