#!lua
-- purpose: puts a dead letter back into its mailbox, as if it had never been tried
-- key dead (hash): the shard's dead letters
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers of messages that are not handled yet
-- key active (set): the shard's entities with something in their mailbox
-- key fence (hash): the shard's fence
-- arg shard (text): the shard, as the nudge names it
-- arg member (text): the entity, type:id
-- arg id (text): the message's id
-- arg message (bytes): the envelope
-- arg capacity (integer): messages the mailbox may hold
-- arg bytes_limit (integer): bytes the mailbox may hold
-- returns replayed: it waits again
-- refuses absent: there is no such dead letter
-- refuses full: the mailbox has no room
-- repeat: safe, the second time finds none
-- include: markers
-- include: mailbox
local field = member .. '\n' .. id
if redis.call('HEXISTS', dead, field) == 0 then
  return { 'absent' }
end
local marker = redis.call('HGET', live, field)
local class, check = 'g', '-'
if marker then
  local _
  _, class, check = read_marker(marker)
end
local entry = put(mailbox, live, active, member, id, message, class, check, capacity, bytes_limit)
if not entry then
  return { 'full' }
end
redis.call('HDEL', dead, field)
nudge(fence, shard, member, entry, id, class, message)
return { 'replayed' }
