#!lua flags=allow-oom
-- purpose: moves a message that is due into its mailbox
-- key fence (hash): the shard's fence
-- key scheduled (zset): the shard's scheduled messages by the server milliseconds they are due
-- key later (hash): their envelopes
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers of messages that are not handled yet
-- key active (set): the shard's entities with something in their mailbox
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg place (text): the message's member in scheduled
-- arg member (text): the entity, type:id
-- arg id (text): the message's id
-- arg message (bytes): the envelope
-- arg capacity (integer): messages the mailbox may hold
-- arg bytes_limit (integer): bytes the mailbox may hold
-- returns promoted: it is in the mailbox
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- refuses absent: it was promoted or cancelled meanwhile
-- refuses full: the mailbox has no room; it stays scheduled
-- repeat: safe, the second time finds it gone
-- include: fence
-- include: markers
-- include: mailbox
-- include: scheduled
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
local field = member .. '\n' .. id
local marker = redis.call('HGET', live, field)
local phase, class, check
if marker then
  phase, class, check = read_marker(marker)
end
if phase ~= 's' then
  return { 'absent' }
end
if not put(mailbox, live, active, member, id, message, class, check, capacity, bytes_limit) then
  return { 'full' }
end
unschedule(scheduled, later, live, place, field)
return { 'promoted' }
