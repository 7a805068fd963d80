"""A program that speaks the protocol on its standard streams, and prints where it must not."""

import os

import anyio
from msgspec import Raw

from goent.rpc.byte_streams import stdio
from goent.rpc.json_rpc import MethodNotFound
from goent.rpc.rpc_peer import Peer


class Echo:
    async def request(self, method: str, params: Raw) -> object:
        print("a stray print")  # noqa: T201 (what a library might do)
        os.write(1, b"a stray write\n")
        if method == "read":
            return os.read(0, 100).decode()
        if method == "echo":
            return params
        raise MethodNotFound(method)

    async def notification(self, method: str, params: Raw) -> None:
        return


async def main() -> None:
    async with stdio() as (receive, send):
        await Peer(receive, send, Echo()).run()
    os.write(1, b"after\n")


anyio.run(main)
