"""What a step takes is known without weights; and work beside the head's products finds its gaps."""

from dataclasses import replace

from gradloom.program import lifetimes as places
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.time.forecast import forecast
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.planned import planned_step
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.run.costs import step_cost
from gradloom.systems.text.run.step import place_frozen
from gradloom.systems.text.run.training import largest

from ..conftest import CONFIG, MODEL, TOKENS

RULE = AdamW(lr=1e-2)


def test_costs_are_those_of_the_real_step(training, adapters):
    step = training(rule=RULE)
    frac = step.fracs(largest(step.exact()), headroom=1)
    layout = Layout()
    place_frozen(step, layout)
    real = lower(step.operations, frac, layout, CONFIG, share=True)
    ranks = {name: each.rank for name, each in adapters.items()}
    program, planned = planned_step(MODEL, ranks, range(MODEL.layers), CONFIG, tokens=len(TOKENS), rule=RULE)
    found = step_cost(program, planned, CONFIG)
    assert (found.commands, found.program_bytes, found.shared_bytes) == (
        len(real.instructions),
        len(real.code),
        layout.shared_bytes,
    )
    # Only where rows of memory begin differs.
    assert abs(found.cycles - forecast(real, config=CONFIG).total) <= 0.002 * found.cycles


def test_a_step_that_begins_at_what_is_kept_costs_less(adapters):
    ranks = {name: each.rank for name, each in adapters.items() if ".layers.1." in name}
    steps = [
        planned_step(MODEL, ranks, layers, CONFIG, tokens=9, rule=RULE, kept=kept)
        for layers, kept in ((range(MODEL.layers), False), (range(MODEL.layers), True), ([1], False))
    ]
    # It is the step of the layers from the lowest that learns on.
    assert steps[1][0].code == steps[2][0].code
    whole, rest, _ = (step_cost(*each, CONFIG) for each in steps)
    assert rest.cycles < 0.8 * whole.cycles and rest.commands < whole.commands


def test_sums_behind_the_head_are_made_beside_its_products(monkeypatch):
    """Of 12 products that lead back from the logits, few results wait for the vector engine at a time."""
    seen, assigned = [], places.assigned

    def listen(found, same):
        seen.extend(found)
        return assigned(seen, same)

    monkeypatch.setattr(places, "assigned", listen)
    model = replace(MODEL, hidden=576, heads=9, kv_heads=3, vocab=64 * 16 * 12)
    planned_step(
        model, {"model.layers.1.self_attn.v_proj": 8}, range(2), LanguageConfig(), tokens=64, rule=RULE, kept=True
    )
    parts = [each for each in seen if each.name.startswith("2.part.")]
    assert len(parts) == 12
    assert max(sum(each.begin <= other.begin <= each.end for each in parts) for other in parts) <= 4
