"""End-to-end encryption of values by AES-256-GCM: the broker, its disks and its backups hold only ciphertext.

    value  = nonce: 12 bytes | ciphertext | tag: 16 bytes
    header = "flymq-key" : key id, the first 8 bytes of the key's SHA-256 in hex

The key id tells consumers which of their keys to use, so keys can be rotated without rewriting stored records: encrypt
with the new key, keep the old ones for decryption. Record keys and headers are not encrypted, since partitioning and
compaction use the key. Needs the extra `flymq[encryption]`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from flymq.host.entropy import system_entropy
from flymq.model.errors import AlteredMessage, InvalidSetting, NotEncrypted, WrongEncryptionKey
from flymq.record.record import Header

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Key = bytes | str
"""32 bytes, or their hex or base64 text."""

KEY_BYTES = 32
KEY_HEADER = "flymq-key"
_NONCE_BYTES = 12
_ENTROPY = system_entropy()  # the operating system's, never a seeded one: nonces must not repeat
_KEY_HINT = "Generate one with flymq.generate_key() and store it outside the broker."


def generate_key() -> str:
    """Return a new key as base64 text."""
    return base64.b64encode(_random_bytes(KEY_BYTES)).decode()


def parse_key(key: Key) -> bytes:
    """Return the 32 bytes of a key given as bytes, hex or base64."""
    raw = key if isinstance(key, bytes) else _parse_text(key)
    if len(raw) != KEY_BYTES:
        raise InvalidSetting(f"an encryption key has {KEY_BYTES} bytes, this one {len(raw)}", hint=_KEY_HINT)
    return raw


def key_id(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:16]


class Cipher:
    """Encrypts with one key and decrypts with any of several."""

    def __init__(self, encryption_key: Key, decryption_keys: Iterable[Key] = (), *, required: bool = True) -> None:
        active = parse_key(encryption_key)
        self._active_id = key_id(active)
        self._ciphers = {key_id(key): _aes_gcm(key) for key in (active, *map(parse_key, decryption_keys))}
        self._required = required
        self._header: Header = (KEY_HEADER, self._active_id.encode())

    def encrypt(self, value: bytes | None, headers: Sequence[Header]) -> tuple[bytes | None, Sequence[Header]]:
        """Return the encrypted value and its headers. A null value stays null: compaction must see the tombstone."""
        if value is None:
            return None, headers
        nonce = _random_bytes(_NONCE_BYTES)
        sealed = nonce + self._ciphers[self._active_id].encrypt(nonce, value, self._active_id.encode())
        return sealed, (*headers, self._header)

    def decrypt(self, value: bytes | None, headers: Sequence[Header]) -> tuple[bytes | None, Sequence[Header]]:
        """Return the decrypted value, and the headers without the key id."""
        from cryptography.exceptions import InvalidTag

        if value is None:
            return None, headers
        named = next((content for name, content in headers if name == KEY_HEADER), None)
        if named is None:
            if self._required:
                raise NotEncrypted
            return value, headers
        id_ = named.decode(errors="replace")
        if id_ not in self._ciphers:
            raise WrongEncryptionKey(f"the message was encrypted with the key {id_}, which this client does not have")
        try:
            plain = self._ciphers[id_].decrypt(value[:_NONCE_BYTES], value[_NONCE_BYTES:], named)
        except (InvalidTag, ValueError):
            raise AlteredMessage from None
        return plain, tuple(header for header in headers if header[0] != KEY_HEADER)


def _random_bytes(count: int) -> bytes:
    return _ENTROPY.getrandbits(8 * count).to_bytes(count, "big")


def _aes_gcm(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise InvalidSetting(
            "`encryption_key` needs the package cryptography", hint="Install it with: pip install 'flymq[encryption]'"
        ) from None
    return AESGCM(key)


def _parse_text(text: str) -> bytes:
    try:
        if len(text) == 2 * KEY_BYTES:
            return bytes.fromhex(text)
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidSetting("an encryption key is 32 bytes, or their hex or base64 text", hint=_KEY_HINT) from None
