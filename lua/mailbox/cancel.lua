#!lua flags=allow-oom
-- purpose: withdraws a message that nobody has taken yet, or that is parked
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers
-- key active (set): the shard's entities with something in their mailbox
-- key scheduled (zset): the shard's scheduled messages by the server milliseconds they are due
-- key later (hash): their envelopes
-- each key done_a (hash): markers of handled messages of one class, by their window modulo 3
-- each key done_b (hash): the same
-- each key done_c (hash): the same
-- each arg kind (text): the class
-- each arg window (integer): its milliseconds
-- arg member (text): the entity, type:id
-- arg id (text): the message's id
-- returns cancelled: it will have no state effect
-- refuses late: it is taken, handled or dead
-- refuses absent: nobody remembers it
-- repeat: safe, the second time finds it withdrawn
-- include: clock
-- include: markers
-- include: mailbox
-- include: scheduled
-- include: parking
local field = member .. '\n' .. id
local function place_of(kind)
  for _, class in ipairs(each) do
    if class.kind == kind then
      return { class.done_a, class.done_b, class.done_c }, class.window
    end
  end
end
local now = server_ms()
local marker
for _, class in ipairs(each) do
  marker = marker or recall(live, { class.done_a, class.done_b, class.done_c }, field, now, class.window)
end
if not marker then
  return { 'absent' }
end
local phase, kind, check, rest = read_marker(marker)
if phase == 'x' then
  return { 'cancelled' }
end
if phase == 's' then
  unschedule(scheduled, later, live, string.match(rest, '^%S+ (.*)$'), field)
elseif phase == 'w' or phase == 'p' then
  if phase == 'p' then
    unpark(scheduled, live, field)
    redis.call('SADD', active, member)
  end
  local entry = string.match(rest, '^%S+')
  local found = redis.call('XRANGE', mailbox, entry, entry)[1]
  if found then
    take_out(mailbox, live, active, member, entry, #found[2][4])
  end
else
  return { 'late' }
end
local done, window = place_of(kind)
withdraw(live, done, field, kind, check, now, window)
return { 'cancelled' }
