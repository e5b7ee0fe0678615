-- Needs the locals members, alive, version. Version begins at the server's time, so that it grows over a wipe.
local function server_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function changed()
  if redis.call('EXISTS', version) == 0 then
    redis.call('SET', version, string.format('%.0f', server_ms() * 1000))
  end
  redis.call('INCR', version)
end

local function prune(now)
  local gone = redis.call('ZRANGEBYSCORE', alive, '-inf', now)
  for _, runner_id in ipairs(gone) do
    redis.call('HDEL', members, runner_id)
    redis.call('ZREM', alive, runner_id)
  end
  if #gone > 0 then
    changed()
  end
end

local function keep(ttl)
  for _, key in ipairs({ members, alive, version }) do
    redis.call('PEXPIRE', key, ttl * 10)
  end
end
