#!lua flags=allow-oom
-- purpose: lets a message that waits durably wait in its place, without anybody in memory, until it is woken
-- key fence (hash): the shard's fence
-- key live (hash): the shard's markers
-- key active (set): the shard's entities with something in their mailbox
-- key scheduled (zset): the shard's scheduled messages and wake-ups by the server milliseconds they are due
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg member (text): the entity, type:id
-- arg entry (text): the message's place in the mailbox
-- arg id (text): the message's id
-- arg due (integer): when it is woken at the latest, server milliseconds
-- returns parked: it stays in its place; its failures and deaths are what they were
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- refuses lost: the message is not in the owner's hands any more
-- repeat: safe, the second time finds it parked, or woken since
-- include: fence
-- include: parking
-- invariant: a message is parked exactly as long as its wake-up stands among the scheduled ones
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
local field = member .. '\n' .. id
local phase, head, place, holder, counts =
  string.match(redis.call('HGET', live, field) or '', '^(%a) (%a %S+) (%S+) (%S+) (%d+ %d+)$')
if phase == 'p' and place == entry then
  return { 'parked' }
end
if phase ~= 't' or place ~= entry or holder ~= number then
  return { 'lost' }
end
redis.call('ZADD', scheduled, due, wake_place(field))
count_parked(live, 1)
redis.call('HSET', live, field, 'p ' .. head .. ' ' .. entry .. ' 0 ' .. counts)
redis.call('SREM', active, member)
return { 'parked' }
