"""A client by the library h2: many files at once, an upload with a trailer, cancelled downloads, long downloads. Arguments: the
URL of the server, and the file of the authority that it trusts, if the server speaks TLS."""

import hashlib
import socket
import ssl
import sys
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events

url = urlsplit(sys.argv[1])
link = socket.create_connection((url.hostname, url.port), 20)
if len(sys.argv) > 2:
    context = ssl.create_default_context(cafile=sys.argv[2])
    context.set_alpn_protocols(["h2"])
    link = context.wrap_socket(link, server_hostname="localhost")
    assert link.selected_alpn_protocol() == "h2"
wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
wire.initiate_connection()
bodies, over, statuses = {}, set(), {}


def flush():
    link.sendall(wire.data_to_send())


def ask(method, path, ends=True):
    stream = wire.get_next_available_stream_id()
    head = [(":method", method), (":scheme", url.scheme), (":authority", "localhost"), (":path", path)]
    wire.send_headers(stream, head, end_stream=ends)
    bodies[stream] = bytearray()
    return stream


def turn():
    """Takes what the server has sent."""
    flush()
    data = link.recv(65536)
    assert data, "the connection has ended"
    for event in wire.receive_data(data):
        if isinstance(event, h2.events.ResponseReceived):
            statuses[event.stream_id] = int(dict(event.headers)[b":status"])
        elif isinstance(event, h2.events.DataReceived):
            bodies[event.stream_id] += event.data
            wire.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            over.add(event.stream_id)
        elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
            raise SystemExit(f"{event}")
    flush()


def finish(streams):
    while not over.issuperset(streams):
        turn()
    for stream in streams:
        assert statuses[stream] == 200, (stream, statuses[stream])


while wire.remote_settings.max_concurrent_streams > 100:
    turn()
for first in range(0, 300, 100):
    streams = [ask("GET", f"/files/{first + n}") for n in range(100)]
    finish(streams)
    assert all(len(bodies[stream]) == 30_000 for stream in streams)

content = b"0123456789abcdef" * 100_000
stream = ask("POST", "/tool/sum", ends=False)
rest = content
while rest:
    room = min(wire.local_flow_control_window(stream), wire.max_outbound_frame_size)
    if room == 0:
        turn()
        continue
    wire.send_data(stream, rest[:room])
    rest = rest[room:]
wire.send_headers(stream, [("x-after", "1")], end_stream=True)
finish([stream])
assert bodies[stream].startswith(hashlib.md5(content).hexdigest().encode()), bodies[stream]

for _ in range(100):
    stream = ask("GET", "/files/long")
    while not bodies[stream]:
        turn()
    wire.reset_stream(stream, 8)
streams = [ask("GET", "/files/long") for _ in range(2)]
finish(streams)
assert all(len(bodies[stream]) == 20_000_000 for stream in streams)
