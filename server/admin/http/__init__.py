"""The HTTP endpoint: health and metrics, and paths that other modules add. Off by default; see `server/config/server_config.py`.

    routes.py        Request and Response, the table of paths, and the guard: Host against DNS rebinding, Origin against other sites;
                     the share of the event loop that the endpoint takes (`Pace`)
    server.py        accepts connections, and serves each: h11, limits on bytes, time and memory, answers in pieces
    clients/         receives metrics that clients push (KIP-714) and adds them to /metrics
    metrics/         /metrics
    basic_authentication.py  logins of other processes' APIs: the registry's, the REST proxy's
    standalone.py    guard, pace and limits of these processes
    endpoint.py      puts the paths of a broker together; /healthz, /readyz, and the handler of /metrics

To add a path, write a function that puts handlers into a `Routes`, and call it in `endpoint.py`:

    def add_topics(routes: Routes, broker: Broker) -> None:
        async def list_topics(request: Request) -> Response:
            return Response(json.dumps(names_of(broker)).encode(), content_type=JSON)

        routes.get("/api/topics", list_topics)
        routes.get("/api/topics/", one_topic)              # a path that ends with / takes all below it
        routes.post("/api/records", produce, body_bytes_max=1 << 20)

    GET     also answers HEAD. It must change nothing. `request.query` has the parameters, `request.path` the decoded path.
    POST    is refused before its body is read unless it comes from this endpoint's own pages, or from no browser, and is JSON
            (`Guard`). Add such a path only if there may be any (`--console-write`). The body is read whole, up to
            `body_bytes_max`, once `check` has let the request pass: a token is asked for there.
    answer  bytes, which `Room` bounds for all readers together, or an async generator of pieces, which is pulled at the speed of
            the reader and closed if that goes. Long work asks `Pace` when it may go on. A handler raises `Refused` for a status
            of 4xx with a sentence.
    live    server-sent events: `Response(events(), content_type=EVENT_STREAM, is_lasting=True)`, where `events` is an async
            generator that yields `b"data: ...\\n\\n"`; it may wait as long as it likes between two of them. A long poll is an
            ordinary answer that waits less than ANSWER_S in `server.py`. When a reader of a lasting answer closes its
            side the generator is cancelled at once; it should yield a comment (`b":\\n\\n"`) every 15 s or so, which finds out
            readers whose machine is gone. Each live reader takes one of the connections in `server.py`.
    page    `Response(html, content_type=HTML, headers=(("Content-Security-Policy", "default-src 'self'"),))`: a header of the
            response replaces the strict one that all answers have.
"""
