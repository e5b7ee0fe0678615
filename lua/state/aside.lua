#!lua flags=allow-oom
-- purpose: keeps a state that could not be decoded aside, where later writes leave it alone
-- key fence (hash): the shard's fence
-- key state (hash): the state
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg version (text): the version that could not be decoded
-- returns ok: it is kept, or another version is here by now
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- repeat: safe, the second time copies the same
-- include: fence
-- invariant: the bytes nobody could decode are lost only to newer ones nobody could decode
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
local here = redis.call('HMGET', state, 'v', 's', 'b')
if here[1] == version then
  redis.call('HSET', state, 'ov', here[1], 'os', here[2], 'ob', here[3])
end
return { 'ok' }
