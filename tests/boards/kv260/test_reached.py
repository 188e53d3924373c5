"""What ends a connection to the agent of a KV260, in one line that says what to do."""

import pytest

from gradloom.boards.kv260.reached import reached

REACH = reached("ubuntu@kria", name="mine")


@pytest.mark.parametrize(
    "code, line, said",
    [
        (255, "Permission denied (publickey).", "host=ubuntu@kria: refuses the login: run ssh-copy-id ubuntu@kria"),
        (255, "Connection timed out", "ubuntu@kria does not answer over ssh"),
        (1, "sudo: a password is required", "host=ubuntu@kria: sudo: a password is required; "),
        # Not ssh's own end, so that it is told as it came.
        (1, "Permission denied", "host=ubuntu@kria: Permission denied"),
    ],
)
def test_what_ends_a_connection_says_what_to_do(code, line, said):
    assert REACH.explain(code, line).startswith(said)


def test_the_agent_is_that_of_the_design_and_runs_as_root():
    assert REACH.command[0] == "ssh" and REACH.command[-2] == "ubuntu@kria"
    assert "/mine/firmware && exec sudo -n python3 -m gradloom_host.agent" in REACH.command[-1]
