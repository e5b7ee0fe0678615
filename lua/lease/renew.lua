#!lua flags=allow-oom
-- purpose: prolongs leases the runner still holds
-- arg runner (text): who holds them
-- arg ttl (integer): milliseconds
-- each key lease (string): the shard's lease
-- returns ok: one answer for each lease
-- each returns renewed: it is the runner's for ttl from now
-- each refuses lost: it has expired or is somebody else's
-- repeat: safe, it only moves the end
local answers = {}
for place, shard in ipairs(each) do
  if redis.call('GET', shard.lease) == runner then
    redis.call('PEXPIRE', shard.lease, ttl)
    answers[place] = { 'renewed' }
  else
    answers[place] = { 'lost' }
  end
end
return { 'ok', answers }
