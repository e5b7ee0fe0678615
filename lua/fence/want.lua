#!lua flags=allow-oom
-- purpose: notes which types a shard wants served, for the placement of the next owner
-- key fence (hash): the shard's fence
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg wants (text): types with the server milliseconds they were last wanted, type=ms,type=ms
-- returns ok: noted
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- repeat: safe, it notes the same
-- include: fence
local word = fence_word(fence, number, nonce)
if word == 'ok' then
  redis.call('HSET', fence, 'w', wants)
end
return { word }
