"""Passwords are stored as scrypt hashes, in the format of passlib and other tools:

    $scrypt$ln=14,r=8,p=1$<salt>$<hash>        salt and hash in base64 without padding

Checking one takes about 50 ms and 16 MiB on purpose, so that a stolen hash is expensive to crack. Do it in a thread, a
few at a time: `hashlib` releases the GIL.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from typing import NamedTuple

from flymq.model.errors import InvalidSetting

SALT_BYTES = 16
_HASH_BYTES = 32
_MEMORY_BYTES_MAX = 64 << 20  # a hash that requires more is rejected, not computed
_FORM = re.compile(r"\$scrypt\$ln=([1-9]\d?),r=([1-9]\d?),p=([1-9]\d?)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)\Z")


class PasswordHash(NamedTuple):
    """A parsed hash: its cost parameters, salt and hash."""

    log_n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def __str__(self) -> str:
        return f"$scrypt$ln={self.log_n},r={self.r},p={self.p}${_encode(self.salt)}${_encode(self.digest)}"

    def __repr__(self) -> str:
        return "PasswordHash(...)"

    def matches(self, password: str) -> bool:
        """Return whether this is the hash of `password`, in constant time."""
        return hmac.compare_digest(_scrypt(password, self), self.digest)


def hash_password(password: str, *, salt: bytes) -> PasswordHash:
    """Hash a password with `SALT_BYTES` random bytes."""
    recipe = PasswordHash(log_n=14, r=8, p=1, salt=salt, digest=bytes(_HASH_BYTES))
    return recipe._replace(digest=_scrypt(password, recipe))


def parse_password_hash(text: str) -> PasswordHash:
    """Parse a hash, or raise `InvalidSetting`. The error does not contain the text."""
    match = _FORM.match(text)
    if match is None:
        raise InvalidSetting("not a password hash of the form $scrypt$ln=14,r=8,p=1$SALT$HASH")
    log_n, r, p = map(int, match.groups()[:3])
    if 128 * r << log_n > _MEMORY_BYTES_MAX:
        raise InvalidSetting(f"the password hash requires more than {_MEMORY_BYTES_MAX >> 20} MiB of memory")
    return PasswordHash(log_n, r, p, _decode(match[4]), _decode(match[5]))


def _scrypt(password: str, recipe: PasswordHash) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=recipe.salt,
        n=1 << recipe.log_n,
        r=recipe.r,
        p=recipe.p,
        maxmem=2 * _MEMORY_BYTES_MAX,
        dklen=len(recipe.digest),
    )


def _encode(raw: bytes) -> str:
    return b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise InvalidSetting("a password hash whose salt or hash is not base64") from None
