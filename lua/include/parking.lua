-- A parked message's wake-up stands among the scheduled ones, in a place that no scheduled message has: they count
-- from 1. The nameless-like field '\nparked' of `live` counts them.
local function wake_place(field)
  return '00000000000000 ' .. field
end

local function count_parked(live, change)
  if redis.call('HINCRBY', live, '\nparked', change) <= 0 then
    redis.call('HDEL', live, '\nparked')
  end
end

local function unpark(scheduled, live, field)
  redis.call('ZREM', scheduled, wake_place(field))
  count_parked(live, -1)
  if redis.call('EXISTS', scheduled) == 0 then
    redis.call('HDEL', live, '\nplace')
  end
end
