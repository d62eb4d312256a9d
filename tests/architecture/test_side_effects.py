"""Every side effect of a broker and of the SDK passes through host/, so that a simulation can be wired like production.

The import contract in pyproject.toml keeps clock, chance and sockets out; this looks at what an import does not tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "flymq"
ROOMS = ("storage", "metadata", "broker", "gateways", "server", "client")

OF_THE_SYSTEM = {"system_host", "system_entropy", "SystemClock", "SystemDisk", "SystemNetwork", "SystemThreads"}
OF_THE_LOOP = {
    "create_connection",
    "create_server",
    "connect_accepted_socket",
    "getaddrinfo",
    "add_reader",
    "add_writer",
    "to_thread",
    "run_in_executor",
    "ThreadPoolExecutor",
}
OF_ASYNCIO = {"open_connection", "start_server", "open_unix_connection", "create_subprocess_exec"}
HARMLESS_OF_OS = {"environ", "PathLike", "fspath", "register_at_fork"}

ALLOWED = {
    # Where the machine is chosen: everything below is handed it.
    "server/main.py": {"system_host"},
    "client/aio/cluster.py": {"system_host"},
    # A command of its own; nonces that must not repeat, whatever else is seeded.
    "server/hash_password.py": {"system_entropy"},
    "client/encryption.py": {"system_entropy"},
    # Pages from the cache to a socket: only where the transport has a descriptor.
    "gateways/outbox.py": {"os.dup", "os.sendfile", "os.close", "add_writer"},
    # The user's own code: blocking handlers and offset stores.
    "client/aio/processing.py": {"run_in_executor", "ThreadPoolExecutor"},
    "client/aio/consumer.py": {"to_thread"},
}


def side_effects(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name not in HARMLESS_OF_OS:
                yield f"os.{name}"
            case ast.Attribute(value=ast.Name(id="asyncio"), attr=name) if name in OF_ASYNCIO:
                yield f"asyncio.{name}"
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in OF_THE_SYSTEM | OF_THE_LOOP:
                yield name


def test_every_side_effect_passes_through_the_host() -> None:
    found = {
        str(path.relative_to(SOURCE)): effects
        for room in ROOMS
        for path in (SOURCE / room).rglob("*.py")
        if (effects := set(side_effects(path)))
    }
    unexpected = {name: effects - ALLOWED.get(name, set()) for name, effects in found.items()}
    assert {name: effects for name, effects in unexpected.items() if effects} == {}


def test_no_exception_is_left_that_nobody_needs() -> None:
    for name, effects in ALLOWED.items():
        assert effects <= set(side_effects(SOURCE / name)), name
