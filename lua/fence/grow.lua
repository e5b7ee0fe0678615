#!lua flags=allow-oom
-- purpose: grants and installs fences without a database: above the last one and not below the server's clock
-- arg runner (text): the new owner
-- arg nonce (text): the new owner's nonce
-- arg inbox (text): where its nudges arrive
-- arg colocated (flag): the leases are in this Redis, so their owner is checked here
-- each key lease (string): the shard's lease
-- each key fence (hash): the shard's fence
-- returns ok: one answer for each shard
-- each returns installed number: the new fence
-- each refuses lost: the lease is not the runner's any more
-- repeat: safe, the second time grants a greater one
-- invariant: while this Redis forgets nothing, fences only grow
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local answers = {}
for place, shard in ipairs(each) do
  if colocated and redis.call('GET', shard.lease) ~= runner then
    answers[place] = { 'lost' }
  else
    local last = tonumber(redis.call('HGET', shard.fence, 'f') or '0')
    local number = string.format('%.0f', math.max(last + 1, now))
    redis.call('HSET', shard.fence, 'f', number, 'n', nonce, 'r', runner, 'i', inbox)
    answers[place] = { 'installed', number }
  end
end
return { 'ok', answers }
