"""The tool that compares programs of two checkouts writes those of the compiler."""

from gradloom.preset import PRESETS

from .same_programs import PROGRAMS


def test_programs_of_networks_are_written() -> None:
    preset = PRESETS["tile-kv260"]
    found = [
        (name, len(code) % 32, any(contents))
        for make in PROGRAMS[preset.workload.label]
        for name, code, contents in make(preset)
    ]
    assert found == [(name, 0, True) for name in ("lora-trunk", "lora-step", "head-trunk", "head-step")]
    assert set(PROGRAMS) == {each.workload.label for each in PRESETS.values()}
