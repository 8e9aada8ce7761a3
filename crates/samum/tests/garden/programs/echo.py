# An origin of h11, which accepts only what the RFCs permit. It announces its address as samum does.
import socket
import sys
import threading

import h11


def answer(request, body):
    """The events of the response to a request."""
    fields = [(b"Server", b"h11")]
    path = request.target
    if path == b"/fixed":
        fields += [(b"Set-Cookie", b"a=1"), (b"Set-Cookie", b"b=2"), (b"Content-Length", b"5")]
        return [h11.Response(status_code=200, headers=fields), b"fixed"]
    if path == b"/chunked":
        fields += [(b"Transfer-Encoding", b"chunked")]
        return [h11.Response(status_code=200, headers=fields), b"one", b"two", b"three"]
    if path == b"/trailers":
        fields += [(b"Transfer-Encoding", b"chunked"), (b"Trailer", b"X-Sum")]
        return [h11.Response(status_code=200, headers=fields), b"body", [(b"X-Sum", b"1")]]
    if path == b"/empty":
        return [h11.Response(status_code=204, headers=fields)]
    if path == b"/unchanged":
        return [h11.Response(status_code=304, headers=fields + [(b"ETag", b'"x"')])]
    if path == b"/hints":
        hints = h11.InformationalResponse(status_code=103, headers=[(b"Link", b"</a.css>; rel=preload")])
        return [hints, h11.Response(status_code=200, headers=fields + [(b"Content-Length", b"6")]), b"hinted"]
    if path == b"/missing":
        return [h11.Response(status_code=404, headers=fields + [(b"Content-Length", b"4")]), b"none"]
    lines = {}
    for name, value in request.headers:
        lines.setdefault(name, []).append(value)
    lines = sorted(name + b": " + b", ".join(values) + b"\n" for name, values in lines.items())
    text = request.method + b" " + path + b"\n" + b"".join(lines) + b"\n" + body
    fields += [(b"Content-Length", b"%d" % len(text))]
    return [h11.Response(status_code=200, headers=fields), text]


def serve(client):
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=65536)
    try:
        while True:
            request, body = None, b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    if connection.they_are_waiting_for_100_continue:
                        client.sendall(connection.send(h11.InformationalResponse(status_code=100, headers=[])))
                    connection.receive_data(client.recv(65536))
                elif isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    break
                else:
                    return
            if request.target == b"/close":
                client.sendall(b"HTTP/1.0 200 OK\r\nServer: h11\r\n\r\nclosed")
                return
            trailers = []
            for event in answer(request, body):
                if isinstance(event, list):
                    trailers = event
                    continue
                if isinstance(event, bytes):
                    event = h11.Data(data=b"" if request.method == b"HEAD" else event)
                client.sendall(connection.send(event) or b"")
            client.sendall(connection.send(h11.EndOfMessage(headers=trailers)) or b"")
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        text = str(error).encode()
        client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    finally:
        client.close()


listener = socket.create_server(("127.0.0.1", 0))
print("listening on http://127.0.0.1:%d/" % listener.getsockname()[1], file=sys.stderr, flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
