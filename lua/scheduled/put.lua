#!lua
-- purpose: keeps a message until it is due, once
-- key live (hash): the shard's markers of messages that are not handled yet
-- key scheduled (zset): the shard's scheduled messages by the server milliseconds they are due
-- key later (hash): their envelopes
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
-- arg capacity (integer): messages the mailbox may hold when it is due
-- arg due (integer): server milliseconds
-- returns scheduled: it will be delivered
-- refuses answered reply: it was handled before
-- refuses duplicate: it is scheduled, or in the mailbox already
-- refuses withdrawn: it was cancelled, or its entity reset
-- refuses conflict: another call was made under this id
-- refuses late: it may be a repeat that nobody remembers
-- repeat: safe, the marker stops the second one
-- include: clock
-- include: markers
-- invariant: messages that are due at the same time are delivered in the order in which they came
local now, field = server_ms(), member .. '\n' .. id
local known = known_answer(recall(live, { done_a, done_b, done_c }, field, now, window), check, again)
if known then
  return known
end
if not_after > 0 and now > not_after then
  return { 'late' }
end
local place = string.format('%014.0f', redis.call('HINCRBY', live, '\nplace', 1)) .. ' ' .. field
redis.call('ZADD', scheduled, due, place)
redis.call('HSET', later, field, capacity .. ' ' .. message)
redis.call('HSET', live, field, 's ' .. class .. ' ' .. check .. ' ' .. string.format('%.0f', due) .. ' ' .. place)
if redis.call('ZRANK', scheduled, place) == 0 then
  local inbox = redis.call('HGET', fence, 'i')
  if inbox then
    redis.call('XADD', inbox, 'NOMKSTREAM', 'MAXLEN', '~', 10000, '*', 'k', 't', 's', shard, 'd', string.format('%.0f', due))
  end
end
return { 'scheduled' }
