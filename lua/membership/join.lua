#!lua flags=allow-oom
-- purpose: adds a runner to the membership, or changes what it says of itself
-- key members (hash): runner id to what it says of itself
-- key alive (zset): runner id by the server milliseconds its membership ends
-- key version (string): grows with every change
-- arg runner (text): the runner's id
-- arg description (bytes): what it says of itself
-- arg ttl (integer): milliseconds until it expires without a heartbeat
-- returns joined: it is a member from now on
-- repeat: safe, it says the same again
-- include: membership
local now, lifetime = server_ms(), ttl * 10
prune(members, alive, version, now, lifetime)
redis.call('HSET', members, runner, description)
redis.call('ZADD', alive, now + ttl, runner)
grow(version, lifetime)
keep({ members, alive, version }, lifetime)
return { 'joined' }
