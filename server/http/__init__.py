"""The HTTP endpoint: health and metrics, and whatever another module adds. Off by default; see `server/settings/server_config.py`.

    messages.py      Request and Response
    routes.py        which handler answers a path
    guard.py         who may ask: the Host header against DNS rebinding, Origin and content type against other sites
    conversation.py  one connection: h11, limits on bytes and time, answers in pieces
    server.py        accepts connections, within limits of its own
    pace.py          lets long answers work in short turns
    room.py          bounds the memory of answers on their way
    health.py        /healthz and /readyz
    clients/         takes what clients push (KIP-714) and tells it on /metrics
    endpoint.py      puts the paths of a broker together

How another module adds a path: it has a function that puts its handlers into a `Routes`, and `endpoint.py` calls it.

    def add_topics(routes: Routes, broker: Port) -> None:
        async def list_topics(request: Request) -> Response:
            return Response(json.dumps(names_of(broker)).encode(), content_type=JSON)

        routes.get("/api/topics", list_topics)
        routes.get("/api/topics/", one_topic)              # a path that ends with / takes all below it
        routes.post("/api/records", produce, body_bytes_max=1 << 20)

    GET     also answers HEAD. It must change nothing. `request.query` has the parameters, `request.path` the decoded path.
    POST    is refused before its body is read unless it comes from this endpoint's own pages, or from no browser, and is JSON
            (`guard.py`). Whether there may be any at all (`--console-write`) decides who adds the path. The body is read
            whole, up to `body_bytes_max`, once `check` has let the request pass: a token is asked for there.
    answer  bytes, which `room.py` bounds for all readers together, or an async generator of pieces, which is pulled at the speed of the reader and closed if that goes. What
            works for long asks `Pace` when it may go on. A handler raises `Refused` for a status of 4xx with a sentence.
    live    server-sent events: `Response(events(), content_type=EVENT_STREAM, is_lasting=True)`, where `events` is an async
            generator that yields `b"data: ...\\n\\n"`; it may wait as long as it likes between two of them. A long poll is an
            ordinary answer that waits less than ANSWER_S in `conversation.py`. When a reader of a lasting answer closes its
            side the generator is cancelled at once; it should yield a comment (`b":\\n\\n"`) every 15 s or so, which finds out
            readers whose machine is gone. Each live reader takes one of the connections in `server.py`.
    page    `Response(html, content_type=HTML, headers=(("Content-Security-Policy", "default-src 'self'"),))`: a header of the
            response replaces the strict one that all answers have.
"""
