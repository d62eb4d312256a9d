"""`python -m flymq.server.hash_password`: ask for a password, print the line that `[auth.users]` wants.

The password comes from the terminal, unseen, or from standard input; never from the command line, where every user of
the machine could read it.
"""

from __future__ import annotations

import sys
from getpass import getpass
from secrets import token_bytes

from flymq.broker.access.passwords import SALT_BYTES, hash_password


def main() -> int:
    password = getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        print("The password is empty.\nTry: type one, or pipe it in.", file=sys.stderr)
        return 2
    print(hash_password(password, salt=token_bytes(SALT_BYTES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
