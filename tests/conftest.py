"""What all tests share: how Hypothesis looks for examples, and how pytest-xdist shares the tests out."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# --- Hypothesis: FLYMQ_HYPOTHESIS_PROFILE chooses a profile ----------------------------------------------------------

# Nothing here depends on how busy the machine is: no deadline, and an example that is slow to make is no failure.
# `print_blob` prints the line that repeats a failure on another machine.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, max_examples=100
)
# The same examples in every run: CI fails because of a change, and not by chance.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, max_examples=200)
# For `make quick`: a look at each property.
settings.register_profile("quick", settings.get_profile("default"), max_examples=20)
settings.load_profile(os.environ.get("FLYMQ_HYPOTHESIS_PROFILE", "default"))


# --- pytest-xdist ----------------------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of Spark all to one process, so that one JVM runs and not one a core; those of a file with
    programs to compile to one process too, which compiles them once.

    xdist's own groups are names at the end of a test's id, and pytest no longer lets it change the id.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneProcessForCompanions(LoadScopeScheduling):
        """Any other test goes to whoever is free."""

        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/spark/"):
                return "spark"
            if nodeid.startswith(("tests/clients/jvm/", "tests/clients/go/")):
                return nodeid.partition("::")[0]
            return nodeid

    return OneProcessForCompanions(config, log)
