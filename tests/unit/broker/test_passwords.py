from __future__ import annotations

import pytest

from flymq.broker.access.passwords import PasswordHash, hash_password, parse_password_hash
from flymq.model.errors import InvalidSetting

SALT = bytes(range(16))


def test_a_hash_matches_its_own_password_alone() -> None:
    hashed = hash_password("correct horse", salt=SALT)
    assert hashed.matches("correct horse")
    assert not hashed.matches("correct horsf")
    assert not hashed.matches("")


def test_a_hash_survives_being_written_down() -> None:
    hashed = hash_password("pässword", salt=SALT)
    assert str(hashed).startswith("$scrypt$ln=14,r=8,p=1$AAECAwQFBgcICQoLDA0ODw$")
    assert parse_password_hash(str(hashed)) == hashed


def test_the_test_vector_of_rfc_7914_matches() -> None:
    digest = bytes.fromhex(
        "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
        "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640"
    )
    hashed = PasswordHash(log_n=10, r=8, p=16, salt=b"NaCl", digest=digest)
    assert hashed.matches("password")
    assert parse_password_hash(str(hashed)) == hashed


def test_a_hash_is_not_shown_by_its_repr() -> None:
    hashed = hash_password("secret", salt=SALT)
    assert repr(hashed) == f"{hashed!r}" == "PasswordHash(...)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hunter2",
        "$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW",
        "$scrypt$ln=14,r=8,p=1$AAEC",
        "$scrypt$ln=14,r=8,p=1$A$AAAA",
        "$scrypt$ln=20,r=8,p=1$AAEC$AAEC",
        "$scrypt$ln=0,r=8,p=1$AAEC$AAEC",
        "$scrypt$ln=14,r=0,p=1$AAEC$AAEC",
    ],
)
def test_what_is_no_hash_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_password_hash(text)
    assert not text or text not in str(caught.value)
