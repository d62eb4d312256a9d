"""Write docs/reference/openapi.json from the table of operations, so that it cannot lag behind.

    python -m flymq.gateways.rest.schema.reference            write the document
    python -m flymq.gateways.rest.schema.reference --check    exit 1 if it is not up to date

Run it from the root of the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flymq.gateways.rest.schema.operation_table import api_document

DOCUMENT = Path("docs/reference/openapi.json")


def main(arguments: list[str] | None = None) -> int:
    document = api_document() + b"\n"
    if "--check" not in (sys.argv[1:] if arguments is None else arguments):
        DOCUMENT.write_bytes(document)
        return 0
    if DOCUMENT.is_file() and DOCUMENT.read_bytes() == document:
        return 0
    print(f"{DOCUMENT} is not up to date.\nTry: python -m flymq.gateways.rest.schema.reference", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
