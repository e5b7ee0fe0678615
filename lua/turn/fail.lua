#!lua flags=allow-oom
-- purpose: counts a turn that raised; at the limit the message becomes a dead letter instead
-- key fence (hash): the shard's fence
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers
-- key active (set): the shard's entities with something in their mailbox
-- key dead (hash): the shard's dead letters
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg member (text): the entity, type:id
-- arg entry (text): the message's place in the mailbox
-- arg id (text): the message's id
-- arg most (integer): at how many failures it is buried; 0: now
-- arg record (bytes): what is kept of a dead letter
-- arg reply (bytes): what the asker gets when it is buried
-- returns failed failures: it stays in its place, to be tried again
-- returns buried: it is a dead letter from now on
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- refuses lost: the message is not there any more
-- repeat: unsafe, each call counts
-- include: fence
-- include: mailbox
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
local found = redis.call('XRANGE', mailbox, entry, entry)[1]
if not found or found[2][2] ~= id then
  return { 'lost' }
end
local field = member .. '\n' .. id
local class, check, failures, deaths =
  string.match(redis.call('HGET', live, field) or '', '^%a (%a) (%S+) %S+ %S+ (%d+) (%d+)$')
if not class then
  class, check, failures, deaths = 'g', '-', '0', '0'
end
local now_failed = tonumber(failures) + 1
if now_failed < most then
  redis.call('HSET', live, field, table.concat({ 't', class, check, entry, number, now_failed, deaths }, ' '))
  return { 'failed', tostring(now_failed) }
end
redis.call('HSET', dead, field, record)
redis.call('HSET', live, field, 'd ' .. class .. ' ' .. check .. ' ' .. reply)
take_out(mailbox, live, active, member, entry, #found[2][4])
return { 'buried' }
