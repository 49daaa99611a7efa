"""Listeners and connections of clients.

listener.py            binds, accepts, ends idle connections; listener_context.py: what its connections share
connection.py          one connection: frames in, answers out
readiness.py           serves readable sockets inside the event loop's wait
inbox.py               received bytes; background_worker.py: receives large frames in a thread
calls.py               decoder, handler and encoder by api key and version
pending.py             requests whose answers are not there yet
outbox.py              answers on their way out
large_requests.py      requests and answers that are long, in threads
sliced_work.py         requests of many elements, in slices
deadlines.py           deadlines of waiting requests
authentication.py      login of a connection
transport.py           bytes over TCP; tls_transport.py: over TLS
tls_session.py         a session of OpenSSL; tls_handshakes.py: handshakes; tls_batches.py: many records at once
protocol_detection.py  finds out what a stranger speaks
connection_limits.py   limits of number and rate of connections
memory_accounting.py   limit of memory for requests
throttling.py          quotas: stops reading clients that used more
"""
