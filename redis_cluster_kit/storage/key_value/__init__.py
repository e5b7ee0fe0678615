"""Values by key behind one small Protocol: in memory, in files, in Redis, in SQL, or one over another.

Nothing here is fenced: values belong to nobody, and `modify` is what makes concurrent changes safe.
"""

from .contract import VALUE_LIMIT, Change, KeyValueStore
from .file import FileStore
from .memory import MemoryStore
from .redis import RedisStore
from .sql import SqlStore
from .typed import TypedStore
from .write_through import WriteThroughStore

__all__ = [
    "VALUE_LIMIT",
    "Change",
    "FileStore",
    "KeyValueStore",
    "MemoryStore",
    "RedisStore",
    "SqlStore",
    "TypedStore",
    "WriteThroughStore",
]
