#!lua flags=allow-oom
-- purpose: takes a runner out of the membership
-- key members (hash): runner id to what it says of itself
-- key alive (zset): runner id by the server milliseconds its membership ends
-- key version (string): grows with every change
-- arg runner (text): the runner's id
-- returns left: it is no member any more
-- refuses absent: it was none
-- repeat: safe, the second time finds nothing
-- include: membership
local lifetime = math.max(redis.call('PTTL', members), 1)
if redis.call('HDEL', members, runner) == 0 then
  return { 'absent' }
end
redis.call('ZREM', alive, runner)
if redis.call('HLEN', members) == 0 then
  redis.call('DEL', members, alive, version)
else
  grow(version, lifetime)
end
return { 'left' }
