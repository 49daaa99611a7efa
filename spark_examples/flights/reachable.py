"""Whether a Kafka broker answers, asked before anything that takes longer: clients and Spark try for minutes without a word."""

import socket
import struct
import sys

WHOLE_S = 2.5
_API_VERSIONS = struct.pack(
    ">ihhih", 10, 18, 0, 1, -1
)  # version 0, which every broker answers; correlation id 1, no client id


def require(bootstrap: str) -> None:
    """End the program with one line, within 3 s, unless one of the brokers of host:port,host:port answers."""
    addresses = bootstrap.split(",")
    problems = [problem_at(address, WHOLE_S / len(addresses)) for address in addresses]
    if all(problems):
        sys.exit(f"{problems[0]}. `ottla start` starts a broker on 127.0.0.1:9092; --bootstrap names another one.")


def problem_at(address: str, seconds: float) -> str:
    """Why this is no broker; empty if it is one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return f"{address!r} is not host:port"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds) as connection:
            connection.sendall(_API_VERSIONS)
            answer = connection.recv(8, socket.MSG_WAITALL)
    except TimeoutError:
        return f"nobody answers at {address}"
    except (OSError, OverflowError) as error:
        return f"no broker at {address}: {error}"
    return "" if answer[4:] == struct.pack(">i", 1) else f"what answers at {address} does not speak Kafka's protocol"
