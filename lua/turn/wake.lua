#!lua flags=allow-oom
-- purpose: wakes a parked message, or whoever has it in hand
-- key live (hash): the shard's markers
-- key active (set): the shard's entities with something in their mailbox
-- key scheduled (zset): the shard's scheduled messages and wake-ups by the server milliseconds they are due
-- key fence (hash): the shard's fence
-- arg shard (text): the shard, as the nudge names it
-- arg member (text): the entity, type:id
-- arg id (text): the message's id
-- returns woken: it waits for its owner like any other
-- returns taken: a runner has it in hand, and was told
-- refuses absent: it waits already, or is scheduled, dead or gone
-- repeat: safe, the second time finds it awake
-- include: parking
local field = member .. '\n' .. id
local phase, rest = string.match(redis.call('HGET', live, field) or '', '^(%a) (.*)$')
local owner = redis.call('HMGET', fence, 'f', 'i')
if phase == 'p' then
  redis.call('HSET', live, field, 'w ' .. rest)
  unpark(scheduled, live, field)
  redis.call('SADD', active, member)
  if owner[2] then
    redis.call('XADD', owner[2], 'NOMKSTREAM', 'MAXLEN', '~', 10000, '*', 'k', 'm', 's', shard, 'e', member, 'f', owner[1])
  end
  return { 'woken' }
end
redis.call('ZREM', scheduled, wake_place(field))
if phase == 't' then
  if owner[2] then
    redis.call('XADD', owner[2], 'NOMKSTREAM', 'MAXLEN', '~', 10000, '*', 'k', 'w', 's', shard, 'e', 'e:' .. member)
  end
  return { 'taken' }
end
return { 'absent' }
