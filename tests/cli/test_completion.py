"""The shell completes verbs and options."""

import os
import subprocess
import sys

import pytest


def _asked(**environment):
    return subprocess.run(
        [sys.executable, "-m", "gradloom"], env=os.environ | environment, capture_output=True, text=True, check=False
    ).stdout


def test_bash_gets_a_script():
    assert "complete -o default" in _asked(_GRADLOOM_COMPLETE="source_bash")


@pytest.mark.parametrize(
    "words, at, wanted",
    [
        ("gradloom finet", 1, "finetune"),
        ("gradloom sweep --sched", 2, "--scheduler"),
        ("gradloom finetune --epoc", 2, "--epochs"),
    ],
)
def test_verbs_and_options_are_completed(words, at, wanted):
    said = _asked(_GRADLOOM_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(at)).split()
    assert said == [wanted]


def test_other_shells_complete_options_of_models_too():
    assert "--epochs" in _asked(_GRADLOOM_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="gradloom finetune --epoc")
