"""Real servers as child processes that die with their parent: Redis or Valkey, alone or together, PostgreSQL.

For tests, demos and one-host services; production servers are somebody else's care.
"""

from .both_stores import both_stores
from .processes import ServerNotInstalledError, ServerStartError
from .redis_server import PortTakenError, RedisServer, find_binary
from .redis_topologies import RedisClusterServers, ReplicatedServers, SentinelServers
from .resp import RespClient, RespError
from .sql_server import PostgresServer
from .tls import TlsFiles, make_tls_files

__all__ = [
    "PortTakenError",
    "PostgresServer",
    "RedisClusterServers",
    "RedisServer",
    "ReplicatedServers",
    "RespClient",
    "RespError",
    "SentinelServers",
    "ServerNotInstalledError",
    "ServerStartError",
    "TlsFiles",
    "both_stores",
    "find_binary",
    "make_tls_files",
]
