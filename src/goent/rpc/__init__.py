"""JSON-RPC 2.0 between two equal peers, over byte streams with a message per line."""

from goent.rpc.errors import (
    BadReply,
    ConnectionLost,
    InvalidParams,
    MethodNotFound,
    RpcError,
    decode_params,
)
from goent.rpc.inbox import Handler
from goent.rpc.peer import Peer

__all__ = [
    "BadReply",
    "ConnectionLost",
    "Handler",
    "InvalidParams",
    "MethodNotFound",
    "Peer",
    "RpcError",
    "decode_params",
]
