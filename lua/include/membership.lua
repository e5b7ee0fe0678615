-- The version begins at the server's time, so that it grows over a wipe.
local function server_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function grow(version, lifetime)
  if redis.call('EXISTS', version) == 0 then
    redis.call('SET', version, string.format('%.0f', server_ms() * 1000), 'PX', lifetime)
  end
  redis.call('INCR', version)
end

local function prune(members, alive, version, now, lifetime)
  local gone = redis.call('ZRANGEBYSCORE', alive, '-inf', now)
  for _, runner_id in ipairs(gone) do
    redis.call('HDEL', members, runner_id)
    redis.call('ZREM', alive, runner_id)
  end
  if #gone > 0 then
    grow(version, lifetime)
  end
end

local function keep(keys, lifetime)
  for _, key in ipairs(keys) do
    redis.call('PEXPIRE', key, lifetime)
  end
end
