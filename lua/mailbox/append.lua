#!lua
-- purpose: puts a message into an entity's mailbox, once, and wakes the shard's owner
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers of messages that are not handled yet
-- key active (set): the shard's entities with something in their mailbox
-- key fence (hash): the shard's fence
-- key done_a (hash): markers of handled messages, by their window modulo 3
-- key done_b (hash): the same
-- key done_c (hash): the same
-- arg shard (text): the shard, as the nudge names it
-- arg member (text): the entity, type:id
-- arg id (text): the message's id
-- arg message (bytes): the envelope
-- arg class (text): which window remembers it: g generated, k keyed, r relayed
-- arg check (text): what a repeat must say too
-- arg window (integer): milliseconds of the class
-- arg again (flag): it may have been put before
-- arg not_after (integer): server milliseconds after which the markers may have forgotten it; 0: never
-- arg capacity (integer): messages the mailbox may hold
-- arg bytes_limit (integer): bytes the mailbox may hold
-- arg always (flag): nudge although the mailbox was not empty
-- returns appended entry: it is in the mailbox
-- refuses answered reply: it was handled before
-- refuses duplicate: it is there already, or scheduled
-- refuses withdrawn: it was cancelled, or its entity reset
-- refuses conflict: another call was made under this id
-- refuses late: it may be a repeat that nobody remembers
-- refuses full: the mailbox has no room
-- repeat: safe, the marker stops the second one
-- include: clock
-- include: markers
-- include: mailbox
-- invariant: a known id never answers late or full; the mailbox never holds more than its capacity
local now = server_ms()
-- First attempts look too: one that was stuck in a connection may come after its own repeat.
local known = known_answer(recall(live, { done_a, done_b, done_c }, member .. '\n' .. id, now, window), check, again)
if known then
  return known
end
if not_after > 0 and now > not_after then
  return { 'late' }
end
local entry, was_empty = put(mailbox, live, active, member, id, message, class, check, capacity, bytes_limit)
if not entry then
  return { 'full' }
end
if was_empty or always then
  nudge(fence, shard, member, entry, id, class, message)
end
return { 'appended', entry }
