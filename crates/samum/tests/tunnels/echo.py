"""WebSockets: `serve` echoes what comes, and tells its port; `ask PORT` sends messages of many sizes, and wants them back."""

import asyncio
import random
import sys

from websockets import connect, serve

SIZES = [0, 1, 125, 126, 65_535, 65_536, 1_000_000]


async def echo(socket, *_):
    async for message in socket:
        await socket.send(message)


async def be_server():
    server = await serve(echo, "127.0.0.1", 0, max_size=None)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Future()


async def ask(port, number):
    chance = random.Random(number)
    compression = "deflate" if number % 2 else None
    async with connect(f"ws://127.0.0.1:{port}/echo?{number}", max_size=None, compression=compression) as socket:
        for _ in range(10):
            message = chance.randbytes(chance.choice(SIZES))
            await socket.send(message)
            answer = await asyncio.wait_for(socket.recv(), 30)
            assert answer == message, (number, len(message), len(answer))


async def be_clients(port):
    await asyncio.gather(*(ask(port, number) for number in range(10)))


asyncio.run(be_server() if sys.argv[1] == "serve" else be_clients(int(sys.argv[2])))
