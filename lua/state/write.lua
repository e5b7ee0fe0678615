#!lua
-- purpose: caches a singleton's state after the database has it
-- key fence (hash): the shard's fence
-- key state (hash): the state
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg version (text): the state's version in the database
-- arg schema (integer): the state's schema version
-- arg content (bytes): the encoded state
-- returns ok: it is the cached state now
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- refuses stale: an equal or newer version is cached
-- repeat: safe, the second time finds itself
-- include: fence
-- invariant: (fence, version) of the cached state only grow
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
local cached = redis.call('HMGET', state, 'f', 'v')
if cached[1] and (is_newer(cached[1], number) or (cached[1] == number and not is_newer(version, cached[2]))) then
  return { 'stale' }
end
redis.call('HSET', state, 'f', number, 'v', version, 's', schema, 'b', content)
return { 'ok' }
