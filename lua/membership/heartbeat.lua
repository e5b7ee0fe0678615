#!lua flags=allow-oom
-- purpose: prolongs a membership, drops those that ended, and tells who is there if that changed
-- key members (hash): runner id to what it says of itself
-- key alive (zset): runner id by the server milliseconds its membership ends
-- key version (string): grows with every change
-- arg runner (text): the runner's id
-- arg ttl (integer): milliseconds
-- arg extend (flag): prolong; without it only look
-- arg known (text): the version the caller knows
-- returns same version now: nothing changed
-- returns changed version now members: all members now
-- returns absent: the runner is no member (any more)
-- repeat: safe, it only moves the end
-- include: membership
local now, lifetime = server_ms(), ttl * 10
prune(members, alive, version, now, lifetime)
if extend then
  if redis.call('HEXISTS', members, runner) == 0 then
    return { 'absent' }
  end
  redis.call('ZADD', alive, now + ttl, runner)
  keep({ members, alive, version }, lifetime)
end
local current = redis.call('GET', version) or '0'
if current == known then
  return { 'same', current, now }
end
return { 'changed', current, now, redis.call('HGETALL', members) }
