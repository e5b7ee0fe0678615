#!lua flags=allow-oom
-- purpose: takes the leases of shards that are free, and prolongs those the runner holds already
-- arg runner (text): who takes them
-- arg ttl (integer): milliseconds
-- each key lease (string): the shard's lease
-- returns ok: one answer for each lease
-- each returns taken: it is the runner's for ttl from now
-- each refuses held owner: somebody else has it
-- repeat: safe, the second time finds its own name
-- invariant: a lease names one runner until it expires or that runner releases it
local answers = {}
for place, shard in ipairs(each) do
  local owner = redis.call('GET', shard.lease)
  if not owner or owner == runner then
    redis.call('SET', shard.lease, runner, 'PX', ttl)
    answers[place] = { 'taken' }
  else
    answers[place] = { 'held', owner }
  end
end
return { 'ok', answers }
