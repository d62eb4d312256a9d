"""Work in steps (host/tasks.py) is a generator: called and left alone, it would silently do nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "flymq"


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in SOURCE.rglob("*.py"):
        yield path, ast.parse(path.read_text())


def functions_of_steps() -> set[str]:
    """Return the names that only functions of steps have."""
    functions = [node for _, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    of_steps = [node for node in functions if node.returns is not None and "Steps[" in ast.unparse(node.returns)]
    return {node.name for node in of_steps} - {node.name for node in functions if node not in of_steps}


def forgotten_calls(tree: ast.Module, names: set[str]) -> list[int]:
    """Return the lines where a function of one of these names is called and what it returns is dropped."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).rpartition(".")[2] in names
    ]


def test_nobody_forgets_to_run_steps() -> None:
    names = functions_of_steps()
    assert {"delete_before", "load_times"} <= names
    forgotten = {str(path): lines for path, tree in trees() if (lines := forgotten_calls(tree, names))}
    assert forgotten == {}


def test_a_forgotten_call_is_seen() -> None:
    source = (
        "def f(log):\n    log.delete_before(3)\n    yield from log.delete_before(3)\n    run(log.delete_before(3))\n"
    )
    assert forgotten_calls(ast.parse(source), {"delete_before"}) == [2]
