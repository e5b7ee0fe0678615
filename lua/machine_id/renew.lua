#!lua flags=allow-oom
-- purpose: reserves further timestamps for a machine id's holder, or gives the id back
-- key machines (hash): machine id to the last reserved server millisecond and the holder's nonce
-- arg id (integer): the machine id
-- arg nonce (text): the holder
-- arg span (integer): milliseconds to reserve from now
-- returns renewed ceiling: timestamps up to it may be issued
-- refuses lost: the id has another holder, or this Redis has forgotten it
-- repeat: safe, it only moves the end
local held = redis.call('HGET', machines, id)
if not held or string.match(held, ' (.*)$') ~= nonce then
  return { 'lost' }
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ceiling = math.max(now + span, tonumber(string.match(held, '^%d+')))
redis.call('HSET', machines, id, string.format('%.0f %s', ceiling, nonce))
return { 'renewed', string.format('%.0f', ceiling) }
