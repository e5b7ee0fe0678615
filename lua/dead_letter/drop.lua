#!lua flags=allow-oom
-- purpose: forgets a dead letter
-- key dead (hash): the shard's dead letters
-- key live (hash): the shard's markers
-- arg member (text): the entity, type:id
-- arg id (text): the message's id
-- returns dropped: nothing is left of it
-- refuses absent: there is no such dead letter
-- repeat: safe, the second time finds none
local field = member .. '\n' .. id
if redis.call('HDEL', dead, field) == 0 then
  return { 'absent' }
end
redis.call('HDEL', live, field)
return { 'dropped' }
