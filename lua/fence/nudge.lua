#!lua flags=allow-oom
-- purpose: tells the shard's owner that something came for what it runs
-- key fence (hash): the shard's fence
-- arg shard (text): the shard, as the nudge names it
-- arg subject (text): for whom
-- returns told: it is in the owner's inbox
-- refuses absent: nobody owns the shard, or its inbox is gone
-- repeat: safe, it is told twice
local inbox = redis.call('HGET', fence, 'i')
if not inbox then
  return { 'absent' }
end
if not redis.call('XADD', inbox, 'NOMKSTREAM', 'MAXLEN', '~', 10000, '*', 'k', 'w', 's', shard, 'e', subject) then
  return { 'absent' }
end
return { 'told' }
