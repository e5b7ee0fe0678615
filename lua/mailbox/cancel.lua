#!lua flags=allow-oom
-- purpose: withdraws a message that nobody has taken yet
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers
-- key active (set): the shard's entities with something in their mailbox
-- key scheduled (zset): the shard's scheduled messages by the server milliseconds they are due
-- key later (hash): their envelopes
-- arg member (text): the entity, type:id
-- arg id (text): the message's id
-- returns cancelled: it will have no state effect
-- refuses late: it is taken, handled or dead
-- refuses absent: nobody remembers it
-- repeat: safe, the second time finds nothing
-- include: markers
-- include: mailbox
-- include: scheduled
local field = member .. '\n' .. id
local marker = redis.call('HGET', live, field)
if not marker then
  return { 'absent' }
end
local phase, _, _, rest = read_marker(marker)
if phase == 's' then
  unschedule(scheduled, later, live, string.match(rest, '^%S+ (.*)$'), field)
elseif phase == 'w' then
  local entry = string.match(rest, '^%S+')
  local found = redis.call('XRANGE', mailbox, entry, entry)[1]
  if found then
    take_out(mailbox, live, active, member, entry, #found[2][4])
  end
else
  return { 'late' }
end
redis.call('HDEL', live, field)
return { 'cancelled' }
