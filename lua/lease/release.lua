#!lua flags=allow-oom
-- purpose: gives leases back, if they are the runner's
-- arg runner (text): who holds them
-- each key lease (string): the shard's lease
-- returns ok: one answer for each lease
-- each returns released: it is free now
-- each refuses absent: it was not the runner's
-- repeat: safe, a lease that is gone or taken is left alone
-- invariant: the fence stays; without it a stale owner's write would meet no guard
local answers = {}
for place, shard in ipairs(each) do
  if redis.call('GET', shard.lease) == runner then
    redis.call('DEL', shard.lease)
    answers[place] = { 'released' }
  else
    answers[place] = { 'absent' }
  end
end
return { 'ok', answers }
