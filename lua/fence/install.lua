#!lua flags=allow-oom
-- purpose: makes granted fences the ones that writes must present, for shards whose lease is still the runner's
-- arg runner (text): the new owner
-- arg nonce (text): the new owner's nonce
-- arg inbox (text): where its nudges arrive
-- arg colocated (flag): the leases are in this Redis, so their owner is checked here
-- each key lease (string): the shard's lease
-- each key fence (hash): the shard's fence
-- each arg number (text): the fence granted by the register
-- returns ok: one answer for each shard
-- each returns installed: every older fence is refused from now on
-- each refuses lost: the lease is not the runner's any more
-- each refuses behind stored: this Redis has an equal or newer fence; grant again above it
-- repeat: safe, the same fence with the same nonce is installed already
-- include: fence
-- invariant: an installed fence is replaced by a greater one only
local answers = {}
for place, shard in ipairs(each) do
  local stored = redis.call('HMGET', shard.fence, 'f', 'n')
  if colocated and redis.call('GET', shard.lease) ~= runner then
    answers[place] = { 'lost' }
  elseif stored[1] == shard.number and stored[2] == nonce then
    answers[place] = { 'installed' }
  elseif stored[1] and not is_newer(shard.number, stored[1]) then
    answers[place] = { 'behind', stored[1] }
  else
    redis.call('HSET', shard.fence, 'f', shard.number, 'n', nonce, 'r', runner, 'i', inbox)
    answers[place] = { 'installed' }
  end
end
return { 'ok', answers }
