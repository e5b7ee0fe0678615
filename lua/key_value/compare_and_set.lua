#!lua
-- purpose: changes a value if it is still the one that was read
-- key store (hash): the partition's values by key
-- arg name (text): the key
-- arg existed (flag): whether it had a value
-- arg expected (bytes): the value that was read
-- arg stays (flag): whether it has one from now on
-- arg value (bytes): the new value
-- returns ok: it is so now
-- refuses changed: somebody else has changed it meanwhile
-- repeat: unsafe, the second time would meet its own change
-- invariant: no change by another is ever overwritten unseen
if redis.call('HGET', store, name) ~= (existed and expected) then
  return { 'changed' }
end
if stays then
  redis.call('HSET', store, name, value)
else
  redis.call('HDEL', store, name)
end
return { 'ok' }
