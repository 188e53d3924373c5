"""What simulators, synthesis and readers would stumble over in a whole machine."""

from gradloom.sim.run.builds.runner import lint


def test_verilator_finds_nothing_beyond_the_waivers(machine):
    assert lint(machine.files, top="gradloom") == ""
