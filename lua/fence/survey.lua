#!lua flags=no-writes,allow-oom
-- purpose: reads the installed fences of shards
-- each key fence (hash): the shard's fence
-- returns ok: one answer for each shard
-- each returns installed number runner ended wants: what is beside the fence, empty text where nothing is
-- each returns bare: no fence was ever installed, or it was forgotten
-- repeat: safe, it only reads
local answers = {}
for place, shard in ipairs(each) do
  local found = redis.call('HMGET', shard.fence, 'f', 'r', 'e', 'w')
  if found[1] then
    answers[place] = { 'installed', found[1], found[2] or '', found[3] or '', found[4] or '' }
  else
    answers[place] = { 'bare' }
  end
end
return { 'ok', answers }
