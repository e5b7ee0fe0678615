#!lua flags=no-writes,allow-oom
-- purpose: says whether an owner's fences are still the installed ones
-- arg nonce (text): the owner's nonce
-- each key fence (hash): the shard's fence
-- each arg number (text): the fence the owner holds
-- returns ok: one answer for each shard
-- each returns ok: it is installed
-- each returns fenced: another one is
-- each returns unfenced: this Redis has forgotten the shard's fence
-- repeat: safe, it only reads
-- include: fence
local answers = {}
for place, shard in ipairs(each) do
  answers[place] = { fence_word(shard.fence, shard.number, nonce) }
end
return { 'ok', answers }
