#!lua flags=allow-oom
-- purpose: removes the empty mailbox of an entity that leaves memory; append makes it again
-- key fence (hash): the shard's fence
-- key mailbox (stream): the entity's mailbox
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- returns gone: there is no mailbox any more
-- refuses busy: something waits in it
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- repeat: safe, the second time finds nothing
-- include: fence
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
if redis.call('XLEN', mailbox) > 0 then
  return { 'busy' }
end
redis.call('DEL', mailbox)
return { 'gone' }
