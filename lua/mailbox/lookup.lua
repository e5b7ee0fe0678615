#!lua flags=no-writes,allow-oom
-- purpose: says how far a message has got
-- key live (hash): the shard's markers of messages that are not handled yet
-- key fence (hash): the shard's fence
-- each key done_a (hash): markers of handled messages of one class, by their window modulo 3
-- each key done_b (hash): the same
-- each key done_c (hash): the same
-- each arg window (integer): milliseconds of the class
-- arg member (text): the entity, type:id
-- arg id (text): the message's id
-- returns unknown: nobody remembers it
-- returns waiting: it waits in its mailbox
-- returns parked: its handler waits durably
-- returns scheduled due: it will be delivered at these server milliseconds
-- returns taken runner attempt: a runner has taken it
-- returns answered reply: it was handled
-- returns withdrawn: it was cancelled, or its entity reset
-- returns dead reply: it is a dead letter
-- repeat: safe, it only reads
-- include: clock
-- include: markers
local now, field = server_ms(), member .. '\n' .. id
local marker
for _, class in ipairs(each) do
  marker = recall(live, { class.done_a, class.done_b, class.done_c }, field, now, class.window)
  if marker then
    break
  end
end
if not marker then
  return { 'unknown' }
end
local phase, _, _, rest = read_marker(marker)
if phase == 'f' then
  return { 'answered', rest }
elseif phase == 'x' then
  return { 'withdrawn' }
elseif phase == 'd' then
  return { 'dead', rest }
elseif phase == 'p' then
  return { 'parked' }
elseif phase == 's' then
  return { 'scheduled', string.match(rest, '^%S+') }
elseif phase == 't' then
  local failures, deaths = string.match(rest, '(%d+) (%d+)$')
  return { 'taken', redis.call('HGET', fence, 'r') or '', tostring(failures + deaths + 1) }
end
return { 'waiting' }
