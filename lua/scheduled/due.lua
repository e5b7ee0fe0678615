#!lua flags=no-writes,allow-oom
-- purpose: lists what is due, oldest first, and says when the next one is
-- key scheduled (zset): the shard's scheduled messages by the server milliseconds they are due
-- key later (hash): their envelopes
-- arg offset (integer): milliseconds a test has moved its clock on
-- arg skip (integer): how many of the oldest to pass over: their mailboxes are full
-- arg most (integer): how many to list
-- returns ok now next items: each item is its place and its stored text; next is empty if there is none
-- repeat: safe, it only reads
-- include: clock
local now = server_ms() + offset
local items = {}
for _, place in ipairs(redis.call('ZRANGEBYSCORE', scheduled, '-inf', string.format('%.0f', now), 'LIMIT', skip, most)) do
  items[#items + 1] = { place, redis.call('HGET', later, string.sub(place, 16)) or '' }
end
local first = redis.call('ZRANGEBYSCORE', scheduled, '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return { 'ok', string.format('%.0f', now), first[2] or '', items }
