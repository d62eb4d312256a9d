"""Tests that use `twin` run with both codecs: the compiled one and the one in plain Python."""

from __future__ import annotations

from types import ModuleType

import pytest

from flymq.record import codec


@pytest.fixture(params=["_fast", "_plain"])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The codec that the room uses in this test."""
    module: ModuleType = pytest.importorskip(f"flymq.record.{request.param}")
    for name in codec.__all__:
        if name != "COMPILED":
            monkeypatch.setattr(codec, name, getattr(module, name))
    return module
