"""How long to look: a little in every run of the tests, the same each time; far longer with ``GRADLOOM_DEEP=1``."""

from hypothesis import HealthCheck, settings

from ..deep import DEEP

__all__ = ["looks"]


def looks(few, many):
    """Settings for ``few`` examples in a run of the tests, ``many`` in a deep one."""
    return settings(
        max_examples=many if DEEP else few,
        deadline=None,
        derandomize=not DEEP,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
