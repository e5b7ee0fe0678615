#!lua flags=allow-oom
-- purpose: removes what was delivered from the outbox
-- key fence (hash): the shard's fence
-- key outbox (stream): what the shard's entities have sent
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- each arg entry (text): the place in the outbox
-- returns removed: none of them is there any more
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- repeat: safe, the second time finds nothing
-- include: fence
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
for _, sent in ipairs(each) do
  redis.call('XDEL', outbox, sent.entry)
end
return { 'removed' }
