#!lua flags=allow-oom
-- purpose: makes or prolongs the streams in which a runner's nudges arrive
-- arg ttl (integer): milliseconds
-- each key inbox (stream): the runner's inbox of this partition
-- returns ok: one answer for each inbox
-- each returns made: it is new, or was lost; read it from the start
-- each returns kept: it is there
-- repeat: safe, it only moves the end
local answers = {}
for place, item in ipairs(each) do
  if redis.call('EXISTS', item.inbox) == 0 then
    redis.call('XGROUP', 'CREATE', item.inbox, 'owner', '$', 'MKSTREAM')
    answers[place] = { 'made' }
  else
    answers[place] = { 'kept' }
  end
  redis.call('PEXPIRE', item.inbox, ttl)
end
return { 'ok', answers }
