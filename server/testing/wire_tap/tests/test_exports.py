"""Saved requests: JSON lines with decoded messages, and captures with right headers; secrets are in neither."""

from __future__ import annotations

import ipaddress
import json
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.config.reference import broker_settings
from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.conversation import Conversation
from ottla.server.testing.wire_tap.frames import WHOLE_BYTES_MAX
from ottla.server.testing.wire_tap.json_lines import HIDDEN, plain, text_or_base64
from ottla.server.testing.wire_tap.redaction import without_secrets
from ottla.server.testing.wire_tap.tests.wire_talk import (
    Listening,
    answer,
    fetch,
    fetched,
    framed,
    produce,
    produced,
    request,
)
from ottla.server.testing.wire_tap.wire_request import WireConnection
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.client_quotas import OpData
from ottla.wire.messages.delegation_tokens import RenewDelegationTokenRequest
from ottla.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from ottla.wire.messages.scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

SECRET = b"open-sesame"
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
BATCH = encode_batch([Record(0, 5, b"key", b"\xff\0", ((b"trace", SECRET),)), Record(1, 6, None, "häuser".encode())])


def saved(tap: Listening, path: Path, **options: Any) -> list[dict[str, Any]]:
    assert tap.wire.save(path, **options) == len(path.read_text().splitlines())
    return [json.loads(line) for line in path.read_text().splitlines()]


def with_secrets() -> Listening:
    tap = Listening()
    config = IncrementalConfig(name="ssl.keystore.password", config_operation=0, value=SECRET.decode())
    plain = IncrementalConfig(name="log.retention.ms", config_operation=0, value="1000")
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=SECRET, salted_password=SECRET
    )
    resource = IncrementalConfigsResource(resource_type=4, resource_name="0", configs=[config, plain])
    tap.hear(request(SaslAuthenticateRequest(auth_bytes=SECRET), 2, 1))
    tap.say(answer(SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=SECRET), 2, 1))
    tap.hear(request(RenewDelegationTokenRequest(hmac=SECRET, renew_period_ms=1), 2, 2))
    tap.hear(request(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0, 3))
    tap.hear(request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1, 4))
    tap.hear(request(SaslHandshakeRequest(mechanism="PLAIN"), 0, 5) + framed(b"\0alice\0" + SECRET))
    return tap


def test_messages_are_decoded(tmp_path: Path) -> None:
    tap = Listening()
    tap.hear(request(produce(("orders", 0), records=BATCH), 9, 1))
    tap.clock.now_ms += 2
    tap.say(answer(produced(("orders", 0), error=6), 9, 1))
    tap.hear(request(HEARTBEAT, 4, 2))
    first, second = saved(tap, tmp_path / "wire.jsonl")
    records = first["request"]["topic_data"][0]["partition_data"][0]["records"]
    assert records == [
        {"offset": 0, "timestamp": 5, "key": "key", "value": {"base64": "/wA="}, "headers": [["trace", "open-sesame"]]},
        {"offset": 1, "timestamp": 6, "key": None, "value": "häuser", "headers": []},
    ]
    assert first["response"]["responses"][0]["partition_responses"][0]["error_code"] == 6
    assert (first["api"], first["time"], first["duration_ms"]) == ("Produce", "1970-01-01T00:16:40.000Z", 2.0)
    assert first["errors"] == ["NOT_LEADER_OR_FOLLOWER"]
    assert (second["request"]["group_id"], second["response"], second["answer_size"]) == ("g", None, None)


def test_records_and_secrets_are_hidden(tmp_path: Path) -> None:
    tap = with_secrets()
    tap.hear(
        request(produce(("orders", 0), records=BATCH), 9, 6) + request(produce(("orders", 0), records=b"damaged"), 9, 7)
    )
    lines = saved(tap, tmp_path / "wire.jsonl", hide_records=True)
    text = (tmp_path / "wire.jsonl").read_text()
    assert SECRET.decode() not in text and "alice" in text and "1000" in text and HIDDEN in text
    assert lines[-1]["request"]["topic_data"][0]["partition_data"][0]["records"] in (HIDDEN, [])
    assert "request" not in lines[5]


@pytest.mark.parametrize("name", [name for name, each in broker_settings().items() if each.is_sensitive])
def test_every_setting_that_is_a_password_is_hidden(name: str) -> None:
    given = IncrementalConfig(name=name, config_operation=0, value="geheim")
    hidden = without_secrets(given, lambda secret: HIDDEN)
    assert (given.value, hidden.value) == ("geheim", HIDDEN)


def test_numbers_that_json_does_not_have_are_texts() -> None:
    told = plain(OpData(key="producer_byte_rate", value=float("nan"), remove=False))
    assert json.dumps(told, allow_nan=False) == '{"key": "producer_byte_rate", "value": "nan", "remove": false}'


def test_what_was_not_kept_is_told(tmp_path: Path) -> None:
    tap = Listening()
    tap.hear(request(HeartbeatRequest(group_id="g" * 30_000, generation_id=1, member_id="m" * 30_000), 4))
    tap.hear(request(produce(("orders", 0), records=b"r" * WHOLE_BYTES_MAX), 9))
    tap.hear(request(HEARTBEAT, 4)[:4] + b"\0\x0c\0\4\0\0\0\1\xff\xff" + bytes(len(request(HEARTBEAT, 4)) - 14))
    large, skeleton, broken = saved(tap, tmp_path / "wire.jsonl")
    assert large["request"]["group_id"] == "g" * 30_000
    assert skeleton["records_left_out_bytes"] == WHOLE_BYTES_MAX
    assert broken["request"] is not None or "cannot be decoded" in broken["request_problem"]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    for save in (Listening().wire.save, Listening().wire.save_pcap):
        with pytest.raises(LabError, match="cannot be written: No such file or directory"):
            save(tmp_path / "missing" / "file")


@given(st.binary(max_size=50))
def test_bytes_are_text_or_base64(data: bytes) -> None:
    told = text_or_base64(data)
    json.dumps(told)
    assert told.encode() == data if isinstance(told, str) else set(told) == {"base64"}


# ---------------------------------------------------------------------- captures


class Packet(NamedTuple):
    """A packet of a capture, its headers checked."""

    micros: int
    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    acknowledged: int
    flags: int
    data: bytes
    length: int
    """Bytes of data on the wire; more than `data` if those were cut off."""


def ones_sum(data: bytes) -> int:
    """Add 16 bits at a time with carries; 0xFFFF for data with a right checksum."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data[: len(data) // 2 * 2])) + (
        data[-1] << 8 if len(data) % 2 else 0
    )
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def packets(path: Path) -> list[Packet]:
    data = path.read_bytes()
    assert struct.unpack_from("<IHH", data) == (0xA1B2C3D4, 2, 4) and struct.unpack_from("<I", data, 20) == (1,)
    found, at = [], 24
    while at < len(data):
        seconds, micros, kept, full = struct.unpack_from("<IIII", data, at)
        packet = data[at + 16 : at + 16 + kept]
        at += 16 + kept
        ip = packet[14:] + bytes(full - kept)
        if packet[12:14] == b"\x08\0":
            assert ip[0] == 0x45 and ones_sum(ip[:20]) == 0xFFFF and int.from_bytes(ip[2:4]) == len(ip)
            ends, tcp = (ip[12:16], ip[16:20]), ip[20:]
            pseudo = b"".join(ends) + struct.pack(">BBH", 0, 6, len(tcp))
        else:
            assert ip[0] == 0x60 and int.from_bytes(ip[4:6]) == len(ip) - 40
            ends, tcp = (ip[8:24], ip[24:40]), ip[40:]
            pseudo = b"".join(ends) + struct.pack(">II", len(tcp), 6)
        assert ones_sum(pseudo + tcp) == 0xFFFF
        ports = struct.unpack_from(">HH", tcp)
        sequence, acknowledged = struct.unpack_from(">II", tcp, 4)
        hosts = [str(ipaddress.ip_address(each)) for each in ends]
        length = len(tcp) - 20
        body = tcp[20 : len(tcp) - (full - kept)]
        found.append(Packet(seconds * 1_000_000 + micros, (hosts[0], ports[0]), (hosts[1], ports[1]), sequence, acknowledged, tcp[13], body, length))  # fmt: skip
    return found


def streams(found: list[Packet]) -> dict[Any, bytes]:
    """Put the data of each direction together, by the sequence numbers; what was cut off is zeros."""
    together: dict[Any, bytearray] = defaultdict(bytearray)
    first: dict[Any, int] = {}
    for packet in found:
        way = packet.source, packet.target
        if packet.flags & 2:
            first[way] = packet.sequence + 1
        start = packet.sequence - first[way]
        if packet.length:
            assert start == len(together[way])
            together[way] += packet.data + bytes(packet.length - len(packet.data))
            back = packet.target, packet.source
            assert packet.acknowledged - first[back] == len(together[back])
    return {way: bytes(data) for way, data in together.items()}


def test_a_capture_has_both_streams_and_times(tmp_path: Path) -> None:
    tap = Listening()
    asked = request(produce(("orders", 0)), 9, 1) + request(HEARTBEAT, 4, 2)
    told = answer(produced(("orders", 0)), 9, 1) + answer(HeartbeatResponse(error_code=0), 4, 2)
    tap.hear(asked)
    tap.clock.now_ms += 0.25
    tap.say(told)
    tap.conversation.end()
    count = tap.wire.save_pcap(tmp_path / "wire.pcap")
    found = packets(tmp_path / "wire.pcap")
    assert count == len(found) == 3 + 4 + 3
    client, broker = ("127.0.0.1", 50001), ("127.0.0.1", 9092)
    assert streams(found) == {(client, broker): asked, (broker, client): told}
    assert [each.micros - 1_000_000_000 for each in found] == [0] * 5 + [250] * 5
    assert [each.flags for each in found] == [2, 18, 16, 24, 24, 24, 24, 17, 17, 16]


def test_long_frames_are_several_packets_and_lost_records_are_cut_off(tmp_path: Path) -> None:
    tap = Listening()
    whole = request(HeartbeatRequest(group_id="g" * 32_000, generation_id=1, member_id="m" * 32_000, group_instance_id="i" * 32_000), 4, 1)  # fmt: skip
    tap.hear(whole)
    tap.say(answer(HeartbeatResponse(error_code=0), 4, 1))
    large = request(produce(("orders", 0), records=b"r" * 200_000), 9, 2)
    tap.hear(large)
    tap.wire.save_pcap(tmp_path / "wire.pcap")
    found = streams(packets(tmp_path / "wire.pcap"))[("127.0.0.1", 50001), ("127.0.0.1", 9092)]
    start = large.index(b"r" * 100)
    assert found[: len(whole)] == whole
    assert found[len(whole) :] == large[:start] + bytes(len(large) - start)


def test_no_secret_is_in_a_capture(tmp_path: Path) -> None:
    tap = with_secrets()
    tap.hear(request(produce(("orders", 0), records=BATCH), 9, 6))
    tap.wire.save_pcap(tmp_path / "wire.pcap", hide_records=True)
    data = (tmp_path / "wire.pcap").read_bytes()
    assert SECRET not in data and b"alice" in data and b"log.retention.ms" in data
    whole = streams(packets(tmp_path / "wire.pcap"))[("127.0.0.1", 50001), ("127.0.0.1", 9092)]
    assert whole.endswith(bytes(len(BATCH) - 61) + b"\0\0\0") and BATCH[:61] in whole
    tap.wire.save_pcap(tmp_path / "wire.pcap")
    assert BATCH in (tmp_path / "wire.pcap").read_bytes()


def test_brokers_are_told_apart(tmp_path: Path) -> None:
    tap = Listening()
    tap.hear(request(HEARTBEAT, 4))
    for node_id, host in ((3, "127.0.0.1"), (4, "::1")):
        other = Conversation(WireConnection(node_id, node_id, (host, 50_001), 40_000 + node_id, 1_000_000.0), tap.wire)
        data = request(HEARTBEAT, 4)
        other.heard(data, len(data))
    tap.wire.save_pcap(tmp_path / "wire.pcap")
    ends = {each.target for each in packets(tmp_path / "wire.pcap") if each.length}
    assert ends == {("127.0.0.1", 9092), ("127.0.0.2", 9092), ("::3", 9092)}
    tap.wire.save_pcap(tmp_path / "wire.pcap", port=None)
    assert ("127.0.0.2", 40_003) in {each.target for each in packets(tmp_path / "wire.pcap")}


def test_a_capture_begins_where_the_log_does(tmp_path: Path) -> None:
    tap = Listening(requests_max=1)
    for number in range(3):
        tap.hear(request(HEARTBEAT, 4, number))
        tap.say(answer(HeartbeatResponse(error_code=0), 4, number))
    tap.hear(request(fetch(("orders", 0)), 12, 9))
    tap.say(answer(fetched(("orders", 0)), 12, 9))
    tap.wire.save_pcap(tmp_path / "wire.pcap")
    found = streams(packets(tmp_path / "wire.pcap"))
    assert found[("127.0.0.1", 50001), ("127.0.0.1", 9092)] == request(fetch(("orders", 0)), 12, 9)
