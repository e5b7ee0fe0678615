-- Takes a message out of the schedule; the counter that keeps their order goes with the last one.
local function unschedule(scheduled, later, live, place, field)
  redis.call('ZREM', scheduled, place)
  redis.call('HDEL', later, field)
  if redis.call('EXISTS', scheduled) == 0 then
    redis.call('HDEL', live, '\nplace')
  end
end
