#!lua flags=allow-oom
-- purpose: leases a machine id without a database, with the timestamps its holder may use
-- key machines (hash): machine id to the last reserved server millisecond and the holder's nonce
-- key born (string): server milliseconds at which this Redis first knew of the cluster
-- arg nonce (text): the holder
-- arg span (integer): milliseconds to reserve
-- arg wait (integer): milliseconds after born in which ids of before a wipe may still be in use
-- returns claimed id floor ceiling: it may issue timestamps above floor and up to ceiling
-- returns early left: this Redis is too young, or was wiped; ask again in so many milliseconds
-- refuses none: all 1024 are leased
-- repeat: safe, the first one's reservation ends by itself
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local since = redis.call('GET', born)
if not since then
  since = string.format('%.0f', now)
  redis.call('SET', born, since)
end
local left = tonumber(since) + wait - now
if left > 0 then
  return { 'early', string.format('%.0f', left) }
end
local start = now % 1024
for step = 0, 1023 do
  local id = (start + step) % 1024
  local held = redis.call('HGET', machines, id)
  local reserved = held and tonumber(string.match(held, '^%d+')) or now - 1
  if reserved < now then
    redis.call('HSET', machines, id, string.format('%.0f %s', now + span, nonce))
    return { 'claimed', string.format('%.0f', id), string.format('%.0f', now - 1), string.format('%.0f', now + span) }
  end
end
return { 'none' }
