#!lua flags=no-writes,allow-oom
-- purpose: says who holds leases
-- each key lease (string): the shard's lease
-- returns ok: one answer for each lease
-- each returns held owner left: the runner, and the milliseconds left
-- each returns free: nobody
-- repeat: safe, it only reads
local answers = {}
for place, shard in ipairs(each) do
  local owner = redis.call('GET', shard.lease)
  if owner then
    answers[place] = { 'held', owner, redis.call('PTTL', shard.lease) }
  else
    answers[place] = { 'free' }
  end
end
return { 'ok', answers }
