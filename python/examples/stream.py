"""A stream of bytes between two nodes: the one that listens answers in capital letters (docs/guide/experimental-stream.md). Here both are of one process."""

import threading

from pagewire import Node, experimental

node = Node.alone()
listener = experimental.Listener(node)


def client(token: bytes) -> None:
    """Another process would get the token by any means."""
    with Node.alone() as own, experimental.Stream.connect(own, token) as stream:
        stream.send(b"every byte is a put\n")
        stream.shutdown()
        while part := stream.receive(64):
            print(part.decode(), end="")


thread = threading.Thread(target=client, args=(listener.token,))
thread.start()
with listener.accept(timeout=10) as stream:
    while part := stream.receive(64):  # b"": the other one sends no more
        stream.send(part.upper())
thread.join()
