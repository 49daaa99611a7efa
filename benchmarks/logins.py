"""A client that connects anew all the time: python -m benchmarks.logins tls|scram PORT SECONDS THREADS RATE

Each connection is counted when it has been answered a first request after its handshake, or when its login is accepted. RATE
is how many a second at most; 0: as many as there can be. What a real client computes once for all its connections
(the salted password) is computed before. It prints {"connections": N, "seconds": S, "client_cpu_s": C}.
"""

import base64
import hashlib
import hmac
import itertools
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable

from benchmarks.secured import SALTED_PASSWORD, USER
from benchmarks.wire_client import Client
from compat_tests.support.raw import receive_frame
from compat_tests.support.wire_client import encode_frame

from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

CLIENT_KEY = hmac.digest(SALTED_PASSWORD, b"Client Key", "sha256")
STORED_KEY = hashlib.sha256(CLIENT_KEY).digest()
FIRST_REQUEST = encode_frame(ApiVersionsRequest(client_software_name="", client_software_version=""), 0, 1, "bench")
_nonces = itertools.count()


def over_tls(port: int) -> Callable[[], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def connect() -> None:
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port))) as connection:
            connection.sendall(FIRST_REQUEST)
            assert receive_frame(connection), "the broker closed the connection"

    return connect


def by_scram(port: int) -> Callable[[], None]:
    def connect() -> None:
        with Client(port) as client:
            client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            bare = f"n={USER},r=nonce{next(_nonces):019}"
            first = client.ask(SaslAuthenticateRequest(auth_bytes=f"n,,{bare}".encode()), 2)
            nonce = first.auth_bytes.split(b",")[0]
            without_proof = b"c=biws," + nonce
            signed = b",".join((bare.encode(), first.auth_bytes, without_proof))
            signature = hmac.digest(STORED_KEY, signed, "sha256")
            proof = base64.b64encode(bytes(a ^ b for a, b in zip(CLIENT_KEY, signature, strict=True)))
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=without_proof + b",p=" + proof), 2)
            assert not answer.error_code, answer.error_message

    return connect


def run(connect: Callable[[], None], seconds: float, threads: int, rate: float) -> dict[str, float]:
    counts = [0] * threads
    began = time.monotonic()
    end = began + seconds

    def repeat(index: int) -> None:
        due = began + index / rate if rate else began
        while time.monotonic() < end:
            if rate:
                time.sleep(max(0.0, due - time.monotonic()))
                due += threads / rate
            connect()
            counts[index] += 1

    workers = [threading.Thread(target=repeat, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"connections": sum(counts), "seconds": time.monotonic() - began, "client_cpu_s": time.process_time()}


if __name__ == "__main__":
    kind, port, seconds, threads, rate = sys.argv[1], *map(float, sys.argv[2:])
    connect = {"tls": over_tls, "scram": by_scram}[kind](int(port))
    print(json.dumps(run(connect, seconds, int(threads), rate)))
