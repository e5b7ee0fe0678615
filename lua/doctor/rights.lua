#!lua flags=allow-oom
-- purpose: tries the commands that scripts run, on a key that is gone when it ends
-- key probe (string): a key nobody else has; it takes each type in turn
-- returns ok refused: the commands this user may not run, with what the server said
-- repeat: safe, it leaves nothing behind
local refused = {}
local function try(name, ...)
  local reply = redis.pcall(name, ...)
  if type(reply) == 'table' and reply.err then
    refused[#refused + 1] = name .. ': ' .. reply.err
  end
end

redis.call('DEL', probe)
try('SET', probe, '1', 'PX', 1000)
try('GET', probe)
try('INCR', probe)
try('EXISTS', probe)
try('PTTL', probe)
try('PEXPIRE', probe, 1000)
try('PEXPIREAT', probe, '9000000000000')
try('PERSIST', probe)
try('TIME')
redis.call('DEL', probe)
try('HSET', probe, 'f', '1')
try('HGET', probe, 'f')
try('HMGET', probe, 'f')
try('HGETALL', probe)
try('HEXISTS', probe, 'f')
try('HLEN', probe)
try('HINCRBY', probe, 'n', 1)
try('HDEL', probe, 'f')
redis.call('DEL', probe)
try('ZADD', probe, 1, 'm')
try('ZRANGEBYSCORE', probe, '-inf', 0)
try('ZRANK', probe, 'm')
try('ZREM', probe, 'm')
redis.call('DEL', probe)
try('XADD', probe, '*', 'k', 'v')
try('XLEN', probe)
try('XRANGE', probe, '-', '+')
try('XGROUP', 'CREATE', probe, 'g', '0')
try('XREADGROUP', 'GROUP', 'g', 'c', 'COUNT', 1, 'STREAMS', probe, '>')
try('XPENDING', probe, 'g')
try('XACK', probe, 'g', '0-1')
try('XDEL', probe, '0-1')
redis.call('DEL', probe)
try('SADD', probe, 'm')
try('SSCAN', probe, '0')
try('SREM', probe, 'm')
redis.call('DEL', probe)
return { 'ok', refused }
