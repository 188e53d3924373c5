"""How long to look: a little in every run of the tests, the same each time; far longer with ``GRADLOOM_DEEP=1``."""

import os

from hypothesis import HealthCheck, settings

__all__ = ["looks"]

DEEP = bool(os.environ.get("GRADLOOM_DEEP"))


def looks(few, many):
    """Settings for ``few`` examples in a run of the tests, ``many`` in a deep one."""
    return settings(
        max_examples=many if DEEP else few,
        deadline=None,
        derandomize=not DEEP,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
