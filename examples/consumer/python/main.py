"""Keep a copy of a cluster's objects from kbridge's stream in NATS JetStream, and serve it:

python3 examples/consumer/python/main.py --url nats://127.0.0.1:4222 --stream KBRIDGE
"""

import argparse
import asyncio
import json

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from mirror import Mirror


async def follow(js, stream, name, objects):
    """Apply the stream's messages from its first one on."""
    try:  # What the copy has and what the consumer has acknowledged begin together.
        await js.delete_consumer(stream, name)
    except NotFoundError:
        pass
    await js.add_consumer(
        stream,
        ConsumerConfig(
            durable_name=name,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            # The next message comes when this one is acknowledged: nothing overtakes one that is delivered again.
            max_ack_pending=1,
            ack_wait=5,
        ),
    )
    messages = await js.pull_subscribe_bind(consumer=name, stream=stream)
    while True:
        try:
            [message] = await messages.fetch(1, timeout=5)
        except asyncio.TimeoutError:
            continue  # there is none, or the server is away
        objects.apply(message.metadata.sequence.stream, json.loads(message.data))
        await message.ack()  # where it is lost the message comes again


async def serve(objects, listen):
    """Answer each request with the objects. It is the place for what a consumer does with them."""

    async def answer(reader, writer):
        await reader.readline()
        body = json.dumps(objects.state()).encode()
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    host, port = listen.rsplit(":", 1)
    server = await asyncio.start_server(answer, host, int(port))
    await server.serve_forever()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="nats://127.0.0.1:4222")
    parser.add_argument("--stream", default="KBRIDGE")
    parser.add_argument("--name", default="mirror-python")
    parser.add_argument("--listen", default="127.0.0.1:8092")
    args = parser.parse_args()
    objects = Mirror()
    connection = await nats.connect(args.url, max_reconnect_attempts=-1)
    # Whatever ends one of them ends both, and the next start begins anew: the copy is in memory.
    await asyncio.gather(follow(connection.jetstream(), args.stream, args.name, objects), serve(objects, args.listen))


asyncio.run(main())
