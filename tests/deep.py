"""Tests that take minutes run with ``GRADLOOM_DEEP=1``, as ``make evidence`` runs them."""

import os

import pytest

__all__ = ["DEEP", "deep"]

DEEP = bool(os.environ.get("GRADLOOM_DEEP"))
#: A mark of such a test, or of a case of one.
deep = pytest.mark.skipif(not DEEP, reason="minutes: GRADLOOM_DEEP=1")
