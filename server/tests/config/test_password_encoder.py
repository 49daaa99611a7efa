import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.server.config.coordination_config import CIPHERS, KEY_FACTORIES
from ottla.server.config.passwords import (
    PASSWORDS_MAX,
    KeptPasswords,
    PasswordEncoder,
    UndecodablePassword,
    has_passwords,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.tests.effort import examples

# Written by Apache Kafka 3.9.2 with the secret "encoder-secret".
BY_KAFKA = (
    "initializationVector:mC4TpfWmh69hu8qweluXYg==,keyLength:128,salt:X1jWrerK/BGFRlhV4RtO3TCuloLYl3oL33jBqPmxmezKqYELa"
    "aIjFWZdXdFlV/BM2bUOXcN/7bUYdElnR6rpvSI30HSfWcJhbP7H47E2A9a711ze6Na/NFn7U/ITeEgiaviCLcBXHy8pSpE2d8TfFW+1xc/7T0u8pG"
    "z2iRdx+SWZ55IEyj/fmDbG9CP1j3U6H6o+plHIHC7TxXY29oSAQHqoW5ijPO7b7vs7g55q/GmdYQB6x0EqxEXwjqg9g+0UrTYT9pKVWZmsuammLMe"
    "toKBOaXLo7sU1Q1AZxU3HL8kSiXhlLN5YAzEzanPTIIUpJdGDpzOINOH/ugWPaQUOPQ==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,"
    "cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,passwordLength:6,encryptedPassword:8IVYjCfu7YkAHucjUJtaWg=="
)
NAME = "listener.name.x.ssl.key.password"


def encoder(secret: str = "encoder-secret", iterations: int = 1, **details: object) -> PasswordEncoder:
    return PasswordEncoder(
        secret=secret.encode(),
        random_bytes=os.urandom,
        iterations=iterations,
        **details,  # type: ignore[arg-type]
    )


def test_a_password_that_kafka_kept_is_read() -> None:
    assert encoder().decode(BY_KAFKA) == "marker"


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(max_size=50),
    st.sampled_from(CIPHERS),
    st.sampled_from(sorted(KEY_FACTORIES)),
    st.sampled_from([128, 192, 256]),
)
def test_what_is_encoded_can_be_decoded_with_the_same_secret(
    password: str, cipher: str, key_factory: str, key_length: int
) -> None:
    made = encoder(cipher=cipher, key_factory=key_factory, key_length=key_length)
    text = made.encode(password)
    # A text says itself how it was made.
    assert encoder().decode(text) == password
    with pytest.raises(UndecodablePassword):
        # Another key leaves the padding right once in some hundred times, and then the length wrong or no UTF-8.
        assert encoder("another").decode(text) != password
        raise UndecodablePassword


@given(st.text(max_size=300) | st.lists(st.sampled_from(BY_KAFKA.split(",")) | st.text(max_size=20)).map(",".join))
def test_any_text_is_decoded_or_refused(text: str) -> None:
    try:
        encoder().decode(text)
    except UndecodablePassword as error:
        assert "marker" not in str(error)


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("iterations:4096", "iterations:2000000000"),
        ("iterations:4096", "iterations:0"),
        ("keyLength:128", "keyLength:1073741824"),
        ("keyLength:128", "keyLength:x"),
        ("AES/CBC/PKCS5Padding", "AES/ECB/PKCS5Padding"),
        ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"),
        ("PBKDF2WithHmacSHA512", "PBKDF2WithHmacMD5"),
        ("passwordLength:6", "passwordLength:7"),
        ("salt:X", "salt:\N{LATIN SMALL LETTER A WITH DIAERESIS}"),
        ("initializationVector:mC4TpfWmh69hu8qweluXYg==", "initializationVector:"),
        ("encryptedPassword:8IVY", "encryptedPassword:AIVY"),
    ],
)
def test_parts_that_cannot_be_are_refused(part: str, instead: str) -> None:
    assert part in BY_KAFKA
    with pytest.raises(UndecodablePassword):
        encoder().decode(BY_KAFKA.replace(part, instead))


def test_passwords_are_kept_encrypted_and_others_as_they_are() -> None:
    kept = KeptPasswords(encoder())
    texts = {NAME: "secret", "log.retention.ms": "5"}
    written = kept.to_keep(texts, 1)
    assert written["log.retention.ms"] == "5" and "secret" not in written[NAME]
    assert kept.read(written) == (texts, False)
    assert (has_passwords(texts), has_passwords({"log.retention.ms": "5"})) == (True, False)


def test_what_the_old_secret_kept_is_read_and_to_be_kept_anew() -> None:
    written = KeptPasswords(encoder("old")).to_keep({NAME: "secret"}, 1)
    assert KeptPasswords(encoder("new"), encoder("old")).read(written) == ({NAME: "secret"}, True)
    assert KeptPasswords(encoder("new")).read(written) == ({}, False)
    assert KeptPasswords(None, encoder("old")).read(written) == ({}, False)


@pytest.mark.parametrize(
    ("kept", "count", "node_id", "reason"),
    [
        (KeptPasswords(None), 1, 1, "Password encoder secret not configured"),
        (KeptPasswords(encoder()), 1, None, "Password config can be defined only at broker level"),
        (KeptPasswords(encoder()), PASSWORDS_MAX + 1, 1, "no more than 100 passwords"),
    ],
)
def test_passwords_that_cannot_be_kept_are_refused(
    kept: KeptPasswords, count: int, node_id: int | None, reason: str
) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        kept.to_keep({f"{number}.ssl.key.password": "secret" for number in range(count)}, node_id)
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert "secret'" not in str(refused.value)


def test_an_encoder_does_not_print_its_secret() -> None:
    assert "encoder-secret" not in repr(encoder())
