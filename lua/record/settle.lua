#!lua flags=allow-oom
-- purpose: writes the cluster's record if there is none, or if the database's copy overrules what is here
-- key record (string): the record as JSON
-- arg ours (bytes): the record to write
-- arg overrule (flag): replace what is there
-- returns written: ours stands now
-- refuses stands theirs: another one stands
-- repeat: safe, it writes the same
local standing = redis.call('GET', record)
if standing and standing ~= ours and not overrule then
  return { 'stands', standing }
end
redis.call('SET', record, ours)
return { 'written' }
