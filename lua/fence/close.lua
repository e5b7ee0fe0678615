#!lua flags=allow-oom
-- purpose: notes that fences ended cleanly: what they had begun was finished or given back
-- arg nonce (text): the owner's nonce
-- each key fence (hash): the shard's fence
-- each arg number (text): the fence the owner held
-- returns ok: one answer for each shard
-- each returns ok: noted
-- each refuses fenced: another fence is installed
-- each refuses unfenced: this Redis has forgotten the shard's fence
-- repeat: safe, it notes the same
-- include: fence
local answers = {}
for place, shard in ipairs(each) do
  local word = fence_word(shard.fence, shard.number, nonce)
  if word == 'ok' then
    redis.call('HSET', shard.fence, 'e', shard.number)
  end
  answers[place] = { word }
end
return { 'ok', answers }
