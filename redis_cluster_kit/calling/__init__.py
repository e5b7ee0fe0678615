"""Calling entities: proxies, asks and sends, receipts. Where entities run it does not know."""

from .client import Call, Caller, Target
from .proxy import make_proxy, rpc_call
from .receipt import MessageReceipt

__all__ = ["Call", "Caller", "MessageReceipt", "Target", "make_proxy", "rpc_call"]
