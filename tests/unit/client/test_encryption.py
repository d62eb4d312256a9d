"""Values are encrypted end to end; a wrong key and altered data have names."""

import pytest

from flymq.client.encryption import KEY_HEADER, Cipher, generate_key, parse_key
from flymq.model.errors import AlteredMessage, InvalidSetting, NotEncrypted, WrongEncryptionKey

OLD, NEW = bytes(range(32)), bytes(range(1, 33))


def test_what_was_encrypted_can_be_decrypted():
    cipher = Cipher(OLD)
    sealed, headers = cipher.encrypt(b"secret", [("trace", b"1")])
    assert sealed is not None
    assert b"secret" not in sealed
    assert cipher.decrypt(sealed, headers) == (b"secret", (("trace", b"1"),))


def test_the_same_value_never_looks_the_same_twice():
    cipher = Cipher(OLD)
    assert cipher.encrypt(b"v", ())[0] != cipher.encrypt(b"v", ())[0]


def test_keys_can_be_changed_and_old_messages_still_read():
    sealed, headers = Cipher(OLD).encrypt(b"old", ())
    rotated = Cipher(NEW, decryption_keys=[OLD])
    assert rotated.decrypt(sealed, headers)[0] == b"old"
    renewed, new_headers = rotated.encrypt(b"new", ())
    assert Cipher(NEW).decrypt(renewed, new_headers)[0] == b"new"


def test_a_key_that_is_not_known_is_named_by_its_id():
    sealed, headers = Cipher(OLD).encrypt(b"v", ())
    key_id = dict(headers)[KEY_HEADER]
    assert key_id is not None
    with pytest.raises(WrongEncryptionKey, match=key_id.decode()):
        Cipher(NEW).decrypt(sealed, headers)


@pytest.mark.parametrize("at", [0, 11, 12, -1])
def test_an_altered_byte_is_noticed(at):
    sealed, headers = Cipher(OLD).encrypt(b"a value", ())
    altered = bytearray(sealed or b"")
    altered[at] ^= 1
    with pytest.raises(AlteredMessage):
        Cipher(OLD).decrypt(bytes(altered), headers)


@pytest.mark.parametrize("value", [b"", b"short", bytes(27)])
def test_a_value_too_short_to_be_ciphertext_is_altered(value):
    _, headers = Cipher(OLD).encrypt(b"v", ())
    with pytest.raises(AlteredMessage):
        Cipher(OLD).decrypt(value, headers)


def test_a_message_in_the_clear_is_refused_unless_it_is_allowed():
    with pytest.raises(NotEncrypted):
        Cipher(OLD).decrypt(b"plain", ())
    assert Cipher(OLD, required=False).decrypt(b"plain", ()) == (b"plain", ())


def test_a_deletion_stays_a_deletion():
    assert Cipher(OLD).encrypt(None, ()) == (None, ())
    assert Cipher(OLD).decrypt(None, ()) == (None, ())


def test_a_key_may_be_bytes_hex_or_base64():
    assert parse_key(OLD) == parse_key(OLD.hex()) == OLD
    assert len(parse_key(generate_key())) == 32
    assert generate_key() != generate_key()


@pytest.mark.parametrize("key", [b"short", "not a key", "ab" * 31, "z" * 64])
def test_what_is_not_a_key_is_refused_with_what_to_do(key):
    with pytest.raises(InvalidSetting) as refusal:
        parse_key(key)
    assert "generate_key" in refusal.value.hint
