#!lua flags=allow-oom
-- purpose: forgets what waits for an entity, in steps of a hundred messages; and its state, if asked
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers
-- key active (set): the shard's entities with something in their mailbox
-- key entity (hash): the entity's state
-- key scheduled (zset): the shard's scheduled messages and wake-ups by the server milliseconds they are due
-- each key done_a (hash): markers of handled messages of one class, by their window modulo 3
-- each key done_b (hash): the same
-- each key done_c (hash): the same
-- each arg kind (text): the class
-- each arg window (integer): its milliseconds
-- arg member (text): the entity, type:id
-- arg with_state (flag): the state too
-- returns more: there are further messages
-- returns done: nothing is left
-- repeat: safe, it goes on where it was
-- include: clock
-- include: markers
-- include: parking
local entries = redis.call('XRANGE', mailbox, '-', '+', 'COUNT', 100)
local function place_of(kind)
  for _, class in ipairs(each) do
    if class.kind == kind then
      return { class.done_a, class.done_b, class.done_c }, class.window
    end
  end
end
local now = server_ms()
for _, entry in ipairs(entries) do
  local field = member .. '\n' .. entry[2][2]
  local phase, kind, check = read_marker(redis.call('HGET', live, field) or 'w g - ')
  if phase == 'p' then
    unpark(scheduled, live, field)
  end
  local done, window = place_of(kind)
  withdraw(live, done, field, kind, check, now, window)
  redis.call('XDEL', mailbox, entry[1])
end
if redis.call('XLEN', mailbox) > 0 then
  return { 'more' }
end
redis.call('DEL', mailbox)
redis.call('HDEL', live, member .. '\n')
redis.call('SREM', active, member)
if with_state then
  redis.call('DEL', entity)
end
return { 'done' }
