-- Asked for once: within a batch it is one moment.
local moment
local function server_ms()
  if not moment then
    local time = redis.call('TIME')
    moment = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  return moment
end
