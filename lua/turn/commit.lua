#!lua flags=allow-oom
-- purpose: ends a turn in one step: state, acknowledgement, reply, sends, and the claim of the next message
-- key fence (hash): the shard's fence
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers of messages that are not handled yet
-- key active (set): the shard's entities with something in their mailbox
-- key entity (hash): the entity's state
-- key outbox (stream): what the shard's entities have sent
-- key done_a (hash): markers of handled messages, by their window modulo 3
-- key done_b (hash): the same
-- key done_c (hash): the same
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg member (text): the entity, type:id
-- arg entry (text): the message's place in the mailbox
-- arg id (text): the message's id
-- arg size (integer): bytes of its envelope
-- arg claimed (flag): it was claimed, and did not come with a nudge
-- arg class (text): which window remembers it
-- arg window (integer): milliseconds of the class
-- arg reply (bytes): what the asker, and whoever repeats the message, gets
-- arg writes (flag): the state has changed
-- arg expected (text): the state's version at the beginning of the turn
-- arg version (text): its version from now on
-- arg schema (integer): the state's schema version
-- arg state (bytes): the encoded state
-- arg after (text): as in mailbox/claim; a minus sign claims nothing
-- arg most (integer): messages the outbox may hold
-- each arg item (bytes): one message to send
-- returns next entry id message class failures deaths pending: done, and here is the next message
-- returns parked: done, and the next message waits durably
-- returns idle: done, and nothing is claimed
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- refuses lost: the message is not there any more, or the state has another version
-- refuses full: the outbox has no room for what was sent
-- repeat: safe, the second time finds its message gone
-- include: clock
-- include: fence
-- include: markers
-- include: mailbox
-- include: claim
-- invariant: a message leaves its mailbox in the same step in which its effects appear
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
-- Marker and entry come and go together; the marker is cheaper to read, and is needed anyway.
local field = member .. '\n' .. id
local check, place = string.match(redis.call('HGET', live, field) or '', '^[wt] %a (%S+) (%S+)')
if place ~= entry then
  return { 'lost' }
end
if (redis.call('HGET', entity, 'v') or '0') ~= expected then
  return { 'lost' }
end
if #each > 0 and redis.call('XLEN', outbox) + #each > most then
  return { 'full' }
end
if writes then
  redis.call('HSET', entity, 'v', version, 's', schema, 'b', state)
end
redis.call('HDEL', live, field)
remember({ done_a, done_b, done_c }, field, 'f ' .. class .. ' ' .. check .. ' ' .. reply, server_ms(), window)
for _, sent in ipairs(each) do
  redis.call('XADD', outbox, '*', 'm', sent.item)
end
if claimed then
  redis.call('XACK', mailbox, 'owner', entry)
end
redis.call('XDEL', mailbox, entry)
weigh(live, member, -size)
if redis.call('XLEN', mailbox) == 0 then
  emptied(mailbox, active, member)
  return { 'idle' }
end
return after ~= '-' and claim_next(mailbox, live, member, after, number, false) or { 'idle' }
