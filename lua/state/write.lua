#!lua
-- purpose: writes a singleton's state: the copy of what the database has, or the state itself without one
-- key fence (hash): the shard's fence
-- key state (hash): the state
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg version (text): the state's version
-- arg schema (integer): the state's schema version
-- arg content (bytes): the encoded state
-- arg age (integer): milliseconds since it was saved
-- arg keep (integer): milliseconds until it may go if nobody serves it; 0: never
-- returns ok: it is the state here now
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- refuses stale: an equal or newer version is here
-- repeat: safe, the second time finds itself
-- include: fence
-- include: clock
-- invariant: (fence, version) of the state only grow
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
local cached = redis.call('HMGET', state, 'f', 'v')
if cached[1] and (is_newer(cached[1], number) or (cached[1] == number and not is_newer(version, cached[2]))) then
  return { 'stale' }
end
redis.call('HSET', state, 'f', number, 'v', version, 's', schema, 'b', content, 't', server_ms() - age)
if keep > 0 then
  redis.call('PEXPIRE', state, keep)
else
  redis.call('PERSIST', state)
end
return { 'ok' }
