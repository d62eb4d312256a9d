"""`python -m flymq.server.hash_password`: prompt for a password and print its hash for `[auth.users]`.

The password is read from the terminal without echo, or from standard input; never from the command line, where every
user of the machine could read it.
"""

from __future__ import annotations

import sys
from getpass import getpass

from flymq.broker.access.passwords import SALT_BYTES, hash_password
from flymq.host.entropy import system_entropy


def main() -> int:
    password = getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        print("The password is empty.\nTry: type one, or pipe it in.", file=sys.stderr)
        return 2
    print(hash_password(password, salt=system_entropy().getrandbits(8 * SALT_BYTES).to_bytes(SALT_BYTES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
