"""How pytest-xdist shares out the tests: those of Spark all to one process, so that one JVM runs and not one a core.

xdist's own groups are names at the end of a test's id, and pytest no longer lets it change the id.
"""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class OneProcessForSpark(LoadScopeScheduling):
        """Any other test goes to whoever is free."""

        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else nodeid

    return OneProcessForSpark(config, log)
