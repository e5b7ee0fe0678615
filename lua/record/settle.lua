#!lua flags=allow-oom
-- purpose: writes the cluster's record, if what stands there is still what the writer has seen
-- key record (string): the record as JSON
-- arg ours (bytes): the record to write
-- arg seen (bytes): what it replaces; empty: it is the first
-- returns written: ours stands now
-- refuses stands theirs: another one stands
-- repeat: safe, it writes the same
local standing = redis.call('GET', record)
if standing and standing ~= ours and standing ~= seen then
  return { 'stands', standing }
end
redis.call('SET', record, ours)
return { 'written' }
