#!lua flags=allow-oom
-- purpose: forgets what waits for an entity, in steps of a hundred messages; and its state, if asked
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers
-- key active (set): the shard's entities with something in their mailbox
-- key entity (hash): the entity's state
-- arg member (text): the entity, type:id
-- arg with_state (flag): the state too
-- returns more: there are further messages
-- returns done: nothing is left
-- repeat: safe, it goes on where it was
local entries = redis.call('XRANGE', mailbox, '-', '+', 'COUNT', 100)
for _, entry in ipairs(entries) do
  redis.call('HDEL', live, member .. '\n' .. entry[2][2])
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
